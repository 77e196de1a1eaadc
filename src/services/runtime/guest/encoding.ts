/** Encodings that the runtime compresses and decompresses itself, for programs written for Workers. */
const ENCODINGS: readonly (string | null)[] = ['gzip', 'br']
/** A response from `fetch` can have a higher status, a constructed one cannot. */
export const STATUS_MAX = 599

const isEncoded = ({ headers }: Response): boolean => ENCODINGS.includes(headers.get('content-encoding'))

/** Sends a body as it is: in Deno, a program that sets `content-encoding` has compressed the body itself. */
export function withoutReencoding(response: Response): Response {
  const { body, status, statusText, headers } = response
  if (!body || !isEncoded(response)) return response
  return new Response(body, { status, statusText, headers, encodeBody: 'manual' })
}

/** Removes the encoding headers of a decompressed response, as Deno does. */
export function withoutEncodingHeaders(response: Response): Response {
  if (!isEncoded(response) || response.status > STATUS_MAX) return response
  const decoded = new Response(response.body, response)
  for (const name of ['content-encoding', 'content-length']) decoded.headers.delete(name)
  return withUrlOf(response, decoded)
}

/** Keeps `url` and `redirected`, which a constructed Response does not have. */
function withUrlOf({ url, redirected }: Response, made: Response): Response {
  const clone = () => withUrlOf(made, Response.prototype.clone.call(made))
  return Object.defineProperties(made, {
    url: { value: url },
    redirected: { value: redirected },
    clone: { value: clone },
  })
}
