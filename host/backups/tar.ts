import type { FileHandle } from 'node:fs/promises'
import { createTarPacker, type TarHeader } from 'modern-tar'
import { ignoreMissing } from '../copies/data-files.ts'
import { openOwned } from '../instances/files.ts'
import type { InstanceRecord } from '../instances/types.ts'

const CHUNK_BYTES = 1 << 20

/** Writes a tar archive of files that may change meanwhile; each gets the length that it had when it was opened. */
export class TarWriter {
  readonly #packer = createTarPacker()
  #bytes = 0

  get stream(): AsyncIterable<Uint8Array> {
    return this.#packer.readable
  }

  /** Size of the files so far. */
  get bytes(): number {
    return this.#bytes
  }

  folder = (path: string) => this.#add({ name: `${path}/`, type: 'directory', mode: 0o700, size: 0 }, [])

  content = (path: string, content: Uint8Array) =>
    this.#add({ name: path, type: 'file', mode: 0o600, size: content.length }, [content])

  /** Adds a file of the account, unless it no longer exists. */
  async file(from: string, path: string, account: InstanceRecord['account']): Promise<void> {
    const file = await openOwned(from, account).catch(ignoreMissing)
    if (!file) return
    try {
      const { size } = await file.stat()
      await this.#add({ name: path, type: 'file', mode: 0o600, size }, chunksOf(file, size))
    } finally {
      await file.close()
    }
  }

  end = async () => this.#packer.controller.finalize()

  fail = async (error: unknown) => this.#packer.controller.error(error)

  async #add(header: TarHeader, chunks: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<void> {
    const entry = this.#packer.controller.add(header).getWriter()
    for await (const chunk of chunks) await entry.write(chunk)
    await entry.close()
    this.#bytes += header.size
  }
}

/** Reads as many bytes as the file had. If it was truncated meanwhile, zeros fill the rest, and recovery restores its length. */
async function* chunksOf(file: FileHandle, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < size; ) {
    const buffer = Buffer.alloc(Math.min(CHUNK_BYTES, size - at))
    const { bytesRead } = await file.read(buffer, 0, buffer.length, at)
    const chunk = buffer.subarray(0, bytesRead || buffer.length)
    yield chunk
    at += chunk.length
  }
}
