import { createCtx, type SystemCtx } from '../../ctx.ts'
import { isServerFault, SqlError } from '../../engine/engine-errors.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { newTimedId } from '../../platform/db/id.ts'
import { describeError } from '../../platform/http/log.ts'
import { measureRequest } from '../../platform/metrics/counters.ts'
import { limitHeaders, takeAnonymousQuota } from '../../platform/rate-limit/quota.ts'
import { type OpenedProject, openProject, reloadProject } from '../gateway/open-project.ts'
import { isPaused, PAUSED } from '../gateway/paused.ts'
import { isPreflight } from '../gateway/preflight.ts'
import { type Located, projectUrl } from '../gateway/project-address.ts'
import { countRequest } from '../gateway/request-counts.ts'
import { createRequestLog } from '../gateway/request-log.ts'
import { allowedMethods } from './allowed-methods.ts'
import { apiRequestOf, hasBody, headOf, type Target, targetOf } from './api-request.ts'
import { authenticate, describeRequest, headersOf, type RequestHeaders } from './caller.ts'
import type { ApiRequest } from './compile.ts'
import { compileCall } from './compile-call.ts'
import { compileOpenApi } from './compile-openapi.ts'
import { compileRead } from './compile-read.ts'
import { compileWrite } from './compile-write.ts'
import { preflight } from './cors.ts'
import type { DataApiAddress } from './data-api-address.ts'
import { DataApiError } from './data-api-error.ts'
import { cachedSchema, currentSchema, type DataApi, execute } from './execute.ts'
import { repeatedRequests } from './repeated-requests.ts'
import { requireValidPreferences } from './request/preferences.ts'
import { errorResponse, responseOf } from './respond.ts'
import type { SchemaCache } from './schema/types.ts'
import { dataApiErrorOf } from './sql-error.ts'

interface Call {
  request: Request
  located: Located
  address: DataApiAddress
  bindings: Bindings
  execution: ExecutionContext
}

/** `project` is set once the project is known to exist. */
interface Facts {
  project?: string
  error?: string
}

const logRequest = createRequestLog('data_api_requests')

/** Serves the Data API of all projects, at each address that a project has. */
export async function serveDataApi(call: Call): Promise<Response> {
  const { request, located, address, bindings, execution } = call
  if (isPreflight(request)) return preflight(request)
  const startedAt = performance.now()
  const requestId = newTimedId(new Date())
  const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work), requestId })
  const at = ctx.now().getTime()
  const facts: Facts = {}
  const response = await answer(ctx, call, facts)
  const { method } = request
  const { status } = response
  const ms = Math.round((performance.now() - startedAt) * 10) / 10
  measureRequest(ctx, { service: 'data-api', operation: `data-api.${method.toLowerCase()}`, status, ms })
  // Only failures have a log line: each request to a known project has a row in its logs anyway.
  if (facts.error !== undefined)
    ctx.log.info('request', { method, path: located.url.pathname, status, ms, project: address.ref, ...facts })
  if (facts.project !== undefined) {
    const { project: projectRef, error = null } = facts
    const path = located.project?.path ?? located.url.pathname
    logRequest(call, { id: requestId, projectRef, at, method, path, status, ms: Math.round(ms), error })
  }
  return response
}

async function answer(ctx: SystemCtx, call: Call, facts: Facts): Promise<Response> {
  const { request } = call
  let isAnonymous = true
  try {
    const project = await requireProject(ctx, call)
    facts.project = project.ref
    countRequest(call, project.ref, 'rest', ctx.now().getTime())
    const { method, url } = request
    const headers = headersOf(request)
    const credential = await authenticate(project.trust, { url, headers }, ctx.now())
    isAnonymous = credential.role === 'anon'
    const caller = { ...credential, ...describeRequest(method, call.address.path, headers) }
    return await respond({ ctx, project, config: project.dataApi }, caller, { ...call, headers })
  } catch (thrown) {
    const found = dataApiErrorOf(thrown, { isAnonymous })
    const error = found instanceof DataApiError ? found : internalError(found)
    facts.error = error.code
    logCause(ctx, call, error)
    const { requestId } = ctx
    const { sharedPath } = call.address
    return errorResponse(error, { isHead: request.method === 'HEAD', requestId, sharedPath })
  }
}

/** Errors that SQL of the project's owner causes, such as a timeout of a statement, are none of the installation. */
function logCause({ log }: SystemCtx, { address }: Call, { status, code, cause }: DataApiError): void {
  if (status < 500 || cause === undefined) return
  if (cause instanceof SqlError && !isServerFault(cause)) {
    log.info('statement_failed', { project: address.ref, code, error: cause.message })
  } else {
    log.error('failed', { code, error: describeError(cause) })
  }
}

const internalError = (cause: unknown) =>
  new DataApiError({ status: 500, code: 'PGRSTX00', message: 'Internal Server Error' }, cause)

/** Answers a request of an authenticated caller. */
export async function respond(
  api: DataApi,
  caller: Parameters<typeof execute>[1]['caller'],
  { request, headers, address }: Pick<Call, 'request' | 'address'> & { headers: RequestHeaders },
): Promise<Response> {
  if (address.service === 'graphql') throw graphqlMissing()
  const target = targetOf(address.path)
  const { requestId } = api.ctx
  const head = headOf(request, headers)
  if (head.method === 'OPTIONS')
    return allowedMethods(await currentSchema(api), target, { head, config: api.config, requestId })
  const parse = () => apiRequestOf(request, { head, target, config: api.config })
  // The head alone decides what a request without a body means, so a repeated one is not parsed.
  const parsed = hasBody(head) ? await parse() : undefined
  const known = cachedSchema(api)
  const repeated = repeatedRequests(api, { head, target, payload: parsed?.request.payload })
  const kept = repeated.find(known)
  const { request: found } = kept ?? parsed ?? (await parse())
  // A copy: which time zones are known depends on the schema, and the kept request is used with each.
  const preferences = { ...found.preferences }
  const apiRequest = { ...found, preferences }
  const compileFor = compilerFor(target, api, request)
  const outcome = await execute(api, {
    ...{ caller, schema: found.schema, preferences, known, body: parsed?.body },
    compile(cache) {
      requireValidPreferences(preferences, cache.timezones)
      if (!cache.timezones.has(preferences.timezone ?? '')) preferences.timezone = undefined
      if (kept && cache === known) return kept.compiled
      const compiled = compileFor(apiRequest, cache)
      repeated.keep(cache, found, compiled)
      return compiled
    },
  })
  return responseOf(apiRequest, outcome, { requestId, sharedPath: address.sharedPath })
}

function compilerFor({ kind }: Target, { ctx, project }: DataApi, { method }: Request) {
  if (kind === 'routine') return compileCall
  if (kind === 'table') return method === 'GET' || method === 'HEAD' ? compileRead : compileWrite
  const url = `${projectUrl(ctx.config, project.ref)}/rest/v1`
  return (request: ApiRequest, cache: SchemaCache) => compileOpenApi(request, cache, url)
}

const graphqlMissing = () =>
  new DataApiError({
    ...{
      status: 404,
      code: 'PGRST127',
      message: 'GraphQL is not available: the extension pg_graphql is not installed',
    },
    hint: 'Use the Data API at /rest/v1.',
  })

/** Unknown project refs count against the anonymous rate limit of the management API. */
async function requireProject(ctx: SystemCtx, { request, address, bindings }: Call): Promise<OpenedProject> {
  const project = await openProject(ctx, address.ref)
  if (!project) {
    const { headers } = request
    const decision = await takeAnonymousQuota(ctx, { headers, limiters: bindings.RATE_LIMITERS })
    const message = 'Too many requests: try again later'
    if (!decision.allowed)
      throw new DataApiError({ status: 429, code: 'PGRST000', message, headers: limitHeaders(decision) })
    throw new DataApiError({ status: 404, code: 'PGRST000', message: 'Project not found' })
  }
  const isActive = project.status.startsWith('ACTIVE_')
  const current = isActive ? project : await reloadProject(ctx, address.ref)
  if (current?.status.startsWith('ACTIVE_')) return current
  if (current && isPaused(current.status)) throw new DataApiError({ ...PAUSED, code: 'PGRST000' })
  const message = `The project must be active to serve requests: its status is ${current?.status ?? 'REMOVED'}`
  throw new DataApiError({ status: 503, code: 'PGRST000', message, headers: { 'retry-after': '1' } })
}
