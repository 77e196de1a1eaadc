import {
  CopyObjectCommand,
  DeleteObjectsCommand,
  HeadObjectCommand,
  ListObjectsV2Command,
  NoSuchKey,
  NotFound,
} from '@aws-sdk/client-s3'
import type { PlatformCtx } from '../context.ts'
import { type Bucket, BucketError, openBucket } from './bucket.ts'
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

/** The bytes of files in the bucket. A key's bytes are written once and never change. Bodies stream in constant memory. */
export interface Blobs {
  /** A body of known length. Rejects, and leaves nothing, when it turns out shorter or longer. */
  put(key: string, body: Body, options: { size: number; contentType?: string | undefined }): Promise<Stored>
  /** A body whose length shows at its end. Rejects with BlobTooLarge as soon as it is longer than `sizeMax`. */
  putUnknown(key: string, body: ReadableStream<Uint8Array>, options: UnknownSize): Promise<Stored>
  /** The whole or a part of it, whose bytes must exist; undefined when there are no such bytes. One request. */
  get(key: string, range?: Range): Promise<Found | undefined>
  /** undefined when there is nothing to copy. */
  copy(from: string, to: string, options: { size: number }): Promise<Stored | undefined>
  /** A key without bytes counts as removed. Rejects with BlobsNotRemoved, after it has tried all. */
  remove(keys: readonly string[]): Promise<void>
  /** For bytes that come in several requests. `end` and `put` reject with PartsGone once it was ended or dropped. */
  parts: {
    /** Returns the upload's id. */
    begin(key: string, options: { contentType?: string | undefined }): Promise<string>
    /** Of one length, at least 5 MiB, but for the last; numbered from 1 to 10,000. Returns its tag. */
    put(upload: PartsUpload, n: number, bytes: Uint8Array<ArrayBuffer>): Promise<string>
    /** Puts the object together of parts in the order of their numbers. */
    end(upload: PartsUpload, parts: readonly SentPart[]): Promise<{ etag: string }>
    /** One that is gone counts as dropped. */
    drop(upload: PartsUpload): Promise<void>
  }
  /** What is known of a key's bytes; undefined when there are none. */
  look(key: string): Promise<Seen | undefined>
  /** In the order of the keys, 1,000 at most. */
  list(
    prefix: string,
    options: { after?: string | undefined; count: number },
  ): Promise<{ blobs: Listed[]; more: boolean }>
}

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
  /** Of this body. */
  size: number
  /** Of the whole. */
  sizeOfAll: number
}

interface Seen extends Stored {
  /** Empty where the bucket has none. */
  contentType: string
}

interface Listed {
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

/** Of one request, each by S3's own limits. */
const COPIED_BYTES_MAX = 5 * 1024 ** 3
const REMOVED_KEYS_MAX = 1000

const COPIED_PART_BYTES = 1024 ** 3

export function openStore(ctx: Pick<PlatformCtx, 'config' | 'bindings' | 'waitUntil'>): Blobs {
  const bucket = openBucket(ctx.config, ctx.bindings.SERVICES_EGRESS)
  // A caller that goes away would else end the request before what it began is cleaned away.
  const outlasting = (upload: Promise<Stored>) => {
    ctx.waitUntil(upload.catch(() => {}))
    return upload
  }
  return {
    put: (key, body, options) => outlasting(put(bucket, { key, ...options }, body)),
    putUnknown: (key, body, options) => outlasting(putUnknown(bucket, { key, ...options }, body)),
    get: (key, range) => existing(get(bucket, key, range)),
    copy: (from, to, { size }) => existing(copy(bucket, { from, to, size })),
    remove: (keys) => remove(bucket, keys),
    parts: {
      begin: (key, options) => beginParts(bucket, { key, ...options }),
      put: (upload, n, body) => uploadPart(bucket, { ...upload, n, body }),
      end: (upload, parts) => endParts(bucket, upload, parts),
      drop: (upload) => dropParts(bucket, upload).catch(unlessGone),
    },
    look: (key) => existing(look(bucket, key)),
    list: (prefix, options) => list(bucket, prefix, options),
  }
}

async function existing<T>(found: Promise<T>): Promise<T | undefined> {
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
  // The bytes as they are kept: a server on the way may compress them for who would take it.
  const { body, headers } = await request('GET', key, { headers: { 'accept-encoding': 'identity', ...part } })
  const size = Number(headers.get('content-length'))
  const [, total = size] = /\/(\d+)$/.exec(headers.get('content-range') ?? '') ?? []
  return { body, size, sizeOfAll: Number(total) }
}

async function look({ client, name: Bucket }: Bucket, Key: string): Promise<Seen> {
  const { ETag = '', ContentLength = 0, ContentType = '' } = await client.send(new HeadObjectCommand({ Bucket, Key }))
  return { etag: ETag, size: ContentLength, contentType: ContentType }
}

const unlessGone = (error: unknown) => {
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
  const kept: string[] = []
  let cause: unknown
  for (let from = 0; from < keys.length; from += REMOVED_KEYS_MAX) {
    const some = keys.slice(from, from + REMOVED_KEYS_MAX)
    const Delete = { Objects: some.map((Key) => ({ Key })), Quiet: true }
    try {
      const { Errors = [] } = await client.send(new DeleteObjectsCommand({ Bucket, Delete }))
      kept.push(...Errors.map(({ Key = '' }) => Key))
      cause ??= Errors[0]
    } catch (error) {
      kept.push(...some)
      cause ??= error
    }
  }
  if (kept.length > 0) throw new BlobsNotRemoved(kept, { cause })
}

async function list(
  { client, name: Bucket }: Bucket,
  Prefix: string,
  { after: StartAfter, count: MaxKeys }: { after?: string | undefined; count: number },
): Promise<{ blobs: Listed[]; more: boolean }> {
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
