import { createHash, randomUUID } from 'node:crypto'
import { type FileHandle, open, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { ARCHIVE_PREFIX } from '../../host/backups/archive.ts'
import { MissingObject } from '../../host/backups/errors.ts'
import { Mutex } from '../../host/instances/mutex.ts'
import { StartError } from '../start-error.ts'
import { BUCKET_PREFIX, damaged, OBJECTS, StoredObject, type Sum } from './manifest.ts'
import type { BackupPlace } from './place.ts'

type Bytes = AsyncIterable<Uint8Array>

/** Objects that are copied at the same time, each with a part of 16 MiB in memory. */
const COPIES_AT_ONCE = 4

/** Stores the body, and returns its size and checksum. */
export async function putSummed(put: (body: Bytes) => Promise<void>, source: Bytes): Promise<Sum> {
  const hash = createHash('sha256')
  let bytes = 0
  async function* through() {
    for await (const chunk of source) {
      hash.update(chunk)
      bytes += chunk.length
      yield chunk
    }
  }
  await put(through())
  return { bytes, sha256: hash.digest('hex') }
}

/** Streams a file and throws at its end if it is damaged, so that an upload of it does not complete. */
export async function* verified(place: BackupPlace, file: string, sum: Sum): AsyncGenerator<Uint8Array> {
  const hash = createHash('sha256')
  let bytes = 0
  try {
    for await (const chunk of place.get(file)) {
      hash.update(chunk)
      bytes += chunk.length
      yield chunk
    }
  } catch (error) {
    throw error instanceof MissingObject ? new StartError(`The backup is damaged: ${file} is missing.`) : error
  }
  if (bytes !== sum.bytes || hash.digest('hex') !== sum.sha256) throw damaged(file)
}

/** Copies objects into the backup, and the list of them last. Skips objects outside the archive that no longer exist. */
export async function copyIn(
  place: BackupPlace,
  keys: AsyncIterable<string>,
  get: (key: string) => Bytes,
): Promise<{ count: number; bytes: number; list: Sum }> {
  return withTemporaryFile(async (list) => {
    const total = { count: 0, bytes: 0 }
    const lines = new Mutex()
    await eachOf(keys, async (key) => {
      const sum = await putSummed((body) => place.put(BUCKET_PREFIX + key, body), get(key)).catch((error) => {
        // Only bytes of unfinished and refused uploads are deleted during a backup; no restored row needs them.
        if (error instanceof MissingObject && !key.startsWith(ARCHIVE_PREFIX)) return undefined
        throw error
      })
      if (!sum) return
      total.count += 1
      total.bytes += sum.bytes
      await lines.run(() => list.appendFile(`${JSON.stringify({ key, ...sum })}\n`))
    })
    const sum = await putSummed((body) => place.put(OBJECTS, body), readAll(list))
    return { ...total, list: sum }
  })
}

/** Copies all objects of a backup out of it. */
export async function copyOut(
  place: BackupPlace,
  list: Sum,
  put: (key: string, body: Bytes) => Promise<void>,
): Promise<void> {
  await withTemporaryFile(async (file) => {
    for await (const chunk of verified(place, OBJECTS, list)) await file.appendFile(chunk)
    const lines = createInterface({ input: readAll(file) })
    await eachOf(lines, async (line) => {
      const { key, ...sum } = StoredObject.parse(JSON.parse(line))
      await put(key, verified(place, BUCKET_PREFIX + key, sum))
    })
  })
}

/** Runs the work with a temporary file that is unlinked at once, so that an interruption does not leave it behind. */
async function withTemporaryFile<Value>(work: (file: FileHandle) => Promise<Value>): Promise<Value> {
  const path = join(tmpdir(), `pilothouse-backup-${randomUUID()}`)
  const file = await open(path, 'wx+', 0o600)
  try {
    await rm(path)
    return await work(file)
  } finally {
    await file.close()
  }
}

const readAll = (file: FileHandle) => file.createReadStream({ start: 0, autoClose: false })

/** Works on a few items at a time. After a failure it starts no more items, waits for the running ones and throws. */
export async function eachOf<Item>(
  items: AsyncIterable<Item>,
  work: (item: Item) => Promise<void>,
  atOnce = COPIES_AT_ONCE,
): Promise<void> {
  const iterator = items[Symbol.asyncIterator]()
  const failures: unknown[] = []
  const workNext = async () => {
    while (failures.length === 0) {
      const { done, value } = await iterator.next()
      if (done) return
      await work(value)
    }
  }
  await Promise.all(Array.from({ length: atOnce }, () => workNext().catch((error) => failures.push(error))))
  if (failures.length > 0) throw failures[0]
}
