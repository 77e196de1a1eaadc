import type { Hono } from 'hono'
import * as z from 'zod'
import { isStorable } from '../../platform/http/common-values.ts'
import { asCaller } from './database.ts'
import { list, listPage } from './list-objects.ts'
import { copy, move } from './move-object.ts'
import { privateCacheControl, VARY_BY_CREDENTIAL } from './object-response.ts'
import { findObject, infoOf, metadataOf, type Reader, serveObject, toObject } from './read-object.ts'
import { optionalCaller, requireCaller, type StorageContext, type StorageEnv } from './request.ts'
import { readJson } from './request-body.ts'
import type { ObjectRow } from './statements/object-rows.ts'
import { deleteObjects, visibleVersion } from './statements/objects.ts'
import { bucketIn, placeIn } from './storage-address.ts'
import { StorageError } from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'
import { upload } from './upload-object.ts'

/** Routes of operations come first, so they take precedence over a bucket of the same name. */
export function objectRoutes(app: Hono<StorageEnv>): void {
  app.post('/object/copy', copy)
  app.post('/object/move', move)
  app.post('/object/list/:bucket', list)
  app.post('/object/list-v2/:bucket', listPage)

  app.get('/object/public/:bucket/*', (c) => serveObject(c, placeIn(c, 2), ANYONE))
  app.get('/object/info/public/:bucket/*', (c) => info(c, 3, ANYONE))
  app.get('/object/authenticated/:bucket/*', async (c) =>
    serveObject(c, placeIn(c, 2), await requireReader(c, 'get_authenticated')),
  )
  app.get('/object/info/authenticated/:bucket/*', async (c) => info(c, 3, await requireReader(c, 'info_authenticated')))
  app.get('/object/info/:bucket/*', async (c) => info(c, 2, await optionalReader(c, 'info_authenticated')))
  app.get('/object/:bucket/*', async (c) => serveObject(c, placeIn(c, 1), await optionalReader(c, 'get_authenticated')))

  app.post('/object/:bucket/*', (c) => upload(c, placeIn(c, 1), { upsert: c.req.header('x-upsert') === 'true' }))
  app.put('/object/:bucket/*', (c) => upload(c, placeIn(c, 1), { upsert: true }))
  app.delete('/object/:bucket', removeMany)
  app.delete('/object/:bucket/*', removeOne)
}

const ANYONE: Reader = { kind: 'anyone' }

const requireReader = async (c: StorageContext, operation: string): Promise<Reader> => ({
  kind: 'caller',
  caller: await requireCaller(c, `storage.object.${operation}`),
})

const optionalReader = async (c: StorageContext, operation: string): Promise<Reader> => ({
  kind: 'caller',
  caller: await optionalCaller(c, `storage.object.${operation}`),
})

async function info(c: StorageContext, segments: number, reader: Reader) {
  const { object, isPublic } = await findObject(c.var, placeIn(c, segments), reader, c.req.query('versionId'))
  const { etag, lastModified, cacheControl } = metadataOf(object)
  c.header('etag', etag)
  c.header('last-modified', lastModified.toUTCString())
  c.header('cache-control', isPublic ? cacheControl : privateCacheControl(cacheControl))
  if (!isPublic) c.header('vary', VARY_BY_CREDENTIAL)
  return c.json(infoOf(object))
}

async function removeOne(c: StorageContext) {
  const place = placeIn(c, 1)
  const caller = await requireCaller(c, 'storage.object.delete')
  const [[before] = [], deleted = [], [after] = []] = await asCaller(c.var, caller, [
    visibleVersion(place),
    deleteObjects(place.bucketId, [place.name]),
    visibleVersion(place),
  ])
  // Denied only if the object is still visible and unchanged: one that is invisible, or was deleted or replaced meanwhile, is not found.
  const isUnchanged = after !== undefined && after.id === before?.id && after.version === before?.version
  if (deleted.length === 0) throw new StorageError(isUnchanged ? 'AccessDenied' : 'NoSuchKey')
  sweepSoon(c.var)
  return c.json({ message: 'Successfully deleted' })
}

const Names = z.object({ prefixes: z.array(z.string()).min(1).max(10_000) })

async function removeMany(c: StorageContext) {
  const bucket = bucketIn(c)
  const caller = await requireCaller(c, 'storage.object.delete_many')
  const { prefixes } = await readJson(c, Names)
  // No object has a name that Postgres cannot store.
  const [deleted = []] = await asCaller(c.var, caller, [deleteObjects(bucket, prefixes.filter(isStorable))])
  if (deleted.length > 0) sweepSoon(c.var)
  return c.json((deleted as unknown as ObjectRow[]).map(toObject))
}
