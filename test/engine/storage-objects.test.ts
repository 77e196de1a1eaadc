import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import {
  createBucket,
  deleteBucket,
  getBucket,
  listBuckets,
  updateBucket,
} from '../../src/services/storage/statements/buckets.ts'
import {
  type FoundObject,
  OBJECT_AND_USER_METADATA,
  type ObjectRow,
} from '../../src/services/storage/statements/object-rows.ts'
import {
  canWrite,
  countObjects,
  deleteObjects,
  emptyBucket,
  insertObject,
  moveObject,
  readObject,
  upsertObject,
  visibleNames,
  visibleObject,
} from '../../src/services/storage/statements/objects.ts'
import { deleteVersionRecords, knownVersions, removedVersions } from '../../src/services/storage/statements/sweep.ts'
import { type HostEngine, startHostEngine } from './host-engine.ts'
import { anon, newObject, newStorageDatabase, type StorageDatabase, service, USER, user } from './storage-database.ts'

const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/

let host: HostEngine
let storage: StorageDatabase
beforeAll(async () => {
  host = await startHostEngine()
  storage = await newStorageDatabase(host)
})
afterAll(async () => {
  await storage.close()
  await host.stop()
})

const found = async (bucketId: string, name: string) =>
  (await storage.asServer<FoundObject>(readObject({ bucketId, name }, { columns: OBJECT_AND_USER_METADATA })))[0]
const versionOf = async (bucketId: string, name: string) => (await found(bucketId, name))?.object?.version

describe('an object', () => {
  it('is read with the settings of its bucket', async () => {
    const bucket = await storage.bucket({ public: true })
    const written = newObject(bucket, 'a/b.txt', { userMetadata: '{"colour": "red"}' })
    const changed = {
      id: written.id,
      bucket_id: bucket,
      name: 'a/b.txt',
      version: written.version,
      owner: USER,
      owner_id: USER,
      metadata: { size: 3 },
      created_at: expect.stringMatching(ISO),
      updated_at: expect.stringMatching(ISO),
      last_accessed_at: expect.stringMatching(ISO),
    }
    expect(await storage.as(service, insertObject(written))).toEqual([changed])
    const row = { ...changed, user_metadata: '{"colour": "red"}' }
    const rules = { id: bucket, public: true, file_size_limit: null, allowed_mime_types: null }
    expect(await found(bucket, 'a/b.txt')).toEqual({ bucket: rules, object: row })
    expect(await found(bucket, 'a/c.txt')).toEqual({ bucket: rules, object: null })
    expect(await found('nowhere', 'a/b.txt')).toBeUndefined()
  })

  it('is not found if only public ones are wanted and its bucket is private', async () => {
    const buckets = [await storage.bucket({ names: ['a'] }), await storage.bucket({ public: true, names: ['a'] })]
    const [hidden, open] = await Promise.all(
      buckets.map((bucketId) =>
        storage.asServer<FoundObject>(readObject({ bucketId, name: 'a' }, { onlyPublic: true })),
      ),
    )
    expect(hidden).toMatchObject([{ bucket: expect.objectContaining({ id: buckets[0], public: false }), object: null }])
    expect(open).toMatchObject([
      { bucket: expect.objectContaining({ public: true }), object: expect.objectContaining({ name: 'a' }) },
    ])
    expect(await storage.asServer(readObject({ bucketId: 'nowhere', name: 'a' }, { onlyPublic: true }))).toEqual([])
  })

  it('may belong to a user whose id is not a UUID', async () => {
    const bucket = await storage.bucket()
    const [row] = await storage.as(service, insertObject(newObject(bucket, 'a', { ownerId: 'user-7' })))
    expect(row).toMatchObject({ owner: null, owner_id: 'user-7' })
  })

  it('is created by exactly one of 24 simultaneous writers', async () => {
    const bucket = await storage.bucket()
    const objects = Array.from({ length: 24 }, () => newObject(bucket, 'one'))
    const outcomes = await Promise.allSettled(objects.map((object) => storage.as(service, insertObject(object))))
    expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(1)
    const refused = outcomes.flatMap((outcome) => (outcome.status === 'rejected' ? [outcome.reason.code] : []))
    expect(new Set(refused)).toEqual(new Set(['23505']))
    const winner = outcomes.findIndex(({ status }) => status === 'fulfilled')
    expect(await versionOf(bucket, 'one')).toBe(objects[winner]?.version)
  })

  it('is replaced by each of 24 simultaneous writers, and all versions but the last are to be removed', async () => {
    const bucket = await storage.bucket()
    const objects = Array.from({ length: 24 }, () => newObject(bucket, 'one'))
    const replies = await Promise.all(objects.map((object) => storage.as<ObjectRow>(service, upsertObject(object))))
    expect(new Set(replies.map(([row]) => row?.id)).size).toBe(1)
    const last = await versionOf(bucket, 'one')
    const others = objects.map(({ version }) => version).filter((version) => version !== last)
    expect(others).toHaveLength(23)
    expect(await storage.removed(others)).toBe(23)
    expect(await storage.removed([last])).toBe(0)
  })

  it('keeps its id and shows when it was replaced', async () => {
    const bucket = await storage.bucket()
    const [first, second] = [newObject(bucket, 'a'), newObject(bucket, 'a', { metadata: { size: 4 } })]
    expect(await storage.as(service, upsertObject(first))).toMatchObject([{ id: first.id }])
    const before = (await found(bucket, 'a'))?.object
    const [row] = await storage.as<ObjectRow>(service, upsertObject(second))
    expect(row).toMatchObject({ id: first.id, version: second.version, metadata: { size: 4 } })
    expect(row?.created_at).toBe(before?.created_at)
    expect(Date.parse(row?.updated_at ?? '')).toBeGreaterThanOrEqual(Date.parse(before?.updated_at ?? ''))
  })

  it('is changed by an access only if the access is recorded', async () => {
    const bucket = await storage.bucket({ names: ['a'] })
    const change = (set: string) =>
      storage.sql(
        `update storage.objects set ${set} where bucket_id = '${bucket}' returning updated_at = now() as touched`,
      )
    expect(await change('last_accessed_at = now()')).toEqual([{ touched: false }])
    expect(await change(`metadata = '{}'`)).toEqual([{ touched: true }])
  })
})

/** Returns the fields of an object that a change reports: all but its metadata, which only reads return. */
function changedIn<Row extends object>(row: Row | null | undefined) {
  const { user_metadata, ...rest } = { user_metadata: null, ...row }
  return rest
}

describe('a move', () => {
  it('changes only the name and the bucket', async () => {
    const [bucket, other] = [await storage.bucket(), await storage.bucket()]
    await storage.as(service, insertObject(newObject(bucket, 'a', { userMetadata: '{"colour": "red"}' })))
    const before = (await found(bucket, 'a'))?.object
    const moved = await storage.as(
      service,
      moveObject({ bucketId: bucket, name: 'a' }, { bucketId: other, name: 'b/c' }, { at: new Date() }),
    )
    const after = { ...before, bucket_id: other, name: 'b/c', updated_at: expect.stringMatching(ISO) }
    expect((await found(other, 'b/c'))?.object).toEqual(after)
    expect(moved).toEqual([changedIn(after)])
    expect((await found(bucket, 'a'))?.object).toBeNull()
    expect(await storage.removed([before?.version])).toBe(0)
  })

  it('to the current name changes nothing', async () => {
    const bucket = await storage.bucket({ names: ['a'] })
    const before = (await found(bucket, 'a'))?.object
    const place = { bucketId: bucket, name: 'a' }
    expect(await storage.as(service, moveObject(place, place, { at: new Date() }))).toEqual([changedIn(before)])
    expect(
      await storage.as(service, moveObject({ ...place, name: 'x' }, { ...place, name: 'x' }, { at: new Date() })),
    ).toEqual([])
  })

  it('fails if the target exists or the bucket does not', async () => {
    const bucket = await storage.bucket({ names: ['a', 'b'] })
    const move = (to: string, name: string) =>
      storage.as(service, moveObject({ bucketId: bucket, name: 'a' }, { bucketId: to, name }, { at: new Date() }))
    await expect(move(bucket, 'b')).rejects.toMatchObject({ code: '23505' })
    await expect(move('nowhere', 'b')).rejects.toMatchObject({ code: '23503' })
  })
})

describe('policies', () => {
  it('admit the roles that they name, and nobody before there are any', async () => {
    const bucket = await storage.bucket({ names: ['old'] })
    const insert = (name: string) => storage.as(user(), insertObject(newObject(bucket, name)))
    await expect(insert('a')).rejects.toMatchObject({ code: '42501' })
    await expect(storage.as(user(), canWrite(newObject(bucket, 'a'), { upsert: false }))).rejects.toMatchObject({
      code: '42501',
    })
    await storage.policies(`on storage.objects for insert to authenticated with check (bucket_id = '${bucket}')`)
    expect(await insert('a')).toMatchObject([{ name: 'a' }])
    await expect(storage.as(anon, insertObject(newObject(bucket, 'b')))).rejects.toMatchObject({ code: '42501' })
    expect(await storage.as(user(), visibleObject({ bucketId: bucket, name: 'a' }))).toEqual([])
    expect(await storage.as(user(), deleteObjects(bucket, ['a']))).toEqual([])
    expect(
      await storage.as(
        user(),
        moveObject({ bucketId: bucket, name: 'a' }, { bucketId: bucket, name: 'c' }, { at: new Date() }),
      ),
    ).toEqual([])
    await expect(storage.as(user(), upsertObject(newObject(bucket, 'a')))).rejects.toMatchObject({ code: '42501' })
  })

  it("see the user, the user's folder and the operation", async () => {
    const bucket = await storage.bucket()
    await storage.policies(
      `on storage.objects for all to authenticated using (bucket_id = '${bucket}' and (storage.foldername(name))[1] = auth.uid()::text)`,
    )
    const other = crypto.randomUUID()
    await storage.as(user(), insertObject(newObject(bucket, `${USER}/a.png`)))
    await expect(storage.as(user(other), insertObject(newObject(bucket, `${USER}/b.png`)))).rejects.toMatchObject({
      code: '42501',
    })
    const visible = (sub: string) => storage.as(user(sub), visibleNames(bucket, [`${USER}/a.png`, 'x']))
    expect(await visible(USER)).toEqual([{ name: `${USER}/a.png` }])
    expect(await visible(other)).toEqual([])
    const [facts] = await storage.sql(`select set_config('storage.operation', 'storage.object.upload', false),
      storage.operation(), storage.allow_only_operation('object.upload') as allowed, storage.allow_only_operation('x') as other,
      storage.foldername('a/b/c.tar.gz') as folders, storage.filename('a/b/c.tar.gz') as file,
      storage.extension('a.b/c') as none, storage.extension('a/c.tar.gz') as extension`)
    expect(facts).toMatchObject({ operation: 'storage.object.upload', allowed: true, other: false })
    expect(facts).toMatchObject({ folders: ['a', 'b'], file: 'c.tar.gz', none: '', extension: 'gz' })
  })

  it('are checked by canWrite, which leaves nothing', async () => {
    const bucket = await storage.bucket({ names: ['old'] })
    const before = (await found(bucket, 'old'))?.object
    const may = (name: string, upsert: boolean) => storage.as(service, canWrite(newObject(bucket, name), { upsert }))
    expect(await may('new', false)).toEqual([{ outcome: 'ok' }])
    expect(await may('new', true)).toEqual([{ outcome: 'ok' }])
    expect(await may('old', false)).toEqual([{ outcome: 'exists' }])
    expect(await may('old', true)).toEqual([{ outcome: 'ok' }])
    expect((await found(bucket, 'new'))?.object).toBeNull()
    expect((await found(bucket, 'old'))?.object).toEqual(before)
    expect(await storage.removed([before?.version])).toBe(0)
    await expect(storage.as(service, canWrite(newObject('nowhere', 'a'), { upsert: false }))).rejects.toMatchObject({
      code: '23503',
    })
  })
})

describe('versions that no row points at any more', () => {
  const three = async () => {
    const bucket = await storage.bucket({ names: ['a', 'b', 'c'] })
    const versions = [await versionOf(bucket, 'a'), await versionOf(bucket, 'b'), await versionOf(bucket, 'c')]
    return { bucket, versions }
  }

  it('are recorded when anybody deletes rows, by the API or by SQL', async () => {
    const { bucket, versions } = await three()
    await storage.policies(`on storage.objects for all to anon using (bucket_id = '${bucket}')`)
    expect(await storage.as<ObjectRow>(anon, deleteObjects(bucket, ['a', 'nothing']))).toMatchObject([{ name: 'a' }])
    expect(await storage.removed(versions)).toBe(1)
    await storage.sql(`delete from storage.objects where bucket_id = '${bucket}'`)
    expect(await storage.removed(versions)).toBe(3)
  })

  it('are not recorded by a transaction that is rolled back', async () => {
    const { bucket, versions } = await three()
    const failing = storage.sql(`delete from storage.objects where bucket_id = '${bucket}'; select 1 / 0`)
    await expect(failing).rejects.toMatchObject({ code: '22012' })
    expect(await storage.removed(versions)).toBe(0)
  })

  it('are distinguished from versions that a row points at again', async () => {
    const { bucket, versions } = await three()
    await storage.sql(`insert into storage.objects (bucket_id, name, version)
      select bucket_id, 'again', version from storage.objects where bucket_id = '${bucket}' and name = 'a'`)
    await storage.as(service, deleteObjects(bucket, ['a', 'b']))
    const rows = await storage.asServer<{ version: string }>(removedVersions(new Date(Date.now() + 60_000), 100_000))
    expect(rows).toContainEqual({ version: versions[0], used: true })
    expect(rows).toContainEqual({ version: versions[1], used: false })
    const known = await storage.asServer(knownVersions([...versions.map(String), crypto.randomUUID()]))
    expect(known).toHaveLength(3)
    await storage.asServer(deleteVersionRecords(versions.map(String)))
    expect(await storage.removed(versions)).toBe(0)
  })

  it('are only those that can be names of bytes', async () => {
    const bucket = await storage.bucket()
    const bad = '../../other/storage/x'
    await storage.sql(`insert into storage.objects (bucket_id, name, version) values ('${bucket}', 'a', '${bad}')`)
    await storage.as(service, deleteObjects(bucket, ['a']))
    expect(await storage.removed([bad])).toBe(0)
  })

  it('are recorded in portions by the removal of a bucket', async () => {
    const { bucket, versions } = await three()
    expect(await storage.asServer(countObjects(bucket, 1))).toEqual([{ count: 2 }])
    expect(await storage.asServer(countObjects(bucket, 10))).toEqual([{ count: 3 }])
    const empty = () => storage.asServer(emptyBucket(bucket, 2))
    expect([await empty(), await empty(), await empty()]).toEqual([[{ count: 2 }], [{ count: 1 }], [{ count: 0 }]])
    expect(await storage.removed(versions)).toBe(3)
  })

  it('are recorded by TRUNCATE', async () => {
    const truncated = await newStorageDatabase(host)
    const bucket = await truncated.bucket({ names: ['a', 'b', 'c'] })
    const rows = await truncated.sql('select version from storage.objects')
    const owner = await truncated.asOwner()
    await owner.query('truncate storage.buckets cascade')
    await owner.end()
    expect(await truncated.removed(rows.map(({ version }) => version))).toBe(3)
    expect(await truncated.asServer(readObject({ bucketId: bucket, name: 'a' }))).toEqual([])
    await truncated.close()
  })
})

describe('a bucket', () => {
  const rules = {
    ownerId: USER,
    public: true,
    fileSizeLimit: 5e9,
    allowedMimeTypes: ['image/*', 'a/b'],
    type: 'STANDARD',
  }

  it('is created, read, updated in part and deleted', async () => {
    const id = `bucket-${crypto.randomUUID()}`
    expect(await storage.as(service, createBucket({ id, name: id, ...rules }))).toEqual([{ name: id }])
    const bucket = {
      id,
      name: id,
      owner: USER,
      public: true,
      file_size_limit: 5e9,
      allowed_mime_types: ['image/*', 'a/b'],
      created_at: expect.stringMatching(ISO),
      updated_at: expect.stringMatching(ISO),
    }
    const read = () => storage.as(service, getBucket(id))
    expect(await read()).toEqual([bucket])
    await expect(storage.as(service, createBucket({ id, name: id, ...rules }))).rejects.toMatchObject({
      code: '23505',
    })
    expect(await storage.as(service, updateBucket(id, { allowedMimeTypes: null }))).toEqual([{ id }])
    expect(await read()).toEqual([{ ...bucket, allowed_mime_types: null }])
    await storage.as(service, updateBucket(id, { public: false, fileSizeLimit: 0 }))
    expect(await read()).toEqual([{ ...bucket, allowed_mime_types: null, public: false, file_size_limit: 0 }])

    await storage.asServer(insertObject(newObject(id, 'a')))
    await expect(storage.as(service, deleteBucket(id))).rejects.toMatchObject({ code: '23503' })
    await storage.as(service, deleteObjects(id, ['a']))
    expect(await storage.as(service, deleteBucket(id))).toEqual([{ id }])
    expect(await storage.as(service, deleteBucket(id))).toEqual([])
  })

  it('is visible to and created by the roles that a policy allows', async () => {
    const id = await storage.bucket()
    const caller = user()
    expect(await storage.as(caller, getBucket(id))).toEqual([])
    expect(await storage.as(caller, updateBucket(id, { public: true }))).toEqual([])
    expect(await storage.as(caller, deleteBucket(id))).toEqual([])
    const made = `${id}-made`
    const create = () => storage.as(caller, createBucket({ id: made, name: made, ...rules }))
    await expect(create()).rejects.toMatchObject({ code: '42501' })
    await storage.policies(`on storage.buckets for insert to authenticated with check (id = '${made}')`)
    expect(await create()).toEqual([{ name: made }])
  })

  it('is listed among others, in the requested order', async () => {
    const mark = crypto.randomUUID().slice(0, 8)
    for (const name of ['b', 'A', 'c%']) await storage.bucket({ id: `${mark}-${name}` })
    const list = async (listing: Parameters<typeof listBuckets>[0]) =>
      (await storage.as<{ name: string }>(service, listBuckets({ search: mark, ...listing }))).map(({ name }) =>
        name.replace(`${mark}-`, ''),
      )
    expect(await list({})).toEqual(['A', 'b', 'c%'])
    expect(await list({ sortColumn: 'created_at', sortOrder: 'desc' })).toEqual(['c%', 'A', 'b'])
    expect(await list({ limit: 1, offset: 1 })).toEqual(['b'])
    expect(await list({ search: `${mark}-a` })).toEqual(['A'])
    expect(await list({ search: '%' })).toEqual(['c%'])
    expect(await list({ search: '_' })).toEqual([])
  })
})
