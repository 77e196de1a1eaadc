import type { Context, Hono, MiddlewareHandler } from 'hono'
import manifest from '../../../package.json' with { type: 'json' }
import { ApiError, type ApiVersion } from '../../platform/http/error.ts'
import type { AppEnv } from '../kernel/app-env.ts'
import { rateLimit } from '../kernel/mount.ts'
import { openapi } from '../kernel/openapi.ts'
import type { Route } from '../kernel/route.ts'

/** The published OpenAPI documents, the page that shows them, and the documentation. */
export function mountReference(app: Hono<AppEnv>, routes: readonly Route[]): void {
  const limit = rateLimit({})
  const documents = new Map<string, string>()

  const document = (version: ApiVersion, baseUrl: string): string => {
    const key = `${version} ${baseUrl}`
    const text = documents.get(key) ?? JSON.stringify(openapi(routes, version, { release: manifest.version, baseUrl }))
    documents.set(key, text)
    return text
  }
  const serve = (version: ApiVersion) => (c: Context<AppEnv>) =>
    c.body(document(version, c.var.ctx.config.BASE_URL), 200, {
      'content-type': 'application/json; charset=UTF-8',
      'x-content-type-options': 'nosniff',
    })

  app.get('/api/v1-json', limit, serve('v1'))
  app.get('/api/v2-json', limit, serve('v2'))
  // The reference was at /docs.
  app.get('/docs', limit, secure, async (c) =>
    c.req.query('version') ? c.redirect(`/docs/api${new URL(c.req.url).search}`) : file(c, 'index.html'),
  )
  app.get('/docs/:name', limit, secure, (c) => file(c, withExtension(c.req.param('name'))))
  app.get('/docs/decisions/:name', limit, secure, (c) => file(c, withExtension(c.req.param('name')), 'decisions/'))
}

/** The page handles tokens: it runs its own scripts alone, talks to its own origin alone, and stands in no frame. */
const CONTENT_SECURITY_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ')

const secure: MiddlewareHandler<AppEnv> = async (c, next) => {
  c.header('content-security-policy', CONTENT_SECURITY_POLICY)
  c.header('x-content-type-options', 'nosniff')
  c.header('x-frame-options', 'DENY')
  c.header('referrer-policy', 'no-referrer')
  await next()
}

const PASSED_ON = ['content-type', 'etag', 'cache-control']

/** Pages have no extension in their address. */
const withExtension = (name: string): string => (name.includes('.') ? name : `${name}.html`)

/** The reply is made anew, for one that comes from a binding drops the headers that were set before it. */
async function file(c: Context<AppEnv>, name: string, folder = ''): Promise<Response> {
  const known = c.req.header('if-none-match')
  const asset = await c.env.ASSETS.fetch(new URL(`/${folder}${encodeURIComponent(name)}`, c.req.url), {
    headers: known ? { 'if-none-match': known } : {},
  })
  for (const header of PASSED_ON) {
    const value = asset.headers.get(header)
    if (value) c.header(header, value)
  }
  if (asset.status === 304) return c.body(null, 304)
  if (!asset.ok) throw new ApiError('not_found.route')
  return asset.body ? c.body(asset.body) : c.body(null)
}
