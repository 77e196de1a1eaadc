import type * as z from 'zod'
import { openStore } from '../../../platform/blobs/store.ts'
import { blobKey, isVersion } from '../blob-key.ts'
import { asServer, type Caller, type Storage } from '../database.ts'
import type { IncomingBody } from '../route.ts'
import type { ContinueUploadHeaders, UploadTokenHeaders } from '../schema.ts'
import { verifyUrlToken } from '../signed-urls.ts'
import { deleteLeasedUpload, type FoundUpload, findUpload, leaseUpload, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { tokenIdOf } from '../upload-object.ts'
import { checkLimits, LIFETIME_MS } from './create-upload.ts'
import { receiveBytes, removeTail } from './receive-bytes.ts'
import { hasBytes, lengthIn, offsetIn, signatureIn, sizeExceeded, uploadHeaders } from './tus-protocol.ts'
import { descriptionOf } from './upload-session.ts'

interface UploadRequest {
  storage: Storage
  /** The service role, for an upload with the token of a signed URL. */
  caller: Caller
  id: string
  headers: z.output<typeof UploadTokenHeaders>
}
interface ContinueRequest extends UploadRequest {
  headers: z.output<typeof ContinueUploadHeaders>
  body: IncomingBody
}

const POLL_EVERY_MS = 200
const POLLS_MAX = 5

export async function showUpload(request: UploadRequest, isSigned: boolean): Promise<Response> {
  let upload = await requireUpload(request, isSigned)
  // A client asks for the offset as soon as its request is interrupted. The bytes of that request may still be on their way to the bucket.
  for (let n = 0; upload.leased && n < POLLS_MAX; n++) {
    await scheduler.wait(POLL_EVERY_MS)
    upload = await requireUpload(request, isSigned)
  }
  const { size, received, metadata } = upload
  const headers = {
    ...uploadHeaders(upload, received),
    ...(size === null ? { 'upload-defer-length': '1' } : { 'upload-length': String(size) }),
    'upload-metadata': metadata,
  }
  return new Response(null, { headers })
}

export async function continueUpload(request: ContinueRequest, isSigned: boolean): Promise<Response> {
  const { storage, caller, headers, body } = request
  if (!hasBytes(body)) throw new StorageError('InvalidContentType')
  const [offset, length] = [offsetIn(headers), lengthIn(headers)]
  const found = await requireUpload(request, isSigned)
  const { id, size } = found
  if (length !== null && size !== null && length !== size) {
    throw new StorageError('InvalidRequest', `Invalid Upload-Length: must be ${size}, as set before`)
  }
  const reached = offset + (body.length ?? 0)
  const size_max = found.ended ? found.size_max : currentSizeMax(storage, found)
  if (Math.max(reached, length ?? 0, size ?? 0) > size_max || reached > (size ?? size_max)) throw sizeExceeded()
  if (length !== null && length < reached) {
    throw new StorageError(
      'InvalidRequest',
      `Invalid Upload-Length: must be at least ${reached}, where the bytes of this request end`,
    )
  }
  const lease = crypto.randomUUID()
  const [[leased] = []] = await asServer(storage, [leaseUpload({ id, lease, offset, size: length, size_max })])
  if (!leased && !(found.ended && offset === size)) throw new StorageError('OffsetConflict')
  const upload = (leased as Upload | undefined) ?? found
  const reachedOffset = leased ? await receiveBytes({ storage, upload, lease, caller }, body) : offset
  return new Response(null, { status: 204, headers: uploadHeaders(upload, reachedOffset) })
}

/** The size limit that applies now: those of the bucket and the project may have changed since the upload was created. */
function currentSizeMax(storage: Storage, upload: FoundUpload): number {
  if (!upload.bucket) throw new StorageError('NoSuchBucket')
  return checkLimits(storage, upload.bucket, upload.name, descriptionOf(upload))
}

export async function cancelUpload(request: UploadRequest, isSigned: boolean): Promise<Response> {
  const { storage, id } = request
  await requireUpload(request, isSigned)
  const lease = crypto.randomUUID()
  // Once the lease is taken, a running request can record no part or tail, so none is left behind.
  const [[leased] = []] = await asServer(storage, [leaseUpload({ id, lease })])
  if (!leased)
    throw new StorageError('InvalidRequest', 'Only an unfinished upload can be deleted: delete the object instead')
  const { upload_id: uploadId, tail } = leased as unknown as Upload
  if (uploadId) await openStore(storage.ctx).parts.drop({ key: blobKey(storage.project.ref, id), uploadId })
  const [[deleted] = []] = await asServer(storage, [deleteLeasedUpload({ id, lease })])
  if (!deleted) throw new StorageError('ResourceLocked')
  removeTail(storage, { tail })
  return new Response(null, { status: 204 })
}

/** Finds an upload of the caller. It exists only for its creator, the service role and the holder of its token. */
async function requireUpload({ storage, caller, id, headers }: UploadRequest, isSigned: boolean): Promise<FoundUpload> {
  const [[row] = []] = isVersion(id) ? await asServer(storage, [findUpload(id, storage.ctx.now())]) : []
  const upload = row as unknown as FoundUpload | undefined
  if (!upload || (upload.role === null) !== isSigned) throw new StorageError('NoSuchUpload')
  if (isSigned) {
    const place = { bucketId: upload.bucket_id, name: upload.name }
    // The token may expire before the upload does.
    const begunAt = new Date(Date.parse(upload.expires_at) - LIFETIME_MS)
    const { claims } = await verifyUrlToken(storage, place, 'upload', signatureIn(headers), begunAt)
    if (upload.token_id !== null && tokenIdOf(claims) !== upload.token_id) throw new StorageError('NoSuchUpload')
  } else if (!isOwner(upload, caller)) throw new StorageError('NoSuchUpload')
  return upload
}

const isOwner = ({ role, owner_id }: Upload, caller: Caller): boolean =>
  caller.role === 'service_role' || (caller.role === role && (caller.userId ?? null) === owner_id)
