import {
  AbortMultipartUploadCommand,
  CompleteMultipartUploadCommand,
  CreateMultipartUploadCommand,
  DeleteObjectsCommand,
  GetObjectCommand,
  ListMultipartUploadsCommand,
  ListObjectsV2Command,
  NoSuchKey,
  PutObjectCommand,
  paginateListObjectsV2,
  S3Client,
  UploadPartCommand,
} from '@aws-sdk/client-s3'
import { MissingObject } from './errors.ts'

interface StoredObject {
  key: string
  bytes: number
  modifiedAt: Date
}

/** The archive's storage. An object becomes visible when its upload is complete. */
export interface ArchiveStore {
  /** Sends one cheap request; throws `BucketRefused` if the settings are wrong, and other errors if the bucket does not answer. */
  check(signal: AbortSignal): Promise<void>
  put(key: string, body: AsyncIterable<Uint8Array>): Promise<void>
  /** Streams an object until the signal aborts; throws `MissingObject` if it does not exist. */
  get(key: string, signal?: AbortSignal): AsyncIterable<Uint8Array>
  list(prefix: string): Promise<StoredObject[]>
  /** Lists objects like `list`, reading one page at a time. */
  each(prefix: string): AsyncIterable<StoredObject>
  delete(keys: readonly string[]): Promise<void>
  /** Removes the parts of uploads that began before this time and did not complete, because they take space. */
  dropUploads(prefix: string, before: Date): Promise<void>
}

/** The bucket answers, but not as an S3 bucket that these settings open. */
export class BucketRefused extends Error {
  override name = 'BucketRefused'
}

export interface S3Settings {
  endpoint: string
  region: string
  bucket: string
  accessKeyId: string
  secretAccessKey: string
  sessionToken?: string
}

/** Some buckets require parts of equal length, except for the last; at most 10,000 parts allow objects of 160 GB. */
const PART_BYTES = 16 << 20
const KEYS_PER_DELETE = 1_000
const RESUMES_MAX = 5

export function s3Store({ endpoint, region, bucket: Bucket, ...credentials }: S3Settings): ArchiveStore {
  const client = new S3Client({
    endpoint,
    region,
    credentials,
    forcePathStyle: true,
    maxAttempts: 5,
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    requestHandler: { connectionTimeout: 10_000, requestTimeout: 120_000, throwOnRequestTimeout: true },
  })

  async function put(Key: string, body: AsyncIterable<Uint8Array>): Promise<void> {
    let UploadId: string | undefined
    const Parts: { PartNumber: number; ETag: string | undefined }[] = []
    try {
      for await (const { part, isLast } of partsOf(body)) {
        if (isLast && !UploadId) return void (await client.send(new PutObjectCommand({ Bucket, Key, Body: part })))
        UploadId ??= (await client.send(new CreateMultipartUploadCommand({ Bucket, Key }))).UploadId
        const PartNumber = Parts.length + 1
        const { ETag } = await client.send(new UploadPartCommand({ Bucket, Key, UploadId, PartNumber, Body: part }))
        Parts.push({ PartNumber, ETag })
      }
      await client.send(new CompleteMultipartUploadCommand({ Bucket, Key, UploadId, MultipartUpload: { Parts } }))
    } catch (error) {
      if (UploadId) await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId })).catch(() => {})
      throw error
    }
  }

  /** Streams an object, and resumes after a lost connection. */
  async function* get(Key: string, signal?: AbortSignal): AsyncGenerator<Uint8Array> {
    const options = signal ? { abortSignal: signal } : {}
    let etag: string | undefined
    for (let at = 0, resumes = 0; ; resumes++) {
      try {
        const range = at > 0 ? { Range: `bytes=${at}-`, IfMatch: etag } : {}
        const { Body, ETag } = await client.send(new GetObjectCommand({ Bucket, Key, ...range }), options)
        etag = ETag
        for await (const chunk of Body as AsyncIterable<Uint8Array>) {
          at += chunk.length
          yield chunk
        }
        return
      } catch (error) {
        if (error instanceof NoSuchKey) throw new MissingObject(Key)
        if (at === 0 || resumes === RESUMES_MAX || signal?.aborted) throw error
      }
    }
  }

  async function* each(Prefix: string): AsyncGenerator<StoredObject> {
    for await (const { Contents = [] } of paginateListObjectsV2({ client }, { Bucket, Prefix })) {
      for (const { Key = '', Size = 0, LastModified } of Contents) {
        yield { key: Key, bytes: Size, modifiedAt: LastModified ?? new Date(0) }
      }
    }
  }

  return {
    async check(abortSignal) {
      const request = client.send(new ListObjectsV2Command({ Bucket, MaxKeys: 1 }), { abortSignal })
      const { KeyCount } = await request.catch((error) => {
        const status: number = error.$metadata?.httpStatusCode ?? 503
        throw status < 500 && status !== 429
          ? new BucketRefused(`HTTP ${status} ${error.name}`, { cause: error })
          : error
      })
      if (KeyCount === undefined) throw new BucketRefused('it does not speak S3')
    },
    put,
    get,
    async list(prefix) {
      const found: StoredObject[] = []
      for await (const object of each(prefix)) found.push(object)
      return found
    },
    each,
    async delete(keys) {
      for (let at = 0; at < keys.length; at += KEYS_PER_DELETE) {
        const Objects = keys.slice(at, at + KEYS_PER_DELETE).map((Key) => ({ Key }))
        const { Errors } = await client.send(new DeleteObjectsCommand({ Bucket, Delete: { Objects, Quiet: true } }))
        if (Errors?.[0]) throw new Error(`The bucket did not delete ${Errors[0].Key}: ${Errors[0].Message}`)
      }
    },
    async dropUploads(Prefix, before) {
      const { Uploads = [] } = await client
        .send(new ListMultipartUploadsCommand({ Bucket, Prefix }))
        .catch((error) => (error.name === 'NotImplemented' ? { Uploads: [] } : Promise.reject(error)))
      for (const { Key, UploadId, Initiated } of Uploads) {
        if (Initiated && Initiated < before)
          await client.send(new AbortMultipartUploadCommand({ Bucket, Key, UploadId }))
      }
    },
  }
}

/** Splits the body into parts of equal length; the last part is shorter and may be empty. */
async function* partsOf(body: AsyncIterable<Uint8Array>): AsyncGenerator<{ part: Buffer; isLast: boolean }> {
  let buffered: Uint8Array[] = []
  let length = 0
  for await (const chunk of body) {
    for (let rest = chunk; rest.length > 0; ) {
      const taken = rest.subarray(0, PART_BYTES - length)
      buffered.push(taken)
      length += taken.length
      rest = rest.subarray(taken.length)
      if (length < PART_BYTES) continue
      yield { part: Buffer.concat(buffered), isLast: false }
      buffered = []
      length = 0
    }
  }
  yield { part: Buffer.concat(buffered), isLast: true }
}
