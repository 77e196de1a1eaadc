import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  UploadPartCopyCommand,
} from '@aws-sdk/client-s3'
import type { Bucket } from './bucket.ts'

/** Sends part `n`, counted from 1, and returns its tag; undefined when there is none. */
type SendPart = (uploadId: string, n: number) => Promise<string | undefined>

/** Puts an object together of parts that are sent one after another, all of one length but the last. */
export async function uploadParts(bucket: Bucket, target: Target, send: SendPart): Promise<{ etag: string }> {
  const { client, name: Bucket } = bucket
  const { key: Key, contentType: ContentType } = target
  const { UploadId = '' } = await client.send(new CreateMultipartUploadCommand({ Bucket, Key, ContentType }))
  try {
    const Parts: { PartNumber: number; ETag: string }[] = []
    for (;;) {
      const ETag = await send(UploadId, Parts.length + 1)
      if (ETag === undefined) break
      Parts.push({ PartNumber: Parts.length + 1, ETag })
    }
    const { ETag = '' } = await client.send(
      new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }),
    )
    return { etag: ETag }
  } catch (error) {
    // What is left of an upload cannot be listed with the objects, but it costs as much.
    await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId })).catch(() => {})
    throw error
  }
}

interface Target {
  key: string
  contentType?: string | undefined
}

export async function uploadPart(bucket: Bucket, part: Part): Promise<string> {
  const { key, uploadId, n, body } = part
  const response = await bucket.request('PUT', key, { query: { partNumber: String(n), uploadId }, body })
  return response.headers.get('etag') ?? ''
}

interface Part {
  key: string
  uploadId: string
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
