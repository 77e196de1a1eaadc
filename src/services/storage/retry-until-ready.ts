import { openStore } from '../../platform/blobs/store.ts'
import { blobPrefix } from './blob-key.ts'
import type { Storage } from './request.ts'
import { StorageError } from './storage-error.ts'

/** Undefined when it takes longer; then nobody hears how it ends. */
export async function inTime<T>(ms: number, work: Promise<T>): Promise<{ value: T } | undefined> {
  let timer: ReturnType<typeof setTimeout> | undefined
  const tooLate = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ms)
  })
  try {
    return await Promise.race([work.then((value) => ({ value })), tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** Whether it answers anything now; where the way to it broke, the failure itself may not tell. */
export async function isBucketThere({ ctx, project }: Storage): Promise<boolean> {
  const look = openStore(ctx).list(blobPrefix(project.ref), { count: 1 })
  const [answer] = (await inTime(ANSWER_MS_MAX, Promise.allSettled([look])))?.value ?? []
  return answer?.status === 'fulfilled'
}

const LOOK_EVERY_MS = 5_000
const ANSWER_MS_MAX = 10_000
/** Some buckets look at the whole of a large object before they answer, and at nothing else meanwhile. */
const BYTES_A_MS_MIN = 20_000

/** Waits for as long as the bucket answers at all: a slow client may take any time, a bucket that is away none. */
export async function whileBucketAnswers<T>({ ctx, project }: Storage, size: number, work: Promise<T>): Promise<T> {
  for (;;) {
    const done = await inTime(LOOK_EVERY_MS, work)
    if (done) return done.value
    const look = openStore(ctx).list(blobPrefix(project.ref), { count: 1 })
    if (!(await inTime(ANSWER_MS_MAX + size / BYTES_A_MS_MIN, Promise.allSettled([look]))))
      throw new StorageError('BytesUnavailable')
  }
}
