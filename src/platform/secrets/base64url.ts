import { encodeBase64Url } from 'hono/utils/encode'

/** Base64url without padding, as in tokens and keys. */
export const base64Url = (bytes: ArrayBuffer): string => encodeBase64Url(bytes).replace(/=+$/, '')
