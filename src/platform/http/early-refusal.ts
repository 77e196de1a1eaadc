import { readChunks } from '../blobs/chunk-reader.ts'
import { discardBody, discardedBodies } from '../blobs/discard-body.ts'

/** Runs a handler. Sends an error response at once, but keeps it open while the unread rest of the request body is discarded. */
export async function discardBodyOnError(
  request: Request,
  answer: () => Response | Promise<Response>,
): Promise<Response> {
  const { body } = request
  if (!body) return answer()
  const discarding: Promise<void>[] = []
  return discardedBodies.run(discarding, async () => {
    const response = await answer()
    if (response.status >= 400 && !request.bodyUsed && !body.locked) discardBody(readChunks(body))
    return discarding.length === 0 ? response : keepOpenUntil(Promise.all(discarding), response)
  })
}

async function keepOpenUntil(discarded: Promise<unknown>, response: Response): Promise<Response> {
  const bytes = await response.bytes()
  const { readable, writable } = new FixedLengthStream(bytes.length)
  const writer = writable.getWriter()
  const send = async () => {
    await writer.write(bytes)
    await discarded
    await writer.close()
  }
  // The client may disconnect as soon as it has the response.
  void send().catch(() => {})
  return new Response(readable, response)
}
