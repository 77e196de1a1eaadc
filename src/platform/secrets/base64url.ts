import { encodeBase64Url } from 'hono/utils/encode'

/** Without padding, as tokens and keys are written. */
export const base64Url = (bytes: ArrayBuffer): string => encodeBase64Url(bytes).replace(/=+$/, '')
