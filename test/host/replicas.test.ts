import { execFileSync, spawnSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { Client } from 'pg'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { type Host, startHost } from '../../host/host.ts'
import { createHostEngine } from '../../src/engine/host/host.ts'
import { loginRole } from '../../src/engine/logins.ts'
import { oneHost } from '../engine/host-engine.ts'
import { ROWS_OF_TEXT } from './call-host.ts'

const KEY = 'k'.repeat(40)
const REF = 'abcdefghijklmnopqrst'
const ID = `${REF}-rr-us-east-1-fghij`
let folder: string
let host: Host

const start = () => startHost({ folder, key: KEY, isDurable: false, sleepAfterSeconds: null })

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'ph-replicas-'))
  await chmod(folder, 0o711)
  host = await start()
  await call('PUT', '', { password: 'pw' })
})

afterAll(async () => {
  await host.stop()
  await rm(folder, { recursive: true, force: true })
})

afterEach(() => call('DELETE', '/bans/127.0.0.1'))

async function call(method: string, path: string, body?: object) {
  const response = await fetch(`${host.url}/host/v1/instances/${REF}${path}`, {
    method,
    headers: { authorization: `Bearer ${KEY}` },
    ...(body && { body: JSON.stringify(body) }),
  })
  const text = await response.text()
  return { status: response.status, body: text ? JSON.parse(text) : undefined }
}

async function connect(user: string, password = 'pw') {
  const client = new Client({ host: '127.0.0.1', port: host.gatewayPort, user, password, database: 'postgres' })
  client.on('error', () => {})
  await client.connect()
  return client
}

async function as(user: string, text: string, password = 'pw') {
  const client = await connect(user, password)
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const primary = (text: string) => as(`postgres.${REF}`, text)
const replica = (text: string) => as(`postgres.${ID}`, text)
const replicaState = async () => (await call('GET', '')).body.replicas[0]
const slots = () => host.pool.require(REF).admin.rows('SELECT slot_name FROM pg_replication_slots')

/** Writes to the primary and waits until the replica has the row. */
async function follows(password?: string) {
  const value = Math.floor(Math.random() * 1e9)
  await as(`postgres.${REF}`, `INSERT INTO notes VALUES (${value})`, password)
  const { admin } = host.pool.require(ID)
  const hasValue = async () => (await admin.rows(`SELECT FROM public.notes WHERE n = ${value}`)).length === 1
  await expect.poll(hasValue, { interval: 20 }).toBe(true)
}

/** Waits until the replica follows. One of the two servers was killed, and may refuse the first rows. */
const followsAgain = () =>
  expect
    .poll(() =>
      follows().then(
        () => true,
        () => false,
      ),
    )
    .toBe(true)

test('a replica follows and serves reads with the same roles', async () => {
  await primary('CREATE TABLE notes (n int); INSERT INTO notes VALUES (0)')
  expect(await call('PUT', `/replicas/${ID}`)).toMatchObject({ status: 204 })
  await follows()
  await expect.poll(replicaState).toEqual({ id: ID, state: 'running', lag_bytes: 0, lag_seconds: expect.any(Number) })
  expect((await call('PUT', `/replicas/${ID}`)).status).toBe(204)
  expect(await slots()).toHaveLength(1)
  const { record, paths } = host.pool.require(ID)
  if (process.getuid?.() === 0) expect(record.account?.uid).not.toBe(host.pool.require(REF).record.account?.uid)
  expect(join(paths.socket, '.s.PGSQL.5432').length).toBeLessThanOrEqual(107)
  const listed = await fetch(`${host.url}/host/v1/instances`, { headers: { authorization: `Bearer ${KEY}` } })
  expect(((await listed.json()) as object[]).length).toBe(1)
})

test('clients can neither write to a replica, nor promote it, nor log in as a service', async () => {
  await expect(replica('INSERT INTO notes VALUES (1)')).rejects.toMatchObject({ code: '25006' })
  await expect(replica('SELECT pg_promote()')).rejects.toMatchObject({ code: '42501' })
  await expect(replica('SET transaction_read_only = off; CREATE TABLE t ()')).rejects.toThrow()
  await expect(as(`postgres.${ID}`, 'SELECT 1', 'wrong')).rejects.toMatchObject({ code: '28P01' })
  for (const role of ['supabase_admin', 'supabase_storage_admin', 'authenticator', 'supabase_replication_admin']) {
    for (const name of [ID, REF])
      await expect(as(`${role}.${name}`, 'SELECT 1')).rejects.toMatchObject({ code: '28P01' })
  }
})

test('the relay serves only replication', async () => {
  const { socket } = host.pool.require(ID).paths
  const client = new Client({ host: socket, port: 5433, user: 'supabase_admin', database: 'postgres' })
  client.on('error', () => {})
  await client.connect()
  await expect(client.query('SELECT 1')).rejects.toThrow()
  await client.end()
  await host.pool.require(REF).admin.rows('CREATE EXTENSION dblink WITH SCHEMA extensions')
  await follows()
  for (const port of [5432, 5433]) {
    const conninfo = `host=${socket} port=${port} user=supabase_admin dbname=postgres password=x`
    await expect(replica(`SELECT * FROM extensions.dblink('${conninfo}', 'SELECT 1') AS t (n int)`)).rejects.toThrow(
      /password or GSSAPI|could not establish/,
    )
  }
})

test('a password that the owner changes is valid on the replica', async () => {
  await call('PUT', '', { password: 'other' })
  const login = () => as(`postgres.${ID}`, 'SELECT 1', 'other').catch(() => [])
  await expect.poll(login, { interval: 300 }).toHaveLength(1)
  await expect(replica('SELECT 1')).rejects.toMatchObject({ code: '28P01' })
  await call('PUT', '', { password: 'pw' })
  await follows()
})

test('a temporary login ends on a replica too, even if the replica lags', async () => {
  const address = { id: 'local', url: host.url, key: KEY, databaseHost: '127.0.0.1', databasePort: host.gatewayPort }
  const states = { read: async () => undefined, refs: async () => [], write: async () => {} }
  const { logins } = createHostEngine({ hosts: oneHost(address), states })
  const [role, other] = [loginRole('jit', 'abcdefgh'), loginRole('cli', 'ijklmnop')]
  const login = {
    ref: REF,
    power: 'owner' as const,
    password: 'A-random_1',
    expiresAt: new Date(Date.now() + 3_600_000),
  }
  for (const name of [role, other]) await logins.put({ ...login, role: name }, async () => true)
  await as(`${role}.${REF}`, `ALTER ROLE CURRENT_USER PASSWORD 'Taken-over_99'`, login.password)
  await follows('Taken-over_99')

  const [session, thief, kept] = await Promise.all([
    connect(`${role}.${ID}`, login.password),
    connect(`postgres.${ID}`, 'Taken-over_99'),
    connect(`${other}.${ID}`, login.password),
  ])
  const ended = Promise.all([session, thief].map((client) => new Promise((resolve) => client.once('end', resolve))))
  const connectionString = `postgresql://${role}.${ID}:${login.password}@x/postgres`
  const headers = { 'neon-connection-string': connectionString, ...ROWS_OF_TEXT }
  const body = JSON.stringify({ query: 'SELECT pg_sleep(600)', params: [] })
  const overHttp = fetch(`${host.url}/sql`, { method: 'POST', headers, body })
  const { admin } = host.pool.require(ID)
  const asleep = `SELECT FROM pg_stat_activity WHERE usename = '${role}' AND query ~ 'pg_sleep'`
  await expect.poll(() => admin.rows(asleep)).toHaveLength(1)

  await admin.rows('SELECT pg_wal_replay_pause()')
  await logins.end(REF, [role], async () => 'pw')
  await ended
  expect((await overHttp).status).toBe(400)
  expect((await kept.query('SELECT 1 AS n')).rows).toEqual([{ n: 1 }])
  const refused = { code: '28P01' }
  await expect(connect(`${role}.${ID}`, login.password)).rejects.toMatchObject(refused)
  await expect(connect(`postgres.${ID}`, 'Taken-over_99')).rejects.toMatchObject(refused)
  await admin.rows('SELECT pg_wal_replay_resume()')
  await kept.end()
  await follows()
})

test('a replica survives restarts of either side', async () => {
  await call('POST', '/restart')
  await follows()
  await host.pool.require(ID).restart()
  await follows()
  process.kill(host.pool.require(REF).pid ?? 0, 'SIGKILL')
  await followsAgain()
  process.kill(host.pool.require(ID).pid ?? 0, 'SIGKILL')
  await followsAgain()
})

test('settings, size and access rules are those of the primary', async () => {
  const set = { max_connections: 110, work_mem: '5MB', max_locks_per_transaction: 100 }
  expect((await call('PUT', '/settings', { set })).status).toBe(204)
  await follows()
  const read = async (name: string) => Object.values((await replica(`SHOW ${name}`))[0] ?? {})[0]
  await expect.poll(() => read('max_connections')).toBe('110')
  await expect.poll(() => read('work_mem')).toBe('5MB')
  expect((await call('PUT', '/settings', { set: {} })).status).toBe(204)
  await follows()
  await expect.poll(() => read('work_mem')).not.toBe('5MB')
  expect(await read('max_connections')).toBe('110')
  const open = await connect(`postgres.${ID}`)
  const ended = new Promise((resolve) => open.once('error', resolve))
  await call('PUT', '/access', { networks: ['10.0.0.0/8'] })
  await ended
  await expect(replica('SELECT 1')).rejects.toThrow(/allow_list/)
  await call('PUT', '/access', { networks: null })
  await follows()
})

test('access rules hold on a replica while its primary cannot be read', async () => {
  const { admin } = host.pool.require(REF)
  const rename = (from: string, to: string) =>
    admin.rows(`SET allow_system_table_mods = on; ALTER VIEW pg_catalog.${from} RENAME TO ${to};
      RESET allow_system_table_mods`)
  await rename('pg_replication_slots', 'pg_hidden_slots')
  const open = await connect(`postgres.${ID}`)
  const ended = new Promise((resolve) => open.once('error', resolve))
  expect((await call('PUT', '/access', { networks: ['10.0.0.0/8'] })).status).toBe(204)
  await expect(replica('SELECT 1')).rejects.toThrow(/allow_list/)
  await ended
  await call('PUT', '/access', { networks: null })
  expect(await replica('SELECT 1 AS n')).toEqual([{ n: 1 }])
  await rename('pg_hidden_slots', 'pg_replication_slots')
  await follows()
})

test('a replica pauses, sleeps and wakes with its primary', async () => {
  await call('POST', '/pause')
  expect((await replicaState()).state).toBe('paused')
  await expect(replica('SELECT 1')).rejects.toThrow(/paused/)
  await call('POST', '/resume')
  await follows()
  await host.pool.require(REF).update({ sleepAfterSeconds: 1 })
  await expect.poll(async () => (await replicaState()).state).toBe('asleep')
  expect(host.pool.require(REF).state()).toBe('asleep')
  expect(await replica('SELECT 1')).toHaveLength(1)
  expect(host.pool.require(REF).state()).toBe('running')
  await host.pool.require(REF).update({ sleepAfterSeconds: null })
  await follows()
})

test('a daemon that starts again takes over the primary and the replica', async () => {
  const pids = () => [REF, ID].map((name) => host.pool.require(name).pid)
  const program = `import { startHost } from '${join(import.meta.dirname, '../../host/host.ts')}'
    const host = await startHost({ folder: ${JSON.stringify(folder)}, key: '${KEY}', isDurable: false })
    for (const name of ['${REF}', '${ID}']) await host.pool.require(name).wake()
    console.log(JSON.stringify(['${REF}', '${ID}'].map((name) => host.pool.require(name).pid)))
    process.kill(process.pid, 'SIGKILL')`
  await host.stop()
  expect(pids()).toEqual([undefined, undefined])
  const killed = spawnSync(process.execPath, ['--input-type=module', '-e', program])
  expect(killed.signal).toBe('SIGKILL')
  host = await start()
  expect(pids()).toEqual(JSON.parse(String(killed.stdout)))
  await follows()
})

test('a replica is built again after the data of its primary was replaced', async () => {
  const at = host.pool.require(REF)
  await at.admin.rows('SELECT pg_terminate_backend(active_pid), pg_sleep(0.1) FROM pg_replication_slots')
  // A restore does the same: the slots belong to the data.
  await at.whileStopped(async () => {
    await rm(join(at.paths.data, 'pg_replslot'), { recursive: true })
    execFileSync('install', [
      '-d',
      '-m',
      '700',
      ...(at.record.account ? ['-o', String(at.record.account.uid)] : []),
      join(at.paths.data, 'pg_replslot'),
    ])
  })
  await expect.poll(async () => (await replicaState()).state).toBe('running')
  await followsAgain()
  expect(await slots()).toHaveLength(1)
})

test('a copy that a killed daemon left unfinished is made again', async () => {
  const { data } = host.pool.require(ID).paths
  await host.stop()
  for (const part of ['standby.signal', 'PG_VERSION', 'global', 'base']) await rm(join(data, part), { recursive: true })
  host = await start()
  await host.pool.require(REF).wake()
  await expect.poll(async () => (await replicaState()).state).toBe('running')
  await follows()
  expect(await slots()).toHaveLength(1)
})

test('a replica for which there is no WAL sender, now or after a restart, is refused and leaves no slot', async () => {
  const another = `${ID.slice(0, -5)}other`
  const before = await slots()
  for (const restart of [false, 'always']) {
    expect((await call('PUT', '/settings', { set: { max_wal_senders: 1 }, restart })).status).toBe(204)
    const reply = await call('PUT', `/replicas/${another}`)
    expect([reply.status, JSON.stringify(reply.body)]).toEqual([422, expect.stringContaining('must be at least 2')])
    expect(await slots()).toEqual(before)
  }
  expect((await call('PUT', '/settings', { set: {} })).status).toBe(204)
  await followsAgain()
})

test('a server starts with the slots that were made after fewer were accepted for its next start', async () => {
  expect((await call('PUT', '/settings', { set: { max_replication_slots: 1 }, restart: false })).status).toBe(204)
  await primary(`SELECT pg_create_physical_replication_slot('mine')`)
  expect((await call('PUT', '/settings', { set: { max_replication_slots: 1, max_worker_processes: 9 } })).status).toBe(
    204,
  )
  expect(await primary('SHOW max_replication_slots')).toEqual([{ max_replication_slots: '2' }])
  await primary(`SELECT pg_drop_replication_slot('mine')`)
  await call('POST', '/restart')
  expect(await primary('SHOW max_replication_slots')).toEqual([{ max_replication_slots: '1' }])
  expect((await call('PUT', '/settings', { set: {} })).status).toBe(204)
  await followsAgain()
})

test('a removed replica leaves nothing', async () => {
  const { paths } = host.pool.require(ID)
  expect((await call('DELETE', `/replicas/${ID}`)).status).toBe(204)
  expect(await slots()).toEqual([])
  expect([paths.folder, paths.socket].map((path) => existsSync(path))).toEqual([false, false])
  expect((await call('DELETE', `/replicas/${ID}`)).status).toBe(204)
  await expect(replica('SELECT 1')).rejects.toThrow(/Tenant or user not found/)
  expect((await call('PUT', '/replicas/control')).status).toBe(422)
  await call('PUT', `/replicas/${ID}`)
  await call('POST', '/pause')
  expect((await call('DELETE', `/replicas/${ID}`)).status).toBe(204)
  await call('POST', '/resume')
  expect(await slots()).toEqual([])
  await call('PUT', `/replicas/${ID}`)
  await follows()
  expect((await call('DELETE', '')).status).toBe(204)
  expect(host.pool.list()).toEqual([])
  await delay(100)
  expect(existsSync(paths.folder)).toBe(false)
})
