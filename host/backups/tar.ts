import { PassThrough } from 'node:stream'
import { ignoreMissing } from '../copies/data-files.ts'
import { openOwned } from '../instances/files.ts'
import type { InstanceRecord } from '../instances/types.ts'

const BLOCK_BYTES = 512
const CHUNK_BYTES = 1 << 20

/** Writes a tar archive of files that may change meanwhile; each gets the length that it had when it was opened. */
export class TarWriter {
  readonly stream = new PassThrough({ highWaterMark: CHUNK_BYTES })
  #bytes = 0
  #fail: (reason: unknown) => void = () => {}

  constructor() {
    this.stream.on('close', () => this.#fail(this.stream.errored))
  }

  /** Bytes written so far. */
  get bytes(): number {
    return this.#bytes
  }

  folder = (path: string) => this.#write(tarHeader(`${path}/`, 0, '5'))

  async content(path: string, content: Uint8Array): Promise<void> {
    await this.#write(tarHeader(path, content.length, '0'))
    await this.#write(content)
    await this.#pad(content.length)
  }

  /** Adds a file of the account, unless it no longer exists. */
  async file(from: string, path: string, account: InstanceRecord['account']): Promise<void> {
    const file = await openOwned(from, account).catch(ignoreMissing)
    if (!file) return
    try {
      const { size } = await file.stat()
      await this.#write(tarHeader(path, size, '0'))
      for (let at = 0; at < size; ) {
        const buffer = Buffer.allocUnsafe(Math.min(CHUNK_BYTES, size - at))
        const { bytesRead } = await file.read(buffer, 0, buffer.length, at)
        // The file was truncated meanwhile: zeros fill the rest, and recovery restores its length.
        if (bytesRead === 0) buffer.fill(0)
        const chunk = buffer.subarray(0, bytesRead || buffer.length)
        await this.#write(chunk)
        at += chunk.length
      }
      await this.#pad(size)
    } finally {
      await file.close()
    }
  }

  async end(): Promise<void> {
    await this.#write(Buffer.alloc(2 * BLOCK_BYTES))
    this.stream.end()
  }

  #pad = (size: number) => this.#write(Buffer.alloc((BLOCK_BYTES - (size % BLOCK_BYTES)) % BLOCK_BYTES))

  #write(bytes: Uint8Array): Promise<void> {
    this.#bytes += bytes.length
    return new Promise((resolve, reject) => {
      // A destroyed stream does not call back for the pending write.
      this.#fail = reject
      if (this.stream.destroyed) reject(this.stream.errored)
      else this.stream.write(bytes, (error) => (error ? reject(error) : resolve()))
    })
  }
}

/** Encodes a header in the format `ustar`; numbers too large for its octal digits are binary. */
function tarHeader(path: string, size: number, type: '0' | '5'): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES)
  if (Buffer.byteLength(path) > 100) throw new Error(`The path is too long for a tar archive: ${path}`)
  block.write(path, 0)
  block.write(type === '5' ? '0000700\0' : '0000600\0', 100)
  block.write('0000000\x000000000\0', 108)
  if (size < 8 ** 11) block.write(`${size.toString(8).padStart(11, '0')}\0`, 124)
  else {
    block[124] = 0x80
    block.writeUIntBE(size, 130, 6)
  }
  block.write('00000000000\0', 136)
  block.write(`        ${type}`, 148)
  block.write('ustar\x0000', 257)
  const sum = block.reduce((total: number, byte: number) => total + byte, 0)
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148)
  return block
}
