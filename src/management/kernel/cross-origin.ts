import type { MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'
import type { AppEnv } from './app-env.ts'

const LIMITS = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'Retry-After']
const ANY_METHOD = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']

/** Tokens come in a header and never in a cookie, so every origin may call with the token that it has. */
const share = cors({ origin: '*', exposeHeaders: [...LIMITS, 'X-Request-Id', 'X-Total-Count', 'Deprecation'] })

/** Requests without an Origin, which are most, pay nothing for it. */
export const allowCrossOrigin: MiddlewareHandler<AppEnv> = (c, next) =>
  c.req.header('origin') && c.req.method !== 'OPTIONS' ? share(c, next) : next()

/** Answers OPTIONS with the methods of the path; any where it is unknown which these are. */
export const preflightFor = (methods: readonly string[]): MiddlewareHandler<AppEnv> =>
  cors({ origin: '*', maxAge: 3600, allowMethods: [...(methods.length > 0 ? methods : ANY_METHOD)] })
