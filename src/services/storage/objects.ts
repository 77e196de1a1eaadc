import type { Hono } from 'hono'
import * as z from 'zod'
import { asCaller } from './database.ts'
import { list, listPage } from './list-objects.ts'
import { copy, move } from './move-object.ts'
import { BY_CREDENTIAL, privately } from './object-response.ts'
import { describe, findObject, infoOf, type Reader, serveObject, shown } from './read-object.ts'
import { callerIfAny, callerOf, type StorageContext, type StorageEnv } from './request.ts'
import { readJson } from './request-body.ts'
import type { ObjectRow } from './statements/object-rows.ts'
import { deleteObjects, visibleVersion } from './statements/objects.ts'
import { bucketIn, placeIn } from './storage-address.ts'
import { StorageError } from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'
import { upload } from './upload-object.ts'

/** Names of operations win over buckets of the same name, as they come first. */
export function objectRoutes(app: Hono<StorageEnv>): void {
  app.post('/object/copy', copy)
  app.post('/object/move', move)
  app.post('/object/list/:bucket', list)
  app.post('/object/list-v2/:bucket', listPage)

  app.get('/object/public/:bucket/*', (c) => serveObject(c, placeIn(c, 2), ANYBODY))
  app.get('/object/info/public/:bucket/*', (c) => info(c, 3, ANYBODY))
  app.get('/object/authenticated/:bucket/*', async (c) =>
    serveObject(c, placeIn(c, 2), await caller(c, 'get_authenticated')),
  )
  app.get('/object/info/authenticated/:bucket/*', async (c) => info(c, 3, await caller(c, 'info_authenticated')))
  app.get('/object/info/:bucket/*', async (c) => info(c, 2, await callerIfNamed(c, 'info_authenticated')))
  app.get('/object/:bucket/*', async (c) => serveObject(c, placeIn(c, 1), await callerIfNamed(c, 'get_authenticated')))

  app.post('/object/:bucket/*', (c) => upload(c, placeIn(c, 1), { upsert: c.req.header('x-upsert') === 'true' }))
  app.put('/object/:bucket/*', (c) => upload(c, placeIn(c, 1), { upsert: true }))
  app.delete('/object/:bucket', removeMany)
  app.delete('/object/:bucket/*', removeOne)
}

const ANYBODY: Reader = { kind: 'anybody' }

const caller = async (c: StorageContext, operation: string): Promise<Reader> => ({
  kind: 'caller',
  caller: await callerOf(c, `storage.object.${operation}`),
})

const callerIfNamed = async (c: StorageContext, operation: string): Promise<Reader> => ({
  kind: 'caller',
  caller: await callerIfAny(c, `storage.object.${operation}`),
})

async function info(c: StorageContext, heads: number, reader: Reader) {
  const { object, isPublic } = await findObject(c.var, placeIn(c, heads), reader, c.req.query('versionId'))
  const { etag, lastModified, cacheControl } = describe(object)
  c.header('etag', etag)
  c.header('last-modified', lastModified.toUTCString())
  c.header('cache-control', isPublic ? cacheControl : privately(cacheControl))
  if (!isPublic) c.header('vary', BY_CREDENTIAL)
  return c.json(infoOf(object))
}

async function removeOne(c: StorageContext) {
  const place = placeIn(c, 1)
  const by = await callerOf(c, 'storage.object.delete')
  const [[before] = [], deleted = [], [after] = []] = await asCaller(c.var, by, [
    visibleVersion(place),
    deleteObjects(place.bucketId, [place.name]),
    visibleVersion(place),
  ])
  // What the caller cannot see does not exist for him; what he still sees he may not delete, and is told so. Somebody may have
  // removed it meanwhile, and another have uploaded it anew.
  const isKept = after !== undefined && after.id === before?.id && after.version === before?.version
  if (deleted.length === 0) throw new StorageError(isKept ? 'AccessDenied' : 'NoSuchKey')
  sweepSoon(c.var)
  return c.json({ message: 'Successfully deleted' })
}

const Names = z.object({ prefixes: z.array(z.string()).min(1).max(10_000) })

async function removeMany(c: StorageContext) {
  const bucket = bucketIn(c)
  const by = await callerOf(c, 'storage.object.delete_many')
  const { prefixes } = await readJson(c, Names)
  const [deleted = []] = await asCaller(c.var, by, [deleteObjects(bucket, prefixes.filter(isText))])
  if (deleted.length > 0) sweepSoon(c.var)
  return c.json((deleted as unknown as ObjectRow[]).map(shown))
}

/** Postgres holds neither of them, so no object has such a name. */
const isText = (name: string) => name.isWellFormed() && !name.includes('\0')
