import type * as z from 'zod'
import { checkMimeTypes, parseSizeLimit } from './bucket-limits.ts'
import { asCaller, asReader, asServer, type Caller, type Storage } from './database.ts'
import { checkBucketName } from './object-names.ts'
import type { CreateBucket, ListBuckets, UpdateBucket } from './schema.ts'
import {
  type BucketRow,
  createBucket,
  deleteBucket,
  getBucket,
  listBuckets,
  updateBucket,
} from './statements/buckets.ts'
import { countObjects, emptyBucket } from './statements/objects.ts'
import {
  isBucketKeyViolated,
  isBucketTaken,
  isResultTooLarge,
  RowSkipped,
  StorageError,
  throwAs,
} from './storage-error.ts'
import { sweepSoon } from './sweep-schedule.ts'

/** Checks that the project's database answers. */
export async function checkHealth(storage: Storage, caller: Caller) {
  await asReader(storage, caller, [{ text: 'select 1', params: [] }])
  return { healthy: true } as const
}

export async function create(storage: Storage, caller: Caller, body: z.output<typeof CreateBucket>) {
  if (body.type === 'ANALYTICS') throw new StorageError('InvalidRequest', 'body/type must be STANDARD')
  const name = checkBucketName(body.name)
  const bucket = createBucket({
    name,
    id: checkBucketName(body.id ?? name),
    ownerId: caller.userId ?? null,
    public: body.public,
    type: body.type,
    fileSizeLimit: parseSizeLimit(body.file_size_limit ?? null, storage.project.storage.fileSizeLimit),
    allowedMimeTypes: checkMimeTypes(body.allowed_mime_types ?? null),
  })
  const [[row] = []] = await asCaller(storage, caller, [bucket]).catch(throwAs('BucketAlreadyExists', isBucketTaken))
  if (!row) throw new RowSkipped()
  return { name }
}

export async function list(storage: Storage, caller: Caller, query: z.output<typeof ListBuckets>) {
  const [rows = []] = await asReader(storage, caller, [listBuckets(query)]).catch((error) => {
    if (!isResultTooLarge(error)) throw error
    const message = 'The list of buckets is too large for one reply: read it in pages with `limit` and `offset`'
    throw new StorageError('InvalidRequest', message, { cause: error })
  })
  return rows as unknown as BucketRow[]
}

export async function get(storage: Storage, caller: Caller, id: string) {
  const [[row] = []] = await asReader(storage, caller, [getBucket(id)])
  if (!row) throw new StorageError('NoSuchBucket')
  return row as unknown as BucketRow
}

export async function update(storage: Storage, caller: Caller, id: string, body: z.output<typeof UpdateBucket>) {
  const { file_size_limit: size, allowed_mime_types: types } = body
  if (body.public == null && size === undefined && types === undefined) {
    throw new StorageError('InvalidRequest', 'body must have public, file_size_limit or allowed_mime_types')
  }
  const statement = updateBucket(id, {
    public: body.public ?? undefined,
    fileSizeLimit: size === undefined ? undefined : parseSizeLimit(size, storage.project.storage.fileSizeLimit),
    allowedMimeTypes: types === undefined ? undefined : checkMimeTypes(types),
  })
  const [rows = []] = await asCaller(storage, caller, [statement])
  if (rows.length === 0) throw new StorageError('NoSuchBucket')
  return { message: 'Successfully updated' }
}

export async function remove(storage: Storage, caller: Caller, id: string) {
  const [rows = []] = await asCaller(storage, caller, [deleteBucket(id)]).catch(
    throwAs('ResourceNotEmpty', isBucketKeyViolated),
  )
  if (rows.length === 0) throw new StorageError('NoSuchBucket')
  return { message: 'Successfully deleted' }
}

const EMPTIED_MAX = 200_000

/** Deletes all rows in one statement; the next sweep removes their bytes. An object that is uploaded meanwhile stays. */
export async function empty(storage: Storage, caller: Caller, id: string) {
  const [[bucket] = [], [counted] = []] = await asServer(storage, [getBucket(id), countObjects(id, EMPTIED_MAX)])
  if (!bucket) throw new StorageError('NoSuchBucket')
  if (Number(counted?.count) > EMPTIED_MAX) {
    throw new StorageError(
      'TooManyObjects',
      `The bucket holds more than ${EMPTIED_MAX} objects: delete them in smaller groups`,
    )
  }
  await asCaller(storage, caller, [emptyBucket(id, EMPTIED_MAX)])
  sweepSoon(storage)
  return { message: 'Empty bucket has been queued. Completion may take up to an hour.' }
}
