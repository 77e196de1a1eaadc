import type { PlatformCtx } from '../context.ts'
import { describeError } from '../http/log.ts'
import { removing } from '../removals.ts'
import { BlobsNotRemoved, openStore } from './store.ts'

/** Removes bytes that a row names, or has named. Bytes that no row ever named may go past this. */
export const removeBlobs = (ctx: PlatformCtx, keys: readonly string[]): Promise<void> =>
  removing(ctx.config, () => openStore(ctx).remove(keys))

/** Returns the keys that the bucket would not remove; rejects where it removed none. */
export async function removeAllPossible(ctx: PlatformCtx, keys: readonly string[]): Promise<readonly string[]> {
  try {
    await removeBlobs(ctx, keys)
    return []
  } catch (error) {
    if (!(error instanceof BlobsNotRemoved) || error.keys.length === keys.length) throw error
    ctx.log.error('bytes_left', { count: error.keys.length, key: error.keys[0], error: describeError(error) })
    return error.keys
  }
}
