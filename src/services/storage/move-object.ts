import type * as z from 'zod'
import { openStore } from '../../platform/blobs/store.ts'
import { newTimedId } from '../../platform/db/id.ts'
import { blobKey, storedBlobKey } from './blob-key.ts'
import { waitWhileBucketResponds } from './bucket-timeout.ts'
import { asCaller, type Caller, type Storage } from './database.ts'
import { contentEncodingIn, safeHeader, userMetadataIn } from './incoming-upload.ts'
import { checkBucketName, checkKey } from './object-names.ts'
import { appendJson, findObject, metadataOf, toObject } from './read-object.ts'
import type { CopyHeaders, CopyObject, MoveObject } from './schema.ts'
import { type FoundObject, OBJECT_AND_USER_METADATA, type ObjectRow, type Place } from './statements/object-rows.ts'
import { moveObject, readObject, visibleObject } from './statements/objects.ts'
import { isNameTaken, StorageError, throwAs } from './storage-error.ts'
import { checkFits } from './upload-bounds.ts'
import { authorizeUpload, throwRelatedNotFound, write } from './upload-object.ts'

function placesIn({ bucketId, sourceKey, destinationKey, destinationBucket }: z.output<typeof MoveObject>) {
  return {
    from: placeOf(bucketId, sourceKey),
    to: placeOf(destinationBucket ?? bucketId, destinationKey),
  }
}

const placeOf = (bucketId: string, name: string): Place => ({
  bucketId: checkBucketName(bucketId),
  name: checkKey(name),
})

/** Moves an object by changing its row; the bytes stay where they are. */
export async function move(storage: Storage, caller: Caller, body: z.output<typeof MoveObject>) {
  const { from, to } = placesIn(body)
  const only = body.sourceVersionId ? { version: body.sourceVersionId } : undefined
  const moveObjectRow = from.bucketId === to.bucketId ? moveRow : moveAcrossBuckets
  const moved = await moveObjectRow(storage, caller, from, to, only)
  if (!moved) throw new StorageError('NoSuchKey')
  return { message: 'Successfully moved' }
}

type Version = Pick<ObjectRow, 'version'>

async function moveRow(storage: Storage, caller: Caller, from: Place, to: Place, only?: Version): Promise<boolean> {
  const [rows = []] = await asCaller(storage, caller, [moveObject(from, to, { at: storage.ctx.now(), only })]).catch(
    throwAs('ResourceAlreadyExists', isNameTaken),
  )
  return rows.length > 0
}

const TRIES = 3

/** Moves only what the target bucket accepts. If the object is replaced after the check, the new version is checked too. */
async function moveAcrossBuckets(
  storage: Storage,
  caller: Caller,
  from: Place,
  to: Place,
  only?: Version,
): Promise<boolean> {
  let previous: ObjectRow | undefined
  for (let tries = 1; tries <= TRIES; tries++) {
    const object = await findMovable(storage, caller, from, to)
    // The same version could not be moved before, so the caller may not change it.
    if (!object || object.version === previous?.version || (only && object.version !== only.version)) return false
    if (await moveRow(storage, caller, from, to, object)) return true
    previous = object
  }
  throw new StorageError('ResourceLocked')
}

/** Finds the object and checks it against the limits of the target bucket. Undefined if it is not visible to the caller. */
async function findMovable(storage: Storage, caller: Caller, from: Place, to: Place): Promise<ObjectRow | undefined> {
  const [[target] = [], [visible] = []] = await asCaller(storage, caller, [visibleObject(from)], [readObject(to)])
  const object = visible as unknown as ObjectRow | undefined
  // The move itself fails if the target bucket does not exist.
  if (!object || !target) return object
  const { size, mimetype: contentType } = metadataOf(object)
  checkFits(storage, (target as unknown as FoundObject).bucket, to.name, { size, contentType })
  return object
}

/** Copies the bytes to a version of their own, so that changes of one object never affect the other. */
export async function copy(
  storage: Storage,
  caller: Caller,
  body: z.output<typeof CopyObject>,
  headers: z.output<typeof CopyHeaders>,
) {
  const { ctx, project } = storage
  const { from, to } = placesIn(body)
  const upsert = headers['x-upsert']
  const { object: source } = await findObject(
    storage,
    from,
    { kind: 'caller', caller },
    { version: body.sourceVersionId, columns: OBJECT_AND_USER_METADATA },
  )
  const { size, mimetype, cacheControl, xRobotsTag, contentEncoding } = metadataOf(source)
  const changes = body.copyMetadata ? undefined : body.metadata
  const description = {
    contentType: safeHeader(changes?.mimetype ?? mimetype),
    cacheControl: safeHeader(changes?.cacheControl ?? cacheControl),
    xRobotsTag: source.metadata?.xRobotsTag === xRobotsTag ? xRobotsTag : undefined,
    contentEncoding: contentEncodingIn(changes?.contentEncoding ?? contentEncoding),
    userMetadata: (body.copyMetadata ? source.user_metadata : userMetadataIn(headers['x-metadata'])) ?? null,
  }
  const bucket = await authorizeUpload(storage, caller, to, { upsert, description, size }).catch(throwRelatedNotFound)
  checkFits(storage, bucket, to.name, { ...description, size })
  const version = newTimedId(ctx.now())
  const sourceKey = storedBlobKey(project.ref, source.version)
  const stored =
    sourceKey &&
    (await waitWhileBucketResponds(
      storage,
      size,
      openStore(ctx).copy(sourceKey, blobKey(project.ref, version), { size }),
    ))
  if (!stored) throw new StorageError('NoSuchKey')
  const row = await write(
    storage,
    to,
    { ...description, ...stored, version },
    { upsert, caller, ownerId: caller.userId ?? null },
  )
  const fields = { Key: `${to.bucketId}/${to.name}`, Id: row.id, ...toObject(row) }
  return appendJson(fields, 'user_metadata', description.userMetadata)
}
