import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { withOwner } from '../../host/copies/owner-session.ts'
import { type Host, startHost } from '../../host/host.ts'
import { ownAll, replaceFile } from '../../host/instances/files.ts'
import { adoptServer, isAlive, startServer } from '../../host/instances/server.ts'
import { type Instance, InstanceUnavailable } from '../../host/instances/types.ts'
import { FolderInUse, runFolder } from '../../host/run-folder.ts'
import { WAIT_MS } from '../support/wait.ts'
import { callHost } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'
import { openPool } from './pooled-instance.ts'

const KEY = 'a key of the test, of enough letters'
const WAIT = { timeout: WAIT_MS, interval: 20 }
/** Without root, all servers run under the daemon's own account. */
const isRoot = process.getuid?.() === 0
const refOf = (letter: string) => letter.repeat(20)

interface Reply {
  status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests read replies whose shape is what they check
  body: any
}

const callerOf =
  (url: string, key = KEY) =>
  async (method: string, path: string, body?: unknown, headers = {}): Promise<Reply> => {
    const response = await callHost({ url, key }, method, path, { body, headers })
    const text = await response.text()
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
  }

/** Creates an instance, or sets the password of an existing one. */
async function create(call: ReturnType<typeof callerOf>, ref: string, more = {}): Promise<void> {
  const reply = await call('PUT', `/instances/${ref}`, { password: `of ${ref}`, ...more })
  expect(reply).toMatchObject({ status: 200, body: { name: ref, state: 'running' } })
}

async function connect(port: number, ref: string, password = `of ${ref}`): Promise<pg.Client> {
  const client = new pg.Client({ host: '127.0.0.1', port, user: `postgres.${ref}`, password, database: 'postgres' })
  client.on('error', () => {})
  await client.connect()
  return client
}

async function query(port: number, ref: string, text: string): Promise<Record<string, unknown>[]> {
  const client = await connect(port, ref)
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

let root: string
beforeAll(async () => {
  root = await mkdtemp('/tmp/ph-')
})
afterAll(() => rm(root, { recursive: true, force: true }))

const pidOf = (folder: string, ref: string): number =>
  Number(readFileSync(join(folder, 'instances', ref, 'data', 'postmaster.pid'), 'utf8').split('\n')[0])

describe('a host', () => {
  let host: Host
  let call: ReturnType<typeof callerOf>
  let folder: string
  beforeAll(async () => {
    folder = join(root, 'one')
    host = await startHost({ folder, key: KEY, isDurable: false, sleepAfterSeconds: 1 })
    call = callerOf(host.url)
  })
  afterAll(() => host.stop())

  const stateOf = async (ref: string) => (await call('GET', `/instances/${ref}`)).body.state

  it('refuses everybody without its key', async () => {
    for (const key of ['', 'another key', `${KEY}.`]) {
      expect(await callerOf(host.url, key)('GET', '/instances')).toMatchObject({
        status: 401,
        body: { error: { code: 'unauthorized' } },
      })
    }
  })

  it('creates an instance, and only sets its password when that is repeated', async () => {
    const ref = refOf('a')
    await create(call, ref)
    await query(host.gatewayPort, ref, 'create table kept as select 7 as n')
    const reply = await call('PUT', `/instances/${ref}`, { password: 'another one' })
    expect(reply).toMatchObject({ status: 200 })
    await expect(connect(host.gatewayPort, ref)).rejects.toMatchObject({ code: '28P01' })
    const client = await connect(host.gatewayPort, ref, 'another one')
    expect((await client.query('select n from kept')).rows).toEqual([{ n: 7 }])
    await client.end()
  })

  it('keeps all of several changes of its record', async () => {
    const ref = refOf('h')
    await create(call, ref)
    const instance = host.pool.require(ref)
    const changes = [{ isArchived: true }, { sleepAfterSeconds: 5 }, { access: { ssl: true, networks: null } }]
    await Promise.all(changes.map((change) => instance.update(change)))
    const stored = JSON.parse(await readFile(join(instance.paths.folder, 'instance.json'), 'utf8'))
    for (const record of [stored, instance.record]) expect(record).toMatchObject(Object.assign({}, ...changes))
  })

  it('ends a session of its own in which Postgres sends too much, and opens another', async () => {
    const ref = refOf('u')
    await create(call, ref)
    const instance = host.pool.require(ref)
    await instance.update({ sleepAfterSeconds: 60 })
    const tooLong = 'Postgres has sent more than 32 MiB for one statement'
    for (const statement of [
      `select repeat('x', 1000) from generate_series(1, 35000)`,
      `do $$ begin raise notice '%', repeat('x', 35000000); end $$`,
    ]) {
      await expect(instance.admin.rows(statement)).rejects.toThrow(tooLong)
      await expect(withOwner(await instance.connect(), (owner) => owner.query(statement))).rejects.toThrow(tooLong)
      expect(await instance.admin.rows('select 1 as one')).toEqual([{ one: 1 }])
    }
    for (let n = 0; n < 5; n++) await instance.admin.rows(`select repeat('x', 10000000)`)
  })

  it('puts its sockets in /tmp if the path of a drill would be too long', async () => {
    const end = `/run/${refOf('r')}.drill/.s.PGSQL.5432`
    const parent = await newHostFolder()
    const longest = join(parent, 'x'.repeat(107 - parent.length - 1 - end.length))
    expect(await runFolder(longest)).toBe(join(longest, 'run'))
    const other = await runFolder(`${longest}x`)
    expect(other).toMatch(/^\/tmp\/pilothouse-/)
    for (const made of [parent, other]) await rm(made, { recursive: true })
  })

  it('is resumed by several logins at once', async () => {
    const ref = refOf('j')
    await create(call, ref)
    await host.pool.require(ref).pause()
    const logins = Array.from({ length: 10 }, () => query(host.gatewayPort, ref, 'select 1 as one'))
    expect(await Promise.all(logins)).toEqual(Array(10).fill([{ one: 1 }]))
    expect(host.pool.require(ref).record).toMatchObject({ isPaused: false, isWoken: true })
  })

  it.each([
    ['an invalid name', 422, '/instances/Nonsense', { password: 'x' }],
    ['no password', 400, `/instances/${refOf('z')}`, {}],
    ['an unknown field', 400, `/instances/${refOf('z')}`, { password: 'x', colour: 'blue' }],
    ['a version that the host lacks', 422, `/instances/${refOf('z')}`, { password: 'x', version: '9' }],
    ['a size beyond its memory', 422, `/instances/${refOf('z')}`, { password: 'x', size: '48xlarge_high_memory' }],
    ['an unknown size', 422, `/instances/${refOf('z')}`, { password: 'x', size: 'huge' }],
  ])('refuses %s, and creates nothing', async (_, status, path, body) => {
    expect((await call('PUT', path, body)).status).toBe(status)
    expect(existsSync(join(folder, 'instances', refOf('z')))).toBe(false)
  })

  it('copies the template ahead of the next creation', async () => {
    const instances = join(folder, 'instances')
    await create(call, refOf('q'))
    const spare = () => readdirSync(instances).find((name) => name.startsWith('18-'))
    const path = join(instances, await vi.waitFor(() => spare() ?? expect.fail('there is no copy'), WAIT))
    const { ino } = await stat(path)
    await create(call, refOf('w'))
    expect((await stat(join(instances, refOf('w'), 'data'))).ino).toBe(ino)
    expect(existsSync(path)).toBe(false)
    expect(await query(host.gatewayPort, refOf('w'), 'select 1 as one')).toEqual([{ one: 1 }])
  })

  it('ends with a creation that was in progress', async () => {
    const own = await newHostFolder()
    const ending = await startHost({ folder: own, key: KEY, isDurable: false })
    try {
      const callEnding = callerOf(ending.url)
      await create(callEnding, refOf('a'))
      const instances = join(own, 'instances')
      const creations = [...'bcdefghi'].map((letter) => create(callEnding, refOf(letter)).catch(() => {}))
      await vi.waitFor(() => expect(readdirSync(instances).some((name) => name.includes('.new-'))).toBe(true), WAIT)
      await ending.stop()
      expect(readdirSync(instances).filter((name) => name.includes('.'))).toEqual([])
      await Promise.all(creations)
      expect(readdirSync(instances).filter((name) => name.includes('.'))).toEqual([])
    } finally {
      await ending.stop()
      await rm(own, { recursive: true })
    }
  })

  it('runs Postgres 17 beside 18', async () => {
    const ref = refOf('v')
    await create(call, ref, { version: '17' })
    const [row] = await query(
      host.gatewayPort,
      ref,
      `select current_setting('server_version_num')::int / 10000 as major`,
    )
    expect(row).toEqual({ major: 17 })
  })

  it('keeps the data of an instance from everybody else', async () => {
    const [one, other] = [refOf('o'), refOf('p')]
    for (const ref of [one, other]) await create(call, ref)
    const data = join(folder, 'instances', other, 'data')
    expect((await stat(data)).mode & 0o777).toBe(0o700)
    const { admin } = host.pool.require(one)
    const read = (path: string) => admin.rows(`SELECT pg_read_file('${path}')`)
    expect(await read('PG_VERSION')).toHaveLength(1)
    if (!isRoot) return
    await expect(read(join(data, 'PG_VERSION'))).rejects.toMatchObject({ code: '42501' })
    await expect(read(join(folder, 'tls', 'server.key'))).rejects.toMatchObject({ code: '42501' })
    const socket = join(host.run, other, '.s.PGSQL.5432')
    await expect(admin.rows(`COPY (SELECT) TO PROGRAM 'test -w ${socket}'`)).rejects.toMatchObject({ code: '38000' })
  })

  it.skipIf(!isRoot)('writes to no file that the account of an instance has linked to', async () => {
    const ref = refOf('l')
    await create(call, ref)
    const { admin, paths, record } = host.pool.require(ref)
    const target = join(root, 'target')
    await writeFile(target, 'kept')
    const links = ['postgresql.conf.new', 'pg_hba.conf.new', '../log/postgres.log']
    for (const link of links) await admin.rows(`COPY (SELECT) TO PROGRAM 'cat >/dev/null; ln -sf ${target} ${link}'`)
    const reply = await call('POST', `/instances/${ref}/restart`)
    await ownAll(paths.data, record.account)
    expect(await readFile(target, 'utf8')).toBe('kept')
    expect((await stat(target)).uid).toBe(0)
    expect(reply).toMatchObject({ status: 503 })
    await rm(paths.log)
    await create(call, ref)
  })

  it('adopts no server whose data is in another folder', async () => {
    const ref = refOf('n')
    await create(call, ref)
    const data = join(root, 'forged')
    await mkdir(data)
    await writeFile(join(data, 'postmaster.pid'), `${host.pool.require(ref).pid}\n`)
    expect(await adoptServer({ data })).toBeUndefined()
    expect(await adoptServer(host.pool.require(ref).paths)).toBeDefined()
    // The folder of the host may be named by a link.
    await symlink(host.pool.require(ref).paths.data, join(root, 'linked'))
    expect(await adoptServer({ data: join(root, 'linked') })).toBeDefined()
  })

  it('stops an idle server and starts it for the next connection; a session keeps it awake', async () => {
    const ref = refOf('s')
    await create(call, ref)
    await query(host.gatewayPort, ref, 'create table kept as select 7 as n')
    await vi.waitFor(async () => expect(await stateOf(ref)).toBe('asleep'), WAIT)
    const client = await connect(host.gatewayPort, ref)
    expect((await client.query('select n from kept')).rows).toEqual([{ n: 7 }])
    // The query takes longer than the time after which the server would sleep without the session.
    const { rows } = await client.query('select pg_sleep(2), pg_postmaster_start_time() as started')
    expect((await client.query('select pg_postmaster_start_time() as started')).rows[0]).toEqual({
      started: rows[0].started,
    })
    await client.end()
    await vi.waitFor(async () => expect(await stateOf(ref)).toBe('asleep'), WAIT)
  })

  it('starts a paused instance only for a client that logs in', async () => {
    const ref = refOf('p')
    await create(call, ref)
    const wokenNames = async () =>
      (await call('GET', '/instances?woken=true')).body.map(({ name }: { name: string }) => name)
    const open = await connect(host.gatewayPort, ref)
    const ended = new Promise<void>((resolve) => open.once('end', () => resolve()))
    expect(await call('POST', `/instances/${ref}/pause`)).toMatchObject({ status: 204 })
    await ended
    await expect(connect(host.gatewayPort, ref, 'wrong')).rejects.toMatchObject({ code: '28P01' })
    expect(await stateOf(ref)).toBe('paused')
    expect(existsSync(join(folder, 'instances', ref, 'data', 'postmaster.pid'))).toBe(false)
    expect(await wokenNames()).not.toContain(ref)
    expect(await query(host.gatewayPort, ref, 'select 1 as n')).toEqual([{ n: 1 }])
    expect(await stateOf(ref)).toBe('running')
    expect(await wokenNames()).toContain(ref)
    expect(await call('POST', `/instances/${ref}/resume`)).toMatchObject({ status: 204 })
    expect(await wokenNames()).not.toContain(ref)
  })

  it('restarts a server that was killed', async () => {
    const ref = refOf('k')
    await create(call, ref)
    // The host of this test commits late, which loses writes only if the machine crashes.
    await query(host.gatewayPort, ref, 'set synchronous_commit = on; create table kept as select 7 as n')
    const pid = pidOf(folder, ref)
    process.kill(pid, 'SIGKILL')
    await vi.waitFor(
      async () => expect(await query(host.gatewayPort, ref, 'select n from kept')).toEqual([{ n: 7 }]),
      WAIT,
    )
    expect(pidOf(folder, ref)).not.toBe(pid)
  })

  it('copies an instance with its data, or only its schema', async () => {
    const [from, whole, bare] = [refOf('c'), refOf('d'), refOf('e')]
    await create(call, from)
    await query(host.gatewayPort, from, 'create table kept as select 7 as n')
    const password = (ref: string) => ({ from, password: `of ${ref}` })
    for (const [ref, data] of [
      [whole, true],
      [bare, false],
    ] as const) {
      const reply = await call('POST', `/instances/${ref}/copy`, { ...password(ref), data })
      expect(reply).toMatchObject({ status: 200 })
    }
    expect(await query(host.gatewayPort, whole, 'select n from kept')).toEqual([{ n: 7 }])
    expect(await query(host.gatewayPort, bare, 'select n from kept')).toEqual([])
    expect(
      await call('POST', `/instances/${refOf('f')}/copy`, { ...password('f'), from: refOf('y'), data: true }),
    ).toMatchObject({
      status: 404,
      body: { error: { code: 'unknown_instance' } },
    })
  })

  it('removes an instance with everything that belongs to it, also when that is repeated', async () => {
    const ref = refOf('g')
    await create(call, ref)
    const pid = pidOf(folder, ref)
    for (let time = 0; time < 2; time++)
      expect(await call('DELETE', `/instances/${ref}`)).toMatchObject({ status: 204 })
    expect(existsSync(join(folder, 'instances', ref))).toBe(false)
    expect(existsSync(join(host.run, ref))).toBe(false)
    expect(await isAlive(pid)).toBe(false)
    expect(await call('GET', `/instances/${ref}`)).toMatchObject({ status: 404 })
  })

  it('serializes work on one instance by its lock', async () => {
    const ref = refOf('l')
    await create(call, ref)
    const { body } = await call('POST', `/instances/${ref}/lock`, { wait_ms: 0 })
    expect(await call('POST', `/instances/${ref}/lock`, { wait_ms: 0 })).toMatchObject({ status: 409 })
    const foreign = { 'x-lock': crypto.randomUUID() }
    expect(await call('POST', `/instances/${ref}/restart`, undefined, foreign)).toMatchObject({ status: 409 })
    expect(await call('POST', `/instances/${ref}/restart`, undefined, { 'x-lock': body.lock })).toMatchObject({
      status: 204,
    })
    const waiting = call('POST', `/instances/${ref}/lock`, { wait_ms: 30_000 })
    expect(await call('DELETE', `/instances/${ref}/lock/${body.lock}`)).toMatchObject({ status: 204 })
    expect(await waiting).toMatchObject({ status: 200 })
  })

  it('excludes a second daemon from its folder', async () => {
    await expect(startHost({ folder, key: KEY })).rejects.toThrow(FolderInUse)
  })
})

describe('servers that recover for a long time', () => {
  let pool: Awaited<ReturnType<typeof openPool>>
  beforeAll(async () => {
    pool = await openPool()
  })
  const ends: (() => Promise<void>)[] = []
  const endAll = () => Promise.all(ends.splice(0).map((end) => end()))
  afterAll(async () => {
    await endAll()
    await pool.close()
  })

  /** Makes an instance whose next start does not end before the file exists. */
  async function recovering(ref: string) {
    const instance = await pool.pool.ensure({ name: ref })
    await instance.stop()
    await instance.update({ settings: { restore_command: 'until [ -e ../recovered ]; do sleep 0.1; done; false' } })
    await replaceFile(join(instance.paths.data, 'recovery.signal'), '', instance.record.account)
    ends.push(() => writeFile(join(instance.paths.folder, 'recovered'), ''))
    return instance
  }

  it('do not delay the start of another server', async () => {
    const slots = Math.max(4, 2 * availableParallelism())
    const other = await pool.pool.ensure({ name: refOf('z') })
    await other.stop()
    const all: Instance[] = []
    for (let n = 0; n < slots; n++) {
      const letters = String.fromCharCode(97 + Math.floor(n / 26), 97 + (n % 26))
      all.push(await recovering(`${letters}${refOf('x').slice(2)}`))
    }
    const starting = all.map((instance) => instance.wake())
    const hasBegun = ({ paths }: Instance) => existsSync(join(paths.data, 'postmaster.pid'))
    await vi.waitFor(() => expect(all.every(hasBegun)).toBe(true), WAIT)
    await other.wake()
    for (const instance of all) expect(instance.state()).toBe('starting')
    await endAll()
    await Promise.all(starting)
  })

  it('keep running after the time limit of a start, and can be stopped', async () => {
    const instance = await recovering(refOf('y'))
    const { paths, programs, record } = instance
    await instance.writeConfiguration()
    const server = await startServer({ paths, programs, account: record.account, secondsMax: 1 })
    expect(await isAlive(server.pid)).toBe(true)
    expect(await instance.adopt()).toBe(true)
    expect(instance.pid).toBe(server.pid)
    await expect(instance.admin.rows('SELECT')).rejects.toThrow(InstanceUnavailable)
    await instance.stop()
    expect(await isAlive(server.pid)).toBe(false)
    await endAll()
    expect(await instance.admin.rows('SELECT 1 AS n')).toEqual([{ n: 1 }])
  })
})

describe('a daemon that starts again', () => {
  const running: ChildProcess[] = []
  afterEach(async () => {
    for (const child of running.splice(0)) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGTERM')
      await once(child, 'exit')
    }
  })

  async function daemon(folder: string) {
    const child = spawn('node', [fileURLToPath(new URL('daemon.ts', import.meta.url)), folder, KEY], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    running.push(child)
    const ended = once(child, 'exit').then(([code, signal]) => {
      throw new Error(`the daemon ended before it was ready: ${code ?? signal}`)
    })
    const [line] = (await Promise.race([once(child.stdout, 'data'), ended])) as [Buffer]
    return { child, ...(JSON.parse(String(line)) as { url: string; gatewayPort: number; run: string }) }
  }

  it('takes over the servers that a killed daemon left running', async () => {
    const folder = join(root, 'killed')
    const ref = refOf('a')
    const first = await daemon(folder)
    await create(callerOf(first.url), ref)
    await query(first.gatewayPort, ref, 'create table kept as select 7 as n')
    const pid = pidOf(folder, ref)
    first.child.kill('SIGKILL')
    await once(first.child, 'exit')
    expect(process.kill(pid, 0)).toBe(true)
    // The daemon may be killed between recording a change and applying it to the server.
    const record = join(folder, 'instances', ref, 'instance.json')
    const settings = { work_mem: '7MB' }
    await writeFile(record, JSON.stringify({ ...JSON.parse(await readFile(record, 'utf8')), settings }))
    const second = await daemon(folder)
    await vi.waitFor(
      async () => expect(await query(second.gatewayPort, ref, 'show work_mem')).toEqual([{ work_mem: '7MB' }]),
      WAIT,
    )
    expect(await query(second.gatewayPort, ref, 'select n from kept')).toEqual([{ n: 7 }])
    expect(pidOf(folder, ref)).toBe(pid)
    second.child.kill('SIGTERM')
    await once(second.child, 'exit')
    expect(await isAlive(pid)).toBe(false)
  })

  it('removes what is left of an instance that was being created or removed', async () => {
    const folder = join(root, 'half')
    const instances = join(folder, 'instances')
    for (const name of [`${refOf('a')}.new-00000001`, `${refOf('b')}.gone-00000001`]) {
      await mkdir(join(instances, name, 'data'), { recursive: true })
    }
    const aside = `${refOf('c')}.bak`
    await mkdir(join(instances, aside))
    await daemon(folder)
    expect(readdirSync(instances), "with the operator's own folder").toEqual([aside])
  })

  it('removes a folder into which a program still writes', async () => {
    const folder = join(root, 'writing')
    const ref = refOf('a')
    const first = await daemon(folder)
    await create(callerOf(first.url), ref)
    first.child.kill('SIGKILL')
    await once(first.child, 'exit')
    const data = join(folder, 'instances', ref, 'data.new')
    await mkdir(data)
    for (let n = 0; n < 1_000; n++) await writeFile(join(data, `file-${n}`), '')
    // Writes more from the first removal on, as initdb does, until what it wrote then is removed, too.
    const script = 'while [ -e file-0 ]; do :; done; : >late; while [ -e late ]; do n=$((n + 1)); : >more$n; done'
    const writer = spawn('sh', ['-c', script], { cwd: data, stdio: 'ignore' })
    const ended = once(writer, 'exit')
    const { gatewayPort } = await daemon(folder)
    await ended
    expect(existsSync(data)).toBe(false)
    expect(await query(gatewayPort, ref, 'select 1 as n')).toEqual([{ n: 1 }])
  })

  it('serves the other instances if one cannot be opened', async () => {
    const folder = join(root, 'unreadable')
    const [broken, sound, later] = [refOf('a'), refOf('b'), refOf('c')]
    const first = await daemon(folder)
    for (const ref of [broken, sound]) await create(callerOf(first.url), ref)
    first.child.kill('SIGTERM')
    await once(first.child, 'exit')
    const record = join(folder, 'instances', broken, 'instance.json')
    const text = await readFile(record, 'utf8')
    await writeFile(record, '')
    const second = await daemon(folder)
    expect(await query(second.gatewayPort, sound, 'select 1 as n')).toEqual([{ n: 1 }])
    await expect(connect(second.gatewayPort, broken)).rejects.toMatchObject({ code: '57P03' })
    const call = callerOf(second.url)
    const refused = { status: 503, body: { error: { message: expect.stringContaining('cannot be opened') } } }
    expect(await call('GET', `/instances/${broken}`)).toMatchObject(refused)
    expect(await call('PUT', `/instances/${broken}`, { password: 'x' })).toMatchObject(refused)
    expect(await call('DELETE', `/instances/${broken}`)).toMatchObject(refused)
    await create(call, later)
    const uidOf = async (ref: string) => (await stat(join(folder, 'instances', ref, 'data'))).uid
    if (isRoot) expect(await uidOf(later)).not.toBe(await uidOf(broken))
    second.child.kill('SIGTERM')
    await once(second.child, 'exit')
    await writeFile(record, text)
    const third = await daemon(folder)
    expect(await query(third.gatewayPort, broken, 'select 1 as n')).toEqual([{ n: 1 }])
  })

  it('counts a server that nobody has reaped as ended', async () => {
    const script = 'exec 3<&0; cat <&3 & echo $!; exec sleep infinity'
    const parent = spawn('sh', ['-c', script], { stdio: ['pipe', 'pipe', 'ignore'] })
    running.push(parent)
    const [line] = (await once(parent.stdout, 'data')) as [Buffer]
    const pid = Number(String(line))
    // A shell would reap its child.
    await vi.waitFor(() => expect(readFileSync(`/proc/${parent.pid}/comm`, 'utf8')).toBe('sleep\n'), WAIT)
    expect(await isAlive(pid)).toBe(true)
    parent.stdin.end()
    await vi.waitFor(async () => expect(await isAlive(pid)).toBe(false), WAIT)
    expect(process.kill(pid, 0)).toBe(true)
  })

  it('finds a whole instance or none after it was killed at any moment of a creation', async () => {
    const folder = join(root, 'random')
    await daemon(folder).then(async ({ child, url }) => {
      // The template exists from now on.
      await create(callerOf(url), refOf('t'))
      child.kill('SIGKILL')
      await once(child, 'exit')
    })
    for (let round = 0; round < 5; round++) {
      const { child, url } = await daemon(folder)
      const ref = refOf('abcde'.charAt(round))
      const made = callerOf(url)('PUT', `/instances/${ref}`, { password: `of ${ref}` }).catch(() => undefined)
      await new Promise((resolve) => setTimeout(resolve, round * 60))
      child.kill('SIGKILL')
      await once(child, 'exit')
      const reply = await made
      const next = await daemon(folder)
      const call = callerOf(next.url)
      const found = await call('GET', `/instances/${ref}`)
      if (reply) expect(found).toMatchObject({ status: 200 })
      expect(readdirSync(join(folder, 'instances')).filter((name) => name.includes('.'))).toEqual([])
      await create(call, ref)
      expect(await query(next.gatewayPort, ref, 'select 1 as n')).toEqual([{ n: 1 }])
      next.child.kill('SIGKILL')
      await once(next.child, 'exit')
    }
    const last = await daemon(folder)
    const { body } = await callerOf(last.url)('GET', '/instances')
    expect(body).toHaveLength(6)
  })
})
