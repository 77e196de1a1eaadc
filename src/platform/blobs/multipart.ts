import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  NoSuchUpload,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3'
import { type Bucket, BucketError } from './bucket.ts'

/** Sends part `n`, counted from 1, and returns its ETag; undefined if there are no more parts. */
type SendPart = (uploadId: string, n: number) => Promise<string | undefined>

/** Creates an object from parts that are sent one after another. All parts but the last have the same length. */
export async function uploadParts(bucket: Bucket, target: Target, send: SendPart): Promise<{ etag: string }> {
  const { key } = target
  const uploadId = await beginParts(bucket, target)
  try {
    const parts: SentPart[] = []
    for (;;) {
      const etag = await send(uploadId, parts.length + 1)
      if (etag === undefined) break
      parts.push({ n: parts.length + 1, etag })
    }
    return await endParts(bucket, { key, uploadId }, parts)
  } catch (error) {
    // An unfinished upload is not listed with the objects, but costs as much.
    await dropParts(bucket, { key, uploadId }).catch(() => {})
    throw error
  }
}

interface Target {
  key: string
  contentType?: string | undefined
}

/** A multipart upload. Parts are numbered from 1 to 10,000 in order, and all but the last have the same length. */
export interface PartsUpload {
  key: string
  uploadId: string
}

export interface SentPart {
  n: number
  etag: string
}

/** The upload was completed or aborted before. */
export class PartsGone extends Error {
  override name = 'PartsGone'
}

/** Returns the upload's id. */
export async function beginParts(
  { client, name: Bucket }: Bucket,
  { key: Key, contentType: ContentType }: Target,
): Promise<string> {
  const { UploadId = '' } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key, ContentType }))
  return UploadId
}

export async function endParts(
  { client, name: Bucket }: Bucket,
  { key: Key, uploadId: UploadId }: PartsUpload,
  sent: readonly SentPart[],
): Promise<{ etag: string }> {
  const Parts = sent.map(({ n, etag }) => ({ PartNumber: n, ETag: etag }))
  const command = new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } })
  const { ETag = '' } = await orPartsGone(client.send(command))
  return { etag: ETag }
}

export async function dropParts(
  { client, name: Bucket }: Bucket,
  { key: Key, uploadId: UploadId }: PartsUpload,
): Promise<void> {
  await orPartsGone(client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId })))
}

async function orPartsGone<T>(work: Promise<T>): Promise<T> {
  try {
    return await work
  } catch (error) {
    const isGone = error instanceof NoSuchUpload || (error instanceof BucketError && error.code === 'NoSuchUpload')
    throw isGone ? new PartsGone('the upload was completed or aborted before', { cause: error }) : error
  }
}

export async function uploadPart(bucket: Bucket, part: Part): Promise<string> {
  const { key, uploadId, n, body } = part
  const sent = bucket.request('PUT', key, { query: { partNumber: String(n), uploadId }, body })
  const response = await orPartsGone(sent)
  return response.headers.get('etag') ?? ''
}

interface Part extends PartsUpload {
  n: number
  body: Uint8Array<ArrayBuffer>
}

export function copyParts(bucket: Bucket, copy: Copy): Promise<{ etag: string }> {
  const { from, to, size, partSize } = copy
  const { client, name: Bucket } = bucket
  return uploadParts(bucket, { key: to }, async (UploadId, n) => {
    const first = (n - 1) * partSize
    if (first >= size) return undefined
    const { CopyPartResult } = await client.send(
      new UploadPartCopyCommand({
        Bucket,
        Key: to,
        UploadId,
        PartNumber: n,
        CopySource: `${Bucket}/${from}`,
        CopySourceRange: `bytes=${first}-${Math.min(first + partSize, size) - 1}`,
      }),
    )
    return CopyPartResult?.ETag ?? ''
  })
}

interface Copy {
  from: string
  to: string
  size: number
  partSize: number
}
