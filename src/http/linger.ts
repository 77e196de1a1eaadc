import { readChunks } from '../blobs/chunks.ts'
import { dropRest } from '../blobs/drop.ts'

/** A refusal whose caller sends a body that nobody has looked at. */
export async function lingering(request: Request, answering: Response | Promise<Response>): Promise<Response> {
  const response = await answering
  const { body } = request
  if (response.status >= 400 && body && !request.bodyUsed && !body.locked) await dropRest(readChunks(body))
  return response
}
