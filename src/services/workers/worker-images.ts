import { and, eq, inArray, lt, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../ctx.ts'
import { workerImages, workers } from '../../model/tables/index.ts'
import { removeAllPossible } from '../../platform/blobs/remove.ts'
import { openStore } from '../../platform/blobs/store.ts'
import { type Db, inTransaction, type Writer } from '../../platform/db/client.ts'
import { controlDatabase } from '../../platform/db/control-database.ts'
import type { WorkerBuild } from '../runtime/build-client.ts'
import { workerAssetsKey, workerImageKey } from '../runtime/program-keys.ts'

export interface ImageName {
  ref: string
  sha256: string
}

type Built = Pick<WorkerBuild, 'image' | 'assets'>

/** Stores an image under the digest of its text, so that equal builds share one object. Returns the digest. */
export async function storeImage(ctx: SystemCtx, ref: string, { image, assets }: Built): Promise<string> {
  const bytes = new Uint8Array(new TextEncoder().encode(image))
  const sha256 = hex(await crypto.subtle.digest('SHA-256', bytes))
  // Touched before the bytes are stored: this waits for a concurrent removal of the same image.
  await touchImage(ctx, ctx.db, { ref, sha256 })
  const store = openStore(ctx)
  const [imageKey, assetsKey] = [workerImageKey(ref, sha256), workerAssetsKey(ref, sha256)]
  // Stored objects are not written again: a backup under way leaves out objects that are newer than its moment.
  const isStored = async (key: string, size: number) => (await store.head(key))?.size === size
  if (assets && (await isStored(assetsKey, assets.bytes))) await assets.body.cancel()
  else if (assets) await store.put(assetsKey, assets.body, { size: assets.bytes })
  if (!(await isStored(imageKey, bytes.length)))
    await store.put(imageKey, bytes, { size: bytes.length, contentType: 'application/json' })
  return sha256
}

/** Starts the grace period of an image anew. */
export async function touchImage(
  { now }: SystemCtx,
  tx: Pick<Writer, 'insert'> | Db,
  { ref, sha256 }: ImageName,
): Promise<void> {
  await tx
    .insert(workerImages)
    .values({ projectRef: ref, sha256, touchedAt: now() })
    .onConflictDoUpdate({ target: [workerImages.projectRef, workerImages.sha256], set: { touchedAt: now() } })
}

/**
 * Locks an image that is about to be served. Throws if it was removed since its build; the caller then builds it again.
 */
export async function requireImage(tx: Writer, { ref, sha256 }: ImageName): Promise<void> {
  const images = await tx
    .select({ sha256: workerImages.sha256 })
    .from(workerImages)
    .where(and(eq(workerImages.projectRef, ref), eq(workerImages.sha256, sha256)))
    .for('share')
  if (images.length === 0) throw new Error(`the image ${sha256} was removed before it was served`)
}

/** Grace period. It exceeds the time from storing an image to serving it, and the start of an instance. */
const GRACE_MS = 60 * 60 * 1000
const REMOVED_MAX = 100

const isServed = sql`exists (select from ${workers} where ${workers.projectRef} = ${workerImages.projectRef}
  and ${workers.served} ->> 'image' = ${workerImages.sha256})`

/** Removes images that no worker has served during the grace period. */
export async function sweepImages(ctx: SystemCtx): Promise<void> {
  const before = new Date(ctx.now().getTime() - GRACE_MS)
  await touchServed(ctx, before)
  const removed = await removeImages(ctx, and(lt(workerImages.touchedAt, before), sql`not ${isServed}`))
  if (removed > 0) ctx.log.info('worker_images_removed', { count: removed })
}

const TOUCHED_MAX = 1_000

/** Restarts the grace period of served images, so that not every sweep has to check them. */
async function touchServed({ db, now }: SystemCtx, before: Date): Promise<void> {
  await db.execute(sql`update ${workerImages} set touched_at = ${now().toISOString()}
    where (project_ref, sha256) in (select project_ref, sha256 from ${workerImages}
      where ${lt(workerImages.touchedAt, before)} and ${isServed}
      order by ${workerImages.touchedAt} limit ${TOUCHED_MAX} for update skip locked)`)
}

/** Removes the image of a deleted worker, unless another worker serves it. */
export async function removeImage(ctx: SystemCtx, { ref, sha256 }: ImageName): Promise<void> {
  await removeImages(ctx, and(eq(workerImages.projectRef, ref), eq(workerImages.sha256, sha256), sql`not ${isServed}`))
}

/** Locks the rows while the bytes are removed, so that no deployment starts to use an image under removal. */
function removeImages(ctx: SystemCtx, which: ReturnType<typeof and>): Promise<number> {
  return inTransaction(controlDatabase(ctx.config), async (tx) => {
    const images = await tx
      .select()
      .from(workerImages)
      .where(which)
      .orderBy(workerImages.touchedAt)
      .limit(REMOVED_MAX)
      .for('update', { skipLocked: true })
    if (images.length === 0) return 0
    const failedKeys = new Set(await removeAllPossible(ctx, images.flatMap(keysOf)))
    const hasFailed = (image: Row) => keysOf(image).some((key) => failedKeys.has(key))
    await tx.delete(workerImages).where(among(images.filter((image) => !hasFailed(image))))
    const failed = images.filter(hasFailed)
    // Images that could not be removed go to the end of the queue for the next sweeps.
    if (failed.length > 0) await tx.update(workerImages).set({ touchedAt: ctx.now() }).where(among(failed))
    return images.length - failed.length
  })
}

type Row = typeof workerImages.$inferSelect

const keysOf = ({ projectRef, sha256 }: Row) => [
  workerImageKey(projectRef, sha256),
  workerAssetsKey(projectRef, sha256),
]

const among = (images: readonly Row[]) =>
  inArray(
    sql`(${workerImages.projectRef}, ${workerImages.sha256})`,
    images.map(({ projectRef, sha256 }) => sql`(${projectRef}, ${sha256})`),
  )

const hex = (bytes: ArrayBuffer): string =>
  Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, '0')).join('')
