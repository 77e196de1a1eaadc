import type { Context, MiddlewareHandler } from 'hono'
import { rateLimitScope } from '../../access/quota-scope.ts'
import { callerOf } from '../../actor.ts'
import { ApiError } from '../../platform/http/error.ts'
import {
  addressIn,
  invalidTokenQuota,
  isAddressOverLimit,
  isRateLimitedGuess,
  type Limit,
  limitHeaders,
  type Quota,
  rateLimitCaller,
  takeQuota,
  UNKNOWN_NAME_SCOPE,
} from '../../platform/rate-limit/quota.ts'
import type { Decision } from '../../platform/rate-limit/rule.ts'
import type { AppEnv, Resources } from './app-env.ts'
import type { Route } from './route.ts'

/** Looks up the resources that the path names. */
export type Find = (c: Context<AppEnv>) => Promise<Partial<Resources>>

/** Takes the request from the caller's quota. Every reply carries the rate-limit headers. */
export function rateLimit({ limit = 'standard', id, ...route }: Partial<Route>): MiddlewareHandler<AppEnv> {
  return async function rateLimit(c, next) {
    if (id) c.var.facts.route = id
    const quota = route.clientOf ? await quotaOfClient(c, route) : quotaOf(c)
    if (isRateLimitedGuess(quota)) await countGuess(c, 'guesses')
    // Anonymous requests use the standard limit: a stricter one would let one client exhaust the quota of a shared address.
    await takeFromQuota(c, quota, callerOf(c.var.ctx.actor) ? limit : 'standard')
    await next()
  }
}

/** Limits a request that matches no route; these requests share the quota of unknown names. */
export const rateLimitUnmatched = (c: Context<AppEnv>): Promise<void> =>
  takeFromQuota(c, quotaOf(c, callerOf(c.var.ctx.actor) && UNKNOWN_NAME_SCOPE))

/** Takes a request with an invalid token or signature from the quota of its address. */
export const limitInvalidToken = (c: Context<AppEnv>): Promise<void> =>
  takeFromQuota(c, invalidTokenQuota(addressIn(c.var.ctx, c.req.raw.headers), c.var.ctx.now().getTime()))

/** Returns the quota of a request, which depends on the caller and on the project or organization. */
export const quotaOf = (
  c: Context<AppEnv>,
  scope = rateLimitScope(callerOf(c.var.ctx.actor), c.req.path, c.req.header('authorization')),
): Quota => ({
  caller: rateLimitCaller(callerOf(c.var.ctx.actor), addressIn(c.var.ctx, c.req.raw.headers)),
  scope,
  now: c.var.ctx.now().getTime(),
})

/** Returns the quota of an application that sends its secret, otherwise that of the address. Wrong secrets count like wrong tokens. */
async function quotaOfClient(c: Context<AppEnv>, { clientOf }: Partial<Route>): Promise<Quota> {
  const quota = quotaOf(c, 'none')
  const mayGuess = !isAddressOverLimit(addressIn(c.var.ctx, c.req.raw.headers), quota.now)
  try {
    const appId = await clientOf?.(c.var.ctx, { body: c.var.body, headers: c.req.raw.headers }, mayGuess)
    return appId === undefined ? quota : { ...quota, caller: rateLimitCaller({ appId }, undefined) }
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    return error.status === 401 ? invalidTokenQuota(addressIn(c.var.ctx, c.req.raw.headers), quota.now) : quota
  }
}

/** Takes the request from a quota that the headers of the reply describe. */
async function takeFromQuota(c: Context<AppEnv>, quota: Quota, limit: Limit = 'standard'): Promise<void> {
  const decision = await takeQuota(c.env.RATE_LIMITERS, quota, limit)
  sendLimitHeaders(c, decision)
  requireAllowed(decision)
}

function sendLimitHeaders(c: Context<AppEnv>, decision: Decision): void {
  for (const [name, value] of Object.entries(limitHeaders(decision))) c.header(name, value)
}

function requireAllowed({ allowed, limit, windowMs, resetMs }: Decision): void {
  if (allowed) return
  const seconds = Math.ceil(resetMs / 1000)
  const window = windowMs === 60_000 ? 'minute' : `${windowMs / 1000} s`
  throw new ApiError('too_many_requests', {
    detail: `the limit here is ${limit} requests per ${window}; try again in ${seconds} s`,
  })
}

/** Counts a guess. If it is refused, the headers describe this counter and not the counter of the path. */
async function countGuess(c: Context<AppEnv>, scope = UNKNOWN_NAME_SCOPE): Promise<void> {
  const decision = await takeQuota(c.env.RATE_LIMITERS, quotaOf(c, scope), 'standard')
  if (!decision.allowed) sendLimitHeaders(c, decision)
  requireAllowed(decision)
}

const isMiss = (error: unknown): boolean => error instanceof ApiError && error.status === 404

/** Counts a 404 as a guess: all unknown refs and slugs share one quota. */
export async function countMiss(c: Context<AppEnv>, error: unknown): Promise<never> {
  if (isMiss(error)) await countGuess(c)
  throw error
}

/** Calls `count` if the check itself refuses the request, not if a later step does. */
const onRefusal =
  (check: MiddlewareHandler<AppEnv>, count: (c: Context<AppEnv>) => Promise<unknown>): MiddlewareHandler<AppEnv> =>
  async (c, next) => {
    let hasPassed = false
    const pass = async () => {
      hasPassed = true
      await next()
    }
    try {
      return await check(c, pass)
    } catch (error) {
      if (!hasPassed) await count(c)
      throw error
    }
  }

/**
 * Counts a refusal as a guess if the caller cannot see the resource of the path. The check precedes the lookup, so the lookup is
 * done here: a refusal in a visible resource must not count against the quota of unknown names.
 */
export const countRefused = (check: MiddlewareHandler<AppEnv>, find: Find | undefined): MiddlewareHandler<AppEnv> =>
  onRefusal(check, async (c) => {
    const hasResource = find && callerOf(c.var.ctx.actor) && quotaOf(c).scope !== 'none'
    if (hasResource && (await find(c).then(() => false, isMiss))) await countGuess(c)
  })

/** Counts a request whose body is refused before its client is known. */
export const limitRefused = (check: MiddlewareHandler<AppEnv>, { id }: Route): MiddlewareHandler<AppEnv> =>
  onRefusal(check, (c) => rateLimit({ id })(c, async () => {}))
