import type * as z from 'zod'
import { isStorable } from '../../platform/http/common-values.ts'
import { asCaller, type Caller, type Storage } from './database.ts'
import { privateCacheControl, VARY_BY_CREDENTIAL } from './object-response.ts'
import { findObject, infoOf, metadataOf, type Reader, toObject } from './read-object.ts'
import type { RemoveObjects } from './schema.ts'
import { OBJECT_AND_USER_METADATA, type ObjectRow, type Place } from './statements/object-rows.ts'
import { deleteObjects, visibleObject } from './statements/objects.ts'
import { StorageError } from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'

export async function info(storage: Storage, place: Place, reader: Reader, versionId?: string): Promise<Response> {
  const { object, isPublic } = await findObject(storage, place, reader, {
    version: versionId,
    columns: OBJECT_AND_USER_METADATA,
  })
  const { etag, lastModified, cacheControl } = metadataOf(object)
  const headers = {
    'content-type': 'application/json',
    etag,
    'last-modified': lastModified.toUTCString(),
    'cache-control': isPublic ? cacheControl : privateCacheControl(cacheControl),
    ...(!isPublic && { vary: VARY_BY_CREDENTIAL }),
  }
  return new Response(infoOf(object), { headers })
}

export async function removeOne(storage: Storage, caller: Caller, place: Place, versionId?: string) {
  if (!isStorable(versionId ?? '')) throw new StorageError('NoSuchKey')
  const [[before] = [], deleted = [], [after] = []] = await asCaller(storage, caller, [
    visibleObject(place),
    deleteObjects(place.bucketId, [place.name], [versionId ?? null]),
    visibleObject(place),
  ])
  // Access was denied only if the object is still visible and unchanged. It is not found if it is invisible or has another version, or was
  // deleted or replaced meanwhile.
  const isUnchanged = after !== undefined && after.id === before?.id && after.version === (versionId ?? before?.version)
  if (deleted.length === 0) throw new StorageError(isUnchanged ? 'AccessDenied' : 'NoSuchKey')
  sweepSoon(storage)
  return { message: 'Successfully deleted' }
}

export async function removeMany(
  storage: Storage,
  caller: Caller,
  bucketId: string,
  { prefixes }: z.output<typeof RemoveObjects>,
) {
  const wanted = prefixes
    .map((each) => (typeof each === 'string' ? { path: each, versionId: null } : each))
    // No object has a name or a version that Postgres cannot store.
    .filter(({ path, versionId }) => isStorable(path) && isStorable(versionId ?? ''))
    // Removals lock the objects in the same order, so that none waits for another that waits for it.
    .sort((a, b) => (a.path < b.path ? -1 : 1))
  const names = wanted.map(({ path }) => path)
  const versions = wanted.map(({ versionId }) => versionId)
  const [deleted = []] = await asCaller(storage, caller, [deleteObjects(bucketId, names, versions)])
  if (deleted.length > 0) sweepSoon(storage)
  return (deleted as unknown as ObjectRow[]).map(toObject)
}
