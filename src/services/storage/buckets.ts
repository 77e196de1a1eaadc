import type { Hono } from 'hono'
import * as z from 'zod'
import { SqlError } from '../../engine/engine-errors.ts'
import { checkMimeTypes, parseSizeLimit, SIZE_RULE } from './bucket-limits.ts'
import { asCaller, asReader, asServer } from './database.ts'
import { checkBucketName } from './object-names.ts'
import { requireCaller, requireServiceRole, type StorageContext, type StorageEnv } from './request.ts'
import { optional, readJson, readQuery } from './request-body.ts'
import {
  type BucketRow,
  createBucket,
  deleteBucket,
  getBucket,
  listBuckets,
  updateBucket,
} from './statements/buckets.ts'
import { countObjects, emptyBucket } from './statements/objects.ts'
import { bucketIn } from './storage-address.ts'
import { isBucketKeyViolated, RowSkipped, StorageError } from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'

export function bucketRoutes(app: Hono<StorageEnv>): void {
  app.get('/health', async (c) => {
    const caller = await requireCaller(c, 'storage.health')
    await asReader(c.var, caller, [{ text: 'select 1', params: [] }])
    return c.json({ healthy: true })
  })
  app.post('/bucket', create)
  app.get('/bucket', list)
  app.get('/bucket/:bucket', get)
  app.put('/bucket/:bucket', update)
  app.delete('/bucket/:bucket', remove)
  app.post('/bucket/:bucket/empty', empty)
}

const limits = {
  file_size_limit: z.union([z.int().min(0), z.string()], SIZE_RULE).nullish(),
  allowed_mime_types: z.array(z.string()).nullish(),
  /** Versioning cannot be enabled: an object has one version. */
  versioning_status: z.enum(['DISABLED', 'SUSPENDED']).nullish(),
}

const NewBucket = z.object({
  name: z.string(),
  id: z.string().nullish(),
  public: optional(z.boolean(), false),
  type: optional(z.enum(['STANDARD', 'ANALYTICS']), 'STANDARD'),
  ...limits,
})

async function create(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.bucket.create')
  const body = await readJson(c, NewBucket)
  if (body.type === 'ANALYTICS') throw new StorageError('InvalidRequest', 'body/type must be STANDARD')
  const name = checkBucketName(body.name)
  const bucket = createBucket({
    name,
    id: checkBucketName(body.id ?? name),
    ownerId: caller.userId ?? null,
    public: body.public,
    type: body.type,
    fileSizeLimit: parseSizeLimit(body.file_size_limit ?? null, c.var.project.storage.fileSizeLimit),
    allowedMimeTypes: checkMimeTypes(body.allowed_mime_types ?? null),
  })
  const [[row] = []] = await asCaller(c.var, caller, [bucket]).catch(throwBucketExists)
  if (!row) throw new RowSkipped()
  return c.json({ name })
}

function throwBucketExists(error: unknown): never {
  if (error instanceof SqlError && error.code === '23505') throw new StorageError('BucketAlreadyExists')
  throw error
}

const integer = z.coerce.number().int()

const Listing = z.object({
  limit: integer.min(1).optional(),
  offset: integer.min(0).optional(),
  sortColumn: z.enum(['id', 'name', 'created_at', 'updated_at']).optional(),
  sortOrder: z.enum(['asc', 'desc']).optional(),
  search: z.string().optional(),
})

async function list(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.bucket.list')
  const [rows = []] = await asReader(c.var, caller, [listBuckets(readQuery(c, Listing))])
  return c.json((rows as unknown as BucketRow[]).map(toBucket))
}

async function get(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.bucket.get')
  const [[row] = []] = await asReader(c.var, caller, [getBucket(bucketIn(c))])
  if (!row) throw new StorageError('NoSuchBucket')
  return c.json(toBucket(row as unknown as BucketRow))
}

/** The fields that the specification lists, and no others. */
function toBucket(row: BucketRow) {
  return {
    id: row.id,
    name: row.name,
    owner: row.owner ?? '',
    public: row.public,
    file_size_limit: row.file_size_limit,
    allowed_mime_types: row.allowed_mime_types,
    created_at: row.created_at,
    updated_at: row.updated_at,
  }
}

const Changes = z.object({ public: z.boolean().nullish(), ...limits })

async function update(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.bucket.update')
  const body = await readJson(c, Changes)
  const { file_size_limit: size, allowed_mime_types: types } = body
  if (body.public == null && size === undefined && types === undefined) {
    throw new StorageError('InvalidRequest', 'body must have public, file_size_limit or allowed_mime_types')
  }
  const statement = updateBucket(bucketIn(c), {
    public: body.public ?? undefined,
    fileSizeLimit: size === undefined ? undefined : parseSizeLimit(size, c.var.project.storage.fileSizeLimit),
    allowedMimeTypes: types === undefined ? undefined : checkMimeTypes(types),
  })
  const [rows = []] = await asCaller(c.var, caller, [statement])
  if (rows.length === 0) throw new StorageError('NoSuchBucket')
  return c.json({ message: 'Successfully updated' })
}

async function remove(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.bucket.delete')
  const [rows = []] = await asCaller(c.var, caller, [deleteBucket(bucketIn(c))]).catch(throwNotEmpty)
  if (rows.length === 0) throw new StorageError('NoSuchBucket')
  return c.json({ message: 'Successfully deleted' })
}

function throwNotEmpty(error: unknown): never {
  if (isBucketKeyViolated(error)) throw new StorageError('ResourceNotEmpty')
  throw error
}

const EMPTIED_MAX = 200_000

/** Deletes all rows in one statement; the next sweep removes their bytes. An object that is uploaded meanwhile stays. */
async function empty(c: StorageContext) {
  const caller = await requireCaller(c, 'storage.bucket.empty')
  requireServiceRole(caller)
  const id = bucketIn(c)
  const [[bucket] = [], [counted] = []] = await asServer(c.var, [getBucket(id), countObjects(id, EMPTIED_MAX)])
  if (!bucket) throw new StorageError('NoSuchBucket')
  if (Number(counted?.count) > EMPTIED_MAX) {
    throw new StorageError(
      'TooManyObjects',
      `The bucket holds more than ${EMPTIED_MAX} objects: delete them in smaller groups`,
    )
  }
  await asCaller(c.var, caller, [emptyBucket(id, EMPTIED_MAX)])
  sweepSoon(c.var)
  return c.json({ message: 'Empty bucket has been queued. Completion may take up to an hour.' })
}
