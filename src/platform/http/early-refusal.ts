import { readChunks } from '../blobs/chunk-reader.ts'
import { dropRest, drops } from '../blobs/discard-body.ts'

/** Answers a refused caller at once, and keeps the response open while the rest of the body is dropped. */
export async function lingering(request: Request, answer: () => Response | Promise<Response>): Promise<Response> {
  const { body } = request
  if (!body) return answer()
  const dropping: Promise<void>[] = []
  return drops.run(dropping, async () => {
    const response = await answer()
    if (response.status >= 400 && !request.bodyUsed && !body.locked) dropRest(readChunks(body))
    return dropping.length === 0 ? response : openUntil(Promise.all(dropping), response)
  })
}

async function openUntil(dropped: Promise<unknown>, response: Response): Promise<Response> {
  const bytes = await response.bytes()
  const { readable, writable } = new FixedLengthStream(bytes.length)
  const writer = writable.getWriter()
  const send = async () => {
    await writer.write(bytes)
    await dropped
    await writer.close()
  }
  // The caller may go as soon as the answer is there.
  void send().catch(() => {})
  return new Response(readable, response)
}
