import { randomUUID } from 'node:crypto'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { adminClient } from '../../instances.ts'
import type { Caller, Reply } from '../../support/api.ts'
import { migrate, rows } from '../../support/branches.ts'
import { runSql } from '../../support/projects.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, codeOf, expectNoStrayBytes } from '../../support/storage-http.ts'
import { WAIT_MS } from '../../support/wait.ts'

let storage: TestStorage
let owner: Caller
let ref: string
let bucket: string
let admin: pg.Client
beforeAll(async () => {
  storage = await newStorage()
  owner = storage.organization.owner
  ref = storage.ref
  bucket = await newBucket(storage)
  admin = await adminClient(ref)
})
afterAll(() => admin.end())

const sql = async (query: string, values?: unknown[]) => (await admin.query(query, values)).rows
const upload = (key: string) =>
  calling(storage, storage.keys.service)(`POST /object/${bucket}/${key}`, {
    body: 'x'.repeat(1_000),
    headers: { 'content-type': 'text/plain' },
  })

/** Terminates each other session that waits in a statement, and returns how many there were. */
async function terminateWaiting(): Promise<number> {
  const ended = await sql(
    `select pg_terminate_backend(pid, 5000) from pg_stat_activity
      where pid <> pg_backend_pid() and backend_type = 'client backend' and state = 'active'
        and wait_event_type in ('Lock', 'Timeout')`,
  )
  return ended.length
}

/** Sends the request and terminates the backend that runs its statement. */
async function terminated(request: () => Promise<Reply>): Promise<Reply> {
  const reply = request()
  await vi.waitFor(async () => expect(await terminateWaiting()).toBeGreaterThan(0), { timeout: WAIT_MS, interval: 20 })
  return reply
}

/** Runs work while a session locks the table, so that statements on it wait. */
async function holding<Value>(table: string, work: () => Promise<Value>): Promise<Value> {
  const holder = await adminClient(ref)
  try {
    await holder.query(`begin; lock table ${table} in access exclusive mode`)
    return await work()
  } finally {
    await holder.query('rollback').finally(() => holder.end())
  }
}

function expectRetryable(reply: Reply): void {
  expect(reply.status, JSON.stringify(reply.body)).toBe(503)
  expect(Number(reply.headers.get('retry-after'))).toBeGreaterThan(0)
}

describe('a request whose backend is terminated during its statement', () => {
  it('is answered with 503 and Retry-After in SQL, and its changes are rolled back', async () => {
    await rows(owner, ref, 'create table kept (n int)')
    expectRetryable(await terminated(() => runSql(owner, ref, 'insert into kept values (1); select pg_sleep(30)')))
    expect(await sql('select * from public.kept')).toEqual([])
    expect((await runSql(owner, ref, 'insert into kept values (2)')).status).toBe(201)
  })

  it('is answered with 503 and Retry-After in a migration, which is not recorded', async () => {
    const name = `cut_${randomUUID().slice(0, 8)}`
    expectRetryable(
      await terminated(() => migrate(owner, ref, 'create table public.cut (n int); select pg_sleep(30)', name)),
    )
    expect(await sql(`select to_regclass('public.cut') as found`)).toEqual([{ found: null }])
    const applied = async () => (await owner.get(`/v1/projects/${ref}/database/migrations`)).body
    expect(JSON.stringify(await applied())).not.toContain(name)
    expect((await migrate(owner, ref, 'create table public.cut (n int)', name)).status).toBe(200)
    expect(JSON.stringify(await applied())).toContain(name)
  })

  it('is answered with 503 and Retry-After in an upload, whose bytes are removed', async () => {
    const key = randomUUID()
    expectRetryable(await holding('storage.objects', () => terminated(() => upload(key))))
    expect(await sql('select from storage.objects where name = $1', [key])).toEqual([])
    expect(codeOf(await upload(key))).toBe(200)
    await expectNoStrayBytes(storage, sql)
  })
})

describe('idle sessions that are terminated', () => {
  it('are replaced for the next request', async () => {
    expect((await runSql(owner, ref, 'select 1')).status).toBe(201)
    expect(codeOf(await upload(randomUUID()))).toBe(200)
    const idle = `select pg_terminate_backend(pid, 5000) from pg_stat_activity
      where pid <> pg_backend_pid() and backend_type = 'client backend' and state = 'idle'`
    for (const request of [
      async () => (await runSql(owner, ref, 'select 1')).status,
      async () => ((await migrate(owner, ref, 'select 1')).status === 200 ? 201 : 0),
      async () => (codeOf(await upload(randomUUID())) === 200 ? 201 : 0),
      async () => ((await owner.get(`/v1/projects/${ref}/api-keys`)).status === 200 ? 201 : 0),
    ]) {
      await sql(idle)
      expect(await request()).toBe(201)
    }
  })
})

describe('a request whose backend is killed, which restarts the server', () => {
  it('is answered with 503 and Retry-After, and the project recovers by itself', async () => {
    const reply = runSql(owner, ref, 'insert into kept values (3); select pg_sleep(30)')
    const pid = await vi.waitFor(
      async () => {
        const [found] = await sql(`select pid from pg_stat_activity where state = 'active' and wait_event = 'PgSleep'`)
        expect(found).toBeDefined()
        return found?.pid as number
      },
      { timeout: WAIT_MS, interval: 20 },
    )
    process.kill(pid, 'SIGKILL')
    expectRetryable(await reply)
    await vi.waitFor(
      async () => {
        const again = await runSql(owner, ref, 'select n from kept')
        expect([201, 503]).toContain(again.status)
        expect(again.body).toEqual([{ n: 2 }])
      },
      { timeout: WAIT_MS, interval: 500 },
    )
    expect(codeOf(await upload(randomUUID()))).toBe(200)
  })
})
