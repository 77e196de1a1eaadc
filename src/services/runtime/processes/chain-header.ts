/** Header in which the guest code sends the chain token to the program's egress, which removes it. */
export const CHAIN_TOKEN_HEADER = 'x-pilothouse-mark'
