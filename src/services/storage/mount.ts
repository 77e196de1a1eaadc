import type { Hono, MiddlewareHandler } from 'hono'
import { DEPRECATION } from '../../platform/http/deprecation.ts'
import type { Claims } from '../../platform/jwt/credential.ts'
import type { Caller } from './database.ts'
import { checkBucketName, checkKey, decodePath } from './object-names.ts'
import { optionalCaller, requireCaller, type StorageContext, type StorageEnv, serviceCaller } from './request.ts'
import { headersIn, parse, readJson } from './request-body.ts'
import { isTusPath, overriddenMethod } from './resumable/tus-protocol.ts'
import { errorsOf, type IncomingBody, isJsonText, isResponses, isStreamed, type Route } from './route.ts'
import { verifyUrlToken } from './signed-urls.ts'
import type { Place } from './statements/object-rows.ts'
import { storageAddressOf } from './storage-address.ts'
import { StorageError } from './storage-error.ts'

/** Mounts the routes. A request is checked in this order: path, access, query, headers, body. */
export function mount(app: Hono<StorageEnv>, routes: readonly Route[]): void {
  for (const route of routes) {
    const path = honoPath(route.path)
    const marks: MiddlewareHandler<StorageEnv>[] = route.deprecated ? [markDeprecated] : []
    // Hono routes HEAD requests to GET handlers.
    if (route.method === 'HEAD') app.get(path, (c, next) => (c.req.method === 'HEAD' ? respond(route, c) : next()))
    else app.on(route.method, [path], ...marks, (c: StorageContext) => respond(route, c))
    if (isTusPath(path) && route.path.endsWith('{id}')) {
      app.post(path, (c, next) => (overriddenMethod(c.req.raw) === route.method ? respond(route, c) : next()))
    }
  }
}

const markDeprecated: MiddlewareHandler<StorageEnv> = async (c, next) => {
  await next()
  for (const [name, value] of Object.entries(DEPRECATION)) c.res.headers.set(name, value)
}

const honoPath = (path: string): string =>
  path
    .replace(/\/$/, '')
    .replace('{wildcard}', '*')
    .replace(/\{(\w+)\}/g, ':$1')

const JSON_TYPE = { 'content-type': 'application/json; charset=utf-8' }

async function respond(route: Route, c: StorageContext): Promise<Response> {
  c.var.facts.operation = route.operation
  try {
    const result = await route.handle(await requestOf(route, c))
    if (isResponses(route.returns)) return result as Response
    return isJsonText(route.returns) ? c.body(result as string, 200, JSON_TYPE) : c.json(result as object)
  } catch (thrown) {
    const error = StorageError.from(thrown)
    if (!errorsOf(route).includes(error.code)) {
      c.var.ctx.log.error('undeclared_error', { route: route.id, code: error.code })
    }
    throw error
  }
}

async function requestOf(route: Route, c: StorageContext) {
  const { query, headers, body } = route
  const target = targetOf(route, c)
  const access = await accessOf(route, c, target.place)
  return {
    storage: c.var,
    method: c.req.method,
    url: c.req.url,
    ...target,
    ...access,
    query: query && parse('querystring', query, c.req.query()),
    headers: headers && parse('headers', headers, headersIn(c.req.raw, Object.keys(headers.shape))),
    body: body && (isStreamed(body) ? bodyOf(c) : await readJson(c.req.raw, body)),
  }
}

function bodyOf({ req }: StorageContext): IncomingBody {
  const length = req.header('content-length')
  const type = req.header('content-type')
  return { stream: req.raw.body, type, length: length === undefined ? undefined : Number(length) }
}

interface Target {
  place?: Place
  bucketId?: string
  id?: string
}

/** The resource that the path names. A key may have slashes, also at its end, so it is read from the path as sent. */
function targetOf({ path }: Route, c: StorageContext): Target {
  const { bucketId, bucketName = bucketId, id } = c.req.param() as Record<string, string | undefined>
  if (!path.endsWith('{wildcard}')) {
    return bucketName === undefined ? (id === undefined ? {} : { id }) : { bucketId: checkBucketName(bucketName) }
  }
  const segments = storageAddressOf(c.req.raw, c.env)?.path.split('/') ?? []
  const [bucket = '', ...key] = segments.slice(path.split('/').indexOf('{bucketName}'))
  return { place: { bucketId: checkBucketName(decodePath(bucket)), name: checkKey(decodePath(key.join('/'))) } }
}

interface Granted {
  caller?: Caller | undefined
  place?: Place
  claims?: Claims
}

async function accessOf({ access, operation }: Route, c: StorageContext, place: Place | undefined): Promise<Granted> {
  const verify = (scope: 'download' | 'upload') => {
    const token = c.req.query('token')
    if (!token) throw new StorageError('InvalidRequest', "querystring must have required property 'token'")
    return verifyUrlToken(c.var, place as Place, scope, token)
  }
  switch (access) {
    case 'public':
      return {}
    case 'optional caller':
      return { caller: await optionalCaller(c, operation) }
    case 'caller':
      return { caller: await requireCaller(c, operation) }
    case 'service role': {
      const caller = await requireCaller(c, operation)
      if (caller.role !== 'service_role') throw new StorageError('InvalidRole')
      return { caller }
    }
    case 'download URL':
      return verify('download')
    case 'upload URL':
      return { ...(await verify('upload')), caller: serviceCaller(c, operation) }
    case 'upload token':
      return { caller: serviceCaller(c, operation) }
  }
}
