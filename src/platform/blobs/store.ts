import {
  CopyObjectCommand,
  DeleteObjectsCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  NoSuchKey,
  NotFound,
} from '@aws-sdk/client-s3'
import type { PlatformCtx } from '../context.ts'
import { type Bucket, BucketError, BucketUnreachable, openBucket } from './bucket.ts'
import {
  beginParts,
  copyParts,
  dropParts,
  endParts,
  PartsGone,
  type PartsUpload,
  type SentPart,
  uploadPart,
} from './multipart.ts'
import { put, putUnknown, type Stored } from './put.ts'

export { PartsGone, type SentPart } from './multipart.ts'
export { BlobIncomplete, BlobTooLarge, type Stored } from './put.ts'

type Body = ReadableStream<Uint8Array> | Uint8Array<ArrayBuffer>

interface UnknownSize {
  sizeMax: number
  contentType?: string | undefined
}

export interface Range {
  offset: number
  length: number
}

export interface Found {
  body: ReadableStream<Uint8Array> | null
  /** Empty if the bucket has none. */
  contentType: string
  /** Size of this body. */
  size: number
  /** Size of the whole file. */
  sizeOfAll: number
}

interface BlobMetadata extends Stored {
  /** Empty if the bucket has none. */
  contentType: string
}

interface ListedBlob {
  key: string
  size: number
  modifiedAt: Date
}

export class BlobsNotRemoved extends Error {
  override name = 'BlobsNotRemoved'
  readonly keys: readonly string[]

  constructor(keys: readonly string[], options?: ErrorOptions) {
    super(`${keys.length} keys were not removed, ${keys[0]} among them`, options)
    this.keys = keys
  }
}

/** Limits of S3 for one request. */
const COPIED_BYTES_MAX = 5 * 1024 ** 3
const REMOVED_KEYS_MAX = 1000

const COPIED_PART_BYTES = 1024 ** 3

/** Opens the files in the bucket. A key is written once and its bytes never change. Bodies stream in constant memory. */
export function openStore(ctx: Pick<PlatformCtx, 'config' | 'bindings' | 'waitUntil'>) {
  const bucket = openBucket(ctx.config, ctx.bindings.SERVICES_EGRESS)
  // Otherwise the request of a client that disconnects would end before its upload is cleaned up.
  const keepAlive = (upload: Promise<Stored>) => {
    ctx.waitUntil(upload.catch(() => {}))
    return upload
  }
  return {
    /** Stores a body of known length. Rejects, and stores nothing, if the body is shorter or longer. */
    put: (key: string, body: Body, options: { size: number; contentType?: string | undefined }) =>
      keepAlive(put(bucket, { key, ...options }, body)),
    /** Stores a body of unknown length. Rejects with BlobTooLarge as soon as it is longer than `sizeMax`. */
    putUnknown: (key: string, body: ReadableStream<Uint8Array>, options: UnknownSize) =>
      keepAlive(putUnknown(bucket, { key, ...options }, body)),
    /** Reads all bytes or a range, which must exist, in one request. Returns undefined if the key does not exist. */
    get: (key: string, range?: Range) => orUndefined(get(bucket, key, range)),
    /** Returns undefined if `from` does not exist. */
    copy: (from: string, to: string, { size }: { size: number }) =>
      orUndefined(keepAlive(copy(bucket, { from, to, size }))),
    /** Removes keys; one that does not exist counts as removed. Tries all, then rejects with BlobsNotRemoved if any is left. */
    remove: (keys: readonly string[]) => remove(bucket, keys),
    /** Multipart uploads over several requests. `end` and `put` reject with PartsGone if the upload was ended or dropped. */
    parts: {
      /** Returns the upload's id. */
      begin: (key: string, options: { contentType?: string | undefined }) => beginParts(bucket, { key, ...options }),
      /** Stores part `n`, from 1 to 10,000. All parts but the last have the same length of at least 5 MiB. Returns the ETag. */
      put: (upload: PartsUpload, n: number, body: Uint8Array<ArrayBuffer>) =>
        uploadPart(bucket, { ...upload, n, body }),
      /** Creates the object from the parts, in the order of their numbers. */
      end: (upload: PartsUpload, parts: readonly SentPart[]) => endParts(bucket, upload, parts),
      /** Aborts the upload; one that does not exist counts as aborted. */
      drop: (upload: PartsUpload) => dropParts(bucket, upload).catch(ignoreGone),
    },
    /** Returns the metadata of a key; undefined if it does not exist. */
    head: (key: string) => orUndefined(head(bucket, key)),
    /** Lists up to 1,000 files in the order of their keys. */
    list: (prefix: string, options: { after?: string | undefined; count: number }) => list(bucket, prefix, options),
  }
}
export type Blobs = ReturnType<typeof openStore>

async function orUndefined<T>(found: Promise<T>): Promise<T | undefined> {
  try {
    return await found
  } catch (error) {
    const missing =
      error instanceof NoSuchKey ||
      error instanceof NotFound ||
      (error instanceof BucketError && error.code === 'NoSuchKey')
    if (!missing) throw error
    return undefined
  }
}

async function get({ request }: Bucket, key: string, range?: Range): Promise<Found> {
  const part = range && { range: `bytes=${range.offset}-${range.offset + range.length - 1}` }
  // Requests the stored bytes: otherwise a proxy might compress them.
  const { body, headers } = await request('GET', key, { headers: { 'accept-encoding': 'identity', ...part } })
  const size = Number(headers.get('content-length'))
  const [, total = size] = /\/(\d+)$/.exec(headers.get('content-range') ?? '') ?? []
  return { body, contentType: headers.get('content-type') ?? '', size, sizeOfAll: Number(total) }
}

/** Reads a body into memory. */
export async function readAll({ body }: Found): Promise<Uint8Array<ArrayBuffer>> {
  try {
    return new Uint8Array(await new Response(body).arrayBuffer())
  } catch (cause) {
    throw new BucketUnreachable('the bucket cut off its response', { cause })
  }
}

async function head({ client, name: Bucket }: Bucket, Key: string): Promise<BlobMetadata> {
  const { ETag = '', ContentLength = 0, ContentType = '' } = await client.send(new HeadObjectCommand({ Bucket, Key }))
  return { etag: ETag, size: ContentLength, contentType: ContentType }
}

const ignoreGone = (error: unknown) => {
  if (!(error instanceof PartsGone)) throw error
}

async function copy(bucket: Bucket, { from, to, size }: { from: string; to: string; size: number }): Promise<Stored> {
  if (size > COPIED_BYTES_MAX) {
    return { ...(await copyParts(bucket, { from, to, size, partSize: COPIED_PART_BYTES })), size }
  }
  const { client, name: Bucket } = bucket
  const { CopyObjectResult } = await client.send(
    new CopyObjectCommand({ Bucket, Key: to, CopySource: `${Bucket}/${from}` }),
  )
  return { etag: CopyObjectResult?.ETag ?? '', size }
}

async function remove({ client, name: Bucket }: Bucket, keys: readonly string[]): Promise<void> {
  const failed: string[] = []
  let cause: unknown
  for (let from = 0; from < keys.length; from += REMOVED_KEYS_MAX) {
    const some = keys.slice(from, from + REMOVED_KEYS_MAX)
    const Delete = { Objects: some.map((Key) => ({ Key })), Quiet: true }
    try {
      const { Errors = [] } = await client.send(new DeleteObjectsCommand({ Bucket, Delete }))
      failed.push(...Errors.map(({ Key = '' }) => Key))
      cause ??= Errors[0]
    } catch (error) {
      failed.push(...some)
      cause ??= error
    }
  }
  if (failed.length > 0) throw new BlobsNotRemoved(failed, { cause })
}

async function list(
  { client, name: Bucket }: Bucket,
  Prefix: string,
  { after: StartAfter, count: MaxKeys }: { after?: string | undefined; count: number },
): Promise<{ blobs: ListedBlob[]; more: boolean }> {
  const { Contents = [], IsTruncated = false } = await client.send(
    new ListObjectsV2Command({ Bucket, Prefix, StartAfter, MaxKeys }),
  )
  const blobs = Contents.map(({ Key = '', Size = 0, LastModified = new Date(0) }) => ({
    key: Key,
    size: Size,
    modifiedAt: LastModified,
  }))
  return { blobs, more: IsTruncated }
}
