import type * as z from 'zod'
import { newTimedId } from '../../../platform/db/id.ts'
import { asServer, type Caller, type Storage } from '../database.ts'
import { type Description, descriptionIn } from '../incoming-upload.ts'
import { checkBucketName, checkKey } from '../object-names.ts'
import type { IncomingBody } from '../route.ts'
import type { CreateUploadHeaders } from '../schema.ts'
import { verifyUrlToken } from '../signed-urls.ts'
import type { Place } from '../statements/object-rows.ts'
import { insertUpload, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { boundsOf, type Rules } from '../upload-bounds.ts'
import { authorizeSignedUpload, authorizeUpload, type Intent } from '../upload-object.ts'
import { receiveBytes } from './receive-bytes.ts'
import {
  hasBytes,
  isLengthDeferred,
  lengthIn,
  locationOf,
  metadataIn,
  refuseConcatenation,
  signatureIn,
  sizeExceeded,
  uploadHeaders,
} from './tus-protocol.ts'
import { PART_BYTES_MAX } from './upload-session.ts'

const MIB = 1024 ** 2
/** The chunk size of most clients. */
const PART_BYTES_MIN = 6 * MIB
/** Below the limit of S3, because an interruption may use up a part number. */
const PARTS_MAX = 9_000
export const UPLOAD_BYTES_MAX = PARTS_MAX * PART_BYTES_MAX
/** How long an upload can be continued. */
export const LIFETIME_MS = 24 * 60 * 60 * 1000

export interface CreateRequest {
  storage: Storage
  /** The service role, for an upload with the token of a signed URL. */
  caller: Caller
  url: string
  headers: z.output<typeof CreateUploadHeaders>
  body: IncomingBody
}

interface Authorization {
  bucket: Rules
  fields: Pick<Upload, 'role' | 'owner_id' | 'upsert' | 'token_id' | 'token_expires_at'>
}

/** Creates an upload with a caller's token, or with the token of a signed URL. */
export async function create(request: CreateRequest, isSigned: boolean): Promise<Response> {
  const { storage, caller, url, headers, body } = request
  refuseConcatenation(headers)
  const metadata = headers['upload-metadata'] ?? ''
  const metadataFields = metadataIn(metadata)
  const place = placeOf(metadataFields)
  const size = lengthIn(headers)
  if ((size === null) !== isLengthDeferred(headers)) {
    throw new StorageError('InvalidRequest', 'Invalid headers: must have either Upload-Length or Upload-Defer-Length')
  }
  const description = descriptionIn(metadataFields, 'application/octet-stream')
  const intent = { upsert: headers['x-upsert'], description, size: size ?? undefined }
  const { bucket, fields } = await (isSigned ? authorizeSigned(request, place) : authorize(request, place, intent))
  const size_max = checkLimits(storage, bucket, place.name, description)
  if ((size ?? 0) > size_max) throw sizeExceeded()
  const now = storage.ctx.now()
  const hasFirstBytes = hasBytes(body) || size === 0
  const lease = crypto.randomUUID()
  const statement = insertUpload({
    ...{ id: newTimedId(now), bucket_id: place.bucketId, name: place.name, ...fields, metadata, size, size_max },
    description: JSON.stringify(description),
    lease: hasFirstBytes ? lease : null,
    part_bytes: Math.max(PART_BYTES_MIN, Math.ceil((size ?? size_max) / PARTS_MAX)),
    expires_at: new Date(now.getTime() + LIFETIME_MS).toISOString(),
  })
  const [[row] = []] = await asServer(storage, [statement])
  const upload = row as unknown as Upload
  const location = locationOf(storage, url, upload.id)
  const received = hasBytes(body) ? body : { stream: null, length: 0 }
  const session = { storage, upload, lease, caller }
  const offset = hasFirstBytes ? await receiveBytes(session, received).catch(throwAt(location)) : 0
  return new Response(null, { status: 201, headers: { location, ...uploadHeaders(upload, offset) } })
}

/** Refuses a type that the bucket does not accept. Returns the largest size that the bucket and the project accept. */
export function checkLimits(storage: Storage, bucket: Rules, name: string, description: Description): number {
  const { sizeMax, checkType } = boundsOf(storage, bucket, name)
  checkType(description)
  return Math.min(sizeMax, UPLOAD_BYTES_MAX)
}

/** The upload exists although its first bytes failed, so the error names it too. */
const throwAt = (location: string) => (thrown: unknown) => {
  const error = StorageError.from(thrown)
  Object.assign(error.headers, { location })
  throw error
}

function placeOf(metadata: ReadonlyMap<string, string>): Place {
  const [bucketId, name] = [metadata.get('bucketName'), metadata.get('objectName')]
  if (bucketId === undefined || name === undefined) {
    throw new StorageError('InvalidRequest', 'Upload-Metadata must have bucketName and objectName')
  }
  return { bucketId: checkBucketName(bucketId), name: checkKey(name) }
}

async function authorize({ storage, caller }: CreateRequest, place: Place, intent: Intent): Promise<Authorization> {
  const bucket = await authorizeUpload(storage, caller, place, intent)
  const fields = { role: caller.role, owner_id: caller.userId ?? null, upsert: intent.upsert }
  return { bucket, fields: { ...fields, token_id: null, token_expires_at: null } }
}

async function authorizeSigned({ storage, headers }: CreateRequest, requested: Place): Promise<Authorization> {
  const { place, claims } = await verifyUrlToken(storage, requested, 'upload', signatureIn(headers))
  const { bucket, writer } = await authorizeSignedUpload(storage, place, claims)
  const { upsert, ownerId, token } = writer
  const fields = { role: null, owner_id: ownerId, upsert }
  return {
    bucket,
    fields: { ...fields, token_id: token?.id ?? null, token_expires_at: token?.expires.toISOString() ?? null },
  }
}
