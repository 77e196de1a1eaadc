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

/** Stored under the digest of its own text: the same source built again needs no more room. Returns the digest. */
export async function storeImage(ctx: SystemCtx, ref: string, { image, assets }: Built): Promise<string> {
  const bytes = new Uint8Array(new TextEncoder().encode(image))
  const sha256 = hex(await crypto.subtle.digest('SHA-256', bytes))
  // Before the bytes: who is just removing the same ones comes first, and is waited for.
  await touchImage(ctx, ctx.db, { ref, sha256 })
  const store = openStore(ctx)
  if (assets) await store.put(workerAssetsKey(ref, sha256), assets.body, { size: assets.bytes })
  await store.put(workerImageKey(ref, sha256), bytes, {
    size: bytes.length,
    contentType: 'application/json',
  })
  return sha256
}

/** From now on its grace runs. */
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

/** It may have been removed since it was built, as nobody served it yet: then it is built again. */
export async function requireImage(tx: Writer, { ref, sha256 }: ImageName): Promise<void> {
  const images = await tx
    .select({ sha256: workerImages.sha256 })
    .from(workerImages)
    .where(and(eq(workerImages.projectRef, ref), eq(workerImages.sha256, sha256)))
    .for('share')
  if (images.length === 0) throw new Error(`the image ${sha256} was removed in the meantime`)
}

/** Longer than a build takes from its bytes to its end, or an instance from its plan to its start. */
const GRACE_MS = 60 * 60 * 1000
const SWEPT_MAX = 100

const served = sql`exists (select from ${workers} where ${workers.projectRef} = ${workerImages.projectRef}
  and ${workers.served} ->> 'image' = ${workerImages.sha256})`

/** Images that no worker has served for a while. */
export async function sweepImages(ctx: SystemCtx): Promise<void> {
  const before = new Date(ctx.now().getTime() - GRACE_MS)
  await touchServed(ctx, before)
  const removed = await removeImages(ctx, and(lt(workerImages.touchedAt, before), sql`not ${served}`))
  if (removed > 0) ctx.log.info('worker_images_removed', { count: removed })
}

const TOUCHED_MAX = 1_000

/** What is served is looked at again when its grace is over, and not with each sweep. */
async function touchServed({ db, now }: SystemCtx, before: Date): Promise<void> {
  await db.execute(sql`update ${workerImages} set touched_at = ${now().toISOString()}
    where (project_ref, sha256) in (select project_ref, sha256 from ${workerImages}
      where ${lt(workerImages.touchedAt, before)} and ${served}
      order by ${workerImages.touchedAt} limit ${TOUCHED_MAX} for update skip locked)`)
}

/** Of a worker that is no more; another one that serves the same keeps it. */
export async function removeImage(ctx: SystemCtx, { ref, sha256 }: ImageName): Promise<void> {
  await removeImages(ctx, and(eq(workerImages.projectRef, ref), eq(workerImages.sha256, sha256), sql`not ${served}`))
}

/** The rows are held while the bytes go, so that nobody can rely on an image that is just being removed. */
function removeImages(ctx: SystemCtx, which: ReturnType<typeof and>): Promise<number> {
  return inTransaction(controlDatabase(ctx.config), async (tx) => {
    const images = await tx
      .select()
      .from(workerImages)
      .where(which)
      .orderBy(workerImages.touchedAt)
      .limit(SWEPT_MAX)
      .for('update', { skipLocked: true })
    if (images.length === 0) return 0
    const left = new Set(await removeAllPossible(ctx, images.flatMap(keysOf)))
    const isLeft = (image: Row) => keysOf(image).some((key) => left.has(key))
    await tx.delete(workerImages).where(among(images.filter((image) => !isLeft(image))))
    const kept = images.filter(isLeft)
    // Others come before them with the next sweep.
    if (kept.length > 0) await tx.update(workerImages).set({ touchedAt: ctx.now() }).where(among(kept))
    return images.length - kept.length
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
