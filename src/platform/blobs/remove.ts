import type { PlatformCtx } from '../context.ts'
import { describeError } from '../http/log.ts'
import { withRemovalLock } from '../removals.ts'
import { BlobsNotRemoved, openStore } from './store.ts'

/** Removes bytes that a row refers to, or did. Bytes that no row ever referred to may be removed directly. */
export const removeBlobs = (ctx: PlatformCtx, keys: readonly string[]): Promise<void> =>
  withRemovalLock(ctx.config, () => openStore(ctx).remove(keys))

/** Maximum number of keys that S3 lists or removes in one request. */
const PAGE = 1_000

/** Removes everything whose key begins with the prefix. */
export async function removeAllUnder(ctx: PlatformCtx, prefix: string): Promise<void> {
  const store = openStore(ctx)
  for (let hasMore = true; hasMore; ) {
    const { blobs, more } = await store.list(prefix, { count: PAGE })
    const keys = blobs.map(({ key }) => key)
    if (keys.length > 0) await removeBlobs(ctx, keys)
    hasMore = more
  }
}

/** Removes as many keys as possible. Returns those that the bucket did not remove; rejects if it removed none. */
export async function removeAllPossible(ctx: PlatformCtx, keys: readonly string[]): Promise<readonly string[]> {
  try {
    await removeBlobs(ctx, keys)
    return []
  } catch (error) {
    if (!(error instanceof BlobsNotRemoved) || error.keys.length === keys.length) throw error
    ctx.log.error('blobs_not_removed', { count: error.keys.length, key: error.keys[0], error: describeError(error) })
    return error.keys
  }
}
