import type { Hono } from 'hono'
import { openStore } from '../../../platform/blobs/store.ts'
import { describeError } from '../../../platform/http/log.ts'
import { blobKey, isVersion } from '../blob-key.ts'
import { asServer, type Caller } from '../database.ts'
import { callerOf, type StorageContext, type StorageEnv, serviceOf } from '../request.ts'
import { permitted } from '../signed-urls.ts'
import { findUpload, forgetUploads, takeUpload, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { create } from './create-upload.ts'
import { receive } from './receive-bytes.ts'
import {
  bodyOf,
  failure,
  hasBytes,
  lengthIn,
  methodOf,
  offsetIn,
  PATH,
  requireVersion,
  sizeExceeded,
  tell,
} from './tus-protocol.ts'

interface Kind {
  isSigned: boolean
}

/** Uploads in several requests (TUS), each of which goes on where the one before was broken off. */
export function resumableRoutes(app: Hono<StorageEnv>): void {
  for (const [path, kind] of [
    [`${PATH}/sign`, { isSigned: true }],
    [PATH, { isSigned: false }],
  ] as const) {
    app.post(path, (c) => spoken(c, () => create(c, kind)))
    app.on(['GET', 'POST', 'PATCH', 'DELETE'], `${path}/:id`, (c) => spoken(c, () => proceed(c, kind)))
  }
}

async function spoken(c: StorageContext, work: () => Promise<Response>): Promise<Response> {
  try {
    requireVersion(c)
    return await work()
  } catch (thrown) {
    const error = StorageError.from(thrown)
    c.var.facts.error = error.code
    const reason = describeError(error.cause ?? error)
    if (error.isToBeLogged) c.var.ctx.log.error('failed', { code: error.code, error: reason })
    return failure(c, error)
  }
}

function proceed(c: StorageContext, kind: Kind): Promise<Response> {
  switch (methodOf(c)) {
    case 'HEAD':
      return look(c, kind)
    case 'PATCH':
      return go(c, kind)
    case 'DELETE':
      return terminate(c, kind)
    default:
      throw new StorageError('NoSuchRoute')
  }
}

const LOOK_EVERY_MS = 200
const LOOKS_MAX = 5

async function look(c: StorageContext, kind: Kind): Promise<Response> {
  let { upload } = await openUpload(c, kind, 'get')
  // A client looks as soon as its request broke off, and what came of that may be on its way to the bucket.
  for (let n = 0; upload.taken && n < LOOKS_MAX; n++) {
    await scheduler.wait(LOOK_EVERY_MS)
    upload = (await openUpload(c, kind, 'get')).upload
  }
  tell(c, upload, upload.received)
  if (upload.size === null) c.header('upload-defer-length', '1')
  else c.header('upload-length', String(upload.size))
  c.header('upload-metadata', upload.metadata)
  return c.body(null, 200)
}

async function go(c: StorageContext, kind: Kind): Promise<Response> {
  if (!hasBytes(c)) throw new StorageError('InvalidContentType')
  const [offset, length] = [offsetIn(c), lengthIn(c)]
  const { upload: found, caller } = await openUpload(c, kind, 'part')
  const { id, size, size_max } = found
  if (length !== null && size !== null && length !== size) {
    throw new StorageError('InvalidRequest', 'Upload-Length is known already')
  }
  const body = bodyOf(c)
  const reached = offset + (body.length ?? 0)
  if (Math.max(reached, length ?? 0) > (size ?? size_max)) throw sizeExceeded()
  if (length !== null && length < reached) {
    throw new StorageError('InvalidRequest', 'Upload-Length is less than what has come')
  }
  const lease = crypto.randomUUID()
  const [[taken] = []] = await asServer(c.var, [takeUpload({ id, lease, offset, size: length })])
  if (!taken && !(found.ended && offset === size)) throw new StorageError('OffsetConflict')
  const upload = (taken as Upload | undefined) ?? found
  const session = { storage: c.var, upload, lease, caller }
  tell(c, upload, taken ? await receive(session, body) : offset)
  return c.body(null, 204)
}

async function terminate(c: StorageContext, kind: Kind): Promise<Response> {
  const { upload } = await openUpload(c, kind, 'delete')
  const { id, upload_id: uploadId, tail, ended } = upload
  if (ended) throw new StorageError('InvalidRequest', 'The upload has come to its end: delete the object')
  const { ctx, project } = c.var
  const blobs = openStore(ctx)
  if (uploadId) await blobs.parts.drop({ key: blobKey(project.ref, id), uploadId })
  if (tail) await blobs.remove([blobKey(project.ref, tail)])
  await asServer(c.var, [forgetUploads([id])])
  return c.body(null, 204)
}

/** For who began it, for the service role, or for the holder of the token that it was begun with: to others it is not there. */
async function openUpload(c: StorageContext, { isSigned }: Kind, operation: 'get' | 'part' | 'delete') {
  const name = `storage.tus.upload.${operation}`
  const caller = isSigned ? serviceOf(c, name) : await callerOf(c, name)
  const id = c.req.param('id') ?? ''
  const [[row] = []] = isVersion(id) ? await asServer(c.var, [findUpload(id, c.var.ctx.now())]) : []
  const upload = row as unknown as Upload | undefined
  if (!upload || (upload.role === null) !== isSigned) throw new StorageError('NoSuchUpload')
  if (isSigned) {
    const place = { bucketId: upload.bucket_id, name: upload.name }
    const { claims } = await permitted(c, place, 'upload', c.req.header('x-signature'))
    if (upload.token_id !== null && claims.jti !== upload.token_id) throw new StorageError('NoSuchUpload')
  } else if (!isOf(upload, caller)) throw new StorageError('NoSuchUpload')
  return { upload, caller }
}

const isOf = ({ role, owner_id }: Upload, caller: Caller): boolean =>
  caller.role === 'service_role' || (caller.role === role && (caller.userId ?? null) === owner_id)
