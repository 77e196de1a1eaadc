import type { Hono } from 'hono'
import { openStore } from '../../../platform/blobs/store.ts'
import { describeError } from '../../../platform/http/log.ts'
import { blobKey, isVersion } from '../blob-key.ts'
import { asServer, type Caller } from '../database.ts'
import { requireCaller, type StorageContext, type StorageEnv, serviceCaller } from '../request.ts'
import { verifyUrlToken } from '../signed-urls.ts'
import { deleteUploads, findUpload, leaseUpload, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { create } from './create-upload.ts'
import { receiveBytes } from './receive-bytes.ts'
import {
  bodyOf,
  hasBytes,
  lengthIn,
  methodOf,
  offsetIn,
  renderTusError,
  requireVersion,
  setUploadHeaders,
  sizeExceeded,
  TUS_PATH,
} from './tus-protocol.ts'

interface Kind {
  isSigned: boolean
}

/** Resumable uploads (TUS): each request continues where the one before ended. */
export function resumableRoutes(app: Hono<StorageEnv>): void {
  for (const [path, kind] of [
    [`${TUS_PATH}/sign`, { isSigned: true }],
    [TUS_PATH, { isSigned: false }],
  ] as const) {
    app.post(path, (c) => withTus(c, () => create(c, kind)))
    app.on(['GET', 'POST', 'PATCH', 'DELETE'], `${path}/:id`, (c) => withTus(c, () => handleUpload(c, kind)))
  }
}

/** Requires the version of the protocol, and renders errors as the protocol's clients read them. */
async function withTus(c: StorageContext, work: () => Promise<Response>): Promise<Response> {
  try {
    requireVersion(c)
    return await work()
  } catch (thrown) {
    const error = StorageError.from(thrown)
    c.var.facts.error = error.code
    const reason = describeError(error.cause ?? error)
    if (error.isLogged) c.var.ctx.log.error('failed', { code: error.code, error: reason })
    return renderTusError(c, error)
  }
}

function handleUpload(c: StorageContext, kind: Kind): Promise<Response> {
  switch (methodOf(c)) {
    case 'HEAD':
      return showUpload(c, kind)
    case 'PATCH':
      return continueUpload(c, kind)
    case 'DELETE':
      return cancelUpload(c, kind)
    default:
      throw new StorageError('NoSuchRoute')
  }
}

const POLL_EVERY_MS = 200
const POLLS_MAX = 5

async function showUpload(c: StorageContext, kind: Kind): Promise<Response> {
  let { upload } = await requireUpload(c, kind, 'get')
  // A client asks as soon as its request was interrupted, while the bytes of that request may still be stored.
  for (let n = 0; upload.leased && n < POLLS_MAX; n++) {
    await scheduler.wait(POLL_EVERY_MS)
    upload = (await requireUpload(c, kind, 'get')).upload
  }
  setUploadHeaders(c, upload, upload.received)
  if (upload.size === null) c.header('upload-defer-length', '1')
  else c.header('upload-length', String(upload.size))
  c.header('upload-metadata', upload.metadata)
  return c.body(null, 200)
}

async function continueUpload(c: StorageContext, kind: Kind): Promise<Response> {
  if (!hasBytes(c)) throw new StorageError('InvalidContentType')
  const [offset, length] = [offsetIn(c), lengthIn(c)]
  const { upload: found, caller } = await requireUpload(c, kind, 'part')
  const { id, size, size_max } = found
  if (length !== null && size !== null && length !== size) {
    throw new StorageError('InvalidRequest', `Invalid Upload-Length: must be ${size}, as set before`)
  }
  const body = bodyOf(c)
  const reached = offset + (body.length ?? 0)
  if (Math.max(reached, length ?? 0) > (size ?? size_max)) throw sizeExceeded()
  if (length !== null && length < reached) {
    throw new StorageError(
      'InvalidRequest',
      `Invalid Upload-Length: must be at least ${reached}, where the bytes of this request end`,
    )
  }
  const lease = crypto.randomUUID()
  const [[leased] = []] = await asServer(c.var, [leaseUpload({ id, lease, offset, size: length })])
  if (!leased && !(found.ended && offset === size)) throw new StorageError('OffsetConflict')
  const upload = (leased as Upload | undefined) ?? found
  const session = { storage: c.var, upload, lease, caller }
  setUploadHeaders(c, upload, leased ? await receiveBytes(session, body) : offset)
  return c.body(null, 204)
}

async function cancelUpload(c: StorageContext, kind: Kind): Promise<Response> {
  const { upload } = await requireUpload(c, kind, 'delete')
  const { id, upload_id: uploadId, tail, ended } = upload
  if (ended)
    throw new StorageError('InvalidRequest', 'Only an unfinished upload can be deleted: delete the object instead')
  const { ctx, project } = c.var
  const blobs = openStore(ctx)
  if (uploadId) await blobs.parts.drop({ key: blobKey(project.ref, id), uploadId })
  if (tail) await blobs.remove([blobKey(project.ref, tail)])
  await asServer(c.var, [deleteUploads([id])])
  return c.body(null, 204)
}

/** Finds an upload of the caller. To anyone but its creator, the service role or the holder of its token it does not exist. */
async function requireUpload(c: StorageContext, { isSigned }: Kind, operation: 'get' | 'part' | 'delete') {
  const name = `storage.tus.upload.${operation}`
  const caller = isSigned ? serviceCaller(c, name) : await requireCaller(c, name)
  const id = c.req.param('id') ?? ''
  const [[row] = []] = isVersion(id) ? await asServer(c.var, [findUpload(id, c.var.ctx.now())]) : []
  const upload = row as unknown as Upload | undefined
  if (!upload || (upload.role === null) !== isSigned) throw new StorageError('NoSuchUpload')
  if (isSigned) {
    const place = { bucketId: upload.bucket_id, name: upload.name }
    const { claims } = await verifyUrlToken(c, place, 'upload', c.req.header('x-signature'))
    if (upload.token_id !== null && claims.jti !== upload.token_id) throw new StorageError('NoSuchUpload')
  } else if (!isOwner(upload, caller)) throw new StorageError('NoSuchUpload')
  return { upload, caller }
}

const isOwner = ({ role, owner_id }: Upload, caller: Caller): boolean =>
  caller.role === 'service_role' || (caller.role === role && (caller.userId ?? null) === owner_id)
