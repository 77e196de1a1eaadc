import { sha256Of } from '../platform/secrets/digest.ts'

/** Format that public clients check before they send a token: `sbp_` or `sbp_oauth_` and 40 hex digits. */
const ACCESS_TOKEN = /^sbp_(oauth_)?[0-9a-f]{40}$/

export const isAccessToken = (text: string): boolean => ACCESS_TOKEN.test(text)

/** Random bytes in hex; 20 bytes are 160 bits. */
export const randomHex = (bytes = 20): string =>
  Buffer.from(crypto.getRandomValues(new Uint8Array(bytes))).toString('hex')

export const newAccessToken = (prefix: 'sbp_' | 'sbp_oauth_' = 'sbp_'): string => prefix + randomHex()

/** SHA-256 in hex, which is stored instead of the token. A token has 160 random bits, so it needs no salt. */
export const hashToken = (token: string): Promise<string> => sha256Of(token)
