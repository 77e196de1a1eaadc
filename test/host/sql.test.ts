import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { neon } from '@neondatabase/serverless'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { InstanceUnavailable } from '../../host/instances/types.ts'
import { route } from '../../src/platform/db/control-database.ts'
import { ROWS_OF_TEXT } from './call-host.ts'
import type { TestInstance } from './pooled-instance.ts'
import { ask, DOMAIN, KEY, PASSWORD, type Query, startSqlHost, type TestHost } from './sql-host.ts'

const A = 'aaaaaaaaaaaaaaaaaaaa'
const B = 'bbbbbbbbbbbbbbbbbbbb'
const storage = { user: `supabase_storage_admin.${A}`, key: KEY }
const table = 'public.numbers'
let host: TestHost

beforeAll(async () => {
  // One pooled session, so that requests run in it one after the other.
  host = await startSqlHost([A, B, 'control'], { limits: { sessionsMax: 1, controlSessionsMax: 1 } })
})
beforeEach(async () => {
  await admin(`drop table if exists ${table}; create table ${table} (n int unique deferrable initially deferred)`)
  await admin(`grant all on ${table} to public`)
})
afterAll(() => host.stop())

const admin = (text: string) => host.instances.get(A)?.admin.rows(text)
const alone = (...query: Query) => ask(host.url, storage, query)
const batch = (...queries: Query[]) => ask(host.url, storage, queries)
const insert = (n: number): Query => [`insert into ${table} values ($1)`, n]
const ALL: Query = [`select n from ${table} order by n`]
const WHO: Query = ['select current_user, pg_backend_pid()']

describe('a batch', () => {
  it('returns the rows of each statement, with new and with cached plans', async () => {
    for (const text of ['é"', null, 'a']) {
      expect(await batch(['select $1::text, 1', text], ['select 1 where false'], ['select 2'])).toEqual([
        [[text, '1']],
        [],
        [['2']],
      ])
    }
  })

  it('is one transaction: a statement that fails undoes the others', async () => {
    for (const divisor of [0, 0]) {
      const [status, code] = await batch(insert(1), ['select 1 / $1::int', divisor], ['select 2 as two'])
      expect([status, code]).toEqual([400, '22012'])
      expect(await batch(ALL)).toEqual([[]])
    }
    expect(await batch(insert(1), ['select 1 / $1::int', 1], ALL)).toEqual([[], [['1']], [['1']]])
  })

  it('fails when its commit does', async () => {
    expect(await batch(insert(1))).toEqual([[]])
    const [status, code] = await batch(insert(1), ['select 1'])
    expect([status, code]).toEqual([400, '23505'])
    expect(await batch(ALL)).toEqual([[['1']]])
  })

  it('fails at a statement that cannot be parsed, every time, and leaves the session usable', async () => {
    for (let n = 0; n < 3; n++) {
      expect((await batch(['select 1'], ['selec 1'])).slice(0, 2)).toEqual([400, '42601'])
      expect((await batch(['select $1::text', 'a\0b'])).slice(0, 2)).toEqual([400, '22021'])
      expect(await batch(['select 1'], ['select 3'])).toEqual([[['1']], [['3']]])
    }
  })

  it('plans again if a table changed under its plan', async () => {
    expect(await batch(['select 1'], [`select * from ${table}`], insert(1))).toEqual([[['1']], [], []])
    await admin(`alter table ${table} add column more text default 'more'`)
    expect(await batch(['select 1'], [`select * from ${table}`], insert(2))).toEqual([[['1']], [['1', 'more']], []])
    expect(await batch(ALL)).toEqual([[['1'], ['2']]])
  })

  it('keeps the latest statements prepared, and no long ones', async () => {
    const textOf = (n: number, length = 0) => `select 'kept ${n}${'x'.repeat(length)}'`
    const prepared = async (): Promise<string[]> => {
      const [rows] = await batch([
        `select statement from pg_prepared_statements where statement like 'select ''kept %' order by name`,
      ])
      return (rows as string[][]).flat()
    }
    for (const n of [1, 2])
      expect(await batch([textOf(n, 20_000)])).toEqual([[[expect.stringContaining(`kept ${n}x`)]]])
    expect(await prepared()).toEqual([])
    const all = Array.from({ length: 510 }, (_, n): Query => [textOf(n)])
    expect(await batch(...all)).toEqual(all.map((_, n) => [[`kept ${n}`]]))
    expect((await batch([textOf(510)], ['selec']))[0]).toBe(400)
    for (const n of [0, 509, 511, 0]) expect(await batch([textOf(n)], ['select 1'])).toEqual([[[`kept ${n}`]], [['1']]])
    const kept = await prepared()
    expect([kept.length < 500, kept.includes(textOf(0)), kept.includes(textOf(511)), kept.includes(textOf(1))]).toEqual(
      [true, true, true, false],
    )
    const long = Array.from({ length: 100 }, (_, n): Query => [textOf(1_000 + n, 16_000)])
    await batch(...long)
    expect((await prepared()).filter((text) => text.length > 16_000).length).toBeLessThan(70)
  })

  it('accepts a statement without text', async () => {
    expect(await batch([''], ['select 1'])).toEqual([[], [['1']]])
  })

  it('has the requested isolation level', async () => {
    const headers = { 'neon-batch-isolation-level': 'Serializable', 'neon-batch-read-only': 'true' }
    const settings: Query = [
      `select current_setting('transaction_isolation'), current_setting('transaction_read_only')`,
    ]
    expect(await ask(host.url, { ...storage, headers }, [settings])).toEqual([[['serializable', 'on']]])
    const unknown = { 'neon-batch-isolation-level': 'None' }
    expect((await ask(host.url, { ...storage, headers: unknown }, [settings]))[0]).toBe(400)
  })
})

describe('the state that a request leaves in its session', () => {
  const STATE: Query = [
    `select current_setting('work_mem'), current_setting('my.own', true), current_setting('application_name'), current_user,
      (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
      (select count(*) from pg_cursors), (select count(*) from pg_class where relpersistence = 't'
        and relnamespace = pg_my_temp_schema())`,
  ]
  const leaving: Record<string, () => Promise<unknown>> = {
    'a batch': () =>
      batch(
        [`select set_config('work_mem', '8MB', false), set_config('my.own', 'leak', false), pg_advisory_lock(42)`],
        [`select set_config('application_name', 'leak', false)`],
        [`create temp table leak (n int)`],
        [`declare leak cursor with hold for select 1`],
      ),
    'a batch that fails': () => batch([`select pg_advisory_lock(44), set_config('my.own', 'leak', false)`], ['selec']),
    'a statement': () => alone(`select set_config('my.own', 'leak', false), pg_advisory_lock(43)`),
    'a statement that fails': () => alone(`select pg_advisory_lock(45), 1 / (random() * 0)::int`),
    'a batch that ends its transaction': () => batch(['commit'], [`select set_config('my.own', 'leak', false)`]),
    'a batch that begins another': () => batch(['commit'], ['begin'], [`select set_config('my.own', 'leak', false)`]),
  }

  it.each(Object.keys(leaving))('does not reach the next request: %s', async (name) => {
    const [before] = (await batch(STATE)) as string[][][]
    await leaving[name]?.()
    const [after] = (await batch(STATE)) as string[][][]
    // A custom setting that was set once is empty after a reset, and no longer missing.
    const settled = ([workMem, own, ...rest]: string[] = []) => [workMem, own || null, ...rest]
    expect(settled(after?.[0])).toEqual(settled(before?.[0]))
    expect(await alone('select 1')).toEqual([[['1']]])
  })
})

describe('the session of a request', () => {
  const pidOf = async (user: string, key?: string) => {
    const [rows] = await ask(host.url, { user, password: PASSWORD, ...(key && { key }) }, WHO)
    return (rows as string[][])[0]
  }

  it('belongs to the instance and the role that the user names', async () => {
    await host.instances
      .get(B)
      ?.admin.rows('create table public.only_in_b as select 1 as n; grant all on public.only_in_b to public')
    const users = [`postgres.${A}`, `supabase_storage_admin.${A}`, `postgres.${B}`, `authenticator.${B}`]
    const asked = await Promise.all(users.map((user) => ask(host.url, { user, key: KEY }, [WHO, ['table only_in_b']])))
    expect(asked.map(([first, second]) => [first === 400 ? second : (first as string[][])[0]?.[0]])).toEqual([
      ...[['42P01'], ['42P01']],
      ...[['postgres'], ['authenticator']],
    ])
  })

  it('is kept for service roles of trusted callers and for the control plane, and for nobody else', async () => {
    const kept = [`supabase_storage_admin.${A}`, `authenticator.${A}`, 'pilothouse.control']
    for (const user of kept) expect(await pidOf(user, KEY)).toEqual(await pidOf(user, KEY))
    expect(await pidOf('pilothouse.control')).toEqual(await pidOf('pilothouse.control'))
    expect(await pidOf(`postgres.${A}`, KEY)).not.toEqual(await pidOf(`postgres.${A}`, KEY))
    expect(await pidOf(`authenticator.${A}`)).not.toEqual(await pidOf(`authenticator.${A}`))
    expect(await pidOf('pilothouse.control')).not.toEqual(await pidOf(`pilothouse.${A}`))
  })

  it('is kept after a plan, and after a transaction that is rolled back', async () => {
    const [[[, pid]]] = (await batch(WHO)) as [[[string, string]]]
    await batch(['explain select 1'])
    await batch(insert(1), ['set constraints all immediate'], ['rollback and chain'])
    expect(await batch(WHO, ALL)).toEqual([[['supabase_storage_admin', pid]], []])
    await batch([`set work_mem = '8MB'`])
    expect(await batch(WHO)).not.toEqual([[['supabase_storage_admin', pid]]])
  })

  it('is refused for a wrong key, a wrong password and an unknown instance, with the same answer', async () => {
    const refusal = [400, '28P01', 'password authentication failed for user "postgres"']
    expect(await ask(host.url, { user: `postgres.${A}`, password: 'wrong' }, WHO)).toEqual(refusal)
    expect(await ask(host.url, { user: 'postgres.cccccccccccccccccccc', password: PASSWORD }, WHO)).toEqual(refusal)
    const wrong = { user: `postgres.${A}`, password: PASSWORD, key: `${KEY}x` }
    expect(await ask(host.url, wrong, WHO)).toEqual([401, '28000', 'invalid host key'])
    for (const user of ['postgres', 'postgres.', `.${A}`, `postgres.${A}.x`, 'postgres.CONTROL']) {
      expect((await ask(host.url, { user, key: KEY }, WHO)).slice(0, 2)).toEqual([400, '08001'])
    }
  })

  it('belongs to the instance that user, host name or options name, if they agree', async () => {
    const to = (user: string, at: string, options = '') => {
      const url = `postgresql://${user}:${PASSWORD}@${at}/postgres?options=${encodeURIComponent(options)}`
      return ask(host.url, { user, headers: { 'neon-connection-string': url } }, [
        'select current_user, current_setting($1)',
        'cluster_name',
      ])
    }
    const ofA = [[['postgres', A]]]
    expect(await to('postgres', `db.${A}.${DOMAIN}`)).toEqual(ofA)
    expect(await to('postgres', 'any.host', `project=${A}`)).toEqual(ofA)
    expect(await to(`postgres.${A}`, `db.${A}.${DOMAIN}`, `-c work_mem=8MB project=${A}`)).toEqual(ofA)
    const different = [400, '08001', 'user, server name and options name different projects']
    expect(await to(`postgres.${A}`, `db.${B}.${DOMAIN}`)).toEqual(different)
    expect(await to(`postgres.${A}`, 'any.host', `project=${B}`)).toEqual(different)
  })

  const OTHER_USER = '%00user%00supabase_admin'
  it.each([
    ['user', `postgres${OTHER_USER}.${A}`, ''],
    ['database', `postgres.${A}`, OTHER_USER],
    ['options', `postgres.${A}`, `?options=-c%20a.b=c${OTHER_USER}`],
    ['application_name', `postgres.${A}`, `?application_name=a${OTHER_USER}`],
  ])('is refused if its %s would add a startup parameter, such as the user', async (_, user, rest) => {
    const url = `postgresql://${user}:${PASSWORD}@any.host/postgres${rest}`
    const reply = await ask(host.url, { user, headers: { 'neon-connection-string': url } }, WHO)
    expect(reply).toEqual([400, '08001', 'the connection string must not contain a NUL'])
  })

  it('reuses a password check for a few seconds if the password is still valid, and needs another after sessions were ended', async () => {
    host.handlers.endSessions(B, 'clients')
    const from = host.checks.length
    await Promise.all([pidOf(`postgres.${B}`), pidOf(`postgres.${B}`)])
    // Each request is checked when it begins, and again when it has its session.
    const [first, again] = [`${B} postgres`, `${B} postgres again`]
    expect(host.checks.slice(from)).toEqual([first, again, again, again])
    host.handlers.endSessions(B, 'clients')
    await pidOf(`postgres.${B}`)
    expect(host.checks.slice(from)).toEqual([first, again, again, again, first, again])
  })

  it('is a new one after a restart of its instance', async () => {
    const before = await pidOf(`supabase_storage_admin.${B}`, KEY)
    await host.instances.get(B)?.restart()
    const after = await pidOf(`supabase_storage_admin.${B}`, KEY)
    expect(after?.[1]).not.toBe(before?.[1])
    await host.instances.get(B)?.sleep()
    expect((await pidOf(`supabase_storage_admin.${B}`, KEY))?.[0]).toBe('supabase_storage_admin')
  })

  it('is a new one after its sessions were ended', async () => {
    const before = await pidOf(`supabase_storage_admin.${A}`, KEY)
    const running = ask(host.url, { user: `postgres.${A}`, key: KEY }, ['select pg_sleep(600)'])
    await expect
      .poll(() =>
        admin(`select 1 from pg_stat_activity where query like '%pg_sleep(600)%' and pid <> pg_backend_pid()`),
      )
      .toHaveLength(1)
    host.handlers.endSessions(A)
    expect((await running)[0]).toBe(400)
    expect(await pidOf(`supabase_storage_admin.${A}`, KEY)).not.toEqual(before)
    await expect
      .poll(() =>
        admin(`select 1 from pg_stat_activity where query like '%pg_sleep(600)%' and pid <> pg_backend_pid()`),
      )
      .toHaveLength(0)
  })
})

it('ends the statement of a client that leaves, and serves the next client', async () => {
  const leave = new AbortController()
  const gone = ask(host.url, { ...storage, signal: leave.signal }, ['select pg_sleep(601)'])
  const running = () => admin(`select 1 from pg_stat_activity where query = 'select pg_sleep(601)'`)
  await expect.poll(running).toHaveLength(1)
  const waiting = alone('select 1')
  leave.abort()
  await expect(gone).rejects.toThrow()
  expect(await waiting).toEqual([[['1']]])
  await expect.poll(running).toHaveLength(0)
})

const READY = Buffer.from([...Buffer.from('Z'), 0, 0, 0, 5, ...Buffer.from('I')])
const ENDED = Buffer.from('SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0')

interface Relayed {
  near: Socket
  chunk: Buffer
  /** The number of sessions up to this one. */
  session: number
}

/** Starts a relay in front of an instance, which may do something else than pass on what the server sends. */
async function startRelay(instance: TestInstance, reply: (relayed: Relayed) => void) {
  let sessions = 0
  const server = createServer(async (near) => {
    const session = ++sessions
    const far = await instance.connect()
    for (const socket of [near, far])
      socket.on('error', () => {}).on('close', () => [near, far].map((s) => s.destroy()))
    near.pipe(far)
    far.on('data', (chunk: Buffer) => reply({ near, chunk, session }))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  const openSocket = async () => {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    return socket
  }
  return { openSocket, count: () => sessions, stop: () => server.close() }
}

/** Ends the first session within the bytes that announce its start. */
function endFirst({ near, chunk, session }: Relayed) {
  if (session > 1 || !chunk.subarray(-READY.length).equals(READY)) return near.write(chunk)
  const head = Buffer.from([...Buffer.from('E'), 0, 0, 0, ENDED.length + 4])
  return near.end(Buffer.concat([chunk, head, ENDED]))
}

it('replaces a session that ends at the moment of its start', async () => {
  const instance = host.instances.get(B) as TestInstance
  const relay = await startRelay(instance, endFirst)
  host.handlers.endSessions(B)
  host.instances.set(B, { ...instance, connect: relay.openSocket })
  const users = [`postgres.${B}`, `supabase_storage_admin.${B}`]
  for (const user of users) expect(await ask(host.url, { user, key: KEY }, ['select 1'])).toEqual([[['1']]])
  expect(relay.count()).toBe(3)
  host.instances.set(B, instance)
  host.handlers.endSessions(B)
  relay.stop()
})

it('replaces a session that was being opened when sessions were ended', async () => {
  const instance = host.instances.get(B) as TestInstance
  const [held, released] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const sockets: Socket[] = []
  const openSocket = async () => {
    const socket = await instance.connect()
    sockets.push(socket)
    held.resolve()
    await released.promise
    return socket
  }
  host.handlers.endSessions(B)
  host.instances.set(B, { ...instance, connect: openSocket })
  const reply = ask(host.url, { user: `supabase_storage_admin.${B}`, key: KEY }, ['select 7'])
  await held.promise
  host.handlers.endSessions(B)
  released.resolve()
  expect(await reply).toEqual([[['7']]])
  expect(sockets[0]?.destroyed).toBe(true)
  host.instances.set(B, instance)
  host.handlers.endSessions(B)
})

it('reports no SQLSTATE for a connection that is lost, as Postgres has sent none', async () => {
  const instance = host.instances.get(B) as TestInstance
  let isLost = false
  const relay = await startRelay(instance, ({ near, chunk }) => (isLost ? near.resetAndDestroy() : near.write(chunk)))
  host.handlers.endSessions(B)
  host.instances.set(B, { ...instance, connect: relay.openSocket })
  const postgres = { user: `postgres.${B}`, key: KEY }
  expect(await ask(host.url, postgres, ['select 1'])).toEqual([[['1']]])
  isLost = true
  expect(await ask(host.url, postgres, ['select 2'])).toEqual([400, null, 'read ECONNRESET'])
  host.instances.set(B, instance)
  host.handlers.endSessions(B)
  relay.stop()
})

it('does not retry a statement that the server has read', async () => {
  const [[[, pid]]] = (await alone(...WHO)) as [[[string, string]]]
  const slow = alone('select pg_sleep(602)')
  const running = () => admin(`select 1 from pg_stat_activity where query = 'select pg_sleep(602)'`)
  await expect.poll(running).toHaveLength(1)
  await admin(`select pg_terminate_backend(${pid})`)
  expect(await slow).toEqual([400, '57P01', 'terminating connection due to administrator command'])
  expect(await running()).toEqual([])
})

it('reports that an instance cannot be used', async () => {
  const instance = host.instances.get(B) as TestInstance
  const refuse = async () => {
    throw new InstanceUnavailable('The project is paused')
  }
  host.instances.set(B, { ...instance, connect: refuse })
  const asked = ask(host.url, { user: `postgres.${B}`, key: KEY }, ['select 1'])
  expect(await asked).toEqual([400, '57P03', 'The project is paused'])
  host.instances.set(B, instance)
  expect(await ask(host.url, { user: `postgres.${B}`, key: KEY }, ['select 1'])).toEqual([[['1']]])
})

it("answers Neon's driver as Neon does", async () => {
  const url = `postgresql://postgres.${A}:${PASSWORD}@db.example.com:5432/postgres`
  route({ url, proxy: host.url })
  const sql = neon(url, { fullResults: true })
  const { rows, fields, rowCount, command } = await sql.query(
    `select 1::int as n, 2::bigint as big, 'NaN'::float8 as nan, true as yes, '{"a":[1]}'::jsonb as json, null as nothing,
      array[1,2] as list, repeat('é"', 100000) as long`,
  )
  const first = { n: 1, big: '2', nan: Number.NaN, yes: true, json: { a: [1] }, nothing: null, list: [1, 2] }
  expect(rows).toEqual([{ ...first, long: 'é"'.repeat(100_000) }])
  expect([rowCount, command, fields[0]]).toEqual([1, 'SELECT', { name: 'n', dataTypeID: 23 }])
  const [, second] = await sql.transaction([sql`select 1 as a`, sql`select 2 as b union select 3 order by b`])
  expect(second?.rows).toEqual([{ b: 2 }, { b: 3 }])
})

it.each([3, 50_000, 400_000])(
  'sends a value of a batch after the JSON if it is asked to: é" %i times',
  async (times) => {
    const body = JSON.stringify({
      queries: [['select 1'], [`select 2, repeat('é"', $1), 'x"'`, times], ['select 3']].map(([query, ...params]) => ({
        query,
        params,
      })),
    })
    const headers = {
      ...{ 'neon-connection-string': `postgresql://${storage.user}@any.host/postgres`, authorization: `Bearer ${KEY}` },
      ...ROWS_OF_TEXT,
    }
    const send = (more: Record<string, string>) =>
      fetch(`${host.url}/sql`, { method: 'POST', body, headers: { ...headers, ...more } })
    const reply = await send({ 'pilothouse-separate-value': '1.1' })
    const bytes = Buffer.from(await reply.arrayBuffer())
    const at = Number(reply.headers.get('pilothouse-json-bytes'))
    const { results } = JSON.parse(bytes.toString('utf8', 0, at))
    expect(results.map(({ rows }: { rows: unknown }) => rows)).toEqual([[['1']], [['2', null, 'x"']], [['3']]])
    expect(bytes.toString('utf8', at) === 'é"'.repeat(times)).toBe(true)
    expect((await send({ 'pilothouse-separate-value': '1.7' })).headers.has('pilothouse-json-bytes')).toBe(false)
  },
)

it.each(Object.keys(ROWS_OF_TEXT))('refuses a request for another format of rows: %s', async (name) => {
  const refusal = [400, '0A000', `the header ${name} must be true: rows are arrays of text`]
  expect(await ask(host.url, { ...storage, headers: { [name]: 'false' } }, ['select 1'])).toEqual(refusal)
})

it('refuses an invalid request, and other paths', async () => {
  const post = (path: string, init: RequestInit) => fetch(host.url + path, { method: 'POST', ...init })
  const headers = { 'neon-connection-string': `postgresql://postgres.${A}@x/postgres`, authorization: `Bearer ${KEY}` }
  expect((await post('/sql', {})).status).toBe(400)
  for (const body of ['{', '{}', '{"query":"select 1","params":1}']) {
    expect((await post('/sql', { headers, body })).status).toBe(400)
  }
  const bodyOf = (params: string) => `{"query":"select 1","params":[${params}]}`
  for (const [body, message] of [
    [bodyOf('{},'.repeat(110_000)), 'the body has more than 200000 values'],
    [bodyOf(`1${',1'.repeat(65_535)}`), 'a statement has more than 65535 params'],
  ] as const) {
    const reply = await post('/sql', { headers, body })
    expect([reply.status, await reply.json()]).toMatchObject([400, { code: '54000', message }])
  }
  // Signs within a text are no values.
  expect(await ask(host.url, storage, ['select length($1::text)', '[1,"\\",{}],'.repeat(60_000)])).toEqual([
    [['660000']],
  ])
  expect((await post('/other', {})).status).toBe(404)
  expect((await fetch(`${host.url}/sql`)).status).toBe(404)
  expect((await post('/sql', { headers, body: 'x'.repeat(17 * 1024 * 1024) })).status).toBe(413)
})
