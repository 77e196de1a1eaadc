/** Format that public clients check before they send a token: `sbp_` or `sbp_oauth_` and 40 hex digits. */
const ACCESS_TOKEN = /^sbp_(oauth_)?[0-9a-f]{40}$/

export const isAccessToken = (text: string): boolean => ACCESS_TOKEN.test(text)

const hex = (bytes: Uint8Array) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')

/** Random bytes in hex; 20 bytes are 160 bits. */
export const randomHex = (bytes = 20): string => hex(crypto.getRandomValues(new Uint8Array(bytes)))

export const newAccessToken = (prefix: 'sbp_' | 'sbp_oauth_' = 'sbp_'): string => prefix + randomHex()

/** SHA-256 in hex, which is stored instead of the token. A token has 160 random bits, so it needs no salt. */
export async function hashToken(token: string): Promise<string> {
  return hex(new Uint8Array(await crypto.subtle.digest('SHA-256', new TextEncoder().encode(token))))
}
