import { and, eq, gt } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { workerUploads } from '../../../model/tables/index.ts'
import { isBucketUnavailable } from '../../../platform/blobs/bucket.ts'
import { presignPut } from '../../../platform/blobs/presign.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { uploadKey } from '../../../services/runtime/program-keys.ts'
import { mutate } from '../../kernel/mutate.ts'
import { requireLiving } from './require-project.ts'
import { SPELLINGS, type Spelling } from './schema.ts'

const EXPIRES_IN_SECONDS = 3_600
export const CONTEXT_BYTES_MAX = 32 * 1024 ** 2

/** What programs that send files say of a .tar.gz, or of any file. */
const CONTEXT_TYPES: readonly string[] = [
  '',
  'application/gzip',
  'application/x-gzip',
  'application/tar+gzip',
  'application/x-tgz',
  'application/x-tar',
  'application/x-gtar',
  'application/x-compressed-tar',
  'application/octet-stream',
  'binary/octet-stream',
  'application/x-www-form-urlencoded',
]

/** Bytes go from the client to the bucket, under a URL that says where to and until when; a deployment looks at what they are. */
export async function createUpload(
  ctx: Ctx,
  { ref, organizationId }: ProjectAccess,
  { name, spelling }: { name: string; spelling: Spelling },
) {
  const expiresAt = new Date(ctx.now().getTime() + EXPIRES_IN_SECONDS * 1000)
  const id = await mutate(ctx, async ({ tx, trace }) => {
    await requireLiving(tx, ref)
    await requireSlot(ctx, tx, ref)
    const upload = requireRow(
      await tx
        .insert(workerUploads)
        .values({ projectRef: ref, workerName: name, expiresAt })
        .returning({ id: workerUploads.id }),
    )
    await trace({ action: 'worker.upload.create', organizationId, projectRef: ref, detail: { name } })
    return upload.id
  })
  const url = await presignPut(ctx, uploadKey(ref, id), { expiresInSeconds: EXPIRES_IN_SECONDS })
  const attributes = { url, method: 'PUT' as const, expires_at: expiresAt.toISOString() }
  return { data: { type: SPELLINGS[spelling].upload, id, attributes } }
}

/** S3 cannot bound what a signed PUT sends: of these, the sweep removes what is too large to be built. */
const OPEN_MAX = 100

async function requireSlot({ now }: Ctx, tx: Writer, ref: string): Promise<void> {
  const open = and(eq(workerUploads.projectRef, ref), gt(workerUploads.expiresAt, now()))
  const uploads = await tx.select({ id: workerUploads.id }).from(workerUploads).where(open).limit(OPEN_MAX)
  if (uploads.length < OPEN_MAX) return
  const detail = `at most ${OPEN_MAX}; each is open for an hour`
  throw new ApiError('unprocessable.too_many_uploads', { detail })
}

const FIELD = 'body.data.attributes.context_upload_id'

export const refuseUpload = (message: string) =>
  new ApiError('bad_request.validation_failed', { issues: [{ field: FIELD, code: 'refused', message }] })

/** That something was PUT into a slot of this worker, of a type and a size that are built. S3 cannot bound what a signed PUT sends. */
export async function requireUpload(ctx: Ctx, ref: string, { name, id }: { name: string; id: string }): Promise<void> {
  const [upload] = await ctx.db
    .select()
    .from(workerUploads)
    .where(and(eq(workerUploads.id, id), eq(workerUploads.projectRef, ref), eq(workerUploads.workerName, name)))
  if (!upload) throw refuseUpload(`there is no such upload for the worker ${name}`)
  if (upload.expiresAt <= ctx.now()) throw refuseUpload('the upload has expired: create another')
  const store = openStore(ctx)
  const key = uploadKey(ref, id)
  const blob = await store.head(key).catch((cause) => {
    throw isBucketUnavailable(cause) ? new ApiError('service_unavailable.bucket', { cause }) : cause
  })
  if (!blob) throw refuseUpload('nothing was PUT to the URL of the upload')
  const [type = ''] = blob.contentType.toLowerCase().split(';', 1)
  if (!CONTEXT_TYPES.includes(type.trim()))
    throw refuseUpload(`what was PUT is ${type}, and no .tar.gz (application/gzip)`)
  if (blob.size <= CONTEXT_BYTES_MAX) return
  await store.remove([key])
  throw refuseUpload(`what was PUT has ${blob.size} bytes; at most ${CONTEXT_BYTES_MAX} are built`)
}
