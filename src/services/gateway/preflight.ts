/** Whether a browser asks if it may send a request of another origin. */
export const isPreflight = ({ method, headers }: Request): boolean =>
  method === 'OPTIONS' && headers.has('origin') && headers.has('access-control-request-method')

/** Allows the request that a browser asks about, whatever its method and headers. */
export function allowRequest({ headers }: Request): Response {
  return new Response(null, {
    status: 204,
    headers: {
      'access-control-allow-origin': '*',
      'access-control-allow-methods': headers.get('access-control-request-method') ?? '*',
      'access-control-allow-headers': headers.get('access-control-request-headers') ?? '*',
      vary: 'access-control-request-method, access-control-request-headers',
    },
  })
}
