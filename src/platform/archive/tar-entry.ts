import type { ParsedTarEntry } from 'modern-tar'

/** All of a file in an archive, in the room that its header names. */
export async function bytesOf({ header: { size }, body }: ParsedTarEntry): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(size)
  let at = 0
  for await (const chunk of body) {
    bytes.set(chunk, at)
    at += chunk.byteLength
  }
  return bytes
}
