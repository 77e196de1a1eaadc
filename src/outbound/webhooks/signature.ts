import { createHmac } from 'node:crypto'

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

/** Returns the HMAC key of a secret: `whsec_` followed by base64 is decoded, other texts are used as bytes. */
export function keyOf(secret: string): Buffer {
  const encoded = secret.startsWith(PREFIX) ? secret.slice(PREFIX.length) : ''
  return encoded.length >= BASE64_LENGTH_MIN && BASE64.test(encoded)
    ? Buffer.from(encoded, 'base64')
    : Buffer.from(secret)
}

/** Returns the webhook-signature header: one `v1,<base64>` per secret in the given order, newest first. */
export function sign(
  { id, timestampSeconds, body }: { id: string; timestampSeconds: number; body: string },
  secrets: readonly string[],
): string {
  const signed = `${id}.${timestampSeconds}.${body}`
  return secrets.map((secret) => `v1,${createHmac('sha256', keyOf(secret)).update(signed).digest('base64')}`).join(' ')
}
