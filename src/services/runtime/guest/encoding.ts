/** What the runtime packs and unpacks by itself, for programs that are written for it. */
const ENCODINGS: readonly (string | null)[] = ['gzip', 'br']
const STATUS_MAX = 599

const isEncoded = ({ headers }: Response): boolean => ENCODINGS.includes(headers.get('content-encoding'))

/** As in Deno, what a program says is packed has been packed by it. */
export function asWritten(response: Response): Response {
  const { body, status, statusText, headers } = response
  if (!body || !isEncoded(response)) return response
  return new Response(body, { status, statusText, headers, encodeBody: 'manual' })
}

/** As in Deno, what has been unpacked does not say that it is packed. */
export function asUnpacked(response: Response): Response {
  // No response of ours can have a status above.
  if (!isEncoded(response) || response.status > STATUS_MAX) return response
  const unpacked = new Response(response.body, response)
  for (const name of ['content-encoding', 'content-length']) unpacked.headers.delete(name)
  return from(response, unpacked)
}

/** Only what was fetched has an address. */
function from({ url, redirected }: Response, made: Response): Response {
  const clone = () => from(made, Response.prototype.clone.call(made))
  return Object.defineProperties(made, {
    url: { value: url },
    redirected: { value: redirected },
    clone: { value: clone },
  })
}
