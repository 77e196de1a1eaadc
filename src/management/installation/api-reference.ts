import type { Context, Hono, MiddlewareHandler } from 'hono'
import manifest from '../../../package.json' with { type: 'json' }
import { ApiError } from '../../platform/http/error.ts'
import type { Publication } from '../../platform/http/openapi.ts'
import type { AppEnv } from '../kernel/app-env.ts'
import { rateLimit } from '../kernel/rate-limits.ts'

/** Builders of the published OpenAPI documents, by name. */
export type Documents = Readonly<Record<string, (publication: Publication) => object>>

/** Serves the OpenAPI documents, the API reference and the documentation. */
export function mountReference(app: Hono<AppEnv>, documents: Documents): void {
  const limit = rateLimit({})
  /** Texts of documents by name and base URL. */
  const texts = new Map<string, string>()

  for (const [name, build] of Object.entries(documents)) {
    app.get(`/api/${name}-json`, limit, (c) => {
      const baseUrl = c.var.ctx.config.BASE_URL
      const key = `${name} ${baseUrl}`
      const text = texts.get(key) ?? JSON.stringify(build({ release: manifest.version, baseUrl }))
      texts.set(key, text)
      return c.body(text, 200, {
        'content-type': 'application/json; charset=UTF-8',
        'x-content-type-options': 'nosniff',
      })
    })
  }
  // The API reference was at /docs before: old links, which have a version, lead to its new address.
  app.get('/docs', limit, addSecurityHeaders, async (c) =>
    c.req.query('version') ? c.redirect(`/docs/api${new URL(c.req.url).search}`) : serveFile(c, 'index.html'),
  )
  app.get('/docs/:name', limit, addSecurityHeaders, (c) => serveFile(c, withExtension(c.req.param('name'))))
  app.get('/docs/decisions/:name', limit, addSecurityHeaders, (c) =>
    serveFile(c, withExtension(c.req.param('name')), 'decisions/'),
  )
  app.get('/docs/*', limit, addSecurityHeaders, async (c) =>
    c.req.path.endsWith('/') ? c.redirect(c.req.path.replace(/\/+$/, '')) : answerMissing(c),
  )
}

/** The pages handle tokens, so they only run their own scripts, only connect to their own origin and cannot be framed. */
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

const addSecurityHeaders: MiddlewareHandler<AppEnv> = async (c, next) => {
  c.header('content-security-policy', CONTENT_SECURITY_POLICY)
  c.header('x-content-type-options', 'nosniff')
  c.header('x-frame-options', 'DENY')
  c.header('referrer-policy', 'no-referrer')
  await next()
}

const MISSING_PAGE = '404.html'
const FORWARDED_HEADERS = ['content-type', 'etag', 'cache-control']

/** Adds the extension that the URLs of pages omit. */
const withExtension = (name: string): string => (name.includes('.') ? name : `${name}.html`)

/** Serves a file of the page as a new reply: the reply of a binding would drop the headers set before it. */
async function serveFile(c: Context<AppEnv>, name: string, folder = ''): Promise<Response> {
  const known = c.req.header('if-none-match')
  const asset = await fetchAsset(c, `${folder}${encodeURIComponent(name)}`, known ? { 'if-none-match': known } : {})
  for (const header of FORWARDED_HEADERS) {
    const value = asset.headers.get(header)
    if (value) c.header(header, value)
  }
  if (asset.status === 304) return c.body(null, 304)
  if (!asset.ok) return answerMissing(c)
  return asset.body ? c.body(asset.body) : c.body(null)
}

const fetchAsset = (c: Context<AppEnv>, path: string, headers = {}) =>
  c.env.ASSETS.fetch(new URL(`/${path}`, c.req.url), { headers })

/** Answers 404: a page of the documentation for browsers, JSON for other clients. */
async function answerMissing(c: Context<AppEnv>): Promise<Response> {
  c.header('vary', 'accept')
  if (!c.req.header('accept')?.includes('text/html')) throw new ApiError('not_found.route')
  const page = await fetchAsset(c, MISSING_PAGE)
  return c.html(await page.text(), 404)
}
