import { createHash } from 'node:crypto'
import { isSameSecret } from '../../../platform/secrets/equal.ts'

/** Code challenge of PKCE (RFC 7636). */
export interface Challenge {
  value: string
  method: 'plain' | 'S256'
}

const VERIFIER = /^[\w.~-]{43,128}$/
const SHA256 = /^[\w-]{43}$/

interface SentChallenge {
  code_challenge?: string | undefined
  code_challenge_method?: string | undefined
}

/** Reads the challenge; undefined if none was sent, a string with the error if it is invalid. */
export function readChallenge({
  code_challenge: value,
  code_challenge_method: sent,
}: SentChallenge): Challenge | string | undefined {
  if (value === undefined) return sent === undefined ? undefined : 'code_challenge is missing'
  // The default method is plain (4.3).
  const method = sent === 'sha256' ? 'S256' : (sent ?? 'plain')
  if (method !== 'S256' && method !== 'plain') return 'code_challenge_method must be S256 or plain'
  if (!(method === 'S256' ? SHA256 : VERIFIER).test(value)) return `code_challenge is not a valid ${method} challenge`
  return { value, method }
}

/** Checks the verifier against the challenge. A verifier without a challenge fails: somebody removed the challenge from the request. */
export function matchesChallenge(verifier: string | undefined, challenge: Challenge | undefined): boolean {
  if (!challenge || verifier === undefined) return !challenge && verifier === undefined
  if (!VERIFIER.test(verifier)) return false
  const expected = challenge.method === 'S256' ? createHash('sha256').update(verifier).digest('base64url') : verifier
  return isSameSecret(expected, challenge.value)
}
