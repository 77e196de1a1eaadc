/**
 * Chains of calls between programs, bounded so that programs which call each other in a loop are stopped. A call from
 * outside starts a chain. Each call carries a signed token with its chain and depth, which the program sends with its
 * own calls. A call without a valid token counts as caused by the deepest recent call of its program.
 */
import { hash } from 'node:crypto'
import { BoundedMap } from '../../../platform/bounded-map.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'

/** The call from outside that caused a call, and the number of programs in between. */
export interface Cause {
  chain: string
  hops: number
}

const HOPS_MAX = 32
/** Calls between programs in one chain and minute. */
const CALLS_MAX = 1_000
const CALLS_MS = 60_000
const DEEPEST_MS = 60_000
const ENTRIES_MAX = 10_000

interface TokenOwner {
  /** The called program, which sends the token with its own calls. */
  programId: string
  /** Encryption key of the installation. */
  secret: string
}

export const signChainToken = (of: TokenOwner, { chain, hops }: Cause): string =>
  `${chain}.${hops}.${sign(of, chain, hops)}`

/**
 * SHA-512/256 cannot be extended, so the secret before the text is enough. Each call is signed, and an HMAC object would
 * take twice the time.
 */
const sign = ({ programId, secret }: TokenOwner, chain: string, hops: number): string =>
  hash('sha512-256', `${secret} mark ${programId} ${chain} ${hops}`, 'base64url')

/** Returns the cause of a call that the program makes. */
export function readCause(by: TokenOwner, chainToken: string | null): Cause {
  const [chain = '', hops = '', signature = ''] = chainToken?.split('.') ?? []
  const isOurs = isSameSecret(signature, sign(by, chain, Number(hops)))
  const { chain: causing, hops: before } = isOurs ? { chain, hops: Number(hops) } : deepestOf(by.programId)
  return { chain: causing, hops: before + 1 }
}

interface Counted {
  at: number
}
/** Deepest recent call by another program, by called program. */
const deepest = new BoundedMap<string, Counted & Cause>(ENTRIES_MAX)
/** Number of calls in the current minute, by chain. */
const counts = new BoundedMap<string, Counted & { calls: number }>(ENTRIES_MAX)

function deepestOf(programId: string): Cause {
  const known = deepest.get(programId)
  return known && Date.now() - known.at < DEEPEST_MS ? known : { chain: programId, hops: 0 }
}

/** Counts a call of the program in its chain. Returns false if the chain is too deep or too long. */
export function admitToChain(programId: string, { chain, hops }: Cause): boolean {
  if (hops === 0) return true
  const now = Date.now()
  const known = counts.get(chain)
  const count = known && now - known.at < CALLS_MS ? known : { at: now, calls: 0 }
  count.calls += 1
  if (count !== known) counts.set(chain, count)
  if (hops > HOPS_MAX || count.calls > CALLS_MAX) return false
  if (hops > deepestOf(programId).hops) deepest.set(programId, { at: now, chain, hops })
  return true
}
