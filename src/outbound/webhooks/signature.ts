/** Signatures by the Standard Webhooks specification: HMAC-SHA256 over `<id>.<timestamp>.<body>`. */
const PREFIX = 'whsec_'
const PRINTABLE = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/
/** The rules of signing secrets as JSON Schema. */
export const SECRET_RULES = { minLength: 8, maxLength: 64, pattern: PRINTABLE.source }
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/
/** The official libraries do not decode shorter texts as base64. */
const BASE64_LENGTH_MIN = 4

/** Returns the problem of a signing secret for the API error; undefined if it is valid. */
export function secretProblem(secret: string): string | undefined {
  const length = [...secret].length
  const { minLength, maxLength } = SECRET_RULES
  if (length < minLength || length > maxLength) return `must have ${minLength} to ${maxLength} characters`
  // For non-ASCII secrets the official libraries disagree on the bytes, so receivers could not verify signatures.
  if (!PRINTABLE.test(secret))
    return 'must consist of printable ASCII characters and must not start or end with a space'
  return undefined
}

/** Returns the HMAC key of a secret: `whsec_` followed by base64 is decoded, other texts are used as bytes. Never empty. */
export function keyOf(secret: string): Uint8Array {
  const encoded = secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : ''
  if (encoded.length >= BASE64_LENGTH_MIN && BASE64.test(encoded)) return decode(encoded.replace(/=+$/, ''))
  // WebCrypto rejects an empty key. HMAC pads keys with zero bytes, so this key gives the same signatures.
  return secret === '' ? new Uint8Array(1) : new TextEncoder().encode(secret)
}

/** Returns the webhook-signature header: one `v1,<base64>` per secret in the given order, newest first. */
export async function sign(
  message: { id: string; timestampSeconds: number; body: string },
  secrets: readonly string[],
): Promise<string> {
  const signed = new TextEncoder().encode(`${message.id}.${message.timestampSeconds}.${message.body}`)
  const signatures = await Promise.all(secrets.map((secret) => hmac(keyOf(secret), signed)))
  return signatures.map((signature) => `v1,${btoa(String.fromCharCode(...signature))}`).join(' ')
}

async function hmac(key: Uint8Array, data: Uint8Array): Promise<Uint8Array> {
  const imported = await crypto.subtle.importKey('raw', key, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign'])
  return new Uint8Array(await crypto.subtle.sign('HMAC', imported, data))
}

function decode(digits: string): Uint8Array {
  // A single digit after groups of four does not encode a byte: the libraries drop it, but atob would throw.
  const whole = digits.length % 4 === 1 ? digits.slice(0, -1) : digits
  return Uint8Array.from(atob(whole), (char) => char.charCodeAt(0))
}
