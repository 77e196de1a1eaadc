import { openStore } from '../../platform/blobs/store.ts'
import { awaitWithin } from '../../platform/timeout.ts'
import { blobPrefix } from './blob-key.ts'
import type { Storage } from './database.ts'
import { StorageError } from './storage-error.ts'

/** Whether the bucket responds now, which the error of a broken connection does not tell. */
export async function isBucketReachable(storage: Storage): Promise<boolean> {
  const [response] = (await awaitWithin(RESPONSE_MS_MAX, probe(storage)))?.value ?? []
  return response?.status === 'fulfilled'
}

const probe = ({ ctx, project }: Storage) =>
  Promise.allSettled([openStore(ctx).list(blobPrefix(project.ref), { count: 1 })])

const PROBE_EVERY_MS = 5_000
const RESPONSE_MS_MAX = 10_000
/** Some buckets read all of a large object before they respond, and serve no other request meanwhile. */
const BYTES_PER_MS_MIN = 20_000

/** Waits for the work as long as the bucket responds to probes. The client may be slow; a bucket that hangs fails the request. */
export async function waitWhileBucketResponds<T>(storage: Storage, size: number, work: Promise<T>): Promise<T> {
  for (;;) {
    const done = await awaitWithin(PROBE_EVERY_MS, work)
    if (done) return done.value
    const response = await awaitWithin(RESPONSE_MS_MAX + size / BYTES_PER_MS_MIN, probe(storage))
    if (!response) throw new StorageError('BytesUnavailable')
  }
}
