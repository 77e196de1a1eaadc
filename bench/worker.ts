import { neon } from '@neondatabase/serverless'
import { drizzle } from 'drizzle-orm/neon-http'
import { type Context, Hono, type MiddlewareHandler } from 'hono'
import { findProject } from '../src/access/access.ts'
import type { Caller } from '../src/actor.ts'
import { readConfig } from '../src/config.ts'
import type { Ctx } from '../src/ctx.ts'
import { createCtx } from '../src/ctx.ts'
import type { BatchRequest } from '../src/engine/engine.ts'
import product from '../src/index.ts'
import type { AppEnv } from '../src/management/kernel/app-env.ts'
import { rateLimit } from '../src/management/kernel/rate-limits.ts'
import { SCOPES } from '../src/model/scopes.ts'
import type { Bindings } from '../src/platform/bindings.ts'
import { ApiError, renderError } from '../src/platform/http/error.ts'
import { takeQuota } from '../src/platform/rate-limit/quota.ts'
import { webhookRoutes } from './webhooks/routes.ts'

export * from '../src/index.ts'

/** The deployed Worker with other routes beside its own, so that both sides of a comparison run in one isolate. */
export default {
  ...product,
  fetch(request: Request, bindings: Bindings, execution: ExecutionContext) {
    const app = request.url.includes('/bench/') ? bench : product
    return app.fetch(request, bindings, execution)
  },
} satisfies ExportedHandler<Bindings>

const bench = new Hono<AppEnv>()
bench.onError((error, c) => {
  const known = ApiError.from(error)
  return c.json(renderError(c.req.path, known, ''), known.status)
})

bench.route('/', webhookRoutes)

const ok = (c: Context) => c.text('ok')
bench.get('/bench/static', ok)

const callerOf = (userId: string): Caller => ({
  token: '',
  kind: 'user',
  tokenId: '',
  userId,
  username: '',
  primaryEmail: '',
  isDisabled: false,
  scopes: SCOPES,
})

interface Statement {
  text: string
  params: readonly unknown[]
  ref: string
}
let knownStatement: Statement | undefined

/** Captures the statement of `findProject`, so that the bare route always runs the same one. */
async function captureStatement(bindings: Bindings, userId: string, ref: string): Promise<Statement> {
  // Creating a context configures the driver with the address of the database's proxy.
  const { config } = createCtx({ bindings, waitUntil: () => {} })
  const captured: Statement[] = []
  const logQuery = (text: string, params: unknown[]) => void captured.push({ text, params, ref })
  const db = drizzle(neon(config.DATABASE_URL), { logger: { logQuery } })
  await findProject({ db, actor: callerOf(userId) } as unknown as Ctx, ref)
  const [statement] = captured
  if (!statement || captured.length > 1) throw new Error(`findProject sent ${captured.length} statements`)
  return statement
}

/** The query of `GET /v1/projects/{ref}` in the Worker's data layer; the request names the caller, without authentication. */
bench.get('/bench/projects/:ref', async (c) => {
  const ctx = createCtx({ bindings: c.env, waitUntil: () => {} })
  return c.json(await findProject({ ...ctx, actor: callerOf(c.req.query('user') ?? '') }, c.req.param('ref')))
})

/** The statement of the same route through the driver, without a query builder and without parsing rows. */
bench.get('/bench/statement/:ref', async (c) => {
  const ref = c.req.param('ref')
  knownStatement ??= await captureStatement(c.env, c.req.query('user') ?? '', ref)
  const { text, params, ref: knownRef } = knownStatement
  const here = params.map((param) => (param === knownRef ? ref : param))
  const [row] = await neon(readConfig(c.env).DATABASE_URL).query(text, here)
  return c.json(row)
})

/** Runs a batch of statements as the storage server does, without the rest of it. */
bench.post('/bench/batch', async (c) => {
  const ctx = createCtx({ bindings: c.env, waitUntil: () => {} })
  return c.json(await ctx.engine.runBatch(await c.req.json<BatchRequest>()))
})

const batches = new Map<string, BatchRequest>()
bench.put('/bench/batches/:name', async (c) => {
  batches.set(c.req.param('name'), await c.req.json<BatchRequest>())
  return c.text('ok')
})

/** Runs a stored batch and returns the body that its last statement made: the minimal work of the Data API. */
bench.on(['GET', 'POST'], '/bench/batches/:name', async (c) => {
  const batch = batches.get(c.req.param('name'))
  if (!batch) return c.notFound()
  // The runtime closes a connection whose request was not read.
  if (c.req.method === 'POST') await c.req.arrayBuffer()
  const results = await createCtx({ bindings: c.env, waitUntil: () => {} }).engine.runBatch(batch)
  return c.body((results.at(-1)?.[0]?.body ?? '') as string)
})

let replyHeaders: Record<string, string> = {}
bench.put('/bench/reply-headers', async (c) => {
  replyHeaders = await c.req.json()
  return c.text('ok')
})

/**
 * The same with what any implementation of the Data API adds: the parsed address and body, the request's headers as the
 * statements need them, and the headers of the reply, which are constant.
 */
bench.on(['GET', 'POST'], '/bench/least/:name', async (c) => {
  const batch = batches.get(c.req.param('name'))
  if (!batch) return c.notFound()
  const { searchParams } = new URL(c.req.url)
  if (c.req.method === 'POST') JSON.parse(await c.req.text())
  const headers = JSON.stringify(Object.fromEntries(c.req.raw.headers))
  if (headers.length + searchParams.size === 0) return c.notFound()
  const results = await createCtx({ bindings: c.env, waitUntil: () => {} }).engine.runBatch(batch)
  return new Response((results.at(-1)?.[0]?.body ?? '') as string, { headers: replyHeaders })
})

const asCaller: MiddlewareHandler<AppEnv> = async (c, next) => {
  const waitUntil = (work: Promise<unknown>) => c.executionCtx.waitUntil(work)
  c.set('facts', {})
  c.set('ctx', { ...createCtx({ bindings: c.env, waitUntil }), actor: callerOf(c.req.query('caller') ?? '') })
  await next()
}
bench.get('/bench/unlimited', asCaller, ok)
bench.get('/bench/limited', asCaller, rateLimit({}), ok)

/** Makes many rate-limit decisions in one request, without the cost of HTTP for each; returns how many were allowed. */
bench.get('/bench/decisions', async (c) => {
  const callers = c.req.query('callers') === 'many' ? (n: number) => `user many-${n}` : () => 'user one'
  const decisions = await Promise.all(
    Array.from({ length: Number(c.req.query('count')) }, (_, n) =>
      takeQuota(c.env.RATE_LIMITERS, { caller: callers(n), scope: 'none', now: Date.now() }, 'standard'),
    ),
  )
  return c.json({ allowed: decisions.filter(({ allowed }) => allowed).length })
})
