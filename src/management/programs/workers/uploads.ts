import { and, eq, gt } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { workerUploads } from '../../../model/tables/index.ts'
import { presignPut } from '../../../platform/blobs/presign.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { uploadKey } from '../../../services/runtime/program-keys.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { rethrowBucketFailure } from '../functions/deployment.ts'
import { SPELLINGS, type Spelling } from './schema.ts'

const EXPIRES_IN_SECONDS = 3_600
export const CONTEXT_BYTES_MAX = 32 * 1024 ** 2

/** Content types that clients send for a .tar.gz or for any file. */
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

/** Creates a presigned URL for an upload from the client to the bucket. The deployment validates the content. */
export async function createUpload(
  ctx: Ctx,
  project: ProjectAccess,
  { name, spelling }: { name: string; spelling: Spelling },
) {
  const { ref } = project
  const expiresAt = new Date(ctx.now().getTime() + EXPIRES_IN_SECONDS * 1000)
  const id = await changeProject(ctx, project, async ({ tx, record }) => {
    await requireUploadQuota(ctx, tx, ref)
    const upload = requireRow(
      await tx
        .insert(workerUploads)
        .values({ projectRef: ref, workerName: name, expiresAt })
        .returning({ id: workerUploads.id }),
    )
    await record('worker.upload.create', { name })
    return upload.id
  })
  const url = await presignPut(ctx, uploadKey(ref, id), { expiresInSeconds: EXPIRES_IN_SECONDS })
  const attributes = { url, method: 'PUT' as const, expires_at: expiresAt.toISOString() }
  return { data: { type: SPELLINGS[spelling].upload, id, attributes } }
}

/** The maximum number of open uploads. S3 cannot limit the size of a presigned PUT, so a sweep removes oversized ones. */
const OPEN_MAX = 100

async function requireUploadQuota({ now }: Ctx, tx: Writer, ref: string): Promise<void> {
  const isOpen = and(eq(workerUploads.projectRef, ref), gt(workerUploads.expiresAt, now()))
  if ((await tx.$count(workerUploads, isOpen)) < OPEN_MAX) return
  const detail = `a project can have at most ${OPEN_MAX} open uploads; each expires after an hour`
  throw new ApiError('unprocessable.too_many_uploads', { detail })
}

export const invalidUpload = (message: string) =>
  invalidField('body.data.attributes.context_upload_id', message, 'refused')

/** Requires an upload for this worker with a valid type and size. S3 cannot limit the size of a presigned PUT. */
export async function requireUpload(ctx: Ctx, ref: string, { name, id }: { name: string; id: string }): Promise<void> {
  const [upload] = await ctx.db
    .select()
    .from(workerUploads)
    .where(and(eq(workerUploads.id, id), eq(workerUploads.projectRef, ref), eq(workerUploads.workerName, name)))
  if (!upload) throw invalidUpload(`must be the id of an upload for the worker ${name}`)
  if (upload.expiresAt <= ctx.now()) throw invalidUpload('the upload has expired: create another')
  const store = openStore(ctx)
  const key = uploadKey(ref, id)
  const blob = await store.head(key).catch(rethrowBucketFailure)
  if (!blob) throw invalidUpload('the upload is empty: PUT the build context to its URL first')
  const [type = ''] = blob.contentType.toLowerCase().split(';', 1)
  if (!CONTEXT_TYPES.includes(type.trim()))
    throw invalidUpload(`the upload must be a .tar.gz (application/gzip), not ${type}`)
  if (blob.size <= CONTEXT_BYTES_MAX) return
  await store.remove([key])
  throw invalidUpload(`the upload is too large: ${blob.size} bytes, at most ${CONTEXT_BYTES_MAX} are allowed`)
}
