import { existsSync } from 'node:fs'
import { readdir, readFile, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { type Host, startHost } from '../../host/host.ts'
import { parseLines } from '../../host/logs/lines.ts'
import { FILE_BYTES_MAX, type LogPage, rotateLog } from '../../host/logs/log-file.ts'
import type { Metrics } from '../../host/metrics/metrics.ts'
import { WAIT_MS } from '../support/wait.ts'
import { newHostFolder } from './host-folder.ts'

const NAME = 'abcdefghijklmnopqrst'
const ASLEEP = 'tsrqponmlkjihgfedcba'
const KEY = 'k'.repeat(32)

let folder: string
let host: Host

beforeAll(async () => {
  folder = await newHostFolder()
  host = await startHost({ folder, key: KEY, isDurable: false })
  await host.pool.ensure({ name: NAME, password: 'secret-of-the-owner' })
  const other = await host.pool.ensure({ name: ASLEEP, password: 'secret-of-the-owner', sleepAfterSeconds: 1 })
  await other.sleepIfIdle(Date.now() + 60_000)
}, 60_000)
afterAll(async () => {
  await host?.stop()
  await rm(folder, { recursive: true, force: true })
})

const get = (path: string, key = KEY) =>
  fetch(`${host.url}/host/v1${path}`, { headers: { authorization: `Bearer ${key}` } })

async function page(since?: string, limit = 1_000, name = NAME): Promise<LogPage> {
  const query = new URLSearchParams({ limit: `${limit}`, ...(since !== undefined && { since }) })
  const response = await get(`/instances/${name}/logs?${query}`)
  expect(response.status).toBe(200)
  return (await response.json()) as LogPage
}

/** Returns all messages after a cursor. */
async function rest(since?: string): Promise<LogPage> {
  const all: LogPage = { cursor: since ?? '', lines: [], skipped_bytes: 0 }
  for (;;) {
    const next = await page(all.cursor === '' ? undefined : all.cursor)
    all.lines.push(...next.lines)
    all.skipped_bytes += next.skipped_bytes
    if (next.cursor === all.cursor) return all
    all.cursor = next.cursor
  }
}

async function session(user = 'postgres') {
  const client = new pg.Client({ host: join(host.run, NAME), user, database: 'postgres', application_name: 'a\tb' })
  client.on('error', () => {})
  await client.connect()
  return client
}

async function run(sql: string, user = 'postgres'): Promise<void> {
  const client = await session(user)
  await client.query(sql).catch(() => {})
  await client.end()
}

test('messages have their fields, and several lines are one message', async () => {
  const { cursor } = await rest()
  await run(
    `do $$ begin raise exception E'first\\n2026-01-01 00:00:00.000 UTC\\t1\\tsecond\\nthird' using errcode = 'P0042'; end $$`,
  )
  const { lines } = await rest(cursor)
  expect(lines).toEqual([
    {
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
      process_id: expect.stringMatching(/^\d+$/),
      session_id: expect.stringMatching(/^[0-9a-f]+\.[0-9a-f]+$/),
      sql_state_code: 'P0042',
      backend_type: 'client backend',
      user_name: 'postgres',
      database_name: 'postgres',
      connection_from: '[local]',
      application_name: expect.not.stringContaining('\t'),
      error_severity: 'ERROR',
      message: 'first\n2026-01-01 00:00:00.000 UTC\t1\tsecond\nthird',
    },
  ])
  const first = (await page()).lines[0]
  expect(first).toMatchObject({ backend_type: 'postmaster', user_name: '', error_severity: 'LOG' })
})

test('a page ends at a whole message, and a message longer than a page is truncated', () => {
  const line = (text: string) => Buffer.from(`2026-01-01 00:00:00.000 UTC\t1\ts\t00000\tb\tu\td\th\ta\tLOG:  ${text}\n`)
  const two = Buffer.concat([line('ä'), line('two')])
  expect(parseLines(two, { linesMax: 1, isEnd: true })).toMatchObject({
    length: line('ä').length,
    lines: [{ message: 'ä' }],
  })
  expect(parseLines(two, { linesMax: 9, isEnd: false })).toMatchObject({
    length: line('ä').length,
    lines: [{ message: 'ä' }],
  })
  expect(parseLines(two.subarray(0, two.length - 1), { linesMax: 9, isEnd: true }).length).toBe(line('ä').length)
  const long = line('x'.repeat(20_000)).subarray(0, 15_000)
  const cut = parseLines(long, { linesMax: 9, isEnd: false })
  expect([cut.length, cut.lines.map(({ message }) => message.length)]).toEqual([15_000, [8_192]])
  expect(parseLines(Buffer.from('no prefix\n'), { linesMax: 9, isEnd: true })).toEqual({ length: 10, lines: [] })
  const within = line('a\r2026-01-01 00:00:00.000 UTC\t1\t')
  expect(parseLines(within, { linesMax: 9, isEnd: true }).lines).toHaveLength(1)
  for (const time of ['2026-99-99 99:99:99.999', '2026-02-30 00:00:00.000', '0000-01-01 00:00:00.000']) {
    const forged = Buffer.concat([Buffer.from(`${time} UTC\t1\tuser\n`), line('ä\0')])
    expect(parseLines(forged, { linesMax: 9, isEnd: true })).toMatchObject({
      length: forged.length,
      lines: [{ message: 'ä' }],
    })
  }
})

test('neither passwords nor the text of statements reach the log', async () => {
  const secret = 'correct-horse-battery'
  await run(`create table kept (id int primary key, t text check (t <> '${secret}'))`)
  const { cursor } = await rest()
  for (const sql of [
    `alter role postgres password '${secret}'`,
    `alter role nobody password '${secret}'`,
    `alter role supabase_admin password '${secret}'`,
    `insert into kept values (1, '${secret}')`,
    `select 1 / 0, '${secret}'`,
    `do $$ begin perform 1 / 0, '${secret}'; end $$`,
    `set log_statement = 'all'; select '${secret}'`,
  ]) {
    await run(sql)
  }
  const client = await session()
  await client.query('select 1 / $1::int, $2::text', [0, secret]).catch(() => {})
  await client.end()
  const { lines } = await rest(cursor)
  expect(lines.filter(({ message }) => message === 'division by zero')).toHaveLength(3)
  expect(lines.map(({ error_severity }) => error_severity)).not.toContain('STATEMENT')
  expect(JSON.stringify(lines)).not.toContain(secret)
  const file = host.pool.require(NAME).paths.log
  expect(await readFile(file, 'utf8')).not.toContain(secret)
})

test('the log stays within its limit under load, and a cursor returns every message once and in order', async () => {
  const instance = host.pool.require(NAME)
  const logFolder = join(instance.paths.folder, 'log')
  const sizes = async () => {
    const names = await readdir(logFolder)
    const found = await Promise.all(names.map((name) => stat(join(logFolder, name)).catch(() => undefined)))
    return found.reduce((total, one) => total + (one?.size ?? 0), 0)
  }
  let { cursor } = await rest()
  const inode = (await stat(instance.paths.log)).ino
  const seen: string[] = []
  const read = async () => {
    const next = await rest(cursor)
    cursor = next.cursor
    expect(next.skipped_bytes).toBe(0)
    seen.push(...next.lines.flatMap(({ message }) => /^load (\d+) /.exec(message)?.[1] ?? []))
  }
  const COUNT = 20_000
  const BATCH = 1_000
  let largest = 0
  // A reader that falls behind by more than the limit skips messages, so the writer waits after each batch.
  for (let first = 1; first <= COUNT; first += BATCH) {
    let isDone = false
    const done = run(
      `do $$ begin
        for n in ${first}..${first + BATCH - 1} loop raise warning 'load % %', n, repeat('x', 1000); end loop; end $$`,
    )
    void done.then(() => {
      isDone = true
    })
    while (!isDone) {
      await rotateLog(instance)
      await read()
      largest = Math.max(largest, await sizes())
    }
    await done
  }
  await read()
  expect((await stat(instance.paths.log)).ino).toBe(inode)
  expect(seen).toEqual([...seen].sort((one, other) => Number(one) - Number(other)))
  expect(new Set(seen).size).toBe(seen.length)
  // A message may be lost while the file is truncated.
  expect(seen.length).toBeGreaterThanOrEqual(COUNT - 10)
  expect(largest).toBeLessThan(2 * FILE_BYTES_MAX + 4 * 1024 * 1024)
}, 60_000)

test('the daemon rotates the log, and messages that nobody read in time are reported as skipped', async () => {
  const instance = host.pool.require(NAME)
  const { cursor } = await rest()
  for (let n = 0; n < 3; n++) {
    await run(`do $$ begin for n in 1..8000 loop raise warning 'flood % %', n, repeat('x', 1000); end loop; end $$`)
    await vi.waitFor(async () => expect((await stat(instance.paths.log)).size).toBeLessThan(FILE_BYTES_MAX), {
      timeout: WAIT_MS,
    })
  }
  const next = await page(cursor)
  expect(next.skipped_bytes).toBeGreaterThan(1_000_000)
  expect(next.lines[0]?.message).toMatch(/^flood /)
  expect((await page('other-123')).skipped_bytes).toBe(0)
}, 60_000)

test('a read wakes no instance, is limited, and needs the key', async () => {
  expect((await page(undefined, 3, ASLEEP)).lines).toHaveLength(3)
  const ends = (await (await get('/logs')).json()) as { name: string; end: string }[]
  const end = ends.find(({ name }) => name === ASLEEP)?.end
  let { cursor } = await page(undefined, 1_000, ASLEEP)
  for (let next = ''; next !== cursor; ) {
    next = cursor
    cursor = (await page(cursor, 1_000, ASLEEP)).cursor
  }
  expect(cursor).toBe(end)
  expect(host.pool.require(ASLEEP).state()).toBe('asleep')
  expect((await get(`/instances/${NAME}/logs?limit=1001`)).status).toBe(400)
  expect((await get('/instances/aaaaaaaaaaaaaaaaaaaa/logs')).status).toBe(404)
  for (const path of ['/logs', `/instances/${NAME}/logs`, `/instances/${NAME}/metrics`, '/metrics']) {
    expect((await get(path, 'wrong')).status).toBe(401)
  }
})

test('metrics cover the server, and only the state of a sleeping one', async () => {
  const client = await session()
  await client.query('create table counted as select generate_series(1, 100000)')
  const metrics = (await (await get(`/instances/${NAME}/metrics`)).json()) as Metrics
  expect(metrics).toMatchObject({ name: NAME, state: 'running', followers: [] })
  expect(metrics.size_bytes).toBeGreaterThan(20_000_000)
  expect(metrics.database?.connections).toBeGreaterThanOrEqual(1)
  expect(metrics.database?.wal_bytes).toBeGreaterThan(1_000_000)
  expect(metrics.database?.transactions_committed).toBeGreaterThan(1)
  if (process.platform === 'linux') {
    expect(metrics.use?.processes).toBeGreaterThan(4)
    expect(metrics.use?.cpu_seconds).toBeGreaterThan(0)
    expect(metrics.use?.uptime_seconds).toBeLessThan(600)
    expect(metrics.use?.memory_bytes).toBeGreaterThan(1_000_000)
  }
  await client.end()
  expect(await (await get(`/instances/${ASLEEP}/metrics`)).json()).toEqual({ name: ASLEEP, state: 'asleep' })
  const all = await get('/metrics')
  expect(all.headers.get('content-type')).toBe('text/plain; version=0.0.4')
  const text = await all.text()
  expect(text).toContain(`pilothouse_instance_state{instance="${ASLEEP}",state="asleep"} 1`)
  expect(text).toMatch(new RegExp(`^pilothouse_instance_wal_bytes_total\\{instance="${NAME}"\\} \\d+$`, 'm'))
  expect(text).not.toMatch(/undefined|NaN/)
  expect(host.pool.require(ASLEEP).state()).toBe('asleep')
})

test('a read of metrics does not keep an instance awake, and the log is removed with the instance', async () => {
  const name = 'mmmmmmmmmmmmmmmmmmmm'
  const instance = await host.pool.ensure({ name, password: 'p', sleepAfterSeconds: 1 })
  await vi.waitFor(
    async () => {
      await get(`/instances/${name}/metrics`)
      expect(instance.state()).toBe('asleep')
    },
    { timeout: WAIT_MS, interval: 200 },
  )
  await host.pool.remove(name)
  expect(existsSync(instance.paths.log)).toBe(false)
  expect((await get(`/instances/${name}/logs`)).status).toBe(404)
}, 20_000)
