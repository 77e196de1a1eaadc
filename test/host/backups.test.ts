import { randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { startS3 } from '../../dev/s3.ts'
import { createBackups } from '../../host/backups/backups.ts'
import { planNewest } from '../../host/backups/plan.ts'
import { readRestoreId, sweepLeftovers } from '../../host/backups/restore.ts'
import { type ArchiveStore, s3Store } from '../../host/backups/store.ts'
import { listBundles } from '../../host/backups/wal.ts'
import { numberOf, segmentAt, timelineOf } from '../../host/copies/wal-segments.ts'
import type { Instance } from '../../host/instances/types.ts'
import { WAIT_MS } from '../support/wait.ts'
import { ARCHIVE_SETTINGS, OWNER, type TestInstance, testInstance } from './instance.ts'

const KEYS = { accessKeyId: 'a'.repeat(20), secretAccessKey: 'b'.repeat(40) }
const key = randomBytes(32)
const HOUR_MS = 3_600_000
const made: TestInstance[] = []
const stops: (() => Promise<unknown>)[] = []
let store: ArchiveStore

beforeAll(async () => {
  const s3 = await startS3({ buckets: ['archive'], ...KEYS })
  stops.push(s3.stop)
  store = s3Store({ endpoint: s3.endpoint, region: 'auto', bucket: 'archive', ...KEYS })
})

afterAll(async () => {
  await Promise.all(made.map((each) => each.remove()))
  await Promise.all(stops.map((stop) => stop()))
})

const sql = async (instance: Instance, text: string, user = 'postgres') => {
  await instance.wake()
  const client = new Client({ host: instance.paths.socket, port: 5432, user, database: 'postgres' })
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

async function archived(
  options: { store?: ArchiveStore; key?: Uint8Array; spoolBytesMax?: number; tickMs?: number } = {},
) {
  const name = Array.from(randomBytes(20), (byte) => String.fromCharCode(97 + (byte % 26))).join('')
  const instance = await testInstance({ name, settings: ARCHIVE_SETTINGS })
  made.push(instance)
  await sql(instance, OWNER, 'supabase_admin')
  // Without the templates of databases, a backup has a third of the bytes.
  await instance.admin.rows('UPDATE pg_database SET datistemplate = false')
  for (const name of ['template0', 'template1']) await instance.admin.rows(`DROP DATABASE ${name}`)
  const instances = { find: (found: string) => (found === name ? instance : undefined), list: () => [instance] }
  const backups = createBackups({ store, key, instances, log: () => {}, tickMs: 1_000, ...options })
  stops.push(backups.stop)
  return { name, instance, backups }
}

test('a dropped table can be restored to the second, and the restore can be undone', async () => {
  const { name, instance, backups } = await archived()
  await sql(instance, 'CREATE TABLE kept AS SELECT generate_series(1, 50000) AS n')
  expect(await backups.window(name)).toBeUndefined()
  const manifest = await backups.make(name, '1')
  expect(await backups.make(name, '1')).toEqual(manifest)
  expect(await backups.list(name)).toMatchObject([{ id: '1', instance: name, version: '18.4' }])
  await sql(instance, 'INSERT INTO kept SELECT 0')
  await sql(
    instance,
    `CREATE ROLE member LOGIN PASSWORD 'old'; CREATE ROLE gone LOGIN PASSWORD 'old'; CREATE ROLE cli_login_abcdefgh LOGIN PASSWORD 'old'`,
  )
  await delay(1_100)
  const at = new Date()
  await delay(1_100)
  await sql(instance, `DROP TABLE kept; ALTER ROLE member PASSWORD 'new'; DROP ROLE gone; DROP ROLE cli_login_abcdefgh`)
  const [{ rolpassword }] = await sql(
    instance,
    `SELECT rolpassword FROM pg_authid WHERE rolname = 'member'`,
    'supabase_admin',
  )
  await backups.restore(name, { at })
  expect(await sql(instance, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 50_001 }])
  const passwords = () =>
    sql(
      instance,
      `SELECT rolname, rolpassword FROM pg_authid WHERE rolname IN ('member', 'gone', 'cli_login_abcdefgh') ORDER BY 1`,
      'supabase_admin',
    )
  expect(await passwords()).toEqual([
    { rolname: 'cli_login_abcdefgh', rolpassword: null },
    { rolname: 'gone', rolpassword: null },
    { rolname: 'member', rolpassword },
  ])

  // A moment between the restored one and the restore can still be restored, and so can a moment after the
  // restore.
  await sql(instance, 'CREATE TABLE second_life AS SELECT 1 AS n')
  await delay(1_100)
  const later = new Date()
  await delay(1_100)
  await sql(instance, 'DROP TABLE second_life')
  await backups.restore(name, { at: later })
  expect(await sql(instance, 'SELECT n FROM second_life')).toEqual([{ n: 1 }])
  await sql(instance, `ALTER ROLE member PASSWORD 'newest'; DROP ROLE cli_login_abcdefgh`)
  const current = await passwords()
  await backups.undo(name)
  expect(await passwords()).toEqual([{ rolname: 'cli_login_abcdefgh', rolpassword: null }, ...current])
  await expect(sql(instance, 'SELECT n FROM second_life')).rejects.toThrow('does not exist')
  expect(await sql(instance, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 50_001 }])
  await expect(backups.undo(name)).rejects.toThrow('no longer kept')
  await sql(instance, 'CREATE TABLE third_life AS SELECT 1 AS n')
  await backups.flush(name)
  const window = await backups.window(name)
  expect(window?.earliest.toISOString()).toBe(manifest.stoppedAt)
  expect(Date.now() - Number(window?.latest)).toBeLessThan(76_000)
  await backups.restore(name, { at: new Date() })
  expect(await sql(instance, 'SELECT n FROM third_life')).toEqual([{ n: 1 }])
  await backups.restore(name, { backup: '1' })
  expect(await sql(instance, 'SELECT count(*)::int AS n FROM kept')).toEqual([{ n: 50_000 }])
  await expect(backups.restore(name, { at: new Date(Date.parse(manifest.stoppedAt) - 5_000) })).rejects.toThrow(
    'no backup from before',
  )
  await expect(backups.restore(name, { backup: '2' })).rejects.toThrow('no backup 2')
  await expect(backups.restore(name, { at: new Date(Date.now() + 60_000) })).rejects.toThrow('future')
})

test('WAL alone keeps the archive of an idle instance current, and a drill finds no difference', async () => {
  const { name, instance, backups } = await archived()
  await sql(instance, `CREATE TABLE a AS SELECT generate_series(1, 1000) AS n; CREATE INDEX ON a (n)`)
  await backups.make(name, 'daily-1')
  await sql(instance, 'INSERT INTO a SELECT generate_series(1, 500)')
  const report = await backups.drill(name)
  expect(report).toMatchObject({ backup: 'daily-1', tables: 1, rows: 1_500, differences: [], damaged: [] })
  expect(report.indexes).toBeGreaterThan(100)
  await instance.stop()
  await backups.archiveTick()
  expect(Date.now() - Number((await backups.window(name))?.latest)).toBeLessThan(60_000)
  expect(instance.state()).toBe('asleep')
  expect(await readdir(instance.paths.folder)).toEqual(expect.not.arrayContaining(['data.drill']))
})

test('a drill fails on different rows, missing WAL and a damaged object', async () => {
  const { name, instance, backups } = await archived()
  await sql(instance, `CREATE TABLE a AS SELECT 1 AS t; CREATE TABLE b AS SELECT generate_series(1, 9) AS n`)
  await backups.make(name, '1')
  expect(await backups.drill(name)).toMatchObject({ isCompared: true, differences: [] })
  const key = `backups/${name}/base/1.tar`
  const original = await bytesOf(key)
  const changed = Buffer.from(original)
  changed[5_000] = Number(changed[5_000]) ^ 1
  await store.put(key, Readable.from([changed]))
  await expect(backups.drill(name)).rejects.toThrow('was changed')
  await store.put(key, Readable.from([original]))
  const keysOfWal = async () => (await store.list(`backups/${name}/wal/`)).map((object) => object.key)
  // The backup itself holds some of these segments.
  const earlier = new Set(await keysOfWal())
  await backups.drill(name)
  const needed = (await keysOfWal()).filter((each) => !earlier.has(each))
  expect(needed).not.toEqual([])
  await store.delete(needed)
  await expect(backups.drill(name)).rejects.toThrow('the archive reaches from')

  // Other rows without WAL: those of the file before the last change.
  const other = await archived()
  await sql(other.instance, 'CREATE TABLE a AS SELECT 1 AS t')
  await other.backups.make(other.name, '1')
  const [file] = await sql(other.instance, `SELECT pg_relation_filepath('a') AS path`)
  const path = join(other.instance.paths.data, file.path)
  // A later read would set hint bits, which would be in the WAL.
  await sql(other.instance, 'SELECT FROM a')
  await sql(other.instance, 'CHECKPOINT', 'supabase_admin')
  const before = await readFile(path)
  await sql(other.instance, 'UPDATE a SET t = 2; CHECKPOINT', 'supabase_admin')
  await other.instance.whileStopped(() => writeFile(path, before))
  const { differences } = await other.backups.drill(other.name)
  expect(differences).toEqual([{ table: 'public.a', expected: 1, restored: 1, reason: 'its rows differ' }])
})

test('a backup is stored whole or not at all, whatever fails', async () => {
  const broken = failing(store)
  const { name, instance, backups } = await archived({ store: broken })
  await sql(instance, `CREATE TABLE a AS SELECT g, md5(g::text) FROM generate_series(1, 100000) AS g`)
  for (const after of [0, 1, 2]) {
    broken.failAfter(after)
    if (after < 2) await expect(backups.make(name, '1')).rejects.toThrow('lost')
    if (after < 2) expect(await backups.list(name)).toEqual([])
  }
  broken.failAfter(Number.POSITIVE_INFINITY)
  await backups.make(name, '1')
  expect(await instance.admin.rows('SELECT FROM pg_replication_slots')).toEqual([])
  await sql(instance, 'INSERT INTO a SELECT 0')
  // WAL waits for the bucket, and is complete afterwards.
  broken.failAfter(0)
  await expect(backups.flush(name)).rejects.toThrow('lost')
  await backups.archiveTick()
  expect(backups.status(name)).toMatchObject({ state: 'failing' })
  broken.failAfter(Number.POSITIVE_INFINITY)
  await backups.archiveTick()
  expect(backups.status(name)).toMatchObject({ state: 'archiving', spoolBytes: 0 })
  // A restore that cannot read the archive leaves the data in service.
  broken.failGets(true)
  await expect(backups.restore(name, { at: new Date() })).rejects.toThrow('lost')
  expect(await sql(instance, 'SELECT count(*)::int AS n FROM a')).toEqual([{ n: 100_001 }])
  broken.failGets(false)
  await backups.restore(name, { at: new Date() })
  expect(await sql(instance, 'SELECT count(*)::int AS n FROM a')).toEqual([{ n: 100_001 }])
})

test('a bucket that is away for a long time does not fill the disk', async () => {
  const broken = failing(store)
  // A timer could give up before the last segments arrive, and its next tick would find them.
  const { name, instance, backups } = await archived({ store: broken, spoolBytesMax: 3_000_000, tickMs: 3_600_000 })
  await backups.make(name, '1')
  await backups.flush(name)
  const before = await backups.window(name)
  broken.failAfter(0)
  for (let i = 0; i < 5; i++)
    await sql(instance, `CREATE TABLE t${i} AS SELECT g, md5(g::text) FROM generate_series(1, 20000) AS g; SELECT 1`)
  await expect(backups.flush(name)).rejects.toThrow('lost')
  await backups.archiveTick()
  expect(backups.status(name)).toMatchObject({ state: 'stopped', spoolBytes: 0 })
  broken.failAfter(Number.POSITIVE_INFINITY)
  await sql(instance, 'CREATE TABLE after_gap AS SELECT 1')
  await backups.flush(name)
  const at = new Date()
  expect((await backups.window(name))?.earliest).toEqual(before?.earliest)
  expect(Number((await backups.window(name))?.latest)).toBeLessThan(at.getTime())
  await expect(backups.restore(name, { at })).rejects.toThrow('the archive reaches from')
  // The gap outlasts the daemon, and a repeated request for the backup from before it.
  const instances = { find: () => instance, list: () => [] }
  const restarted = createBackups({ store, key, instances, log: () => {} })
  await restarted.make(name, '1')
  expect(Number((await restarted.window(name))?.latest)).toBeLessThan(at.getTime())
  await restarted.make(name, '2')
  expect(Number((await restarted.window(name))?.latest)).toBeGreaterThan(at.getTime())
  await restarted.stop()
  await backups.restore(name, { at: new Date() })
  expect(await sql(instance, 'SELECT FROM after_gap')).toHaveLength(1)
})

test('a bucket that does not answer does not fill the disk', async () => {
  const answers = Promise.withResolvers<void>()
  let isHanging = false
  const put: ArchiveStore['put'] = async (...object) => {
    if (isHanging) await answers.promise
    return store.put(...object)
  }
  const spoolBytesMax = 3_000_000
  const { name, instance, backups } = await archived({ store: { ...store, put }, spoolBytesMax, tickMs: 50 })
  await backups.make(name, '1')
  isHanging = true
  try {
    for (let i = 0; i < 5; i++)
      await sql(instance, `CREATE TABLE t${i} AS SELECT g, md5(g::text) FROM generate_series(1, 20000) AS g; SELECT 1`)
    await expect.poll(() => backups.status(name)).toMatchObject({ state: 'stopped' })
    // The server may write more after the removal.
    expect(backups.status(name)?.spoolBytes).toBeLessThanOrEqual(spoolBytesMax)
  } finally {
    // The end of the test waits for the upload.
    answers.resolve()
  }
})

test('a timeline that begins within an object needs its own WAL from there on', async () => {
  const { name, instance, backups } = await archived({ tickMs: HOUR_MS })
  await backups.make(name, '1')
  const fillSegment = (table: string) =>
    sql(instance, `CREATE TABLE ${table} AS SELECT 1; SELECT pg_switch_wal()`, 'supabase_admin')
  await fillSegment('kept')
  const [{ at }] = await sql(instance, 'SELECT clock_timestamp() AS at')
  for (const n of [1, 2, 3, 4, 5, 6]) await fillSegment(`removed${n}`)
  // A Date drops the part of a millisecond in which the last table may have been created.
  await backups.restore(name, { at: new Date(at.getTime() + 1) })
  await sql(instance, 'CREATE TABLE after AS SELECT 1')
  await backups.flush(name)
  const { base, end, bundles } = await planNewest(backups.archive, name)
  const [{ lsn }] = await sql(instance, 'SELECT pg_current_wal_lsn() AS lsn')
  expect(end).toBe(BigInt(segmentAt(lsn, base.segmentBytes)) * BigInt(base.segmentBytes))
  // Recovery reads no segment of the first timeline after the one where the second begins.
  const [old, own] = [1, 2].map((timeline) => bundles.filter(({ first }) => timelineOf(first) === timeline))
  const begin = numberOf(own?.[0]?.first ?? '', base.segmentBytes)
  expect(Math.max(...(old ?? []).map(({ last }) => numberOf(last, base.segmentBytes)))).toBe(begin - 1)
  await store.delete((own ?? []).map(({ key }) => key))
  await sql(instance, 'CREATE TABLE later AS SELECT 1')
  await expect(backups.restore(name, { at: new Date() })).rejects.toThrow('the archive reaches from')
})

test('a slow upload of one instance does not delay the archive of another', async () => {
  const [slow, other] = [await archived({ tickMs: HOUR_MS }), await archived({ tickMs: HOUR_MS })]
  const [held, uploads] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const holding: ArchiveStore = Object.create(store, {
    put: {
      async value(...[path, source]: Parameters<ArchiveStore['put']>) {
        if (path.includes(slow.name)) {
          held.resolve()
          await uploads.promise
        }
        return store.put(path, source)
      },
    },
  })
  const both = [slow.instance, other.instance]
  const instances = { find: (name: string) => both.find((each) => each.name === name), list: () => both }
  const backups = createBackups({ store: holding, key, instances, log: () => {}, tickMs: 20 })
  await sql(slow.instance, 'SELECT pg_switch_wal()', 'supabase_admin')
  await held.promise
  await sql(other.instance, 'CREATE TABLE a AS SELECT 1')
  await sql(other.instance, 'SELECT pg_switch_wal()', 'supabase_admin')
  const archivedWal = async () => (await store.list('')).filter((object) => object.key.includes(`${other.name}/wal/`))
  await vi.waitFor(async () => expect(await archivedWal()).not.toEqual([]), { timeout: WAIT_MS })
  uploads.resolve()
  await backups.stop()
})

test('objects that were changed, swapped or sealed with another key are refused', async () => {
  const { name, instance, backups } = await archived()
  // Three frames of a backup.
  await sql(instance, 'CREATE TABLE a AS SELECT md5(n::text) FROM generate_series(1, 120000) AS n')
  await backups.make(name, '1')
  await backups.make(name, '2')
  const prefix = `backups/${name}/base/`
  const original = await bytesOf(`${prefix}2.tar`)
  const other = await bytesOf(`${prefix}1.tar`)
  const put = (bytes: Uint8Array) => store.put(`${prefix}2.tar`, Readable.from([bytes]))
  const changed = Buffer.from(original)
  changed[5_000] = Number(changed[5_000]) ^ 1
  // Each frame begins with its length and ends with a tag of 16 bytes.
  const first = 20 + 4 + original.readUInt32BE(20) + 16
  const second = first + 4 + original.readUInt32BE(first) + 16
  const reordered = [
    original.subarray(0, 20),
    original.subarray(first, second),
    original.subarray(20, first),
    original.subarray(second),
  ]
  for (const bytes of [
    changed,
    other,
    original.subarray(0, first),
    original.subarray(0, -100),
    Buffer.concat(reordered),
  ]) {
    await put(bytes)
    await expect(backups.restore(name, { backup: '2' })).rejects.toThrow(/truncated|was changed|manifest/)
  }
  await put(original)
  const stranger = createBackups({
    store,
    key: randomBytes(32),
    instances: { find: () => instance, list: () => [] },
    log: () => {},
  })
  await expect(stranger.list(name)).rejects.toThrow('another name or key')
  await stranger.stop()
  await backups.restore(name, { backup: '2' })
  expect(await sql(instance, 'SELECT count(*)::int AS n FROM a')).toEqual([{ n: 120_000 }])
})

test('the sweep keeps what is needed and removes orphans', async () => {
  // An upload that began less than a day ago may still be under way.
  const dropped: [prefix: string, before: Date][] = []
  const aged: ArchiveStore = Object.create(store, {
    dropUploads: { value: async (...call: [string, Date]) => void dropped.push(call) },
    list: {
      value: async (prefix: string) =>
        (await store.list(prefix)).map((object) => ({ ...object, modifiedAt: new Date(0) })),
    },
  })
  const { name, instance, backups } = await archived({ store: aged })
  for (const id of ['1', '2', '3']) {
    await backups.make(name, id)
    await sql(instance, `CREATE TABLE t${id} AS SELECT 1`)
    await backups.flush(name)
  }
  await store.put(`backups/${name}/base/orphan.tar`, Readable.from([Buffer.from('x')]))
  const before = await listBundles(backups.archive, name)
  await backups.remove(name, '1')
  await backups.sweep(name)
  expect(dropped).toEqual([[`backups/${name}/`, expect.any(Date)]])
  const kept = await listBundles(backups.archive, name)
  expect(kept.length).toBeGreaterThan(0)
  expect(kept.length).toBeLessThan(before.length)
  expect((await store.list(`backups/${name}/base/`)).map(({ key }) => key.split('/').at(-1))).toEqual([
    '2.json',
    '2.tar',
    '3.json',
    '3.tar',
  ])
  await backups.restore(name, { at: new Date() })
  expect(await sql(instance, 'SELECT FROM t3')).toHaveLength(1)
  for (const id of ['2', '3']) await backups.remove(name, id)
  await backups.sweep(name)
  expect(await listBundles(backups.archive, name)).toEqual([])
  await backups.make(name, '4')
  await sql(instance, 'CREATE TABLE t4 AS SELECT 1')
  await backups.restore(name, { at: new Date() })
  expect(await sql(instance, 'SELECT FROM t4')).toHaveLength(1)
  await backups.removeArchive(name)
  expect(await store.list(`backups/${name}/`)).toEqual([])
})

test('a restore that a crash interrupted is completed or removed', async () => {
  const instance = await testInstance()
  made.push(instance)
  const { data } = instance.paths
  for (const left of ['data.new', 'data.new.wal', 'data.ready', 'data.drill'])
    await mkdir(join(instance.paths.folder, left))
  await sweepLeftovers(instance.paths, instance.record.account)
  expect((await readdir(instance.paths.folder)).sort()).toEqual(['data', 'log', 's', 'wal'])
  // The crash happens between the two renames of a switch, and of its undoing.
  await mkdir(`${data}.old`)
  await rename(data, `${data}.ready`)
  await sweepLeftovers(instance.paths, instance.record.account)
  expect((await readdir(instance.paths.folder)).sort()).toEqual(['data', 'data.old', 'log', 's', 'wal'])
  // An undoing that was not finished has not happened.
  await rename(data, `${data}.reverting`)
  await sweepLeftovers(instance.paths, instance.record.account)
  expect((await readdir(instance.paths.folder)).sort()).toEqual(['data', 'data.old', 'log', 's', 'wal'])
  expect(await instance.admin.rows('SELECT 1 AS n')).toEqual([{ n: 1 }])
})

test('an undoing that a crash interrupted before the logins are current has not happened', async () => {
  const { name, instance, backups } = await archived()
  await backups.make(name, '1')
  await backups.restore(name, { backup: '1' })
  await sql(instance, 'CREATE TABLE newer AS SELECT 1')
  const { withAdmin } = instance
  const held = Promise.withResolvers<void>()
  instance.withAdmin = () => {
    held.resolve()
    return new Promise(() => {})
  }
  void backups.undo(name)
  await held.promise
  instance.withAdmin = withAdmin
  // The server of the old data outlives the daemon.
  await sweepLeftovers(instance.paths, instance.record.account)
  await instance.stop()
  expect(await sql(instance, 'SELECT FROM newer')).toHaveLength(1)
  // The archive follows the newer data, and the undoing can be repeated.
  await backups.archiveTick()
  expect((await planNewest(backups.archive, name)).timeline).toBe(2)
  await backups.undo(name)
  await expect(sql(instance, 'SELECT FROM newer')).rejects.toThrow('does not exist')
})

test('the id of a restore is recorded with the switch, before anything else is archived', async () => {
  const [held, uploads] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const slow: ArchiveStore = Object.create(store, {
    put: {
      async value(...upload: Parameters<ArchiveStore['put']>) {
        if (existsSync(`${instance.paths.data}.old`)) {
          held.resolve()
          await uploads.promise
        }
        return store.put(...upload)
      },
    },
  })
  const { name, instance, backups } = await archived({ store: slow })
  await sql(instance, 'CREATE TABLE a AS SELECT 1')
  await backups.make(name, '1')
  expect(await readRestoreId(instance.paths)).toBeUndefined()
  const restored = backups.restore(name, { backup: '1' }, 'first')
  await Promise.race([held.promise, restored])
  expect(await readRestoreId(instance.paths)).toBe('first')
  uploads.resolve()
  await restored
  await backups.undo(name)
  expect(await readRestoreId(instance.paths)).toBeUndefined()
})

test('the old data stays in service if the restored data does not start', async () => {
  const { name, instance, backups } = await archived()
  await sql(instance, 'CREATE TABLE a AS SELECT 1')
  await backups.make(name, '1')
  await sql(instance, 'CREATE TABLE b AS SELECT 1')
  const { whileStopped } = instance
  let isFirst = true
  instance.whileStopped = (work) =>
    whileStopped(async () => {
      const result = await work()
      if (isFirst) await rm(join(instance.paths.data, 'PG_VERSION'))
      isFirst = false
      return result
    })
  await expect(backups.restore(name, { backup: '1' })).rejects.toThrow('did not start')
  expect(await sql(instance, 'SELECT FROM b')).toHaveLength(1)
})

test.each([
  ['pg_authid', 'random bytes', 'XX001', randomBytes(8_192)],
  ['pg_authid', 'zeros', '28000', Buffer.alloc(8_192)],
  ['pg_database', 'zeros', '3D000', Buffer.alloc(8_192)],
])('a server whose table %s is overwritten with %s can be restored', async (table, _, code, page) => {
  const { name, instance, backups } = await archived()
  await sql(instance, 'CREATE TABLE a AS SELECT 1')
  await backups.make(name, '1')
  const [{ path }] = await sql(instance, `SELECT pg_relation_filepath('${table}') AS path`)
  await instance.whileStopped(() => writeFile(join(instance.paths.data, path), page))
  await expect(sql(instance, 'SELECT 1')).rejects.toMatchObject({ code })
  await backups.restore(name, { backup: '1' })
  expect(await sql(instance, 'SELECT FROM a')).toHaveLength(1)
})

test('a password that is changed during the recovery is kept', async () => {
  const [held, downloads] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const slow: ArchiveStore = Object.create(store, {
    get: {
      async *value(...[key, signal]: Parameters<ArchiveStore['get']>) {
        if (key.endsWith('/base/1.tar')) {
          held.resolve()
          await downloads.promise
        }
        yield* store.get(key, signal)
      },
    },
  })
  const { name, instance, backups } = await archived({ store: slow })
  await sql(instance, `CREATE ROLE member LOGIN PASSWORD 'leaked'`)
  await backups.make(name, '1')
  const restored = backups.restore(name, { backup: '1' })
  await Promise.race([held.promise, restored])
  await sql(instance, `ALTER ROLE member PASSWORD 'new'`)
  const password = () => sql(instance, `SELECT rolpassword FROM pg_authid WHERE rolname = 'member'`, 'supabase_admin')
  const current = await password()
  downloads.resolve()
  await restored
  expect(await password()).toEqual(current)
})

test('a role that was locked stays locked after a restore and after its undoing', async () => {
  const { name, instance, backups } = await archived()
  await sql(instance, `CREATE ROLE member LOGIN; CREATE ROLE guest LOGIN`)
  await backups.make(name, '1')
  await sql(instance, 'ALTER ROLE member NOLOGIN')
  await backups.restore(name, { backup: '1' })
  const refused = 'is not permitted to log in'
  await expect(sql(instance, 'SELECT', 'member')).rejects.toThrow(refused)
  expect(await sql(instance, 'SELECT', 'guest')).toHaveLength(1)
  await sql(instance, 'ALTER ROLE guest NOLOGIN')
  await backups.undo(name)
  for (const role of ['member', 'guest']) await expect(sql(instance, 'SELECT', role)).rejects.toThrow(refused)
})

test('after a switch that was rolled back, later moments can be restored', async () => {
  const { name, instance, backups } = await archived()
  await backups.make(name, '1')
  const { whileStopped } = instance
  instance.whileStopped = async (work) => {
    instance.whileStopped = whileStopped
    await whileStopped(work)
    // The new server has archived its timeline when the switch fails.
    await backups.flush(name)
    throw new Error('the server was lost')
  }
  await expect(backups.restore(name, { backup: '1' })).rejects.toThrow('the server was lost')
  await sql(instance, 'CREATE TABLE later AS SELECT 1')
  await backups.restore(name, { at: new Date() })
  expect(await sql(instance, 'SELECT FROM later')).toHaveLength(1)
})

test('an object of unknown length is sent in parts', async () => {
  const bytes = randomBytes(40_000_000)
  await store.put('parts', Readable.from([bytes.subarray(0, 20_000_001), bytes.subarray(20_000_001)]))
  expect((await bytesOf('parts')).equals(bytes)).toBe(true)
  await store.put('nothing', Readable.from([]))
  expect(await bytesOf('nothing')).toHaveLength(0)
  await expect(bytesOf('none')).rejects.toThrow('no object none')
})

async function bytesOf(key: string): Promise<Buffer> {
  const chunks: Uint8Array[] = []
  for await (const chunk of store.get(key)) chunks.push(chunk)
  return Buffer.concat(chunks)
}

function failing(inner: ArchiveStore) {
  let puts = Number.POSITIVE_INFINITY
  let gets = false
  const lost = () => new Error('the bucket was lost')
  return {
    ...inner,
    failAfter: (count: number) => {
      puts = count
    },
    failGets: (isFailing: boolean) => {
      gets = isFailing
    },
    async put(key: string, body: AsyncIterable<Uint8Array>) {
      const isFailing = puts-- <= 0
      await inner.put(
        key,
        (async function* () {
          let bytes = 0
          for await (const chunk of body) {
            yield chunk
            bytes += chunk.length
            if (isFailing && bytes > 100) throw lost()
          }
          if (isFailing) throw lost()
        })(),
      )
    },
    async *get(key: string) {
      if (gets && !key.endsWith('.json')) throw lost()
      yield* inner.get(key)
    },
  }
}
