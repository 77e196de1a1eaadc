/**
 * Programs that call programs. What one call from outside leads to is a chain, and a chain is bounded, so that programs which call each other
 * without end come to one. A program gets a mark with each of its calls, which says in which chain that call is and how deep, and sends it with
 * what it calls itself; only we can make one. Who sends none is taken for the deepest of its calls.
 */
import { createHmac } from 'node:crypto'
import { setNewest } from '../../../platform/bounded-map.ts'
import { isSameSecret } from '../../../platform/secrets/equal.ts'

/** Where a call stands: which call from outside has led to it, over how many other programs. */
export interface Cause {
  chain: string
  hops: number
}

const HOPS_MAX = 32
/** Calls of programs by programs in one chain. */
const CALLS_MAX = 1_000
const CALLS_MS = 60_000
const DEEPEST_MS = 60_000
const KEPT_MAX = 10_000

interface TokenOwner {
  /** The program that has been called, and now calls. */
  programId: string
  /** Of the installation. */
  secret: string
}

export const signChainToken = (of: TokenOwner, { chain, hops }: Cause): string =>
  `${chain}.${hops}.${signed(of, chain, hops)}`

const signed = ({ programId, secret }: TokenOwner, chain: string, hops: number): string =>
  createHmac('sha256', secret).update(`mark ${programId} ${chain} ${hops}`).digest('base64url')

/** Where a call stands that the program makes. */
export function readCause(by: TokenOwner, chainToken: string | null): Cause {
  const [chain = '', hops = '', signature = ''] = chainToken?.split('.') ?? []
  const isOurs = isSameSecret(signature, signed(by, chain, Number(hops)))
  const { chain: led, hops: before } = isOurs ? { chain, hops: Number(hops) } : deepestOf(by.programId)
  return { chain: led, hops: before + 1 }
}

interface Counted {
  at: number
}
/** By program, the deepest of its calls by other programs lately. */
const deepest = new Map<string, Counted & Cause>()
/** By chain, in its minute. */
const counts = new Map<string, Counted & { calls: number }>()

function deepestOf(programId: string): Cause {
  const known = deepest.get(programId)
  return known && Date.now() - known.at < DEEPEST_MS ? known : { chain: programId, hops: 0 }
}

/** Counts a call of the program. False where its chain has come to its end. */
export function admitToChain(programId: string, { chain, hops }: Cause): boolean {
  if (hops === 0) return true
  const now = Date.now()
  const known = counts.get(chain)
  const count = known && now - known.at < CALLS_MS ? known : { at: now, calls: 0 }
  count.calls += 1
  if (count !== known) setNewest(counts, chain, count, KEPT_MAX)
  if (hops > HOPS_MAX || count.calls > CALLS_MAX) return false
  if (hops > deepestOf(programId).hops) setNewest(deepest, programId, { at: now, chain, hops }, KEPT_MAX)
  return true
}
