import * as z from 'zod'
import { isStorable } from '../../platform/http/common-values.ts'
import { SIZE_RULE } from './bucket-limits.ts'

/** An optional field: clients in some languages send null instead of leaving a field out. */
const optional = <T extends z.ZodType>(schema: T, fallback: z.output<T>) =>
  schema.nullish().transform((value) => value ?? fallback)

/** The hosted service reads numbers and booleans from text too, and clients in some languages send them so. */
const intOrText = (schema: z.ZodInt) =>
  z.preprocess((value) => (typeof value === 'string' && /^-?\d+$/.test(value) ? Number(value) : value), schema)
const BooleanOrText = z.preprocess(
  (value) => (value === 'true' || value === 'false' ? value === 'true' : value),
  z.boolean(),
)
/** A list, for which clients may send a single text. */
const textOrList = <T extends z.ZodType>(schema: z.ZodArray<T>) =>
  z.preprocess((value) => (typeof value === 'string' ? [value] : value), schema)

const time = z.iso.datetime()
const metadata = z.record(z.string(), z.unknown())
/** Text that Postgres can store. */
export const StorableText = z.string().refine(isStorable, 'must be text without NUL characters or lone surrogates')
const order = z.enum(['asc', 'desc'])

const limits = {
  file_size_limit: z
    .union([z.int().min(0), z.string()], SIZE_RULE)
    .nullish()
    .describe('Bytes, or a size such as `5MB`; null for no limit'),
  allowed_mime_types: textOrList(z.array(z.string()).max(1_000)).nullish().describe('Such as `image/*`; null for any'),
  versioning_status: z
    .enum(['DISABLED', 'SUSPENDED'])
    .nullish()
    .describe('Versioning cannot be enabled: an object has one version'),
}

export const CreateBucket = z
  .object({
    name: z.string(),
    id: z.string().nullish().describe('Defaults to the name'),
    public: optional(BooleanOrText, false),
    type: optional(z.enum(['STANDARD', 'ANALYTICS']), 'STANDARD').describe('Only STANDARD is available'),
    ...limits,
  })
  .meta({ id: 'CreateBucket' })

export const UpdateBucket = z.object({ public: BooleanOrText.nullish(), ...limits }).meta({ id: 'UpdateBucket' })

const integer = z.coerce.number().int()

export const ListBuckets = z.object({
  limit: integer.min(1).optional(),
  offset: integer.min(0).optional(),
  sortColumn: z.enum(['id', 'name', 'created_at', 'updated_at']).optional(),
  sortOrder: order.optional(),
  search: z.string().optional(),
})

export const Bucket = z
  .object({
    id: z.string(),
    name: z.string(),
    owner: z.string().describe('Empty without an owner'),
    public: z.boolean(),
    file_size_limit: z.number().nullable(),
    allowed_mime_types: z.array(z.string()).nullable(),
    created_at: time,
    updated_at: time,
  })
  .meta({ id: 'Bucket' })

export const Health = z.object({ healthy: z.literal(true) })
export const BucketName = z.object({ name: z.string() })
export const Message = z.object({ message: z.string() }).meta({ id: 'Message' })

const times = { created_at: time.nullable(), updated_at: time.nullable(), last_accessed_at: time.nullable() }

export const StoredObject = z
  .object({
    id: z.string(),
    name: z.string(),
    bucket_id: z.string(),
    owner: z.string(),
    owner_id: z.string(),
    version: z.string(),
    ...times,
    metadata: metadata.nullable(),
  })
  .meta({ id: 'Object' })

export const ObjectInfo = z
  .object({
    id: z.string(),
    name: z.string(),
    version: z.string().nullable(),
    bucket_id: z.string(),
    size: z.number(),
    content_type: z.string(),
    cache_control: z.string(),
    content_encoding: z.string().nullable().describe('Null if the bytes are not encoded'),
    etag: z.string(),
    metadata: z.unknown().describe('What the client stored with the object'),
    last_modified: time,
    created_at: time.nullable(),
  })
  .meta({ id: 'ObjectInfo' })

const SORTED = ['name', 'updated_at', 'created_at'] as const
const SortBy = z.object({ column: optional(z.enum(SORTED), 'name'), order: optional(order, 'asc') })
const BY_NAME = { column: 'name', order: 'asc' } as const

const VersionFilter = optional(z.enum(['exclude', 'include', 'only']), 'exclude')
/** An object has one version, so lists of only other versions or only delete markers are empty. */
const versions = {
  noncurrentVersions: VersionFilter.describe('Older versions do not exist: `only` lists nothing'),
  deleteMarkers: VersionFilter.describe('Delete markers do not exist: `only` lists nothing'),
  exactMatch: optional(BooleanOrText, false).describe('Lists only the object whose name is the prefix'),
}

export const ListObjects = z
  .object({
    prefix: StorableText,
    limit: optional(intOrText(z.int().min(1)), 100),
    offset: optional(intOrText(z.int().min(0).max(2_147_483_647)), 0),
    search: optional(StorableText, ''),
    sortBy: optional(SortBy.extend({ column: optional(z.enum([...SORTED, 'last_accessed_at']), 'name') }), BY_NAME),
    ...versions,
  })
  .meta({ id: 'ListObjects' })

/** A file or a folder; a folder has a name only. */
const Entry = z.object({
  name: z.string(),
  id: z.string().nullable(),
  version: z.string().optional().describe('Only with `exactMatch`'),
  ...times,
  metadata: metadata.nullable(),
})
export const ListedObjects = z.array(Entry)

export const PAGE_MAX = 1_000

export const ListPage = z
  .object({
    prefix: optional(StorableText, ''),
    limit: optional(intOrText(z.int().min(1)), PAGE_MAX),
    cursor: z.string().nullish(),
    with_delimiter: optional(BooleanOrText, false),
    sortBy: optional(SortBy, BY_NAME),
    ...versions,
  })
  .meta({ id: 'ListPage' })

const PageEntry = Entry.extend({ key: z.string().optional() })
export type PageEntry = z.output<typeof PageEntry>

export const Page = z.object({
  hasNext: z.boolean(),
  nextCursor: z.string().optional(),
  nextCursorKey: z.string().optional(),
  folders: z.array(PageEntry),
  objects: z.array(PageEntry),
})

/** The order of the entries of a page, as a cursor stores it. */
export const CursorOrder = { o: order, c: z.enum(SORTED) }

export const MoveObject = z
  .object({
    bucketId: z.string(),
    sourceKey: z.string(),
    destinationKey: z.string(),
    destinationBucket: z.string().nullish().describe('Defaults to the bucket of the source'),
    sourceVersionId: z.string().nullish(),
  })
  .meta({ id: 'MoveObject' })

export const CopyObject = MoveObject.extend({
  metadata: z
    .object({
      cacheControl: z.string().nullish(),
      mimetype: z.string().nullish(),
      contentEncoding: z.string().nullish(),
    })
    .nullish()
    .describe('Applied only with `copyMetadata: false`, as `x-metadata` is'),
  copyMetadata: optional(BooleanOrText, true),
}).meta({ id: 'CopyObject' })

export const CopiedObject = StoredObject.extend({
  Key: z.string(),
  Id: z.string(),
  user_metadata: z.unknown(),
}).meta({ id: 'CopiedObject' })

const RemovedObject = z.union(
  [
    z.string(),
    z.object({ path: z.string(), versionId: z.string().nullable().describe('Null for the version that exists') }),
  ],
  'must be a name, or an object with path and versionId',
)
export const RemoveObjects = z.object({
  prefixes: textOrList(z.array(RemovedObject).min(1).max(10_000)).describe('Names of objects, or names with a version'),
})

const expiresIn = z.coerce
  .number()
  .int()
  .min(1)
  .max(10 ** 10)
  .describe('Seconds')

const transform = metadata.nullish().describe('Must be empty: image transformation is not available')

export const SignObject = z.object({ expiresIn, versionId: z.string().nullish(), transform })
export const SignedUrl = z.object({ signedURL: z.string() })

const SIGNED_MAX = 1_000
export const SignObjects = z.object({
  expiresIn,
  paths: textOrList(z.array(z.string()).min(1).max(SIGNED_MAX)),
  transform,
})
export const SignedUrls = z.array(
  z.object({ error: z.string().nullable(), path: z.string(), signedURL: z.string().nullable() }),
)
export const SignedUpload = z.object({ url: z.string(), token: z.string() })

export const UploadedObject = z.object({ Key: z.string(), Id: z.string() })
export const UploadedKey = z.object({ Key: z.string() })

const header = z.string().optional()
/** Only the text `true` sets a flag. */
const flag = header.transform((value) => value === 'true')
const userMetadata = header.describe('Base64 of a JSON object')

export const ReplaceHeaders = z.object({
  'cache-control': header,
  'x-metadata': userMetadata,
  'x-robots-tag': header,
  'content-encoding': header,
})
export const UploadHeaders = ReplaceHeaders.extend({ 'x-upsert': flag.describe('Replace an existing object') })
export const CopyHeaders = UploadHeaders.pick({ 'x-upsert': true, 'x-metadata': true })

export const Conditions = z.object({
  range: header,
  'if-range': header,
  'if-match': header,
  'if-unmodified-since': header,
  'if-none-match': header,
  'if-modified-since': header,
})
export const Version = z.object({ versionId: header.describe('Only the newest version exists') })
export const Download = Version.extend({
  download: header.describe('Sends the object as a file of this name; empty for its own name'),
})
const token = z.string()
export const UrlToken = z.object({ token })
export const SignedDownload = Download.extend({ token })

/** Optional here, because `requireVersion` has refused requests without it. */
const TusHeaders = z.object({ 'tus-resumable': header.describe('Must be `1.0.0`') })
export const CreateUploadHeaders = TusHeaders.extend({
  'upload-length': header,
  'upload-defer-length': header.describe('`1` if the length is not known yet'),
  'upload-metadata': header.describe('Names, each with its value in base64: `bucketName`, `objectName` and others'),
  'upload-concat': header.describe('Not supported'),
  'x-upsert': flag.describe('Replace an existing object'),
  'x-signature': header.describe('The token of a signed URL for uploads'),
})
export const UploadTokenHeaders = TusHeaders.extend({
  'x-signature': header.describe('The token of a signed URL for uploads'),
})
export const ContinueUploadHeaders = UploadTokenHeaders.extend({
  'upload-offset': header,
  'upload-length': header.describe('Sets the length of an upload that deferred it'),
})

/** Bytes, as the OpenAPI document describes them. */
export const Bytes = z.string().meta({ format: 'binary' })
export const UploadForm = z
  .looseObject({
    contentType: z.string().optional(),
    cacheControl: z.string().optional().describe('Seconds, or the header itself'),
    metadata: z.string().optional().describe('JSON of an object'),
    file: Bytes.describe('One file, of any field name'),
  })
  .meta({ id: 'UploadForm' })
