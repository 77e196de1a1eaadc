import * as z from 'zod'
import { openStore } from '../../platform/blobs/store.ts'
import { newTimedId } from '../../platform/db/id.ts'
import { blobKey, storedBlobKey } from './blob-key.ts'
import { asCaller, type Caller } from './database.ts'
import { safeHeader, userMetadataIn } from './incoming-upload.ts'
import { checkBucketName, checkKey } from './object-names.ts'
import { describe, findObject, shown, userMetadataOf } from './read-object.ts'
import { callerOf, type Storage, type StorageContext } from './request.ts'
import { optional, readJson } from './request-body.ts'
import { whileBucketAnswers } from './retry-until-ready.ts'
import type { FoundObject, ObjectRow, Place } from './statements/object-rows.ts'
import { moveObject, readObject, seeObject } from './statements/objects.ts'
import { isTaken, StorageError } from './storage-error.ts'
import { checkFits } from './upload-bounds.ts'
import { mayUpload, related, write } from './upload-object.ts'

const Move = z.object({
  bucketId: z.string(),
  sourceKey: z.string(),
  destinationKey: z.string(),
  destinationBucket: z.string().nullish(),
  sourceVersionId: z.string().nullish(),
})

function placesIn({ bucketId, sourceKey, destinationKey, destinationBucket }: z.output<typeof Move>) {
  return {
    from: placeOf(bucketId, sourceKey),
    to: placeOf(destinationBucket ?? bucketId, destinationKey),
  }
}

const placeOf = (bucketId: string, name: string): Place => ({
  bucketId: checkBucketName(bucketId),
  name: checkKey(name),
})

/** A change of the row alone: the bytes stay where they are. */
export async function move(c: StorageContext) {
  const caller = await callerOf(c, 'storage.object.move')
  const body = await readJson(c, Move)
  const { from, to } = placesIn(body)
  const only = body.sourceVersionId ? { version: body.sourceVersionId } : undefined
  const moveThere = from.bucketId === to.bucketId ? moveRow : moveBetween
  const moved = await moveThere(c.var, caller, from, to, only)
  if (!moved) throw new StorageError('NoSuchKey')
  return c.json({ message: 'Successfully moved' })
}

type Version = Pick<ObjectRow, 'version'>

async function moveRow(storage: Storage, caller: Caller, from: Place, to: Place, only?: Version): Promise<boolean> {
  const [rows = []] = await asCaller(storage, caller, [moveObject(from, to, { at: storage.ctx.now(), only })]).catch(
    taken,
  )
  return rows.length > 0
}

const TRIES = 3

/** By the rules of the bucket that it comes to. What somebody replaces after it was judged is judged again. */
async function moveBetween(storage: Storage, caller: Caller, from: Place, to: Place, only?: Version): Promise<boolean> {
  let before: ObjectRow | undefined
  for (let tries = 1; tries <= TRIES; tries++) {
    const judged = await judge(storage, caller, from, to)
    // It is still the same: what did not move is not for the caller to change.
    if (!judged || judged.version === before?.version || (only && judged.version !== only.version)) return false
    if (await moveRow(storage, caller, from, to, judged)) return true
    before = judged
  }
  throw new StorageError('ResourceLocked')
}

/** Undefined for what is not there, or not for the caller. That there is no such bucket the move itself will find. */
async function judge(storage: Storage, caller: Caller, from: Place, to: Place): Promise<ObjectRow | undefined> {
  const [[target] = [], [seen] = []] = await asCaller(storage, caller, [seeObject(from)], [readObject(to)])
  const object = seen as unknown as ObjectRow | undefined
  if (!object || !target) return object
  const { size, mimetype: contentType } = describe(object)
  checkFits(storage, (target as unknown as FoundObject).bucket, to.name, { size, contentType })
  return object
}

function taken(error: unknown): never {
  if (isTaken(error)) throw new StorageError('ResourceAlreadyExists')
  throw error
}

const Copy = Move.extend({
  metadata: z.object({ cacheControl: z.string().nullish(), mimetype: z.string().nullish() }).nullish(),
  copyMetadata: optional(z.boolean(), true),
})

/** New bytes under a version of their own, so that neither object can change with the other. */
export async function copy(c: StorageContext) {
  const { ctx, project } = c.var
  const caller = await callerOf(c, 'storage.object.copy')
  const body = await readJson(c, Copy)
  const { from, to } = placesIn(body)
  const upsert = c.req.header('x-upsert') === 'true'
  const { object: source } = await findObject(c.var, from, { kind: 'caller', caller }, body.sourceVersionId)
  const { size, mimetype, cacheControl, xRobotsTag } = describe(source)
  const changes = body.copyMetadata ? undefined : body.metadata
  const description = {
    contentType: safeHeader(changes?.mimetype ?? mimetype),
    cacheControl: safeHeader(changes?.cacheControl ?? cacheControl),
    xRobotsTag: source.metadata?.xRobotsTag === xRobotsTag ? xRobotsTag : undefined,
    userMetadata: (body.copyMetadata ? source.user_metadata : userMetadataIn(c.req.header('x-metadata'))) ?? null,
  }
  const bucket = await mayUpload(c.var, caller, to, { upsert, description, size }).catch(related)
  checkFits(c.var, bucket, to.name, { ...description, size })
  const version = newTimedId(ctx.now())
  const sourceKey = storedBlobKey(project.ref, source.version)
  const stored =
    sourceKey &&
    (await whileBucketAnswers(c.var, size, openStore(ctx).copy(sourceKey, blobKey(project.ref, version), { size })))
  if (!stored) throw new StorageError('NoSuchKey')
  const row = await write(
    c.var,
    to,
    { ...description, ...stored, version },
    { upsert, caller, ownerId: caller.userId ?? null },
  )
  return c.json({
    Key: `${to.bucketId}/${to.name}`,
    Id: row.id,
    ...shown(row),
    user_metadata: userMetadataOf(description.userMetadata) ?? {},
  })
}
