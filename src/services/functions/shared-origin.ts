/** They would reach beyond the function's own path. */
const REFUSED = [
  'service-worker-allowed',
  'clear-site-data',
  'nel',
  'report-to',
  'reporting-endpoints',
  'strict-transport-security',
]
const PROJECT_PATH = /^\/p\/[^/]+\//

/** Below a path, all projects and the management API are one origin: no page of a function may act in its name. */
export function sandboxResponse(response: Response, path: string): Response {
  if (response.webSocket) return response
  const shown = new Response(response.body, response)
  const { headers } = shown
  for (const name of REFUSED) headers.delete(name)
  limitCookies(headers, PROJECT_PATH.exec(path)?.[0])
  if (/html/i.test(headers.get('content-type') ?? '')) headers.set('content-type', 'text/plain; charset=utf-8')
  // Whatever the type: browsers take more for a page than says so.
  headers.set('content-security-policy', "default-src 'none'; sandbox")
  headers.set('x-content-type-options', 'nosniff')
  return shown
}

/** A cookie is for the project that set it, and for no other host. */
function limitCookies(headers: Headers, path: string | undefined): void {
  const cookies = headers.getSetCookie()
  headers.delete('set-cookie')
  if (path === undefined) return
  for (const cookie of cookies) {
    const kept = cookie.split(';').filter((part, n) => n === 0 || !/^\s*(path|domain)\s*(=|$)/i.test(part))
    headers.append('set-cookie', `${kept.join(';')}; Path=${path}`)
  }
}
