/** Reads a body as text. Returns undefined if it is larger than `sizeBytesMax`. */
export async function readText({ body }: Pick<Body, 'body'>, sizeBytesMax: number): Promise<string | undefined> {
  const decoder = new TextDecoder()
  let text = ''
  let sizeBytes = 0
  for await (const chunk of body ?? []) {
    sizeBytes += chunk.byteLength
    // Leaving the loop cancels the body.
    if (sizeBytes > sizeBytesMax) return undefined
    text += decoder.decode(chunk, { stream: true })
  }
  return text + decoder.decode()
}
