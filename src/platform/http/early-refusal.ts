import { readChunks } from '../blobs/chunk-reader.ts'
import { discard, discardedBodies } from '../blobs/discard-body.ts'

type Answer = () => Response | Promise<Response>

/**
 * Runs a handler. Sends an error response at once, but keeps it open while the unread rest of the request body is discarded. A handler
 * that reads its body in parts calls `discardBody` for what it has not read to the end.
 */
export async function discardBodyOnError(request: Request, answer: Answer): Promise<Response> {
  if (!request.body) return answer()
  const discarding: Promise<void>[] = []
  const response = await discardedBodies.run(discarding, answer)
  if (response.status >= 400 && !request.bodyUsed && !request.body.locked)
    discarding.push(discard(readChunks(request.body)))
  return discarding.length === 0 ? response : keepOpenUntil(Promise.all(discarding), response)
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
