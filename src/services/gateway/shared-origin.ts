/** Headers whose effect reaches beyond the project's own path. */
const REMOVED_HEADERS = [
  'service-worker-allowed',
  'clear-site-data',
  'nel',
  'report-to',
  'reporting-endpoints',
  'strict-transport-security',
]
const PROJECT_PATH = /^\/p\/[^/]+\//

/** Keeps browsers from running a response as a page on the origin that all projects and the management API share. */
export function sandboxResponse(response: Response, path: string): Response {
  if (response.webSocket) return response
  const sandboxed = new Response(response.body, response)
  sandboxHeaders(sandboxed.headers, path)
  return sandboxed
}

/** Sandboxes the headers of a response that does not exist yet, as `sandboxResponse` does. */
export function sandboxHeaders(headers: Headers, path: string): void {
  // Reading the names once costs less than asking for each header.
  const names = new Set(headers.keys())
  for (const name of REMOVED_HEADERS) if (names.has(name)) headers.delete(name)
  if (names.has('set-cookie')) limitCookies(headers, PROJECT_PATH.exec(path)?.[0])
  if (/html/i.test(headers.get('content-type') ?? '')) headers.set('content-type', 'text/plain; charset=utf-8')
  // Set for every content type: browsers also render other types, such as SVG, as pages.
  headers.set('content-security-policy', "default-src 'none'; sandbox")
  headers.set('x-content-type-options', 'nosniff')
}

/** Limits cookies to the path of the project that set them, on this host alone. */
function limitCookies(headers: Headers, path: string | undefined): void {
  const cookies = headers.getSetCookie()
  headers.delete('set-cookie')
  if (path === undefined) return
  for (const cookie of cookies) {
    const parts = cookie.split(';').filter((part, n) => n === 0 || !/^\s*(path|domain)\s*(=|$)/i.test(part))
    headers.append('set-cookie', `${parts.join(';')}; Path=${path}`)
  }
}
