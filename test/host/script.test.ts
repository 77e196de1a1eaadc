import { readFile } from 'node:fs/promises'
import type { Socket } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { KEY, startSqlHost, type TestHost } from './sql-host.ts'

const REF = 'abcdefghijklmnopqrst'
let host: TestHost
beforeAll(async () => {
  host = await startSqlHost([REF])
})
afterAll(() => host?.stop())

interface Script {
  instance?: string
  query?: unknown
  parameters?: unknown
  read_only?: boolean
  timeout_ms?: number
}

const send = (script: Script, key = KEY, signal?: AbortSignal) =>
  fetch(`${host.url}/script`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}` },
    body: JSON.stringify({ instance: REF, read_only: false, ...script }),
    ...(signal && { signal }),
  })
const run = async (query: string, more: Script = {}): Promise<[status: number, body: unknown]> => {
  const reply = await send({ query, ...more })
  return [reply.status, await reply.json()]
}
const admin = () => host.instances.get(REF)?.admin ?? expect.fail()
/** Resolves once all sessions are ready for the next script. */
const settled = () => {
  const busy = `select from pg_stat_activity where usename = 'postgres' and query not like '%DEALLOCATE ALL%'`
  return expect.poll(() => admin().rows(busy)).toEqual([])
}
/** Returns the process of the session that a script gets. */
const pid = async (before = '') => {
  await settled()
  const [, rows] = await run(`${before} select pg_backend_pid() as pid`)
  await settled()
  return (rows as { pid: number }[])[0]?.pid
}

it('is available only to the control plane', async () => {
  const reply = await send({ query: 'select 1' }, 'another-key')
  expect([reply.status, await reply.text()]).toEqual([401, ''])
})

it.each([{ query: 1 }, { query: 'select 1', parameters: [1] }, { query: 'select 1', timeout_ms: 0 }])(
  'refuses %j',
  async (script) => {
    const reply = await send(script)
    expect([reply.status, await reply.json()]).toEqual([400, { message: expect.stringContaining('at ') }])
  },
)

it('refuses an unknown instance', async () => {
  const missing = { kind: 'unavailable', code: '3D000', message: 'the database does not exist' }
  expect(await run('select 1', { instance: 'zzzzzzzzzzzzzzzzzzzz' })).toEqual([422, missing])
})

it('answers with the rows of the last statement', async () => {
  expect(await run('select 1 as one; select 9007199254740993 as two')).toEqual([200, [{ two: '9007199254740993' }]])
  expect(await run('select $1::text as a, $2::text as b', { parameters: ['x', null] })).toEqual([
    200,
    [{ a: 'x', b: null }],
  ])
})

it('accepts long rows, and refuses a result that is too long in total', async () => {
  const long = 'é"'.repeat(100_000)
  expect(await run(`select repeat('é"', 100000) as x, 1 as n from generate_series(1, 2)`)).toEqual([
    200,
    [
      { x: long, n: 1 },
      { x: long, n: 1 },
    ],
  ])
  const tooLarge = { kind: 'too_large', bytes_max: 16 * 1024 * 1024 }
  expect(await run(`select repeat('"', 9 * 1024 * 1024) as x`)).toEqual([422, tooLarge])
  expect(await run(`select repeat('x', 17 * 1024 * 1024) as x`)).toEqual([422, tooLarge])
})

it('reuses a session, in which nothing of the script before is left', async () => {
  const before = await pid()
  const used = await pid(`begin; create temp table left_over (n int); set statement_timeout = '1h'; commit;
    prepare left_over as select 1; listen left_over; select pg_advisory_lock(7); set search_path = nowhere; begin;`)
  expect(used).toBe(before)
  expect(await pid()).toBe(before)
  expect(
    await run(`select current_setting('search_path') as path, to_regclass('pg_temp.left_over') as temporary,
      (select count(*) from pg_prepared_statements)::int as prepared, (select count(*) from pg_listening_channels())::int as channels,
      (select count(*) from pg_locks where locktype = 'advisory')::int as locks`),
  ).toEqual([200, [{ path: '"$user", public, extensions', temporary: null, prepared: 0, channels: 0, locks: 0 }]])
})

it("opens another session after the role's settings have changed, also by the script itself", async () => {
  const before = await pid()
  await run(`alter role postgres set search_path = elsewhere`)
  const after = await pid()
  expect(after).not.toBe(before)
  expect(await run(`select current_setting('search_path') as path`)).toEqual([200, [{ path: 'elsewhere' }]])
  await admin().rows('alter role postgres reset search_path')
  expect(await pid()).not.toBe(after)
})

it('reads no long settings', async () => {
  const instance = host.instances.get(REF) ?? expect.fail()
  const { connect } = instance
  const sockets: Socket[] = []
  instance.connect = async () => {
    const socket = await connect()
    sockets.push(socket)
    return socket
  }
  await admin().rows(`alter role anon set a.long = '${'x'.repeat(1_000_000)}'`)
  expect(await run('select 1 as one')).toEqual([200, [{ one: 1 }]])
  instance.connect = connect
  await admin().rows(`alter role anon reset a.long`)
  const bytes = sockets.reduce((sum, { bytesRead }) => sum + bytesRead, 0)
  expect(bytes).toBeGreaterThan(0)
  expect(bytes).toBeLessThan(20_000)
})

it('ends a session in which Postgres sends too much before the first statement', async () => {
  await admin().rows(`alter role supabase_read_only_user set search_path = '${'x'.repeat(35_000_000)}'`)
  const reply = await run('select 1', { read_only: true })
  await admin().rows('alter role supabase_read_only_user reset search_path')
  const message = 'Postgres has sent more than 32 MiB for one statement'
  expect(reply).toEqual([422, { kind: 'unavailable', message }])
})

it('keeps a session whose statement was refused, and logs nothing about it', async () => {
  const { paths } = host.instances.get(REF) ?? expect.fail()
  const log = await readFile(paths.log, 'utf8')
  const before = await pid()
  for (const query of [
    'select 1 / 0',
    'begin; select 1 / 0',
    'nonsense',
    'do $$ begin raise exception $r$x$r$; end $$',
  ]) {
    expect(await run(query)).toMatchObject([422, { kind: 'sql' }])
    await settled()
  }
  expect(await pid()).toBe(before)
  // Sessions of the tests before may end late, and log that.
  const lines = (await readFile(paths.log, 'utf8')).slice(log.length).split('\n')
  const own = lines.filter((line) => line.includes(`\t${before}\t`)).join('\n')
  expect(own).toContain('division by zero')
  expect(own).not.toMatch(/connection to client lost|no transaction in progress/)
})

it('opens another session after the server has reloaded its configuration', async () => {
  const before = await pid()
  await admin().rows('select pg_reload_conf()')
  await expect.poll(() => pid()).not.toBe(before)
})

it('refuses the writes of readers', async () => {
  await admin().rows('grant pg_read_all_data to supabase_read_only_user')
  expect(await run('create table t (n int)', { read_only: true })).toMatchObject([422, { kind: 'sql', code: '25006' }])
  expect(await run('select current_user::text as name', { read_only: true })).toEqual([
    200,
    [{ name: 'supabase_read_only_user' }],
  ])
})

it('limits the statements of readers', async () => {
  const reply = (statements: number) => run('select 1 as one;'.repeat(statements), { read_only: true })
  expect(await reply(1000)).toEqual([200, [{ one: 1 }]])
  const message = 'A read-only query must have at most 1000 statements'
  expect(await reply(1001)).toMatchObject([422, { kind: 'sql', code: '54000', message }])
})

it('ends a statement that runs too long, or whose caller has left', async () => {
  expect(await run('select pg_sleep(60)', { timeout_ms: 200 })).toEqual([422, { kind: 'timeout', timeout_ms: 200 }])
  const gone = new AbortController()
  const reply = send({ query: `select pg_sleep(60) as "nobody waits"` }, KEY, gone.signal)
  const running = () =>
    admin().rows(
      `select from pg_stat_activity where query like '%nobody waits%' and state = 'active' and pid <> pg_backend_pid()`,
    )
  await expect.poll(running).toHaveLength(1)
  gone.abort()
  await expect(reply).rejects.toThrow()
  await expect.poll(running).toEqual([])
})

it('reports a session that a statement terminates as unavailable, and replaces it', async () => {
  expect(await run('select pg_terminate_backend(pg_backend_pid())')).toMatchObject([422, { kind: 'unavailable' }])
  expect(await run('select 1 as one')).toEqual([200, [{ one: 1 }]])
})
