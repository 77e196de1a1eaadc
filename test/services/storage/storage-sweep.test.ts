import { eq, inArray, notInArray } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { projects } from '../../../src/model/tables/index.ts'
import { newTimedId } from '../../../src/platform/db/id.ts'
import { sweepProject, sweepStorage } from '../../../src/services/storage/sweep-bytes.ts'
import { leaseDueProjects } from '../../../src/services/storage/sweep-schedule.ts'
import { extended } from '../../support/extended.ts'
import { runSql, untilGone, untilStatus } from '../../support/projects.ts'
import { apiOf, refusal } from '../../support/storage.ts'
import { type Installation, type SweptStorage, startInstallation } from '../../support/storage-installation.ts'
import { WAIT_MS } from '../../support/wait.ts'

const DAY_MS = 24 * 60 * 60 * 1000
const MINUTE_MS = 60_000
const MIB = 1024 ** 2
const later = (ms: number) => new Date(Date.now() + ms)

let installation: Installation
beforeAll(async () => {
  installation = await startInstallation()
})
afterAll(() => installation.stop())

const ctxAt = (...given: Parameters<Installation['ctxAt']>) => installation.ctxAt(...given)
const putBytes = (ref: string, versions: readonly string[]) => installation.bytes.put(ref, versions)
const versionsOf = (ref: string) => installation.bytes.versions(ref)

const newVersions = (count: number) => Array.from({ length: count }, (_, n) => newTimedId(new Date(Date.now() + n)))

const insertRows = ({ ref, bucket }: SweptStorage, versions: readonly string[]) =>
  installation.sql(
    ref,
    `insert into storage.objects (bucket_id, name, version)
     select $1, 'row/' || version, version from unnest($2::text[]) as version`,
    [bucket, versions],
  )

async function versionsInRows(ref: string): Promise<string[]> {
  const query = 'select version from storage.objects order by version'
  return (await installation.sql<{ version: string }>(ref, query)).map(({ version }) => version)
}

const removedIn = async (ref: string) =>
  (await installation.sql(ref, 'select version from pgbouncer.removed_versions')).length

/** Makes removed or replaced bytes so old that no download of them can be under way. */
const ageRemoved = (ref: string) =>
  installation.sql(ref, `update pgbouncer.removed_versions set removed_at = removed_at - interval '15 minutes'`)

const cursorOf = async (ref: string) => {
  const [row] = await installation.control
    .select({ after: projects.storageSweepAfter })
    .from(projects)
    .where(eq(projects.ref, ref))
  return row?.after
}

const bytesOf = async (ref: string) => {
  const { storageBytes } = projects
  const [row] = await installation.control.select({ storageBytes }).from(projects).where(eq(projects.ref, ref))
  return row?.storageBytes
}

const newRef = () =>
  Array.from({ length: 20 }, () => 'abcdefghijklmnopqrstuvwxyz'[Math.floor(Math.random() * 26)]).join('')

/** Limits the next sweep to these projects, from there on. */
async function makeOnlyDue(refs: readonly string[], after: string | null = null) {
  const { control } = installation
  await control
    .update(projects)
    .set({ storageSweepDueAt: later(10 * DAY_MS) })
    .where(notInArray(projects.ref, [...refs]))
  await control
    .update(projects)
    .set({ storageSweepDueAt: new Date(0), storageSweepAfter: after })
    .where(inArray(projects.ref, [...refs]))
}

async function uploadAll({ objects, bucket }: SweptStorage, names: readonly string[]) {
  for (const name of names) {
    expect(await objects.from(bucket).upload(name, name)).toMatchObject({ error: null })
  }
}

/** Sends a part and some bytes of a resumable upload; returns its id. */
async function beginUpload({ url, keys, bucket }: SweptStorage, name: string): Promise<string> {
  const metadata = Object.entries({ bucketName: bucket, objectName: name }).map(([key, text]) => `${key} ${btoa(text)}`)
  const response = await fetch(`${url}/upload/resumable`, {
    method: 'POST',
    headers: {
      ...{ authorization: `Bearer ${keys.service}`, 'tus-resumable': '1.0.0', 'upload-metadata': metadata.join() },
      ...{ 'upload-length': String(20 * MIB), 'content-type': 'application/offset+octet-stream' },
    },
    body: new Uint8Array(7 * MIB),
  })
  expect([response.status, response.headers.get('upload-offset')]).toEqual([201, String(7 * MIB)])
  return response.headers.get('location')?.split('/').at(-1) ?? ''
}

const ways: Record<string, { act(storage: SweptStorage): Promise<unknown>; left: string[] }> = {
  deleted: { act: ({ objects, bucket }) => objects.from(bucket).remove(['a', 'b']), left: ['c'] },
  replaced: {
    act: ({ objects, bucket }) => objects.from(bucket).upload('a', 'another', { upsert: true }),
    left: ['a', 'b', 'c'],
  },
  emptied: { act: ({ objects, bucket }) => objects.emptyBucket(bucket), left: [] },
  'deleted by SQL': {
    act: ({ organization, ref }) => runSql(organization.owner, ref, `delete from storage.objects where name <> 'c'`),
    left: ['c'],
  },
  'given other bytes by SQL': {
    act: ({ organization, ref }) =>
      runSql(organization.owner, ref, `update storage.objects set version = 'none' where name = 'b'`),
    left: ['a', 'c'],
  },
  truncated: { act: ({ organization, ref }) => runSql(organization.owner, ref, 'truncate storage.objects'), left: [] },
}

describe('a tick of the cron', () => {
  it.each(Object.keys(ways))('removes the bytes of what was %s, and no others', async (way) => {
    const { act, left } = ways[way] as (typeof ways)[string]
    const storage = await installation.newStorage()
    const { ref, objects, bucket } = storage
    await uploadAll(storage, ['a', 'b', 'c'])
    const before = await versionsOf(ref)
    expect(before).toEqual(await versionsInRows(ref))
    await act(storage)
    expect(await removedIn(ref)).toBeGreaterThan(0)
    await ageRemoved(ref)
    await makeOnlyDue([ref])
    await installation.tick()
    const rows = (await versionsInRows(ref)).filter((version) => version !== 'none')
    expect(rows).toHaveLength(left.length)
    expect(await versionsOf(ref)).toEqual(rows)
    expect(before.every((version) => rows.includes(version))).toBe(false)
    expect(await removedIn(ref)).toBe(0)
    const downloads = await Promise.all(left.map((name) => objects.from(bucket).download(name)))
    expect(downloads.map(({ error }) => error)).toEqual(left.map(() => null))
  })

  it('keeps the bytes in use, whatever the owner says', async () => {
    const storage = await installation.newStorage()
    const { organization, ref, bucket } = storage
    await uploadAll(storage, ['live', 'again'])
    const [live, again] = await versionsInRows(ref)
    const byHand = await runSql(
      organization.owner,
      ref,
      `insert into pgbouncer.removed_versions (version) values ('${live}')`,
    )
    expect(byHand).toMatchObject({ status: 400, body: { code: '42501' } })
    const query = `select storage.remember_removed(array['${live}', '../../${live}']);
      delete from storage.objects where version = '${again}';
      insert into storage.objects (bucket_id, name, version) values ('${bucket}', 'again', '${again}')`
    expect(await runSql(organization.owner, ref, query)).toMatchObject({ status: 201 })
    expect(await removedIn(ref)).toBe(2)
    await ageRemoved(ref)
    await makeOnlyDue([ref])
    await installation.tick()
    expect(await removedIn(ref)).toBe(0)
    expect(await versionsOf(ref)).toEqual([live, again])
  })

  it('keeps bytes that belong to no object, whatever a trigger of the owner records', async () => {
    const storage = await installation.newStorage()
    const { organization, ref } = storage
    await uploadAll(storage, ['a'])
    const query = `create function public.rewrite() returns trigger language plpgsql as
        $$ begin new.version := 'x/other'; return new; end $$;
      create trigger rewrite before insert on pgbouncer.removed_versions for each row execute function public.rewrite();
      delete from storage.objects`
    expect(await runSql(organization.owner, ref, query)).toMatchObject({ status: 201 })
    expect(await removedIn(ref)).toBe(1)
    await putBytes(ref, ['x/other'])
    const before = await versionsOf(ref)
    expect(before).toContain('x/other')
    await ageRemoved(ref)
    await makeOnlyDue([ref])
    await installation.tick()
    expect(await removedIn(ref)).toBe(0)
    expect(await versionsOf(ref)).toEqual(before)
  })

  it('deletes the tokens of uploads when none of their uploads can still be running', async () => {
    const { ref } = await installation.newStorage()
    await installation.sql(
      ref,
      `insert into pgbouncer.used_tokens select gen_random_uuid(), now() + days * interval '1 day'
         from generate_series(-4, 2) as days`,
    )
    await makeOnlyDue([ref])
    await installation.tick()
    const [left] = await installation.sql(
      ref,
      `select count(*)::int as count, min(expires_at) > now() - interval '2 days' as recent from pgbouncer.used_tokens`,
    )
    expect(left).toEqual({ count: 4, recent: true })
  })

  it('removes the parts of uploads that nobody can continue any more', async () => {
    const storage = await installation.newStorage()
    const { ref } = storage
    const [over, alive] = [await beginUpload(storage, 'over'), await beginUpload(storage, 'alive')]
    await installation.sql(ref, `update pgbouncer.resumable_uploads set expires_at = now() where id = $1`, [over])
    // The bucket has nothing of finished ones.
    await installation.sql(
      ref,
      `insert into pgbouncer.resumable_uploads (id, bucket_id, name, upsert, description, metadata, size_max, part_bytes, ended, expires_at)
       select gen_random_uuid(), 'b', 'n', false, '{}', '', 1, 1, true, now() from generate_series(1, 10001)`,
    )
    const rows = await installation.sql(ref, 'select id, upload_id, tail from pgbouncer.resumable_uploads')
    const uploadOf = (id: string) => rows.find((row) => row.id === id)?.upload_id
    await makeOnlyDue([ref])
    await installation.tick()
    const left = await installation.sql(ref, 'select id from pgbouncer.resumable_uploads')
    expect(left).toEqual([{ id: alive }])
    expect(await installation.sql(ref, 'select upload from pgbouncer.resumable_parts')).toEqual([{ upload: alive }])
    expect(await installation.bytes.takesPart(ref, over, uploadOf(over))).toBe(false)
    expect(await installation.bytes.takesPart(ref, alive, uploadOf(alive))).toBe(true)
  })
})

describe('the turn of a project', () => {
  const turnOf = async (ref: string) => {
    const [row] = await installation.control.select().from(projects).where(eq(projects.ref, ref))
    return { sweptAt: row?.storageSweptAt?.getTime(), dueAt: row?.storageSweepDueAt?.getTime() ?? 0 }
  }
  /** Tells whether a sweep at that later time takes the project. */
  const isSweptAt = async (ref: string, ms: number) => {
    const ctx = ctxAt(later(ms))
    await sweepStorage(ctx)
    return (await turnOf(ref)).sweptAt === ctx.now().getTime()
  }

  it('comes once a day if nothing happens', async () => {
    const storage = await installation.newStorage()
    const { ref } = storage
    await uploadAll(storage, ['a'])
    await makeOnlyDue([ref])
    expect(await isSweptAt(ref, 0)).toBe(true)
    await uploadAll(storage, ['b'])
    for (const name of ['c', 'd'])
      expect(await storage.objects.from(storage.bucket).upload(name, name, { upsert: true })).toMatchObject({
        error: null,
      })
    expect(await isSweptAt(ref, 60 * MINUTE_MS)).toBe(false)
    expect(await isSweptAt(ref, DAY_MS + MINUTE_MS)).toBe(true)
  })

  it.each(['deleted', 'replaced', 'emptied'])('comes when nobody reads what was %s any more', async (way) => {
    const storage = await installation.newStorage()
    const { ref } = storage
    await uploadAll(storage, ['a', 'b', 'c'])
    await makeOnlyDue([ref])
    expect(await isSweptAt(ref, 0)).toBe(true)
    await ways[way]?.act(storage)
    await expect.poll(async () => (await turnOf(ref)).dueAt).toBeLessThan(Date.now() + 17 * MINUTE_MS)
    expect(await isSweptAt(ref, 14 * MINUTE_MS)).toBe(false)
    expect(await isSweptAt(ref, 17 * MINUTE_MS)).toBe(true)
    expect(await removedIn(ref)).toBe(0)
    expect(await versionsOf(ref)).toEqual(await versionsInRows(ref))
    expect(await isSweptAt(ref, 120 * MINUTE_MS)).toBe(false)
  })

  it('comes again soon if its sweep was cut off', async () => {
    const { ref } = await installation.newStorage()
    await makeOnlyDue([ref])
    expect(await leaseDueProjects(ctxAt(later(0)))).toMatchObject([{ ref }])
    expect(await isSweptAt(ref, 29 * MINUTE_MS)).toBe(false)
    expect(await isSweptAt(ref, 31 * MINUTE_MS)).toBe(true)
    expect(await isSweptAt(ref, 120 * MINUTE_MS)).toBe(false)
  })

  it('comes also while the project is read-only', async () => {
    const storage = await installation.newStorage()
    const { ref } = storage
    await uploadAll(storage, ['a', 'b', 'c'])
    await storage.objects.from(storage.bucket).remove(['a', 'b'])
    const ctx = ctxAt(later(17 * MINUTE_MS))
    const setReadOnly = (value: 'on' | 'off') =>
      installation.sql(
        ref,
        `alter role supabase_storage_admin set default_transaction_read_only = ${value};
         select pg_terminate_backend(pid, 5000) from pg_stat_activity where usename = 'supabase_storage_admin'`,
      )
    await setReadOnly('on')
    await makeOnlyDue([ref])
    await sweepStorage(ctx)
    expect(ctx.logged.filter(({ event }) => event === 'storage_sweep_failed')).toEqual([])
    expect(await versionsOf(ref)).toEqual(await versionsInRows(ref))
    expect(await removedIn(ref)).toBe(2)
    await setReadOnly('off')
    await makeOnlyDue([ref])
    await sweepStorage(ctx)
    expect(await removedIn(ref)).toBe(0)
  })

  it('comes again for bytes that were too recent for a sweep', async () => {
    const storage = await installation.newStorage()
    const { ref } = storage
    await uploadAll(storage, ['a', 'b', 'c'])
    await ways['deleted by SQL']?.act(storage)
    await makeOnlyDue([ref])
    expect(await isSweptAt(ref, 0)).toBe(true)
    expect(await isSweptAt(ref, 17 * MINUTE_MS)).toBe(true)
    expect(await versionsOf(ref)).toEqual(await versionsInRows(ref))
  })

  extended('comes after others if it is removed and its bucket fails', async () => {
    const { control } = installation
    const { id } = await installation.newOrganization()
    const rows = Array.from({ length: 21 }, (_, n) => ({
      ...({ organizationId: id, region: 'us-east-1', instanceSize: 'micro', status: 'REMOVED' } as const),
      ...{ sealedPassword: '', sealedRunnerPassword: '', sealedJwtSecret: '' },
      ref: newRef(),
      name: `removed-${n}`,
      removedAt: later(-2 * DAY_MS),
      storageSweepDueAt: new Date(n),
    }))
    await makeOnlyDue([])
    await control.insert(projects).values(rows)
    const refs = rows.map(({ ref }) => ref)
    const last = refs.at(-1) ?? ''
    await sweepStorage(ctxAt(later(0), { S3_ENDPOINT: 'http://127.0.0.1:9/bucket' }))
    expect((await turnOf(last)).sweptAt).toBeUndefined()
    expect(await isSweptAt(last, 1_000)).toBe(true)
    expect(await isSweptAt(refs[0] ?? '', 2_000)).toBe(false)
    expect(await isSweptAt(refs[0] ?? '', 16 * MINUTE_MS)).toBe(true)
    expect(await isSweptAt(last, 2 * DAY_MS)).toBe(false)
    await control.delete(projects).where(inArray(projects.ref, refs))
  })
})

describe('replaced bytes', () => {
  it('are kept as long as a download of them may take, and are removed then', async () => {
    const storage = await installation.newStorage()
    const { ref, objects, bucket } = storage
    await uploadAll(storage, ['a'])
    const [old] = await versionsOf(ref)
    expect(await objects.from(bucket).upload('a', 'new', { upsert: true })).toMatchObject({ error: null })
    const live = await versionsInRows(ref)
    const sweptAt = async (ms: number) => {
      await sweepProject(ctxAt(later(ms)), ref, { after: null, graceMs: DAY_MS })
      return versionsOf(ref)
    }
    expect(await sweptAt(0)).toEqual([old, ...live])
    expect(await sweptAt(14 * MINUTE_MS)).toEqual([old, ...live])
    expect(await sweptAt(15 * MINUTE_MS)).toEqual(live)
  })
})

describe('bytes without a row', () => {
  it('are removed when they are older than the grace period, and not before', async () => {
    const storage = await installation.newStorage()
    const { ref } = storage
    await uploadAll(storage, ['live'])
    const [live] = await versionsOf(ref)
    await putBytes(ref, newVersions(3))
    const newest = Math.max(...(await installation.bytes.list(ref)).map(({ at }) => at))
    const young = await vi.waitFor(
      async () => {
        const [version = ''] = newVersions(1)
        await putBytes(ref, [version])
        const put = (await installation.bytes.list(ref)).find((found) => found.version === version)
        expect(put?.at).toBeGreaterThan(newest)
        return { version, at: put?.at ?? 0 }
      },
      { timeout: WAIT_MS },
    )
    const options = { after: null, graceMs: DAY_MS }
    await sweepProject(ctxAt(), ref, options)
    expect((await versionsOf(ref)).length).toBeGreaterThanOrEqual(5)
    await sweepProject(ctxAt(new Date(young.at + DAY_MS)), ref, options)
    expect(await versionsOf(ref)).toEqual([live, young.version])
    const { logged, ...ctx } = ctxAt(new Date(young.at + DAY_MS + 1))
    await sweepProject(ctx, ref, options)
    expect(await versionsOf(ref)).toEqual([live])
    expect(logged).toEqual([{ event: 'storage_swept', project: ref, removed: 0, orphans: 1 }])
  })
})

describe('a row without bytes', () => {
  it('is reported once it is older than the grace period, and stays', async () => {
    const storage = await installation.newStorage()
    const { ref } = storage
    await uploadAll(storage, ['live'])
    const [missing = ''] = newVersions(1)
    await insertRows(storage, [missing, 'no version', '../../live'])
    const options = { after: null, graceMs: DAY_MS }
    const now = ctxAt()
    await sweepProject(now, ref, options)
    expect(now.logged).toEqual([])
    const tomorrow = ctxAt(later(DAY_MS + 1_000))
    await sweepProject(tomorrow, ref, options)
    expect(tomorrow.logged).toEqual([{ event: 'storage_bytes_missing', project: ref, count: 1, version: missing }])
    expect(await versionsInRows(ref)).toContain(missing)
  })
})

describe('an upload whose bytes are stored before its row', () => {
  it('is neither removed nor reported', async () => {
    const { ref, objects, bucket } = await installation.newStorage()
    const holder = await installation.connect(ref)
    await holder.query('begin; lock table storage.objects in exclusive mode')
    const uploading = objects.from(bucket).upload('late', 'bytes')
    const [version] = await vi.waitFor(
      async () => {
        const versions = await versionsOf(ref)
        expect(versions).toHaveLength(1)
        return versions
      },
      { timeout: WAIT_MS },
    )
    const ctx = ctxAt()
    await sweepProject(ctx, ref, { after: null, graceMs: DAY_MS })
    expect(await versionsInRows(ref)).toEqual([])
    await holder.query('rollback')
    await holder.end()
    expect(await uploading).toMatchObject({ error: null })
    expect(await versionsInRows(ref)).toEqual([version])
    await sweepProject(ctx, ref, { after: null, graceMs: DAY_MS })
    expect(ctx.logged).toEqual([])
    expect(await (await objects.from(bucket).download('late')).data?.text()).toBe('bytes')
  })
})

describe('a project with 1,300 objects', () => {
  let storage: SweptStorage
  let other: SweptStorage
  const versions = newVersions(1_300)
  const orphans = [0, 999, 1_000, 1_299].map((n) => versions[n] ?? '')
  beforeAll(async () => {
    storage = await installation.newStorage()
    other = await installation.newStorage()
    await uploadAll(other, ['a', 'b'])
    await putBytes(storage.ref, versions)
    await insertRows(
      storage,
      versions.filter((version) => !orphans.includes(version)),
    )
  })

  it('is swept in pages, one after the other, and then from its start', async () => {
    const { ref } = storage
    const [absent = ''] = [`${(versions[1_150] ?? '').slice(0, -12)}ffffffffffff`]
    await insertRows(storage, [absent])
    const ctx = ctxAt(later(DAY_MS + 60_000))
    const pages: unknown[] = []
    const bytes: unknown[] = []
    for (let page = 0; page < 3; page++) {
      await sweepProject(ctx, ref, { after: (await cursorOf(ref)) ?? null, graceMs: DAY_MS })
      pages.push(await cursorOf(ref))
      bytes.push(await bytesOf(ref))
    }
    // The known size is that of the last search that ended.
    const size = 1_296 * 'bytes'.length
    expect(bytes).toEqual([null, size, size])
    expect(pages).toEqual([versions[999], null, versions[1_002]])
    expect(ctx.logged).toEqual([
      { event: 'storage_swept', project: ref, removed: 0, orphans: 2 },
      { event: 'storage_swept', project: ref, removed: 0, orphans: 2 },
      { event: 'storage_bytes_missing', project: ref, count: 1, version: absent },
    ])
    expect(await versionsOf(ref)).toEqual((await versionsInRows(ref)).filter((version) => version !== absent))
  })

  it('loses as many removed objects in one sweep', async () => {
    const { ref } = storage
    const removed = newVersions(2_500)
    const before = await versionsOf(ref)
    await putBytes(ref, removed.slice(-1))
    await installation.sql(ref, 'select storage.remember_removed($1)', [removed])
    await sweepProject(ctxAt(later(15 * MINUTE_MS)), ref, { after: null, graceMs: DAY_MS })
    expect(await removedIn(ref)).toBe(0)
    expect(await versionsOf(ref)).toEqual(before)
  })

  it('is deleted with all of its bytes and no others', async () => {
    const { organization, ref } = storage
    expect((await versionsOf(ref)).length).toBeGreaterThan(1_000)
    await organization.owner.delete(`/v1/projects/${ref}`)
    await untilGone(organization.owner, ref)
    expect(await versionsOf(ref)).toEqual([])
    expect(await versionsOf(other.ref)).toHaveLength(2)
  })

  it('leaves nothing of an upload that ended after its deletion', async () => {
    const { ref } = storage
    const late = newVersions(1)
    await putBytes(ref, late)
    await makeOnlyDue([ref])
    await sweepStorage(ctxAt(later(DAY_MS - 60_000)))
    expect(await versionsOf(ref)).toEqual(late)
    await sweepStorage(ctxAt(later(DAY_MS)))
    expect(await versionsOf(ref)).toEqual([])
    await putBytes(ref, late)
    await sweepStorage(ctxAt(later(2 * DAY_MS)))
    expect(await versionsOf(ref)).toEqual(late)
  })
})

describe('a project with an unfinished upload', () => {
  it('is deleted with its parts', async () => {
    const storage = await installation.newStorage()
    const { organization, ref } = storage
    const id = await beginUpload(storage, 'unfinished')
    const [row] = await installation.sql(ref, 'select upload_id from pgbouncer.resumable_uploads')
    // A trigger of the owner could write such an id.
    const other = await beginUpload(storage, 'changed')
    await installation.sql(
      ref,
      `update pgbouncer.resumable_uploads set upload_id = repeat('x', 100000) where id = '${other}'`,
    )
    expect(await installation.bytes.takesPart(ref, id, row?.upload_id)).toBe(true)
    await organization.owner.delete(`/v1/projects/${ref}`)
    await untilGone(organization.owner, ref)
    expect(await installation.bytes.takesPart(ref, id, row?.upload_id)).toBe(false)
  })

  it('is deleted although its database does not answer', async () => {
    const storage = await installation.newStorage()
    const { organization, ref } = storage
    await beginUpload(storage, 'unfinished')
    await organization.owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(organization.owner, ref, 'INACTIVE')
    await organization.owner.delete(`/v1/projects/${ref}`)
    await untilGone(organization.owner, ref)
    expect(await versionsOf(ref)).toEqual([])
  })
})

describe('a sweep that fails', () => {
  extended('leaves the cursor unchanged, and continues with the other projects', async () => {
    const [closed, open] = [await installation.newStorage(), await installation.newStorage()]
    const refs = [closed.ref, open.ref]
    const [orphan = ''] = newVersions(1)
    const cursor = '00000000-0000-7000-8000-000000000000'
    for (const ref of refs) await putBytes(ref, [orphan])
    const sweep = async (settings: Record<string, string> = {}) => {
      await makeOnlyDue(refs, cursor)
      const ctx = ctxAt(later(2 * DAY_MS), settings)
      await sweepStorage(ctx)
      const failed = ctx.logged.filter(({ event }) => event === 'storage_sweep_failed')
      return new Set(failed.map(({ project }) => project))
    }

    expect(await sweep({ S3_ENDPOINT: 'http://127.0.0.1:9/bucket' })).toEqual(new Set(refs))
    expect(await Promise.all(refs.map(cursorOf))).toEqual([cursor, cursor])

    await ctxAt().engine.pause(closed.ref)
    expect(await sweep()).toEqual(new Set([closed.ref]))
    expect(await Promise.all(refs.map(cursorOf))).toEqual([cursor, null])
    expect(await Promise.all(refs.map(versionsOf))).toEqual([[orphan], []])

    await ctxAt().engine.resume(closed.ref)
    expect(await sweep()).toEqual(new Set())
    expect(await Promise.all(refs.map(cursorOf))).toEqual([null, null])
    expect(await versionsOf(closed.ref)).toEqual([])
  })
})

describe('two simultaneous sweeps', () => {
  it('take different projects, each its share', async () => {
    const { id } = await installation.newOrganization()
    const { control } = installation
    const refs = Array.from({ length: 30 }, newRef)
    await makeOnlyDue([])
    const common = { organizationId: id, region: 'us-east-1', instanceSize: 'micro', status: 'ACTIVE_HEALTHY' } as const
    // The secrets are sealed with another key: each project that is taken fails, and the log says so.
    const sealed = { sealedPassword: '', sealedRunnerPassword: '', sealedJwtSecret: '' }
    await control.insert(projects).values(refs.map((ref) => ({ ...common, ...sealed, ref, name: ref })))
    const sweeps = [ctxAt(), ctxAt()]
    await Promise.all(sweeps.map(sweepStorage))
    const taken = sweeps.map(({ logged }) => logged.map(({ project }) => project as string))
    expect(taken.map(({ length }) => length).toSorted()).toEqual([10, 20])
    expect(taken.flat().toSorted()).toEqual(refs.toSorted())
    await control.delete(projects).where(inArray(projects.ref, refs))
  })
})

describe('a project whose storage a superuser dropped', () => {
  it('gets it again by a sweep', async () => {
    const { ref } = await installation.newStorage()
    await installation.sql(ref, 'drop schema storage cascade')
    await putBytes(ref, newVersions(1))
    await sweepProject(ctxAt(later(2 * DAY_MS)), ref, { after: null, graceMs: DAY_MS })
    expect(await versionsOf(ref)).toEqual([])
    expect(await versionsInRows(ref)).toEqual([])
  })

  it('is reported if only the table of objects is missing, and is not changed', async () => {
    const storage = await installation.newStorage()
    const { organization, ref, objects, bucket } = storage
    await uploadAll(storage, ['a'])
    const drop = 'drop table storage.objects'
    expect(await runSql(organization.owner, ref, drop)).toMatchObject({ status: 400, body: { code: '42501' } })
    await installation.sql(ref, drop)
    const api = apiOf(storage, storage.keys.service)
    const read = () => api.get(`object/authenticated/${bucket}/a`)
    const answer = {
      status: 400,
      body: refusal(
        503,
        'DatabaseSchemaMismatch',
        'DatabaseSchemaMismatch',
        'The database lacks a table, column or function that storage or its policies use',
      ),
    }
    for (let n = 0; n < 6; n++) expect(await read()).toMatchObject(answer)
    expect(await objects.from(bucket).upload('b', 'bytes')).toMatchObject({ error: { statusCode: '503' } })

    const ctx = ctxAt(later(2 * DAY_MS))
    await expect(sweepProject(ctx, ref, { after: null, graceMs: DAY_MS })).rejects.toThrow('storage.objects')
    expect(await versionsOf(ref)).toHaveLength(1)
  })
})

describe('a paused project', () => {
  it('reports that it is paused, stays closed, and is served again after a restore', async () => {
    const storage = await installation.newStorage()
    const { organization, ref, bucket } = storage
    await uploadAll(storage, ['a'])
    const { owner } = organization
    const api = apiOf(storage, storage.keys.service)
    // Requests so much later use nothing that was cached before.
    const readAt = (ms: number) => api.at(later(ms)).get(`object/authenticated/${bucket}/a`)

    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    const answer = { status: 540, body: refusal(540, 'ProjectPaused', 'ProjectPaused', 'The project is paused') }
    expect(await readAt(0)).toMatchObject(answer)
    expect(await readAt(20_000)).toMatchObject(answer)
    expect(await readAt(120_000)).toMatchObject(answer)
    expect(await installation.stateOf(ref)).toBe('paused')

    await owner.post(`/v1/projects/${ref}/restore`)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect(await readAt(0)).toMatchObject({ status: 200, body: 'a' })
  })
})
