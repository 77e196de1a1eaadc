/** Under this name the mark of a call leaves a program; its way out takes it off. */
export const CHAIN_TOKEN_HEADER = 'x-pilothouse-mark'
