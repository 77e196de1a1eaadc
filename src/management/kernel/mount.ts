import { zValidator } from '@hono/zod-validator'
import type { Context, Hono, MiddlewareHandler } from 'hono'
import type * as z from 'zod'
import {
  findBranch,
  findOrganization,
  findProject,
  requireNotGoingDown,
  requirePermission,
  requireTokenScope,
} from '../../access/access.ts'
import { callerOf } from '../../actor.ts'
import type { Ctx } from '../../ctx.ts'
import { DEPRECATION } from '../../platform/http/deprecation.ts'
import { ApiError, type ErrorCode, ISSUES_MAX, JSON_TYPE } from '../../platform/http/error.ts'
import { markReached } from '../../platform/rate-limit/quota.ts'
import type { AppEnv } from './app-env.ts'
import { isBufferedBody, jsonBody, readBody } from './body.ts'
import { countMiss, countRefused, type Find, limitRefused, quotaOf, rateLimit } from './rate-limits.ts'
import {
  type Answer,
  changesProject,
  errorsOf,
  isAnswer,
  isSchema,
  isStream,
  isText,
  type Route,
  refusesUnknownQuery,
  type Streamed,
  scopeOf,
  total,
} from './route.ts'

/**
 * Mounts each route as: rate limit, scope, path, resource and role, query, body, handler. Cheap checks come first. The body comes
 * first if it names the client that the rate limit counts.
 */
export function mount(app: Hono<AppEnv>, routes: readonly Route[]): void {
  for (const route of routes) {
    const find = createFinder(route)
    const chain: MiddlewareHandler<AppEnv>[] = [
      ...(route.headers ? [sendHeaders(route.headers)] : []),
      ...(route.deprecated ? [sendHeaders(DEPRECATION)] : []),
      ...(route.clientOf ? receiveBody(route).map((receive) => limitRefused(receive, route)) : []),
      rateLimit(route),
      countRefused(requireScope(route), find),
      countRefused(validate('param', route.params), find),
      resolve(route, find),
      ...(refusesUnknownQuery(route) ? [refuseUnknownQuery(route)] : []),
      ...(route.query ? [validate('query', route.query)] : []),
      ...(route.clientOf ? [] : receiveBody(route)),
    ]
    const handle = (c: Context<AppEnv>) => respond(route, c)
    if (route.method === 'HEAD') app.on('GET', [honoPath(route.path)], ...[...chain, handle].map(forHeadOnly))
    else app.on(route.method, [honoPath(route.path)], ...chain, handle)
  }
}

/** Limits a handler to HEAD: Hono routes HEAD requests to GET handlers. */
const forHeadOnly =
  (handle: MiddlewareHandler<AppEnv>): MiddlewareHandler<AppEnv> =>
  (c, next) =>
    c.req.method === 'HEAD' ? handle(c, next) : next()

const sendHeaders = (headers: Readonly<Record<string, string>>): MiddlewareHandler<AppEnv> =>
  async function sendHeaders(c, next) {
    for (const [name, value] of Object.entries(headers)) c.header(name, value)
    await next()
  }

const honoPath = (path: string): string => path.replace(/\{(\w+)\}/g, ':$1')

function requireScope(route: Route): MiddlewareHandler<AppEnv> {
  const { scope } = route
  const needed = scopeOf(route)
  return async function requireScope(c, next) {
    if (scope === 'public') return next()
    const caller = callerOf(c.var.ctx.actor)
    if (!caller) {
      throw new ApiError('unauthorized', { detail: 'send a valid access token as "Authorization: Bearer sbp_…"' })
    }
    if (caller.isDisabled) {
      throw new ApiError('forbidden.access_disabled', { detail: `the user ${caller.username} is disabled` })
    }
    if (needed) requireTokenScope(caller, needed)
    await next()
  }
}

/** Creates the lookup of the path's {ref}, {slug} or {branch_id_or_ref} with the caller's access; undefined for a route without one. */
function createFinder({ params }: Route): Find | undefined {
  const { ref, slug, branch_id_or_ref: branch } = params.shape
  if (branch) {
    return async (c) => ({ branch: await findBranch(c.var.ctx as Ctx, c.req.param('branch_id_or_ref') as string) })
  }
  if (ref) return async (c) => ({ project: await findProject(c.var.ctx as Ctx, c.req.param('ref') as string) })
  if (slug) {
    return async (c) => ({ organization: await findOrganization(c.var.ctx as Ctx, c.req.param('slug') as string) })
  }
  return undefined
}

/** Resolves the resource of the path, checks the caller's role in it and passes it to the handler. */
function resolve(route: Route, find: Find | undefined): MiddlewareHandler<AppEnv> {
  const permission = route.permission ?? scopeOf(route)
  return async function resolve(c, next) {
    if (!find) return next()
    const access = await find(c).catch((error) => countMiss(c, error))
    markReached(quotaOf(c))
    const { branch, project = branch?.project, organization } = access
    Object.assign(c.var.facts, { project: project?.ref, organization: organization?.slug })
    const role = project?.role ?? organization?.role
    if (permission && role) requirePermission(role, permission)
    if (project && changesProject(route)) requireNotGoingDown(project)
    c.set('access', access)
    await next()
  }
}

/** Refuses unknown query parameters: ignoring a misspelt one would make the request do something else. */
function refuseUnknownQuery({ query }: Route): MiddlewareHandler<AppEnv> {
  const known = new Set(Object.keys(query?.shape ?? {}))
  return async function refuseUnknownQuery(c, next) {
    const unknown = Object.keys(c.req.queries()).filter((name) => !known.has(name))
    if (unknown.length === 0) return next()
    const message =
      known.size > 0
        ? `is unknown: must be one of ${[...known].join(', ')}`
        : 'is unknown: this endpoint has no query parameters'
    throw new ApiError('bad_request.validation_failed', {
      issues: unknown.map((name) => ({ field: `query.${name}`, code: 'unknown', message })),
    })
  }
}

function receiveBody({ body, bodySizeBytesMax }: Route): MiddlewareHandler<AppEnv>[] {
  if (!body) return []
  const buffered = isBufferedBody(body) ? body : jsonBody(body, bodySizeBytesMax)
  return [readBody(buffered, (schema, value) => requireValid('body', schema.safeParse(value)))]
}

const INVALID_PARAM: Record<string, ErrorCode> = { ref: 'bad_request.invalid_ref', slug: 'bad_request.invalid_slug' }
const PLACE = { param: 'path', query: 'query' } as const

function validate(target: keyof typeof PLACE, schema: z.ZodType): MiddlewareHandler<AppEnv> {
  return zValidator(target, schema, (result) => {
    if (result.success) return
    const [first] = result.error.issues
    const invalidParam = target === 'param' && INVALID_PARAM[String(first?.path[0])]
    if (invalidParam) throw new ApiError(invalidParam)
    requireValid(PLACE[target], result)
  }) as MiddlewareHandler<AppEnv>
}

interface Issue {
  path: readonly PropertyKey[]
  code?: string | undefined
  message: string
  /** The issues of each alternative of a union. */
  errors?: readonly (readonly Issue[])[]
}

interface ValidationError {
  issues: readonly Issue[]
}

/** For a value that matches no alternative of a union, reports the alternatives whose issue lies deepest. */
function narrowIssue(issue: Issue): Issue {
  const firsts = issue.errors?.flatMap(([first]) => (first ? [narrowIssue(first)] : [])) ?? []
  const depth = Math.max(0, ...firsts.map(({ path }) => path.length))
  const closest = firsts.filter(({ path }) => path.length === depth)
  const [first] = closest
  if (!first) return issue
  const messages = new Set(closest.map(({ message }) => message))
  return { path: [...issue.path, ...first.path], code: first.code, message: Array.from(messages).join(', or: ') }
}

/** Returns the parsed value. The error names each invalid field below `place`, such as `body`. */
export function requireValid<Value>(
  place: string,
  result: { success: true; data: Value } | { success: false; error: ValidationError },
): Value {
  if (result.success) return result.data
  throw new ApiError('bad_request.validation_failed', {
    issues: result.error.issues
      .slice(0, ISSUES_MAX)
      .map(narrowIssue)
      .map(({ path, code, message }) => ({
        field: [place, ...path].join('.'),
        code: code ?? 'invalid',
        message,
      })),
  })
}

async function respond(route: Route, c: Context<AppEnv>): Promise<Response> {
  const valid = (target: string) => c.req.valid(target as never)
  const result = await route
    .handle({
      ctx: c.var.ctx,
      params: valid('param'),
      query: route.query && valid('query'),
      body: c.var.body,
      idempotencyKey: route.idempotent && c.req.header('idempotency-key'),
      headers: c.req.raw.headers,
      ...c.var.access,
    })
    .catch((error) => (route.countsMisses ? countMiss(c, error) : Promise.reject(error)))
    .catch((error) => reportUndeclared(route, c, error))
  const status = route.status ?? 200
  if (status === 204) return c.body(null, status)
  if (isText(route.returns))
    return c.body(result as string | ReadableStream<Uint8Array>, status, { 'content-type': route.returns.contentType })
  if (isStream(route.returns)) {
    const { body, contentType } = result as Streamed
    return c.body(body, status, { 'content-type': contentType })
  }
  if (isAnswer(route.returns)) {
    const { body = '', status, headers } = result as Answer
    return c.body(body, status, { ...(body !== '' && { 'content-type': route.returns.answers }), ...headers })
  }
  if (route.returns === total) c.header('X-Total-Count', String(result))
  // Clients expect Content-Length: 0 on an empty reply; workerd sends it for zero bytes, but not for a missing body.
  if (!isSchema(route.returns)) return c.body(new Uint8Array(0), status)
  // Parsing the reply strips columns that the schema does not name, so a new column cannot leak.
  return c.json(route.returns.parse(result) as object, status, JSON_TYPE)
}

function reportUndeclared(route: Route, c: Context<AppEnv>, error: unknown): never {
  if (error instanceof ApiError && !errorsOf(route).includes(error.code)) {
    c.var.ctx.log.error('undeclared_error', { route: route.id, code: error.code })
  }
  throw error
}
