import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import pg from 'pg'
import { afterAll, beforeAll, beforeEach, describe, expect, inject, it } from 'vitest'
import { startNeonProxy } from '../dev/neon-proxy.ts'

/** The driver's HTTP protocol as the proxy of `npm start` answers it, where connections are kept between requests. */
let admin: pg.Client
let proxy: Awaited<ReturnType<typeof startNeonProxy>>
const role = `p_${randomBytes(6).toString('hex').replace(/\d/g, 'x')}_proxied`
const url = new URL(inject('adminUrl'))
const table = 'public.numbers'

async function asSuperuser(statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: inject('adminUrl') })
  await client.connect()
  await client.query(statement)
  await client.end()
}

beforeAll(async () => {
  await asSuperuser(`create database ${role}`)
  url.pathname = `/${role}`
  admin = new pg.Client({ connectionString: url.href })
  await admin.connect()
  // Whoever makes a project meanwhile closes databases that everybody may enter.
  await admin.query(
    `create role ${role} login password 'secret'; grant connect, temporary on database ${role} to ${role}`,
  )
  const { hostname: host, port } = url
  proxy = await startNeonProxy({
    postgres: { host, port: Number(port) },
    pooledRoles: ['p_*_proxied'],
    connectionsMax: 1,
    resultBytesMax: 1024 ** 2,
  })
  url.username = role
  url.password = 'secret'
})
beforeEach(async () => {
  await admin.query(`drop table if exists ${table}; create table ${table} (n int unique deferrable initially deferred)`)
  await admin.query(`grant all on ${table} to ${role}`)
})
afterAll(async () => {
  await proxy.stop()
  await admin.end()
  await asSuperuser(`drop database ${role} with (force)`)
  await asSuperuser(`drop role ${role}`)
})

type Query = [text: string, ...params: unknown[]]

async function ask(body: unknown, at = { proxy, login: url.href }): Promise<unknown[]> {
  const headers = { 'neon-connection-string': at.login, 'neon-raw-text-output': 'true', 'neon-array-mode': 'true' }
  const response = await fetch(`${at.proxy.url}/sql`, { method: 'POST', headers, body: JSON.stringify(body) })
  const reply = (await response.json()) as Record<string, unknown>
  if (response.status !== 200) return [response.status, reply.code, reply.message]
  return ((reply.results ?? [reply]) as { rows: unknown }[]).map(({ rows }) => rows)
}
const queryOf = ([query, ...params]: Query) => ({ query, params })
const alone = (...query: Query) => ask(queryOf(query))
const batch = (...queries: Query[]) => ask({ queries: queries.map(queryOf) })
const insert = (n: number): Query => [`insert into ${table} values ($1)`, n]
const ALL: Query = [`select n from ${table} order by n`]

describe('a batch', () => {
  it('returns the rows of each statement, with plans that are new and with plans that are known', async () => {
    for (const text of ['é"', null, 'a']) {
      expect(await batch(['select $1::text, 1', text], ['select 1 where false'], ['select 2'])).toEqual([
        [[text, '1']],
        [],
        [['2']],
      ])
    }
  })

  it('is one transaction: what one of its statements does is undone when another one fails', async () => {
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

  it('fails at a statement that cannot be parsed, as often as it comes, and leaves the connection usable', async () => {
    for (let n = 0; n < 3; n++) {
      expect((await batch(['select 1'], ['selec 1'])).slice(0, 2)).toEqual([400, '42601'])
      expect((await batch(['select $1::text', 'a\0b'])).slice(0, 2)).toEqual([400, '22021'])
      expect(await batch(['select 1'], ['select 3'])).toEqual([[['1']], [['3']]])
    }
  })

  it('plans anew when a table has changed under its plan', async () => {
    expect(await batch(['select 1'], [`select * from ${table}`], insert(1))).toEqual([[['1']], [], []])
    await admin.query(`alter table ${table} add column more text default 'more'`)
    expect(await batch(['select 1'], [`select * from ${table}`], insert(2))).toEqual([[['1']], [['1', 'more']], []])
    expect(await batch(ALL)).toEqual([[['1'], ['2']]])
  })

  it('works with a statement of no text', async () => {
    expect(await batch([''], ['select 1'])).toEqual([[], [['1']]])
  })
})

describe('what a request leaves in its session', () => {
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

  it.each(Object.keys(leaving))('%s does not reach the next one', async (name) => {
    const [before] = (await batch(STATE)) as string[][][]
    await leaving[name]?.()
    const [after] = (await batch(STATE)) as string[][][]
    // A setting that has been made is empty from then on, and no longer unset.
    const settled = ([workMem, own, ...rest]: string[] = []) => [workMem, own || null, ...rest]
    expect(settled(after?.[0])).toEqual(settled(before?.[0]))
    expect(await alone('select 1')).toEqual([[['1']]])
  })
})

it('refuses a result that is too large, and goes on', async () => {
  const [status, code] = await batch([`select repeat('x', 2000000)`])
  expect([status, code]).toEqual([400, '54000'])
  expect(await batch(['select 1'])).toEqual([[['1']]])
})

const READY = Buffer.from([...Buffer.from('Z'), 0, 0, 0, 5, ...Buffer.from('I')])
const ENDED = Buffer.from('SFATAL\0C57P01\0Mterminating connection due to administrator command\0\0')

/** Stands before Postgres, and has its first session ended in the very bytes that tell of its beginning. */
async function startEndingRelay() {
  let isFirst = true
  const server = createServer((near) => {
    const far = connect(Number(url.port), url.hostname)
    for (const socket of [near, far])
      socket.on('error', () => {}).on('close', () => [near, far].map((s) => s.destroy()))
    near.pipe(far)
    far.on('data', (chunk) => {
      if (!isFirst || !chunk.subarray(-READY.length).equals(READY)) return near.write(chunk)
      isFirst = false
      const head = Buffer.from([...Buffer.from('E'), 0, 0, 0, ENDED.length + 4])
      return near.end(Buffer.concat([chunk, head, ENDED]))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { port: (server.address() as AddressInfo).port, stop: () => server.close() }
}

it('goes on when a session is ended in the moment in which it begins', async () => {
  const relay = await startEndingRelay()
  const postgres = { host: url.hostname, port: relay.port }
  const own = await startNeonProxy({ postgres, pooledRoles: ['p_*_proxied'], connectionsMax: 1 })
  const login = new URL(url)
  login.port = String(relay.port)
  const at = { proxy: own, login: login.href }
  const query = queryOf(['select 1'])
  expect(await ask(query, at)).toEqual([400, '57P01', expect.any(String)])
  expect(await ask(query, at)).toEqual([[['1']]])
  await own.stop()
  relay.stop()
})
