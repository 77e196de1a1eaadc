import { newTimedId } from '../../../platform/db/id.ts'
import { asServer, type Caller } from '../database.ts'
import { descriptionIn } from '../incoming-upload.ts'
import { checkBucketName, checkKey } from '../object-names.ts'
import { requireCaller, type StorageContext, serviceCaller } from '../request.ts'
import { verifyUrlToken } from '../signed-urls.ts'
import type { Place } from '../statements/object-rows.ts'
import { insertUpload, type Upload } from '../statements/resumable.ts'
import { StorageError } from '../storage-error.ts'
import { boundsOf, type Rules } from '../upload-bounds.ts'
import { authorizeSignedUpload, authorizeUpload, type Intent } from '../upload-object.ts'
import { receiveBytes } from './receive-bytes.ts'
import {
  bodyOf,
  hasBytes,
  isLengthDeferred,
  lengthIn,
  locationOf,
  metadataIn,
  refuseConcatenation,
  setUploadHeaders,
  sizeExceeded,
} from './tus-protocol.ts'

const MIB = 1024 ** 2
/** The chunk size of most clients. */
const PART_BYTES_MIN = 6 * MIB
const PART_BYTES_MAX = 16 * MIB
/** Below the limit of S3, as an interruption may use up a part number. */
const PARTS_MAX = 9_000
export const UPLOAD_BYTES_MAX = PARTS_MAX * PART_BYTES_MAX
/** How long an upload can be continued. */
const LIFETIME_MS = 24 * 60 * 60 * 1000

interface Authorization {
  bucket: Rules
  caller: Caller
  fields: Pick<Upload, 'role' | 'owner_id' | 'upsert' | 'token_id' | 'token_expires_at'>
}

/** Creates an upload with a caller's token, or with the token of a signed URL. */
export async function create(c: StorageContext, { isSigned }: { isSigned: boolean }): Promise<Response> {
  refuseConcatenation(c)
  const metadata = c.req.header('upload-metadata') ?? ''
  const metadataFields = metadataIn(metadata)
  const place = placeOf(metadataFields)
  const size = lengthIn(c)
  if ((size === null) !== isLengthDeferred(c)) {
    throw new StorageError('InvalidRequest', 'Invalid headers: must have either Upload-Length or Upload-Defer-Length')
  }
  const description = descriptionIn(metadataFields, 'application/octet-stream')
  const upsert = c.req.header('x-upsert') === 'true'
  const intent = { upsert, description, size: size ?? undefined }
  const { bucket, caller, fields } = await (isSigned ? authorizeSigned(c, place) : authorize(c, place, intent))
  const { sizeMax, check } = boundsOf(c.var, bucket, place.name)
  check(description)
  const size_max = Math.min(sizeMax, UPLOAD_BYTES_MAX)
  if ((size ?? 0) > size_max) throw sizeExceeded()
  const now = c.var.ctx.now()
  const hasFirstBytes = hasBytes(c) || size === 0
  const lease = crypto.randomUUID()
  const statement = insertUpload({
    ...{ id: newTimedId(now), bucket_id: place.bucketId, name: place.name, ...fields, metadata, size, size_max },
    description: JSON.stringify(description),
    lease: hasFirstBytes ? lease : null,
    part_bytes: Math.max(PART_BYTES_MIN, Math.ceil((size ?? size_max) / PARTS_MAX)),
    expires_at: new Date(now.getTime() + LIFETIME_MS).toISOString(),
  })
  const [[row] = []] = await asServer(c.var, [statement])
  const upload = row as unknown as Upload
  c.header('location', locationOf(c, upload.id))
  const body = hasBytes(c) ? bodyOf(c) : { stream: null, length: 0 }
  setUploadHeaders(c, upload, hasFirstBytes ? await receiveBytes({ storage: c.var, upload, lease, caller }, body) : 0)
  return c.body(null, 201)
}

function placeOf(metadata: ReadonlyMap<string, string>): Place {
  const [bucketId, name] = [metadata.get('bucketName'), metadata.get('objectName')]
  if (bucketId === undefined || name === undefined) {
    throw new StorageError('InvalidRequest', 'Upload-Metadata must have bucketName and objectName')
  }
  return { bucketId: checkBucketName(bucketId), name: checkKey(name) }
}

async function authorize(c: StorageContext, place: Place, intent: Intent): Promise<Authorization> {
  const caller = await requireCaller(c, 'storage.tus.upload.create')
  const bucket = await authorizeUpload(c.var, caller, place, intent)
  const fields = { role: caller.role, owner_id: caller.userId ?? null, upsert: intent.upsert }
  return { bucket, caller, fields: { ...fields, token_id: null, token_expires_at: null } }
}

async function authorizeSigned(c: StorageContext, requested: Place): Promise<Authorization> {
  const { place, claims } = await verifyUrlToken(c, requested, 'upload', c.req.header('x-signature'))
  const { bucket, writer } = await authorizeSignedUpload(c.var, place, claims)
  const { upsert, ownerId, token } = writer
  const fields = { role: null, owner_id: ownerId, upsert }
  return {
    bucket,
    caller: serviceCaller(c, 'storage.tus.upload.create'),
    fields: { ...fields, token_id: token?.id ?? null, token_expires_at: token?.expires.toISOString() ?? null },
  }
}
