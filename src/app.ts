import { Hono, type MiddlewareHandler } from 'hono'
import { authenticate } from './access/authenticate.ts'
import { documents, routes } from './api.ts'
import { mountOAuthMetadata } from './management/account/oauth/metadata.ts'
import { mountGithubWebhook } from './management/branching/connections/github-webhook.ts'
import { mountReference } from './management/installation/api-reference.ts'
import { createHealthReporter, mountHealth } from './management/installation/health.ts'
import { mountHome } from './management/installation/home-page.ts'
import { mountMetrics } from './management/installation/metrics.ts'
import { serviceHint } from './management/installation/offered-services.ts'
import type { AppEnv } from './management/kernel/app-env.ts'
import { allowCrossOrigin, preflightFor } from './management/kernel/cross-origin.ts'
import { createMethodTable } from './management/kernel/method-table.ts'
import { mount } from './management/kernel/mount.ts'
import { rateLimitUnmatched } from './management/kernel/rate-limits.ts'
import type { Bindings } from './platform/bindings.ts'
import { discardBodyOnError } from './platform/http/early-refusal.ts'
import { ApiError, JSON_TYPE, renderError } from './platform/http/error.ts'
import { createLogger, describeError } from './platform/http/log.ts'
import { createRouter } from './platform/http/router.ts'
import { measureCall } from './platform/metrics/counters.ts'
import { addressIn, isAddressOverLimit } from './platform/rate-limit/quota.ts'
import { dataApiAddressOf } from './services/data-api/data-api-address.ts'
import { serveDataApi } from './services/data-api/serve-data-api.ts'
import { beginRequest } from './services/gateway/begin-request.ts'
import { withCustomDomain } from './services/gateway/custom-domains.ts'
import { isProjectHost, type Located, locate, locateAs } from './services/gateway/project-address.ts'
import { jwksRefOf, servePublicKeys } from './services/gateway/public-keys.ts'
import { refuseSecretKeyInBrowser } from './services/gateway/secret-key-in-browser.ts'
import { callProgram } from './services/runtime/call-program.ts'
import type { CallMetadata } from './services/runtime/processes/process-protocol.ts'
import { programAddressOf } from './services/runtime/program-address.ts'
import { refuse } from './services/runtime/refusals.ts'
import { createStorageApp } from './services/storage/app.ts'
import { storageAddressOf } from './services/storage/storage-address.ts'

const begin = beginRequest<AppEnv>({
  service: 'management',
  actor: { kind: 'anonymous' },
  operationOf: ({ route }) => String(route ?? 'other'),
})

const authenticateCaller: MiddlewareHandler<AppEnv> = async (c, next) => {
  // The answer does not depend on the caller, and is not counted: guesses of tokens would have no limit.
  if (c.req.method === 'OPTIONS') return next()
  const caller = await authenticate(
    c.var.ctx,
    c.req.header('authorization'),
    (now) => !isAddressOverLimit(addressIn(c.var.ctx, c.req.raw.headers), now),
  )
  if (caller) {
    c.set('ctx', { ...c.var.ctx, actor: caller })
    c.header('x-gotrue-id', caller.userId)
  }
  await next()
}

/**
 * Routes a request to the service of a project whose address it has, or else to the management API. Each service has its own
 * callers and errors. `known` is set when another process or a program makes the call.
 */
export function createFetch() {
  const api = createApi()
  const storage = createStorageApp()
  const serve = (
    request: Request,
    located: Located,
    { bindings, execution, ...known }: { bindings: Bindings; execution: ExecutionContext } & CallMetadata,
  ) => {
    const refusal = refuseSecretKeyInBrowser(request, located)
    if (refusal) return discardBodyOnError(request, () => refusal)
    const { url, project } = located
    const address = project && programAddressOf(url, project)
    if (address === 'unnamed') return refuse('function', 'NOT_FOUND')
    if (address) {
      const call = { request, address, bindings, execution, ...known }
      return measureCall(call, `${address.kind}s`, () => callProgram(call))
    }
    const keysRef = project && jwksRefOf(project)
    if (keysRef) {
      const call = { request, ref: keysRef, bindings, execution }
      return measureCall(call, 'keys', () => servePublicKeys(call))
    }
    const dataApi = project && dataApiAddressOf(project, url.pathname)
    if (dataApi) {
      return discardBodyOnError(request, () =>
        serveDataApi({ request, located, address: dataApi, bindings, execution }),
      )
    }
    if (storageAddressOf(request, bindings) !== undefined) {
      return discardBodyOnError(request, () => storage.fetch(request, bindings, execution))
    }
    const isStray = isProjectHost(url, bindings) || (project?.ref !== undefined && project.path === url.pathname)
    const apiRequest = isStray ? unroutable(request, located) : request
    return discardBodyOnError(apiRequest, () => api.fetch(apiRequest, bindings, execution))
  }
  return (request: Request, bindings: Bindings, execution: ExecutionContext, known?: CallMetadata) => {
    const located = tryLocate(request, bindings)
    if (!located) {
      const message = 'Invalid request: the Host header or another header cannot be read'
      return Response.json({ message }, { status: 400 })
    }
    const call = { bindings, execution, ...known }
    return withCustomDomain({ request, bindings, execution }, located, (found) => serve(request, found, call))
  }
}

/** The request with a path that the router of the management API does not know: that API is not served at the hosts of projects. */
function unroutable(request: Request, { url, project }: Located): Request {
  const renamed = new Request(new URL(`/p/-${url.pathname}`, url), request)
  if (project?.ref !== undefined) locateAs(renamed, url, project.ref)
  return renamed
}

/** Two Host headers give an invalid URL. Reading `cf` throws if the runtime takes it from a header and a caller has sent garbage. */
function tryLocate(request: Request, bindings: Bindings): Located | undefined {
  try {
    void request.cf
    return locate(request, bindings)
  } catch {
    return undefined
  }
}

const methodsAt = createMethodTable(routes)
const summaries = new Map<unknown, string>(routes.map(({ id, summary }) => [id, summary]))

/** Tells clients where to get a token (RFC 9728, 5.1), and names an error only if they sent one (RFC 6750, 3.1). */
function bearerChallenge(baseUrl: string, authorization: string | undefined): string {
  const challenge = `Bearer resource_metadata="${baseUrl}/.well-known/oauth-protected-resource"`
  return /^bearer /i.test(authorization ?? '') ? `${challenge}, error="invalid_token"` : challenge
}

function createApi(): Hono<AppEnv> {
  const app = new Hono<AppEnv>({ router: createRouter() })
  app.onError((thrown, c) => {
    const error = ApiError.from(thrown)
    const requestId = c.var.ctx?.requestId ?? ''
    if (c.var.facts) c.var.facts.error = error.code
    if (error.status >= 500) {
      createLogger(requestId).error('failed', { code: error.code, error: describeError(error.cause ?? error) })
    }
    if (error.status === 503) c.header('retry-after', '1')
    if (error.code === 'unauthorized' && !c.res.headers.has('www-authenticate'))
      c.header('www-authenticate', bearerChallenge(c.var.ctx.config.BASE_URL, c.req.header('authorization')))
    if (error.code === 'oauth.invalid_client') c.header('www-authenticate', 'Basic realm="oauth"')
    return c.json(renderError(c.req.path, error, requestId, summaries.get(c.var.facts?.route)), error.status, JSON_TYPE)
  })
  app.use(begin)
  const health = createHealthReporter()
  mountHealth(app, health)
  mountMetrics(app, health)
  mountHome(app, health)
  mountGithubWebhook(app)
  app.use(allowCrossOrigin)
  app.use(authenticateCaller)
  mount(app, routes)
  mountOAuthMetadata(app)
  mountReference(app, documents)
  app.notFound(async (c) => {
    const { url, project } = locate(c.req.raw, c.env)
    const detail = serviceHint(url.pathname, project, c.var.ctx.config.BASE_URL)
    const methods = methodsAt(c.req.path)
    if (methods.length > 0) c.header('allow', methods.join(', '))
    // A page must be able to read why its call failed.
    if ((detail || methods.length > 0) && c.req.method === 'OPTIONS') {
      return (await preflightFor(methods)(c, async () => {})) ?? c.body(null, 204)
    }
    await rateLimitUnmatched(c)
    if (methods.length > 0) throw new ApiError('method_not_allowed', { detail: `use ${methods.join(', ')}` })
    if (detail) c.header('access-control-allow-origin', '*')
    throw new ApiError('not_found.route', { ...(detail && { detail }) })
  })
  return app
}
