import type { Bindings } from '../bindings.ts'
import { BoundedMap } from '../bounded-map.ts'
import type { PlatformCtx } from '../context.ts'
import { addressGroup } from '../net/ip-addresses.ts'
import type { Decision, Rule } from './rule.ts'

const minute = (name: string, requests: number): Rule => ({ name, requests, windowMs: 60_000 })

/** The limit of the specification for all requests (Limits 1). */
const STANDARD = minute('standard', 120)

/** Stricter limits of single endpoints (Limits 3), which also count against the standard limit. A route names its row. */
const LIMITS = {
  standard: [],
  databaseContext: [minute('database context', 10), { name: 'database context now', requests: 1, windowMs: 1_000 }],
  customHostnameInitialize: [minute('custom hostname initialize', 10)],
  customHostnameReverify: [minute('custom hostname reverify', 10)],
  customHostnameDelete: [minute('custom hostname delete', 10)],
  vanitySubdomainGet: [minute('vanity subdomain get', 10)],
  vanitySubdomainDelete: [minute('vanity subdomain delete', 10)],
  vanitySubdomainCheck: [minute('vanity subdomain check', 10)],
  vanitySubdomainActivate: [minute('vanity subdomain activate', 10)],
  logsAll: [minute('logs all', 30)],
  logs: [minute('logs', 30)],
  metrics: [minute('metrics', 30)],
  apiCounts: [minute('api counts', 30)],
  requestCount: [minute('request count', 30)],
  webhookTest: [minute('webhook test', 10)],
  webhookRetry: [minute('webhook retry', 10)],
} satisfies Record<string, readonly Rule[]>
export type Limit = keyof typeof LIMITS

/** Scope of requests with an invalid token. It differs from `none`, so that requests without a token cannot make an address refuse valid tokens. */
export const INVALID_TOKEN_SCOPE = 'wrong tokens'

/** Scope of requests for names that the caller cannot see. It differs from `none`, so that they cannot exhaust the quota of lists. */
export const UNKNOWN_NAME_SCOPE = 'unknown names'

/** IP address of the client, if a trusted reverse proxy passes it. */
export function addressIn({ config }: Pick<PlatformCtx, 'config'>, headers: Headers): string | undefined {
  const { CLIENT_ADDRESS_HEADER: header } = config
  return (header && headers.get(header)) || undefined
}

/** A user, or an application: on behalf of a user in one organization, or itself. */
type LimitedCaller = { appId: string; organizationId?: string } | { appId?: undefined; userId: string }

/**
 * Caller of a rate limit, in the order of the specification: OAuth application, else user, else address. An application has a
 * quota in each organization, so that its users in one organization cannot exhaust the quota of others.
 */
export function rateLimitCaller(caller: LimitedCaller | undefined, address: string | undefined): string {
  if (caller?.appId !== undefined) return `app ${caller.appId} ${caller.organizationId ?? ''}`
  if (caller) return `user ${caller.userId}`
  return `address ${address === undefined ? 'unknown' : addressGroup(address)}`
}

export interface Quota {
  caller: string
  scope: string
  /** Epoch milliseconds. */
  now: number
}

const counterOf = ({ caller, scope }: Quota) => `${caller} | ${scope}`

const OVER_LIMIT_MAX = 10_000
const overLimitUntil = new BoundedMap<string, number>(OVER_LIMIT_MAX)

/** Whether this isolate has seen the quota exceeded, so that such requests are refused without any further cost. */
const isOverLimit = (quota: Quota): boolean => (overLimitUntil.get(counterOf(quota)) ?? 0) > quota.now

const REACHED_MAX = 10_000
const reached = new Set<string>()

/** Records that the caller can access the scope of the quota, so that requests for it are not guesses. */
export function markReached(quota: Quota): void {
  if (reached.size >= REACHED_MAX) reached.clear()
  reached.add(counterOf(quota))
}

/** Whether a rate-limited caller requests a scope that it has not accessed before: each guessed name would have a new quota. */
export const isRateLimitedGuess = (quota: Quota): boolean =>
  quota.scope !== 'none' &&
  quota.scope !== INVALID_TOKEN_SCOPE &&
  !reached.has(counterOf(quota)) &&
  isOverLimit({ ...quota, scope: UNKNOWN_NAME_SCOPE })

/** Quota of requests with invalid tokens or signatures from an address. */
export const invalidTokenQuota = (address: string | undefined, now: number): Quota => ({
  caller: rateLimitCaller(undefined, address),
  scope: INVALID_TOKEN_SCOPE,
  now,
})

/** Whether an address that guesses tokens is refused without a query. False without an address, as it would lock out all clients. */
export const isAddressOverLimit = (address: string | undefined, now: number): boolean =>
  address !== undefined && isOverLimit(invalidTokenQuota(address, now))

/** Counts a request against the standard limit and the limit of its endpoint. Refuses it if one of them is exhausted. */
export async function takeQuota(limiters: Bindings['RATE_LIMITERS'], quota: Quota, limit: Limit): Promise<Decision> {
  const counter = counterOf(quota)
  const take = () => limiters.get(limiters.idFromName(counter)).take([STANDARD, ...LIMITS[limit]], quota.now)
  // A deployment resets all objects, which fails the calls that are under way.
  const decision = await take().catch(take)
  if (!decision.allowed) {
    overLimitUntil.set(counter, quota.now + decision.resetMs)
  }
  return decision
}

interface AnonymousRequest {
  headers: Headers
  limiters: Bindings['RATE_LIMITERS']
}

/** Counts a request without a valid caller against the quota of its address. All services share that quota. */
export function takeAnonymousQuota(
  ctx: Pick<PlatformCtx, 'config' | 'now'>,
  { headers, limiters }: AnonymousRequest,
  scope = 'none',
): Promise<Decision> {
  const caller = rateLimitCaller(undefined, addressIn(ctx, headers))
  return takeQuota(limiters, { caller, scope, now: ctx.now().getTime() }, 'standard')
}

export function limitHeaders({ allowed, limit, remaining, resetMs }: Decision): Record<string, string> {
  return {
    'x-ratelimit-limit': String(limit),
    'x-ratelimit-remaining': String(remaining),
    'x-ratelimit-reset': String(resetMs),
    ...(!allowed && { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) }),
  }
}
