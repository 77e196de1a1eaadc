import { randomBytes } from 'node:crypto'
import { mkdir, readFile, rm, rmdir } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { startS3 } from '../../dev/s3.ts'
import { createBackups } from '../../host/backups/backups.ts'
import { type ArchiveStore, s3Store } from '../../host/backups/store.ts'
import { type Host, startHost } from '../../host/host.ts'
import { WAIT_MS } from '../support/wait.ts'
import { callHost } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'
import { testInstance } from './pooled-instance.ts'

const KEY = 'a key of the test, of enough letters'
const PASSWORD = 'correct-horse'
const S3_KEYS = { accessKeyId: 'a'.repeat(20), secretAccessKey: 'b'.repeat(40) }
const WAIT = { timeout: WAIT_MS, interval: 20 }

const ends: (() => Promise<unknown>)[] = []
let here: Host
let there: Host
let archive: ArchiveStore
let copy: ArchiveStore

beforeAll(async () => {
  const s3 = await startS3({ buckets: ['archive', 'copy'], ...S3_KEYS })
  ends.push(s3.stop)
  const place = { endpoint: s3.endpoint, region: 'auto', ...S3_KEYS }
  archive = s3Store({ ...place, bucket: 'archive' })
  copy = s3Store({ ...place, bucket: 'copy' })
  const key = randomBytes(32).toString('hex')
  const start = async (bucket: string) => {
    const folder = await newHostFolder()
    const host = await startHost({ folder, key: KEY, isDurable: false, archive: { ...place, bucket, key } })
    ends.unshift(host.stop, () => rm(folder, { recursive: true }))
    return host
  }
  here = await start('archive')
  there = await start('copy')
}, 120_000)

afterAll(async () => {
  for (const end of ends) await end()
})

async function ask<Reply = void>({ url }: Host, method: string, path: string, body?: object): Promise<Reply> {
  const response = await callHost({ url, key: KEY }, method, path, { body })
  const text = await response.text()
  if (!response.ok) throw new Error(text)
  return (text === '' ? undefined : JSON.parse(text)) as Reply
}

const clientAt = ({ gatewayPort: port }: Host, name: string) => {
  const user = `postgres.${name}`
  const client = new Client({ host: '127.0.0.1', port, user, database: 'postgres', password: PASSWORD })
  client.on('error', () => {})
  return client
}

async function sql(host: Host, name: string, text: string) {
  const client = clientAt(host, name)
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

async function newInstance(): Promise<string> {
  const name = Array.from(randomBytes(20), (byte) => String.fromCharCode(97 + (byte % 26))).join('')
  await ask(here, 'PUT', `/instances/${name}`, { password: PASSWORD })
  await sql(here, name, 'create table written (n int primary key, at timestamptz default clock_timestamp())')
  return name
}

interface Moment {
  now: string
  backup: string
  keys: string[]
  spec: object
}

const momentOf = (name: string, at: Date) => ask<Moment>(here, 'POST', `/instances/${name}/moment`, { at })

/** Restores an instance on a host that has only these objects of the archive. */
async function arrive(name: string, at: Date, { keys, spec }: Moment, more: object = {}) {
  for (const key of keys) await copy.put(key, archive.get(key))
  await ask(there, 'PUT', `/instances/${name}/arrival`, { ...spec, ...more, at })
  await ask(there, 'POST', `/instances/${name}/unseal`)
}

test('an instance in use is restored elsewhere as of a moment, from what that moment needs', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/size`, { size: 'small' })
  await ask(here, 'PUT', `/instances/${name}/settings`, { set: { work_mem: '7MB' } })
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const writer = clientAt(here, name)
  await writer.connect()
  let acknowledged = 0
  let isOver = false
  const writing = (async () => {
    while (!isOver) {
      await writer.query('insert into written (n) values ($1)', [acknowledged + 1])
      acknowledged += 1
    }
  })()
  await vi.waitFor(() => expect(acknowledged).toBeGreaterThan(100), WAIT)
  const before = acknowledged
  // A Date drops the part of a millisecond in which the last rows were written.
  const at = new Date(Date.now() + 1)
  await vi.waitFor(() => expect(acknowledged).toBeGreaterThan(before + 100), WAIT)
  const moment = await momentOf(name, at)
  isOver = true
  await writing
  await writer.end()
  expect(Math.abs(Date.parse(moment.now) - Date.now())).toBeLessThan(30_000)

  await arrive(name, at, moment)
  const [row] = await sql(there, name, 'select count(*)::int, max(n) as last, max(at) as at from written')
  expect(row.count).toBe(row.last)
  expect(row.last).toBeGreaterThanOrEqual(before)
  expect(row.last).toBeLessThan(acknowledged)
  expect(row.at.getTime()).toBeLessThanOrEqual(at.getTime())
  expect(await sql(there, name, `select current_setting('work_mem') as mem`)).toEqual([{ mem: '7MB' }])
  expect(await ask(there, 'GET', `/instances/${name}`)).toMatchObject({ size: 'small' })
  // The timeline of the instance continues.
  await sql(there, name, 'insert into written values (-1)')
  expect(await ask(there, 'POST', `/instances/${name}/drill`)).toMatchObject({ backup: '1', differences: [] })
})

const stateOf = async (name: string) => (await ask<{ state: string }>(here, 'GET', `/instances/${name}`)).state

const fallAsleep = async (name: string) => {
  await ask(here, 'PUT', `/instances/${name}/sleep`, { after_seconds: 1 })
  await vi.waitFor(async () => expect(await stateOf(name)).toBe('asleep'), WAIT)
}

test('a sleeping instance stays asleep, and has all its data after the restore', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  // The archiver of the instance runs from then on.
  await momentOf(name, new Date())
  await sql(here, name, 'insert into written values (1)')
  await fallAsleep(name)
  const at = new Date()
  const moment = await momentOf(name, at)
  expect(await stateOf(name)).toBe('asleep')
  await arrive(name, at, moment)
  expect(await sql(there, name, 'select n from written')).toEqual([{ n: 1 }])
  expect(await ask(there, 'GET', `/instances/${name}`)).toMatchObject({ sleep_after_seconds: 1 })
})

test('an instance that fell asleep before its archiver ran is woken, and nothing is missing', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await sql(here, name, 'insert into written values (1)')
  await fallAsleep(name)
  const at = new Date()
  await arrive(name, at, await momentOf(name, at))
  expect(await sql(there, name, 'select n from written')).toEqual([{ n: 1 }])
})

test('a moment of a sleeping instance and a flush do not wait for each other', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  // The archiver of the instance runs from then on.
  await momentOf(name, new Date())
  const instance = here.pool.require(name)
  await instance.stop()
  const flushing = Promise.withResolvers<void>()
  const slow = Object.assign(testInstance(instance), {
    admin: {
      async rows<Row extends object>(text: string, values?: readonly unknown[]) {
        // The flush has the lock of the spool now; the moment takes its first lock meanwhile.
        flushing.resolve()
        await setImmediate()
        return instance.admin.rows<Row>(text, values)
      },
    },
  })
  const instances = { find: () => slow, list: () => [] }
  const backups = createBackups({ store: copy, key: randomBytes(32), instances, log: () => {} })
  const flushed = backups.flush(name)
  await flushing.promise
  const outcomes = await Promise.allSettled([flushed, backups.moment(name, new Date(0))])
  // The archive of these backups has nothing to restore.
  expect(outcomes).toMatchObject([
    { status: 'fulfilled' },
    { status: 'rejected', reason: { message: expect.stringContaining('no backup') } },
  ])
  await backups.stop()
}, 60_000)

test('a paused instance gets its first backup, and is paused after the restore', async () => {
  const name = await newInstance()
  await sql(here, name, 'insert into written values (1)')
  await ask(here, 'POST', `/instances/${name}/pause`)
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  expect(here.pool.find(name)?.state()).toBe('paused')
  const at = new Date()
  await arrive(name, at, await momentOf(name, at), { is_paused: true })
  expect(there.pool.find(name)?.state()).toBe('paused')
  await ask(there, 'POST', `/instances/${name}/resume`)
  expect(await sql(there, name, 'select n from written')).toEqual([{ n: 1 }])
})

test('a client that logs in during the backup of a paused instance resumes it', async () => {
  const name = await newInstance()
  await sql(here, name, 'insert into written select generate_series(1, 300000)')
  await ask(here, 'POST', `/instances/${name}/pause`)
  const backup = ask(here, 'PUT', `/instances/${name}/backups/1`)
  const { data } = here.pool.require(name).paths
  await vi.waitFor(async () => expect(await readFile(join(data, 'postmaster.pid'), 'utf8')).toContain('ready'), WAIT)
  expect(await sql(here, name, 'select count(*)::int as n from written')).toEqual([{ n: 300_000 }])
  await backup
  expect(here.pool.find(name)?.state()).toBe('running')
})

test('a first backup that failed before the server archives its WAL can be repeated', async () => {
  const name = await newInstance()
  const configuration = join(here.pool.require(name).paths.data, 'postgresql.conf')
  await rm(configuration)
  await mkdir(configuration)
  await expect(ask(here, 'PUT', `/instances/${name}/backups/1`)).rejects.toThrow('The host failed')
  await rmdir(configuration)
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await sql(here, name, 'insert into written values (1)')
  // A commit is timed in microseconds, and a date of JavaScript ends with the millisecond before it.
  const at = new Date(Date.now() + 1)
  await arrive(name, at, await momentOf(name, at))
  expect(await sql(there, name, 'select n from written')).toEqual([{ n: 1 }])
})

test('an instance whose first backup failed archives no WAL', async () => {
  const name = await newInstance()
  const instance = here.pool.require(name)
  const rename = (from: string, to: string) =>
    instance.admin.rows(`SET allow_system_table_mods = on; ALTER FUNCTION ${from}(text, boolean) RENAME TO ${to}`)
  const isArchiving = async () => {
    const [row] = await instance.admin.rows(`SELECT current_setting('archive_library') <> '' AS yes`)
    return row
  }
  await rename('pg_backup_start', 'gone')
  await expect(ask(here, 'PUT', `/instances/${name}/backups/1`)).rejects.toThrow('The host failed')
  await vi.waitFor(async () => expect(await isArchiving()).toEqual({ yes: false }), WAIT)
  expect(await archive.list(`backups/${name}/`)).toEqual([])
  await rename('gone', 'pg_backup_start')
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await rename('pg_backup_start', 'gone')
  await expect(ask(here, 'PUT', `/instances/${name}/backups/2`)).rejects.toThrow('The host failed')
  expect(await isArchiving(), 'the first backup needs it').toEqual({ yes: true })
})

test('a restore that is repeated keeps what was written after it', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const [at, backup] = [new Date(), '1']
  for (const [to, id] of [
    [{ at }, 'first'],
    [{ backup }, 'second'],
  ] as const) {
    await sql(here, name, 'insert into written values (1)')
    await ask(here, 'POST', `/instances/${name}/restore`, { ...to, id })
    expect(await sql(here, name, 'select n from written')).toEqual([])
    await sql(here, name, 'insert into written values (2)')
    await ask(here, 'POST', `/instances/${name}/restore`, { ...to, id })
    expect(await sql(here, name, 'select n from written')).toEqual([{ n: 2 }])
    await expect(ask(here, 'POST', `/instances/${name}/restore`, to)).rejects.toThrow('"code":"invalid"')
  }
})

test('a moment that the archive does not reach is refused, and so is a future one', async () => {
  const name = await newInstance()
  await expect(momentOf(name, new Date())).rejects.toThrow('there is no backup of this project')
  const early = new Date()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await expect(momentOf(name, early)).rejects.toThrow('there is no backup from before')
  await expect(momentOf(name, new Date(Date.now() + 60_000))).rejects.toThrow('must not be in the future')
  await expect(momentOf(`${name.slice(1)}q`, new Date())).rejects.toThrow('There is no instance')
  const { keys } = await momentOf(name, new Date())
  await archive.delete(keys.filter((key) => key.includes('/wal/')))
  await expect(momentOf(name, new Date())).rejects.toThrow('the archive reaches from')
  // A stopped server has nothing more to archive.
  await ask(here, 'POST', `/instances/${name}/pause`)
  await expect(momentOf(name, new Date())).rejects.toThrow('the archive reaches from')
  // A new backup needs nothing of what was lost.
  await ask(here, 'PUT', `/instances/${name}/backups/2`)
  expect(await momentOf(name, new Date())).toMatchObject({ backup: '2' })
})
