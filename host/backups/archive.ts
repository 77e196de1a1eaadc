import { createHash } from 'node:crypto'
import { Readable } from 'node:stream'
import { text as readText } from 'node:stream/consumers'
import { pipeline } from 'node:stream/promises'
import { createZstdCompress, createZstdDecompress } from 'node:zlib'
import { unpackTar } from 'modern-tar/fs'
import { DamagedObject } from './errors.ts'
import { seal, unseal } from './seal.ts'
import type { ArchiveStore } from './store.ts'
import { TarWriter } from './tar.ts'

/** Size and checksum of an object in the bucket, after compression and sealing. */
interface Stored {
  bytes: number
  sha256: string
}

/** Number of objects with which a key is tried: a few damaged ones must not keep a host from starting. */
const CHECKED_OBJECTS_MAX = 10

/** Prefix of all objects of the archive in the bucket. */
export const ARCHIVE_PREFIX = 'backups/'

/** Compresses and seals the objects of a store. Data is streamed: it is never whole in memory or on disk. */
export class Archive {
  readonly store: ArchiveStore
  readonly #key: Uint8Array
  readonly #signal: AbortSignal | undefined

  constructor(store: ArchiveStore, key: Uint8Array, signal?: AbortSignal) {
    if (key.length < 32) throw new Error('The archive key is too short: it must have at least 32 bytes')
    this.store = store
    this.#key = key
    this.#signal = signal
  }

  /** The same archive, whose downloads end when the signal aborts. */
  until(signal: AbortSignal): Archive {
    return new Archive(this.store, this.#key, signal)
  }

  async put(key: string, source: AsyncIterable<Uint8Array>): Promise<Stored> {
    const hash = createHash('sha256')
    let bytes = 0
    let storeError: unknown
    await pipeline(
      source,
      createZstdCompress(),
      (compressed: AsyncIterable<Uint8Array>) => seal(this.#key, key, compressed),
      (sealed: AsyncIterable<Uint8Array>) =>
        watch(sealed, (chunk) => {
          hash.update(chunk)
          bytes += chunk.length
        }),
      (sealed: AsyncIterable<Uint8Array>) =>
        this.store.put(key, sealed).catch((error) => {
          storeError = error
          throw error
        }),
    ).catch((error) => {
      // A failed upload makes the streams before it fail too, with other errors.
      throw storeError ?? error
    })
    return { bytes, sha256: hash.digest('hex') }
  }

  /** Stores the files that `write` adds, as one tar archive. */
  async putFiles(key: string, write: (tar: TarWriter) => Promise<void>): Promise<Stored> {
    const tar = new TarWriter()
    const stored = this.put(key, tar.stream)
    // A failed upload makes the writer fail too, and a failed writer the upload.
    const written = write(tar).then(tar.end).catch(tar.fail)
    await Promise.allSettled([stored, written])
    return stored
  }

  /** Unpacks a tar archive; throws `DamagedObject` if the object does not have the checksum `sha256`. */
  async unpack(key: string, folder: string, sha256?: string): Promise<void> {
    const hash = createHash('sha256')
    await pipeline(
      watch(this.store.get(key, this.#signal), (chunk) => hash.update(chunk)),
      (sealed: AsyncIterable<Uint8Array>) => unseal(this.#key, key, sealed),
      createZstdDecompress(),
      unpackTar(folder, { fmode: 0o600, dmode: 0o700 }),
    )
    if (sha256 && hash.digest('hex') !== sha256)
      throw new DamagedObject(`${key} does not have the checksum of its manifest`)
  }

  async putText(key: string, text: string): Promise<void> {
    await this.put(key, Readable.from([Buffer.from(text)]))
  }

  /** Throws `DamagedObject` if the key opens none of the first objects of the archive: another key sealed them. */
  async checkKey(): Promise<void> {
    const failures: DamagedObject[] = []
    for await (const { key } of this.store.each(ARCHIVE_PREFIX)) {
      try {
        return void (await unseal(this.#key, key, this.store.get(key, this.#signal)).next())
      } catch (error) {
        if (!(error instanceof DamagedObject)) throw error
        failures.push(error)
      }
      if (failures.length === CHECKED_OBJECTS_MAX) break
    }
    const [failure] = failures
    if (failure) throw failure
  }

  async text(key: string): Promise<string> {
    return pipeline(unseal(this.#key, key, this.store.get(key, this.#signal)), createZstdDecompress(), readText)
  }
}

/** Passes the chunks on, and shows each to `see`. */
async function* watch(chunks: AsyncIterable<Uint8Array>, see: (chunk: Uint8Array) => void): AsyncGenerator<Uint8Array> {
  for await (const chunk of chunks) {
    see(chunk)
    yield chunk
  }
}
