const RUNS_SCRIPTS = /html|xml|svg|multipart|message/i
/** They would reach beyond the function's own path. */
const REFUSED = ['service-worker-allowed', 'clear-site-data']

/** Below a path, all projects and the management API are one origin: no page of a function may act in its name. */
export function sharedResponse(response: Response): Response {
  const type = response.headers.get('content-type') ?? ''
  // Browsers look for one themselves where none is told.
  const runsScripts = type === '' || RUNS_SCRIPTS.test(type)
  if (response.webSocket || (!runsScripts && !REFUSED.some((name) => response.headers.has(name)))) return response
  const shown = new Response(response.body, response)
  for (const name of REFUSED) shown.headers.delete(name)
  if (!runsScripts) return shown
  if (/html/i.test(type)) shown.headers.set('content-type', 'text/plain; charset=utf-8')
  shown.headers.set('content-security-policy', "default-src 'none'; sandbox")
  shown.headers.set('x-content-type-options', 'nosniff')
  return shown
}
