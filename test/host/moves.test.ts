import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { mkdir, readdir, rm, rmdir } from 'node:fs/promises'
import { createServer, request, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { Client } from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { startS3 } from '../../dev/s3.ts'
import { createBackups } from '../../host/backups/backups.ts'
import { s3Store } from '../../host/backups/store.ts'
import { type Host, startHost } from '../../host/host.ts'
import { createMoves } from '../../host/moves/moves.ts'
import { createHostEngine } from '../../src/engine/host/host.ts'
import { specOf } from '../engine/specs.ts'
import { WAIT_MS } from '../support/wait.ts'
import { callHost } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'

const KEY = 'a key of the test, of enough letters'
const PASSWORD = 'correct-horse'
const S3_KEYS = { accessKeyId: 'a'.repeat(20), secretAccessKey: 'b'.repeat(40) }
const WAIT = { timeout: WAIT_MS, interval: 20 }

let archive: NonNullable<Parameters<typeof startHost>[0]['archive']>
const ends: (() => Promise<unknown>)[] = []
let here: Host
let there: Host
let hereFolder: string
let thereFolder: string

const start = (folder: string, bucket = 'archive') =>
  startHost({ folder, key: KEY, isDurable: false, archive: { ...archive, bucket } })

beforeAll(async () => {
  const s3 = await startS3({ buckets: ['archive', 'other'], ...S3_KEYS })
  ends.push(s3.stop)
  archive = {
    endpoint: s3.endpoint,
    region: 'auto',
    bucket: 'archive',
    ...S3_KEYS,
    key: randomBytes(32).toString('hex'),
  }
  hereFolder = await newHostFolder()
  thereFolder = await newHostFolder()
  ends.push(
    () => rm(hereFolder, { recursive: true }),
    () => rm(thereFolder, { recursive: true }),
  )
  here = await start(hereFolder)
  there = await start(thereFolder)
}, 120_000)

afterAll(async () => {
  await Promise.all([here.stop(), there.stop()])
  for (const end of ends) await end()
})

const newName = () => Array.from(randomBytes(20), (byte) => String.fromCharCode(97 + (byte % 26))).join('')

async function ask<Reply = void>({ url }: Host, method: string, path: string, body?: object): Promise<Reply> {
  const response = await callHost({ url, key: KEY }, method, path, { body })
  const text = await response.text()
  if (!response.ok) throw new Error(text)
  return (text === '' ? undefined : JSON.parse(text)) as Reply
}

const clientAt = ({ gatewayPort: port }: Host, name: string) => {
  const client = new Client({
    host: '127.0.0.1',
    port,
    user: `postgres.${name}`,
    database: 'postgres',
    password: PASSWORD,
  })
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
  const name = newName()
  await ask(here, 'PUT', `/instances/${name}`, { password: PASSWORD })
  await sql(here, name, 'create table acknowledged (n int primary key)')
  return name
}

/** Writes until it is refused; `counted` is the last number whose commit was acknowledged. */
async function newWriter(name: string) {
  const client = clientAt(here, name)
  await client.connect()
  let counted = 0
  const ended = (async () => {
    for (;;) {
      await client.query('insert into acknowledged values ($1)', [counted + 1])
      counted += 1
    }
  })().catch((error: unknown) => error)
  return { ended, counted: () => counted }
}

const move = async (name: string, body: object = {}, [from, to] = [here, there]) => {
  await ask(to, 'PUT', `/instances/${name}/arrival`, body)
  const { lsn } = await ask<{ lsn: string }>(from, 'POST', `/instances/${name}/seal`)
  await ask(to, 'POST', `/instances/${name}/arrival/finish`, { lsn })
}

test('an instance in use moves, and no acknowledged row is lost', async () => {
  const name = await newInstance()
  const writer = await newWriter(name)
  await vi.waitFor(() => expect(writer.counted()).toBeGreaterThan(50), WAIT)
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const before = writer.counted()
  await vi.waitFor(() => expect(writer.counted()).toBeGreaterThan(before + 200), WAIT)
  await move(name, { size: 'small', sleep_after_seconds: 900 })
  await writer.ended
  expect(writer.counted()).toBeGreaterThan(before + 200)

  // Neither host serves the instance until one is opened.
  for (const host of [here, there]) await expect(sql(host, name, 'select 1')).rejects.toThrow('moving')
  await expect(ask(here, 'PUT', `/instances/${name}/settings`, { set: { work_mem: '7MB' } })).rejects.toThrow('moving')
  await expect(ask(here, 'PUT', `/instances/${name}`, { password: 'other' })).rejects.toThrow()
  await ask(there, 'PUT', `/instances/${name}/settings`, { set: { work_mem: '7MB' } })
  await ask(there, 'POST', `/instances/${name}/unseal`)
  const [{ count, last }] = await sql(there, name, 'select count(*)::int, max(n) as last from acknowledged')
  expect(last).toBeGreaterThanOrEqual(writer.counted())
  expect(count).toBe(last)
  expect(await sql(there, name, `select current_setting('work_mem') as mem`)).toEqual([{ mem: '7MB' }])
  expect(await ask(there, 'GET', `/instances/${name}`)).toMatchObject({ size: 'small', sleep_after_seconds: 900 })
  await ask(here, 'DELETE', `/instances/${name}?archive=keep`)
  expect(here.pool.find(name)).toBeUndefined()

  // The timeline of the instance continues in the archive.
  await sql(there, name, 'insert into acknowledged values (-1)')
  expect(await ask(there, 'POST', `/instances/${name}/drill`)).toMatchObject({ backup: '1', differences: [] })
  await ask(there, 'POST', `/instances/${name}/restore`, { backup: '1', id: 'back' })
  const [{ first }] = await sql(there, name, 'select max(n) as first from acknowledged')
  expect(first).toBeGreaterThanOrEqual(50)
  expect(first).toBeLessThan(writer.counted())
})

test('a canceled move leaves the instance where it was, and can be repeated', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await move(name)
  await expect(ask(there, 'PUT', `/instances/${name}/backups/2`)).rejects.toThrow()
  await ask(there, 'DELETE', `/instances/${name}/arrival`)
  expect(there.pool.find(name)).toBeUndefined()
  await ask(here, 'POST', `/instances/${name}/unseal`)
  await sql(here, name, 'insert into acknowledged values (7)')
  await ask(there, 'PUT', `/instances/${name}/arrival`)
  expect(await leftoversOf(name)).toHaveLength(1)
  await ask(there, 'DELETE', `/instances/${name}/arrival`)
  expect(await leftoversOf(name)).toEqual([])
  await move(name)
  await ask(there, 'POST', `/instances/${name}/unseal`)
  expect(await sql(there, name, 'select n from acknowledged')).toEqual([{ n: 7 }])
  // An instance that is served is never taken for a leftover.
  await ask(there, 'DELETE', `/instances/${name}/arrival`)
  await expect(ask(there, 'PUT', `/instances/${name}/arrival`)).rejects.toThrow('already')
  expect(await sql(there, name, 'select n from acknowledged')).toEqual([{ n: 7 }])
})

const leftoversOf = async (name: string) =>
  (await readdir(join(thereFolder, 'instances'))).filter((file) => file.startsWith(name))

test('an arrival that fails early leaves nothing behind, and the daemon runs on', async () => {
  const name = await newInstance()
  const settings = join(here.pool.require(name).paths.data, 'postgresql.auto.conf')
  await rm(settings)
  await mkdir(settings)
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await rmdir(settings)
  await expect(ask(there, 'PUT', `/instances/${name}/arrival`)).rejects.toThrow('EISDIR')
  expect(await leftoversOf(name)).toEqual([])
  expect(await ask(there, 'GET', '/sealed')).toEqual(expect.any(Array))
})

test('an instance that has moved moves again, from the same backup and from a new one', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  let route: [Host, Host] = [here, there]
  for (const n of [1, 2, 3, 4]) {
    const [from, to] = route
    await sql(from, name, `insert into acknowledged values (${n})`)
    // The archive then has nothing that this backup lacks.
    if (n > 2) await ask(from, 'PUT', `/instances/${name}/backups/${n}`)
    await move(name, {}, route)
    await ask(to, 'POST', `/instances/${name}/unseal`)
    await ask(from, 'DELETE', `/instances/${name}?archive=keep`)
    expect(await sql(to, name, 'select count(*)::int as count, max(n) as last from acknowledged')).toEqual([
      { count: n, last: n },
    ])
    route = [to, from]
  }
  expect(await ask(here, 'POST', `/instances/${name}/drill`)).toMatchObject({ backup: '4', differences: [] })
})

test('a daemon that ends keeps what is sealed, and removes what was arriving', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await ask(here, 'POST', `/instances/${name}/seal`)
  await here.stop()
  here = await start(hereFolder)
  expect(await ask(here, 'GET', '/sealed')).toContainEqual({ name, sealed: 'leaving' })
  await expect(sql(here, name, 'select 1')).rejects.toThrow('moving')
  await ask(here, 'POST', `/instances/${name}/unseal`)
  expect(await sql(here, name, 'select 1 as n')).toEqual([{ n: 1 }])
  expect(await ask(here, 'GET', '/sealed')).not.toContainEqual({ name, sealed: 'leaving' })
})

test('an arrival that still downloads its backup can be canceled, and its daemon can stop', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const bucket = await openStallingBucket(/\.tar/)
  const folder = await newHostFolder()
  const host = await startHost({
    folder,
    key: KEY,
    isDurable: false,
    archive: { ...archive, endpoint: bucket.endpoint },
  })
  const canceled = ask(host, 'PUT', `/instances/${name}/arrival`).catch(String)
  await vi.waitFor(() => expect(bucket.stalled()).toBe(1), WAIT)
  await ask(host, 'DELETE', `/instances/${name}/arrival`)
  expect(await canceled).toContain('The arrival was canceled')
  expect(await readdir(join(folder, 'instances'))).toEqual([])
  const stopped = ask(host, 'PUT', `/instances/${name}/arrival`).catch(String)
  await vi.waitFor(() => expect(bucket.stalled()).toBe(2), WAIT)
  await host.stop()
  expect(await stopped).toContain('fetch failed')
  expect(await readdir(join(folder, 'instances'))).toEqual([])
  await rm(folder, { recursive: true })
  bucket.close()
})

test('an arrival whose finish takes too long is canceled', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const { lsn } = await ask<{ lsn: string }>(here, 'POST', `/instances/${name}/seal`)
  const bucket = await openStallingBucket(/\/wal\//)
  const store = s3Store({ ...archive, endpoint: bucket.endpoint })
  const instances = { find: () => undefined, list: () => [] }
  const backups = createBackups({ store, key: Buffer.from(archive.key), instances, log: () => {} })
  const moves = createMoves({ pool: there.pool, backups, timeoutMs: 100 })
  const arriving = moves.receive({ name, isPaused: false }).catch(String)
  await vi.waitFor(() => expect(bucket.stalled()).toBe(1), WAIT)
  await expect(moves.finish(name, lsn)).rejects.toThrow('The arrival was canceled')
  expect(await arriving).toContain('The arrival was canceled')
  expect(await leftoversOf(name)).toEqual([])
  await backups.stop()
  bucket.close()
})

/** Opens a bucket that sends only the first byte of the objects whose path matches. */
async function openStallingBucket(path: RegExp) {
  let stalled = 0
  const bucket = await openBucket(async (url, res) => {
    if (!path.test(url.split('?')[0] ?? '')) return
    stalled += 1
    res.writeHead(200).write('0')
    await new Promise(() => {})
  })
  return { ...bucket, stalled: () => stalled }
}

/** Opens a bucket that answers a request after `hold` resolves. */
async function openBucket(hold: (url: string, res: ServerResponse) => Promise<void>) {
  const { hostname, port, pathname } = new URL(archive.endpoint)
  const server = createServer(async (req, res) => {
    const { method, url = '', headers } = req
    await hold(url, res)
    const forwarded = request({ method, hostname, port, path: url, headers }, (reply) => {
      res.writeHead(reply.statusCode ?? 0, reply.headers)
      reply.pipe(res)
    })
    req.pipe(forwarded)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}${pathname}`
  const close = () => {
    server.closeAllConnections()
    server.close()
  }
  return { endpoint, close }
}

test('the backups of several instances are listed at the same time', async () => {
  const names = [newName(), newName()]
  const listed = Promise.withResolvers<void>()
  const asked = new Set<string>()
  let isMade = false
  const bucket = await openBucket(async (url) => {
    const prefix = new URLSearchParams(url.split('?')[1]).get('prefix')
    if (!isMade || !prefix?.endsWith('/base/')) return
    // A held request is repeated after its timeout.
    asked.add(prefix)
    await listed.promise
  })
  const folder = await newHostFolder()
  const host = await startHost({
    folder,
    key: KEY,
    isDurable: false,
    archive: { ...archive, endpoint: bucket.endpoint },
  })
  for (const name of names) {
    await ask(host, 'PUT', `/instances/${name}`, { password: PASSWORD })
    await ask(host, 'PUT', `/instances/${name}/backups/1`)
  }
  isMade = true
  const listing = ask<object[]>(host, 'GET', '/backups')
  await vi.waitFor(() => expect(asked.size).toBe(2), WAIT).finally(listed.resolve)
  const backups = await listing
  expect(backups).toHaveLength(2)
  expect(backups).toEqual(expect.arrayContaining(names.map((name) => ({ name, id: '1' }))))
  await host.stop()
  await rm(folder, { recursive: true })
  bucket.close()
})

test('a project whose archive has a gap moves from a backup after the gap, there and back', async () => {
  const name = await newInstance()
  // The second one is left from an earlier move that failed.
  for (const id of ['1', '0']) await ask(here, 'PUT', `/instances/${name}/backups/${id}`)
  await sql(here, name, 'insert into acknowledged values (1)')
  await ask(here, 'POST', `/instances/${name}/drill`)
  // The host discards WAL while the bucket is away for long.
  const store = s3Store(archive)
  await store.delete((await store.list(`backups/${name}/wal/`)).map(({ key }) => key))
  await here.pool.require(name).update({ walDiscardedAt: new Date().toISOString() })
  await expect(ask(here, 'POST', `/instances/${name}/seal`)).rejects.toThrow('no backup after')
  expect(await sql(here, name, 'select n from acknowledged')).toEqual([{ n: 1 }])

  const hosts = Object.entries({ here, there }).map(([id, { url, gatewayPort: databasePort }]) => ({
    ...{ id, url, key: KEY, databaseHost: '127.0.0.1', databasePort },
  }))
  const get = async (id: string) => hosts.find((host) => host.id === id) ?? expect.fail(id)
  let state = { host: 'here' }
  const { moves } = createHostEngine({
    hosts: { get, all: async () => hosts, of: () => get(state.host), cacheHost: () => {} },
    states: { read: async () => state, refs: async () => [name], write: async () => {} },
  })
  if (!moves) throw new Error('the driver moves nothing')
  for (const [from, to] of [
    ['here', 'there'],
    ['there', 'here'],
  ] as const) {
    const configuration = { set: {}, reset: [], connectionsMax: null }
    const request = { spec: specOf(name), from, to, isPaused: false, configuration, isSourceLost: false }
    await moves.begin(request)
    state = { host: to }
    await moves.open(name, to)
    await moves.removeFrom(name, from)
    const host = to === 'here' ? here : there
    expect(await sql(host, name, 'select n from acknowledged')).toEqual([{ n: 1 }])
    expect(await ask(host, 'GET', `/instances/${name}/backups`)).toMatchObject([{ id: '1' }])
  }
  await ask(here, 'PUT', `/instances/${name}/backups/2`)
  expect(await ask(here, 'GET', `/instances/${name}`)).not.toHaveProperty('wal_discarded_at')
})

test('a host refuses what it lacks before the other host stops serving the instance', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const arrive = (body: object) => ask(there, 'PUT', `/instances/${name}/arrival`, body)
  await expect(arrive({ settings: { fsync: 'off' } })).rejects.toThrow('cannot be set here')
  await expect(arrive({ settings: { 'cron.log_statement': 'on' } })).rejects.toThrow('belongs to pg_cron')
  await expect(arrive({ settings: { shared_buffers: '2GB' } })).rejects.toThrow(/shared_buffers.*1024 MB/)
  await expect(arrive({ size: '48xlarge_high_memory' })).rejects.toThrow('size')
  expect(await leftoversOf(name)).toEqual([])
  await arrive({ settings: { shared_buffers: '24MB' } })
  await ask(there, 'DELETE', `/instances/${name}/arrival`)
  expect(await sql(here, name, 'select 1 as n')).toEqual([{ n: 1 }])
})

test('nothing moves without a backup or a common bucket', async () => {
  const name = await newInstance()
  await expect(ask(here, 'POST', `/instances/${name}/seal`)).rejects.toThrow('no backup of this project')
  await expect(ask(there, 'PUT', `/instances/${name}/arrival`)).rejects.toThrow(`no backup of ${name}`)
  await expect(ask(there, 'POST', `/instances/${name}/arrival/finish`, {})).rejects.toThrow('is not arriving')
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await expect(ask(there, 'PUT', `/instances/${name}/arrival`, { version: '17' })).rejects.toThrow('not 17')
  // A host that does not see the last archived segment is told which one that is.
  await ask(there, 'PUT', `/instances/${name}/arrival`)
  await expect(ask(there, 'POST', `/instances/${name}/arrival/finish`, { lsn: 'F/0' })).rejects.toThrow(
    'does not reach F/0',
  )
  expect(there.pool.find(name)).toBeUndefined()
  expect(await sql(here, name, 'select 1 as n')).toEqual([{ n: 1 }])
})

test('what a lost host archived is restored elsewhere', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await sql(here, name, 'insert into acknowledged values (1)')
  await ask(here, 'POST', `/instances/${name}/drill`)
  await ask(here, 'POST', `/instances/${name}/pause`)
  await ask(there, 'PUT', `/instances/${name}/arrival`)
  await ask(there, 'POST', `/instances/${name}/arrival/finish`, {})
  await ask(there, 'POST', `/instances/${name}/unseal`)
  expect(await sql(there, name, 'select n from acknowledged')).toEqual([{ n: 1 }])
})

test('what a lost host archived is restored elsewhere, even after a restore to a moment within one archived object', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  const { admin } = here.pool.require(name)
  const [{ at }] = await sql(here, name, 'select clock_timestamp() as at')
  for (let n = 1; n <= 20; n++) {
    await sql(here, name, `insert into acknowledged values (${n})`)
    await admin.rows('SELECT pg_switch_wal()')
  }
  await ask(here, 'POST', `/instances/${name}/restore`, { at, id: 'within' })
  await sql(here, name, 'delete from acknowledged; insert into acknowledged values (21)')
  await ask(here, 'POST', `/instances/${name}/drill`)
  await ask(here, 'POST', `/instances/${name}/pause`)
  await ask(there, 'PUT', `/instances/${name}/arrival`)
  await ask(there, 'POST', `/instances/${name}/arrival/finish`, {})
  await ask(there, 'POST', `/instances/${name}/unseal`)
  expect(await sql(there, name, 'select n from acknowledged')).toEqual([{ n: 21 }])
})

test('a server that was started again archives commits in time, without a checkpoint', async () => {
  const name = await newInstance()
  await ask(here, 'PUT', `/instances/${name}/backups/1`)
  await here.pool.require(name).update({ settings: { archive_timeout: '1s' } })
  await ask(here, 'POST', `/instances/${name}/restart`)
  const [{ segment }] = await sql(here, name, 'select pg_walfile_name(pg_current_wal_insert_lsn()) as segment')
  await sql(here, name, 'insert into acknowledged values (1)')
  const isArchived = async () =>
    (await sql(here, name, `select last_archived_wal >= '${segment}' as "is" from pg_stat_archiver`))[0].is
  await expect.poll(isArchived, WAIT).toBe(true)
})
