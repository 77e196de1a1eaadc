/** Copies a response. `ended` resolves when its body has been sent completely or has broken off. */
export function observeEnd(response: Response): { copy: Response; ended: Promise<void> } {
  if (!response.body) return { copy: response, ended: Promise.resolve() }
  // The content-length of an encoded body counts the encoded bytes, and the body here is decoded.
  const size = response.headers.has('content-encoding') ? null : response.headers.get('content-length')
  const { readable, writable } = size === null ? new IdentityTransformStream() : new FixedLengthStream(Number(size))
  const ended = response.body.pipeTo(writable).catch(() => {})
  return { copy: new Response(readable, response), ended }
}
