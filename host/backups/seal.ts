import { createCipheriv, createDecipheriv, hkdfSync, randomBytes } from 'node:crypto'
import { DamagedObject } from './errors.ts'

/**
 * A sealed object consists of the mark, a salt, and AES-256-GCM frames, each with its length, ciphertext and tag. The key is
 * derived from the archive key, the salt and the object's name; the nonce counts the frames and marks the last one. So an object
 * that was truncated, rearranged or renamed does not open.
 */
const MARK = Buffer.from('PHA1')
const SALT_BYTES = 16
const FRAME_BYTES = 1 << 20
const HEAD_BYTES = 4
const TAG_BYTES = 16

const derive = (key: Uint8Array, salt: Uint8Array, name: string) =>
  Buffer.from(hkdfSync('sha256', key, salt, `pilothouse archive ${name}`, 32))

function nonce(count: number, isLast: boolean): Buffer {
  const bytes = Buffer.alloc(12)
  bytes.writeUIntBE(count, 5, 6)
  bytes[11] = isLast ? 1 : 0
  return bytes
}

/** Encrypts a stream of chunks of any size. The name becomes part of the key. */
export async function* seal(key: Uint8Array, name: string, source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  const salt = randomBytes(SALT_BYTES)
  const derived = derive(key, salt, name)
  const frame = (count: number, bytes: Uint8Array, isLast: boolean) => {
    const cipher = createCipheriv('aes-256-gcm', derived, nonce(count, isLast))
    const head = Buffer.alloc(HEAD_BYTES)
    head.writeUInt32BE(bytes.length)
    return Buffer.concat([head, cipher.update(bytes), cipher.final(), cipher.getAuthTag()])
  }
  yield Buffer.concat([MARK, salt])
  let count = 0
  let rest = Buffer.alloc(0)
  for await (const chunk of source) {
    rest = Buffer.concat([rest, chunk])
    for (; rest.length > FRAME_BYTES; rest = rest.subarray(FRAME_BYTES)) {
      yield frame(count++, rest.subarray(0, FRAME_BYTES), false)
    }
  }
  yield frame(count, rest, true)
}

/** Decrypts a sealed object. Each frame is authenticated before it is yielded; rejects with DamagedObject if one is not valid. */
export async function* unseal(
  key: Uint8Array,
  name: string,
  source: AsyncIterable<Uint8Array>,
): AsyncGenerator<Buffer> {
  const read = reader(source)
  const head = await read(MARK.length + SALT_BYTES)
  if (!head.subarray(0, MARK.length).equals(MARK)) throw new DamagedObject(`${name} is not an object of an archive`)
  const derived = derive(key, head.subarray(MARK.length), name)
  const open = (count: number, bytes: Buffer, isLast: boolean) => {
    const decipher = createDecipheriv('aes-256-gcm', derived, nonce(count, isLast))
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES))
    const plain = decipher.update(bytes.subarray(0, -TAG_BYTES))
    try {
      return Buffer.concat([plain, decipher.final()])
    } catch {
      throw new DamagedObject(`${name} was changed, or belongs to another name or key`)
    }
  }
  for (let count = 0, next = await read(HEAD_BYTES); ; count++) {
    const length = next.readUInt32BE()
    if (length > FRAME_BYTES) throw new DamagedObject(`${name} has a frame of ${length} bytes`)
    const bytes = await read(length + TAG_BYTES)
    const following = await read(HEAD_BYTES, true)
    yield open(count, bytes, following.length === 0)
    if (following.length === 0) return
    next = following
  }

  function reader(chunks: AsyncIterable<Uint8Array>) {
    const iterator = chunks[Symbol.asyncIterator]()
    let buffered: Buffer = Buffer.alloc(0)
    return async (length: number, mayEnd = false): Promise<Buffer> => {
      const parts: Buffer[] = [buffered]
      let bytes = buffered.length
      while (bytes < length) {
        const { done, value } = await iterator.next()
        if (done) break
        parts.push(Buffer.from(value.buffer, value.byteOffset, value.length))
        bytes += value.length
      }
      const all = Buffer.concat(parts)
      if (bytes < length && !(mayEnd && bytes === 0)) throw new DamagedObject(`${name} is truncated`)
      buffered = all.subarray(length)
      return all.subarray(0, length)
    }
  }
}
