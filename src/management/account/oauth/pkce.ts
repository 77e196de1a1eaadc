import { createHash } from 'node:crypto'
import { isSameSecret } from '../../../platform/secrets/equal.ts'

/** RFC 7636. */
export interface Challenge {
  value: string
  method: 'plain' | 'S256'
}

const VERIFIER = /^[\w.~-]{43,128}$/
const SHA256 = /^[\w-]{43}$/

interface Sent {
  code_challenge?: string | undefined
  code_challenge_method?: string | undefined
}

/** Undefined where none was sent; a text says what is wrong with it. */
export function readChallenge({
  code_challenge: value,
  code_challenge_method: sent,
}: Sent): Challenge | string | undefined {
  if (value === undefined) return sent === undefined ? undefined : 'code_challenge is missing'
  // Without a method it is plain (4.3).
  const method = sent === 'sha256' ? 'S256' : (sent ?? 'plain')
  if (method !== 'S256' && method !== 'plain') return 'code_challenge_method must be S256 or plain'
  if (!(method === 'S256' ? SHA256 : VERIFIER).test(value)) return `code_challenge has not the form of ${method}`
  return { value, method }
}

/** Whether who brings the code is who asked for it. Without a challenge there must be no verifier either: it was cut out then. */
export function proves(verifier: string | undefined, challenge: Challenge | undefined): boolean {
  if (!challenge || verifier === undefined) return !challenge && verifier === undefined
  if (!VERIFIER.test(verifier)) return false
  const made = challenge.method === 'S256' ? createHash('sha256').update(verifier).digest('base64url') : verifier
  return isSameSecret(made, challenge.value)
}
