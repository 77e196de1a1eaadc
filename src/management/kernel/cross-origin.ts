import type { MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'
import type { AppEnv } from './app-env.ts'

const LIMIT_HEADERS = ['X-RateLimit-Limit', 'X-RateLimit-Remaining', 'X-RateLimit-Reset', 'Retry-After']
const ANY_METHOD = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']

/** Every origin may call: tokens are sent in a header, never in a cookie. */
const addCorsHeaders = cors({
  origin: '*',
  exposeHeaders: [...LIMIT_HEADERS, 'X-Request-Id', 'X-Total-Count', 'Deprecation', 'WWW-Authenticate'],
})

/** Adds CORS headers to requests with an Origin; most requests have none. */
export const allowCrossOrigin: MiddlewareHandler<AppEnv> = (c, next) =>
  c.req.header('origin') && c.req.method !== 'OPTIONS' ? addCorsHeaders(c, next) : next()

/** Answers OPTIONS with the methods of the path, or with every method if they are unknown. */
export const preflightFor = (methods: readonly string[]): MiddlewareHandler<AppEnv> =>
  cors({ origin: '*', maxAge: 3600, allowMethods: [...(methods.length > 0 ? methods : ANY_METHOD)] })
