import { Hono, type MiddlewareHandler } from 'hono'
import { cors } from 'hono/cors'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import type { Bindings } from '../../platform/bindings.ts'
import { createLogger, describeError } from '../../platform/http/log.ts'
import { limitHeaders, takeAnonymousQuota } from '../../platform/rate-limit/quota.ts'
import { beginRequest } from '../gateway/begin-request.ts'
import { servicePathOf } from '../gateway/project-address.ts'
import { countRequest } from '../gateway/request-counts.ts'
import { createRequestLog } from '../gateway/request-log.ts'
import { mount } from './mount.ts'
import { findProject, type StorageContext, type StorageEnv, tokenOf } from './request.ts'
import { UPLOAD_BYTES_MAX } from './resumable/create-upload.ts'
import { isTusPath, renderTusError, requireVersion, setCapabilities, TUS_PATH } from './resumable/tus-protocol.ts'
import { storageRoutes } from './routes.ts'
import { refuseDotSegments, storageAddressOf } from './storage-address.ts'
import { StorageError } from './storage-error.ts'

const begin = beginRequest<StorageEnv>({
  service: 'storage',
  actor: { kind: 'system' },
  operationOf: ({ operation }) => String(operation ?? 'storage.other'),
})

/** Completes every reply. Replies to HEAD have no body, and any origin may read the headers. */
const completeReply: MiddlewareHandler<StorageEnv> = async (c, next) => {
  await next()
  if (c.req.method === 'HEAD' && c.res.body) c.res = await withoutBody(c.res)
  c.res.headers.set('access-control-allow-origin', '*')
  c.res.headers.set('access-control-expose-headers', '*')
}

/** Replaces the body of a reply to HEAD by its length. Downloads answer HEAD without a body. */
async function withoutBody(response: Response): Promise<Response> {
  const { byteLength } = await response.arrayBuffer()
  const head = new Response(null, response)
  head.headers.set('content-length', String(byteLength))
  return head
}

const logRequest = createRequestLog('storage_requests')

const openRequestedProject: MiddlewareHandler<StorageEnv> = async (c, next) => {
  const startedAt = performance.now()
  const { ctx } = c.var
  const at = ctx.now().getTime()
  refuseDotSegments(c.req.raw)
  const credentials = { token: tokenOf(c), apiKey: c.req.header('apikey') }
  const ref = storageAddressOf(c.req.raw, c.env)?.ref
  const project = await findProject(ctx, ref, credentials).catch((error) => limitUnknownProject(c, error))
  c.var.facts.project = project.ref
  c.set('project', project)
  const scope = { bindings: c.env, execution: c.executionCtx }
  countRequest(scope, project.ref, 'storage', at)
  await next()
  logRequest(scope, {
    ...{ id: ctx.requestId, projectRef: project.ref, at, method: c.req.method },
    ...{ path: servicePathOf(c.req.raw, c.env), status: c.res.status },
    ...{ ms: Math.round(performance.now() - startedAt), error: c.var.facts.error ?? null },
  })
}

/** Unknown project refs count against the anonymous rate limit of the management API. */
async function limitUnknownProject(c: StorageContext, error: unknown): Promise<never> {
  if (!(error instanceof StorageError) || error.code !== 'NoSuchProject') throw error
  const request = { headers: c.req.raw.headers, limiters: c.env.RATE_LIMITERS }
  const decision = await takeAnonymousQuota(c.var.ctx, request)
  if (decision.allowed) throw error
  throw new StorageError('SlowDown', 'Too many requests: try again later', { headers: limitHeaders(decision) })
}

/** Answers preflights only: `completeReply` sets the headers of all other replies without copying each response. */
const preflight = cors({ origin: '*', maxAge: 3600 })

async function answerOptions(c: StorageContext): Promise<Response> {
  const response = (await preflight(c, async () => {})) ?? c.body(null, 204)
  if (isTusPath(c.req.path)) setCapabilities(response.headers, UPLOAD_BYTES_MAX)
  return response
}

/** The storage API of all projects, at each address that a project has. */
export function createStorageApp(): Hono<StorageEnv> {
  const app = new Hono<StorageEnv>({
    getPath: (request, options) =>
      storageAddressOf(request, options?.env as Bindings)?.path.replace(/(.)\/$/, '$1') ?? '/',
  })
  app.onError((thrown, c) => renderError(thrown, c))
  app.use(begin)
  app.use(completeReply)
  app.use((c, next) => (c.req.method === 'OPTIONS' ? answerOptions(c) : next()))
  app.get('/status', (c) => c.body(null, 200))
  // The CLI takes any other version as the tag of a Docker image, which it would start for local development.
  app.get('/version', (c) => c.text('0.0.0'))
  app.use(openRequestedProject)
  app.use(`${TUS_PATH}/*`, requireVersion)
  mount(app, storageRoutes)
  app.notFound((c) => renderError(new StorageError('NoSuchRoute', `Route ${c.req.method}:${c.req.path} not found`), c))
  return app
}

function renderError(thrown: unknown, c: StorageContext): Response {
  const error = StorageError.from(thrown)
  if (c.var.facts) c.var.facts.error = error.code
  if (error.isLogged) {
    const reason = describeError(error.cause ?? error)
    createLogger(c.var.ctx?.requestId ?? '').error('failed', { code: error.code, error: reason })
  }
  c.header('cache-control', 'no-store')
  if (error.status === 503) c.header('retry-after', '1')
  if (isTusPath(c.req.path)) return renderTusError(c, error)
  // The type lacks 499 and 544, which HTTP does not define.
  const headers = { ...error.headers, 'content-type': 'application/json; charset=utf-8' }
  return c.json(error.body, error.status as ContentfulStatusCode, headers)
}
