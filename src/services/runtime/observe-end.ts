/** The symbol at which the runtime shows the length of a stream to its own inspector; no documented API has it. */
const LENGTH = Object.getOwnPropertySymbols(ReadableStream.prototype).find(
  ({ description }) => description === 'length',
)

/** Copies a response. `ended` resolves when its body has been sent completely or has broken off. */
export function observeEnd(response: Response): { copy: Response; ended: Promise<void> } {
  const { body } = response
  if (!body) return { copy: response, ended: Promise.resolve() }
  const length = lengthOf(body)
  const { readable, writable } = length === undefined ? new IdentityTransformStream() : new FixedLengthStream(length)
  const ended = body.pipeTo(writable).catch(() => {})
  return { copy: new Response(readable, response), ended }
}

/**
 * Returns undefined for a body of unknown length. The content-length header cannot be used: a program can set any, and that of an
 * encoded body counts the encoded bytes, while the body here is decoded.
 */
const lengthOf = (body: ReadableStream): bigint | undefined =>
  LENGTH && (body as unknown as Record<symbol, bigint | undefined>)[LENGTH]
