import type { ParsedTarEntry } from 'modern-tar'

/** Reads the whole content of an archived file into a buffer of the size in its header. */
export async function readTarEntry({ header: { size }, body }: ParsedTarEntry): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(size)
  let at = 0
  for await (const chunk of body) {
    bytes.set(chunk, at)
    at += chunk.byteLength
  }
  return bytes
}
