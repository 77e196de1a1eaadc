const EXPOSED =
  'Content-Encoding, Content-Location, Content-Range, Content-Type, Date, Location, Server, Transfer-Encoding, Range-Unit, Preference-Applied, Proxy-Status, X-Request-Id'

/** Any page may call the API: callers are known by their tokens, never by cookies. */
export const CORS_HEADERS = { 'access-control-allow-origin': '*', 'access-control-expose-headers': EXPOSED }

const METHODS = 'GET, POST, PATCH, PUT, DELETE, OPTIONS, HEAD'

export function preflight({ headers }: Request): Response {
  const wanted = headers.get('access-control-request-headers')
  return new Response(null, {
    status: 200,
    headers: {
      ...CORS_HEADERS,
      'access-control-allow-methods': METHODS,
      'access-control-allow-headers':
        wanted ?? 'Authorization, Content-Type, Accept, Accept-Language, Content-Language, apikey, Prefer, Range',
      'access-control-max-age': '86400',
      'content-length': '0',
    },
  })
}
