import type { Principal } from '../auth/principal.ts'
import type { AppEnv } from '../env.ts'
import type { Decision, Rule } from '../objects/rate-limiter.ts'

const minute = (name: string, requests: number): Rule => ({ name, requests, windowMs: 60_000 })

/** The specification's table of limits (Limits 1 and 3); a route names a row, or has `standard`. */
const LIMITS = {
  standard: [minute('standard', 120)],
} satisfies Record<string, readonly Rule[]>
export type Limit = keyof typeof LIMITS

const SCOPED_PATH = /^\/(?:v\d+)\/(projects|organizations|branches)\/([\w-]+)/

/** What the quota is counted for: a project, an organization, or none. Other calls of the caller do not touch it. */
export function limitScope(path: string): string {
  const [, kind, name] = SCOPED_PATH.exec(path) ?? []
  if (!kind || !name) return 'none'
  if (kind === 'organizations') return `organization ${name}`
  return /^[a-z]{20}$/.test(name) ? `project ${name}` : 'none'
}

/** The specification's order: OAuth application, else user, else address. */
export function limitCaller(principal: Principal | undefined, address: string | undefined): string {
  if (principal?.appId) return `app ${principal.appId}`
  if (principal) return `user ${principal.userId}`
  return `address ${address ?? 'unknown'}`
}

export async function takeQuota(
  limiters: AppEnv['Bindings']['RATE_LIMITERS'],
  { caller, scope, limit, now }: { caller: string; scope: string; limit: Limit; now: number },
): Promise<Decision> {
  return limiters.get(limiters.idFromName(`${caller} | ${scope}`)).take(LIMITS[limit], now)
}

export function limitHeaders({ allowed, limit, remaining, resetMs }: Decision): Record<string, string> {
  return {
    'x-ratelimit-limit': String(limit),
    'x-ratelimit-remaining': String(remaining),
    'x-ratelimit-reset': String(resetMs),
    ...(!allowed && { 'retry-after': String(Math.max(1, Math.ceil(resetMs / 1000))) }),
  }
}
