import type { Bindings } from '../bindings.ts'
import type { PlatformCtx } from '../context.ts'
import { parseAddress } from '../net/ip-addresses.ts'
import type { Decision, Rule } from './rule.ts'

const minute = (name: string, requests: number): Rule => ({ name, requests, windowMs: 60_000 })

/** The specification's limits (Limits 1); a stricter one (Limits 3) becomes a row here with its endpoint, which names it. */
const LIMITS = {
  standard: [minute('standard', 120)],
  databaseContext: [
    minute('standard', 120),
    minute('database context', 10),
    { name: 'database context now', requests: 1, windowMs: 1_000 },
  ],
  customHostnameInitialize: [minute('standard', 120), minute('custom hostname initialize', 10)],
  customHostnameReverify: [minute('standard', 120), minute('custom hostname reverify', 10)],
  customHostnameDelete: [minute('standard', 120), minute('custom hostname delete', 10)],
  vanitySubdomainGet: [minute('standard', 120), minute('vanity subdomain get', 10)],
  vanitySubdomainDelete: [minute('standard', 120), minute('vanity subdomain delete', 10)],
  vanitySubdomainCheck: [minute('standard', 120), minute('vanity subdomain check', 10)],
  vanitySubdomainActivate: [minute('standard', 120), minute('vanity subdomain activate', 10)],
  logs: [minute('standard', 120), minute('logs', 30)],
  apiCounts: [minute('standard', 120), minute('api counts', 30)],
  requestCount: [minute('standard', 120), minute('request count', 30)],
  webhookTest: [minute('standard', 120), minute('webhook test', 10)],
  webhookRetry: [minute('standard', 120), minute('webhook retry', 10)],
} satisfies Record<string, readonly Rule[]>
export type Limit = keyof typeof LIMITS

/** Of strangers, beside `none`: those with tokens that are not known, so that who sends none shuts out nobody's token. */
export const WRONG_TOKENS = 'wrong tokens'

interface Addressed {
  var: { ctx: Pick<PlatformCtx, 'config'> }
  req: { header(name: string): string | undefined }
}

/** The caller's network address, where a trusted server in front tells it. */
export function addressOf(c: Addressed): string | undefined {
  const { CLIENT_ADDRESS_HEADER: header } = c.var.ctx.config
  return header && c.req.header(header)
}

/** The same, of a request that a handler has the headers of. */
export function addressIn({ config }: Pick<PlatformCtx, 'config'>, headers: Headers): string | undefined {
  const { CLIENT_ADDRESS_HEADER: header } = config
  return (header && headers.get(header)) || undefined
}

interface LimitedCaller {
  userId: string
  appId?: string
  organizationId?: string
}

/**
 * The specification's order: OAuth application, else user, else address. An application is counted in each organization for
 * itself: who approves it in his own must not use up what its users have elsewhere.
 */
export function limitCaller(caller: LimitedCaller | undefined, address: string | undefined): string {
  if (caller?.appId) return `app ${caller.appId} ${caller.organizationId ?? ''}`
  if (caller) return `user ${caller.userId}`
  return `address ${address === undefined ? 'unknown' : networkOf(address)}`
}

/** Whoever has one address of IPv6 has the 2^64 beside it too. */
function networkOf(address: string): string {
  const bytes = address.includes(':') ? parseAddress(address) : undefined
  return bytes ? `${Buffer.from(bytes.slice(0, 8)).toString('hex')}::/64` : address
}

export interface Quota {
  caller: string
  scope: string
  /** Epoch milliseconds. */
  now: number
}

const counterOf = ({ caller, scope }: Quota) => `${caller} | ${scope}`

const REMEMBERED_MAX = 10_000
const overLimitUntil = new Map<string, number>()

/** What this isolate has seen refused: such a request is refused again, and nothing should be spent on it before. */
const isOverLimit = (quota: Quota): boolean => (overLimitUntil.get(counterOf(quota)) ?? 0) > quota.now

const FOUND_MAX = 10_000
const found = new Set<string>()

/** The caller has reached what the quota is for: his requests for it are no guesses. */
export function noteFound(quota: Quota): void {
  if (found.size >= FOUND_MAX) found.clear()
  found.add(counterOf(quota))
}

/** Who has guessed too much asks for what he has not reached yet: each name would have a counter of its own. */
export const isGuess = (quota: Quota): boolean =>
  quota.scope !== 'none' &&
  quota.scope !== WRONG_TOKENS &&
  !found.has(counterOf(quota)) &&
  isOverLimit({ ...quota, scope: 'none' })

/** Of who sends tokens or signatures that do not hold. */
export const guessesOf = (address: string | undefined, now: number): Quota => ({
  caller: limitCaller(undefined, address),
  scope: WRONG_TOKENS,
  now,
})

/** An address that guesses tokens costs no more queries; without addresses nobody may be shut out for another. */
export const isAddressOverLimit = (address: string | undefined, now: number): boolean =>
  address !== undefined && isOverLimit(guessesOf(address, now))

export async function takeQuota(limiters: Bindings['RATE_LIMITERS'], quota: Quota, limit: Limit): Promise<Decision> {
  const counter = counterOf(quota)
  const decision = await limiters.get(limiters.idFromName(counter)).take(LIMITS[limit], quota.now)
  if (!decision.allowed) {
    if (overLimitUntil.size >= REMEMBERED_MAX) overLimitUntil.clear()
    overLimitUntil.set(counter, quota.now + decision.resetMs)
  }
  return decision
}

export function limitHeaders({ allowed, limit, remaining, resetMs }: Decision): Record<string, string> {
  return {
    'x-ratelimit-limit': String(limit),
    'x-ratelimit-remaining': String(remaining),
    'x-ratelimit-reset': String(resetMs),
    ...(!allowed && { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) }),
  }
}
