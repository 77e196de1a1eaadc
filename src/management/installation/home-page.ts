import type { Hono } from 'hono'
import { html } from 'hono/html'
import manifest from '../../../package.json' with { type: 'json' }
import type { AppEnv } from '../kernel/app-env.ts'
import type { HealthReporter } from './health.ts'
import { NOT_OFFERED, OFFERED } from './offered-services.ts'

const STYLE = `body{font:16px/1.5 system-ui,sans-serif;max-width:40rem;margin:3rem auto;padding:0 1rem}
dt{font-weight:600;margin-top:1rem}dd{margin:0}`
const name = 'Pilothouse'
const { version, description } = manifest
const PAGES = {
  docs: '/docs',
  api_reference: '/docs/api',
  openapi_v1: '/api/v1-json',
  openapi_v2: '/api/v2-json',
  openapi_storage: '/api/storage-json',
  health: '/health',
}

/** Describes the installation: a page for browsers, JSON for other clients. */
export function mountHome(app: Hono<AppEnv>, health: HealthReporter): void {
  app.get('/', async (c) => {
    const { status } = await health(c.var.ctx)
    c.header('vary', 'accept')
    if (!c.req.header('accept')?.includes('text/html')) {
      const base = c.var.ctx.config.BASE_URL
      const links = Object.fromEntries(Object.entries(PAGES).map(([page, path]) => [page, `${base}${path}`]))
      return c.json({ name, version, description, health: status, offered: OFFERED, not_offered: NOT_OFFERED, links })
    }
    const nonce = crypto.randomUUID()
    c.header(
      'content-security-policy',
      `default-src 'none'; style-src 'nonce-${nonce}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'`,
    )
    return c.html(html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${name}</title>
<style nonce="${nonce}">${STYLE}</style>
</head>
<body>
<h1>${name} ${version}</h1>
<p>${description}.</p>
<dl>
<dt>Health</dt><dd><a href="${PAGES.health}">${status}</a></dd>
<dt>Documentation</dt><dd><a href="${PAGES.docs}">Pages</a></dd>
<dt>API</dt><dd><a href="${PAGES.api_reference}">Reference</a>, OpenAPI
<a href="${PAGES.openapi_v1}">v1</a>, <a href="${PAGES.openapi_v2}">v2</a> and <a href="${PAGES.openapi_storage}">storage</a></dd>
<dt>Offered</dt><dd>${OFFERED.join(', ')}</dd>
<dt>Not offered</dt><dd>${NOT_OFFERED.join(', ')}</dd>
</dl>
</body>
</html>
`)
  })
}
