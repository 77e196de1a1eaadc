import { fork } from 'node:child_process'
import { once } from 'node:events'
import { request } from 'node:http'
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest'
import { ROWS_OF_TEXT } from './call-host.ts'
import { ask, KEY, openInstances, type Query, serveInstances, type TestHost } from './sql-host.ts'

const A = 'aaaaaaaaaaaaaaaaaaaa'
const B = 'bbbbbbbbbbbbbbbbbbbb'
const MIB = 1024 * 1024
const owner = (name: string) => ({ user: `postgres.${name}`, key: KEY })
const storage = (name: string) => ({ user: `supabase_storage_admin.${name}`, key: KEY })
const repeated = (bytes: number): Query => [`select repeat('x', ${bytes})`]
let databases: Awaited<ReturnType<typeof openInstances>>
let host: TestHost
beforeAll(async () => {
  databases = await openInstances([A, B])
})
afterEach(() => host.stop())
afterAll(() => databases.close())

/** Starts a host with limits of its own before the instances A and B. */
const startHost = (options: Parameters<typeof serveInstances>[1] = {}) => serveInstances(databases.instances, options)

/** Holds advisory lock 1 of an instance until it is released, so that statements wait as long as a test needs. */
async function holdLock(name: string): Promise<() => Promise<unknown>> {
  let release = () => {}
  const released = new Promise<void>((resolve) => {
    release = resolve
  })
  const instance = host.instances.get(name)
  await new Promise<void>((held, failed) => {
    const holding = instance?.withAdmin('postgres', async (admin) => {
      await admin.rows('select pg_advisory_lock(1)')
      held()
      await released
    })
    holding?.catch(failed)
  })
  return async () => release()
}

const LOCKED: Query = ['select pg_advisory_xact_lock_shared(1)']
const countLocked = async (name: string) => {
  const rows = await host.instances
    .get(name)
    ?.admin.rows<{ n: number }>(`select count(*)::int as n from pg_locks where locktype = 'advisory' and not granted`)
  return rows?.[0]?.n
}

describe('the sessions of an instance', () => {
  it('are limited, and so are the requests that wait for one, by kind of caller and by instance', async () => {
    host = await startHost({ limits: { sessionsMax: 2, clientSessionsMax: 1, waitingMax: 1 } })
    const release = await holdLock(A)
    const running = [1, 2].map(() => ask(host.url, storage(A), LOCKED))
    await expect.poll(() => countLocked(A)).toBe(2)
    const [first, second] = [1, 2].map(() => ask(host.url, storage(A), ['select 7']))
    expect(await Promise.race([first, second])).toEqual([
      ...[400, '53300', 'too many requests wait for a session of this instance'],
    ])
    expect(await ask(host.url, owner(A), ['select 8'])).toEqual([[['8']]])
    expect(await ask(host.url, { user: `postgres.${A}`, password: 'secret' }, ['select 9'])).toEqual([[['9']]])
    expect(await ask(host.url, storage(B), ['select 10'])).toEqual([[['10']]])
    await release()
    expect(await Promise.all(running)).toEqual([[[['']]], [[['']]]])
    expect(await Promise.all([first, second])).toContainEqual([[['7']]])
  })

  it('are waited for no longer than a time limit, and no longer than the client waits', async () => {
    host = await startHost({ limits: { sessionsMax: 1, waitingMax: 1, waitMs: 300 } })
    const release = await holdLock(A)
    const running = ask(host.url, storage(A), LOCKED)
    await expect.poll(() => countLocked(A)).toBe(1)
    const leave = new AbortController()
    const gone = ask(host.url, { ...storage(A), signal: leave.signal }, ['select 1']).catch(() => 'gone')
    // Takes the only place as soon as it is free.
    await expect.poll(async () => (await ask(host.url, storage(A), ['select 1']))[2]).toContain('too many requests')
    leave.abort()
    expect(await gone).toBe('gone')
    await expect.poll(async () => (await ask(host.url, storage(A), ['select 1']))[2]).toContain('are in use')
    await release()
    expect(await running).toEqual([[['']]])
  })

  it('are shared by roles in turn', async () => {
    host = await startHost({ limits: { sessionsMax: 2 } })
    const users = ['supabase_storage_admin', 'authenticator'].map((role) => ({ user: `${role}.${A}`, key: KEY }))
    const replies = await Promise.all(
      Array.from({ length: 60 }, (_, i) => ask(host.url, users[i % 2] ?? owner(A), ['select current_user'])),
    )
    const names = replies.map(([rows]) => (rows as string[][])[0]?.[0])
    expect(names).toEqual(names.map((_, i) => users[i % 2]?.user.split('.')[0]))
  })

  it('are kept for bursts of one role after the other', async () => {
    host = await startHost({ limits: { sessionsMax: 2 } })
    /** Returns the processes of two requests at the same time. */
    async function burst(role: string) {
      const release = await holdLock(A)
      const query: Query = ['select pg_backend_pid() from pg_advisory_xact_lock_shared(1)']
      const replies = [1, 2].map(() => ask(host.url, { user: `${role}.${A}`, key: KEY }, query))
      await expect.poll(() => countLocked(A)).toBe(2)
      await release()
      return (await Promise.all(replies)).map(([rows]) => (rows as string[][])[0]?.[0]).toSorted()
    }
    const first = await burst('supabase_storage_admin')
    await burst('authenticator')
    expect(await burst('supabase_storage_admin')).toEqual(first)
  })

  it('are waited for if Postgres itself has no room', async () => {
    host = await startHost()
    await host.instances.get(A)?.admin.rows('alter role postgres connection limit 2')
    const replies = await Promise.all(Array.from({ length: 12 }, (_, i) => ask(host.url, owner(A), [`select ${i}`])))
    expect(replies).toEqual(replies.map((_, i) => [[[`${i}`]]]))
    await host.instances.get(A)?.admin.rows('alter role postgres connection limit -1')
  })

  it('make room for other kinds of callers when they are idle', async () => {
    host = await startHost({ limits: { waitMs: 2_000 } })
    const release = await holdLock(A)
    const pooled = [1, 2].map(() => ask(host.url, storage(A), LOCKED))
    await expect.poll(() => countLocked(A)).toBe(2)
    await release()
    await Promise.all(pooled)
    const admin = host.instances.get(A)?.admin
    await admin?.rows('alter database postgres connection limit 2')
    const reply = await ask(host.url, { user: `postgres.${A}`, password: 'secret' }, ['select 1'])
    await admin?.rows('alter database postgres connection limit -1')
    expect(reply).toEqual([[['1']]])
  })

  it('are closed when they are idle for a time', async () => {
    host = await startHost({ limits: { idleMs: 200 } })
    await Promise.all([1, 2, 3].map(() => ask(host.url, storage(A), ['select 1'])))
    const open = () => host.instances.get(A)?.admin.rows(`select 1 from pg_stat_activity where usename ~ 'storage'`)
    await expect.poll(open).toHaveLength(0)
    expect(await ask(host.url, storage(A), ['select 1'])).toEqual([[['1']]])
  })
})

/** Sends a request as a client that reads the head of its reply, and the rest when it is told to. */
async function askSlowly(name: string, query: Query) {
  const req = request(`${host.url}/sql`, {
    method: 'POST',
    headers: {
      'neon-connection-string': `postgresql://postgres.${name}@any.host/postgres`,
      authorization: `Bearer ${KEY}`,
      ...ROWS_OF_TEXT,
    },
  })
  req.end(JSON.stringify({ query: query[0] }))
  const [res] = await once(req, 'response')
  return {
    async read(): Promise<string> {
      const chunks: Buffer[] = []
      for await (const chunk of res) chunks.push(chunk)
      return Buffer.concat(chunks).toString()
    },
  }
}

describe('the memory of results', () => {
  // A large result reserves 2 MiB: there is room for two, one of each instance.
  const limits = { resultBytesMax: MIB, budgetBytesMax: 4 * MIB, budgetWaitMs: 500 }
  const BIG = MIB - 1000

  it('is enough for results up to a size', async () => {
    host = await startHost({ limits })
    const refused = [400, '54000', `the result is larger than ${MIB} bytes`]
    for (const user of [owner(A), storage(A)]) {
      expect(await ask(host.url, user, repeated(2 * MIB))).toEqual(refused)
      expect(await ask(host.url, user, [`select repeat('x', 1000) from generate_series(1, 2000)`])).toEqual(refused)
      // JSON writes each of these characters as six.
      expect(await ask(host.url, user, [`select repeat(E'\\x01', ${MIB - 1000})`])).toEqual(refused)
      expect(await ask(host.url, user, repeated(BIG))).toEqual([[['x'.repeat(BIG)]]])
      const text = `é"\\${'\u{1F600}'.repeat(70_000)}`
      expect(await ask(host.url, user, ['select $1::text, $2::int', text, 1])).toEqual([[[text, '1']]])
    }
  })

  it('makes results wait for others of the same instance that use its share, never for another instance', async () => {
    host = await startHost({ limits: { ...limits, resultBytesMax: 8 * MIB, budgetBytesMax: 32 * MIB } })
    // The result uses the whole share while it arrives, and half of it while it is sent.
    const slow = await askSlowly(A, repeated(8 * MIB - 1000))
    const refusal = [400, '53200', 'the host has no memory left for results']
    expect(await ask(host.url, owner(A), repeated(MIB))).toEqual(refusal)
    expect(await ask(host.url, owner(A), ['select 1'])).toEqual([[['1']]])
    expect(await ask(host.url, owner(B), repeated(MIB))).toEqual([[['x'.repeat(MIB)]]])
    expect((await slow.read()).length).toBeGreaterThan(8 * MIB - 1000)
    await expect.poll(() => ask(host.url, owner(A), repeated(MIB))).toEqual([[['x'.repeat(MIB)]]])
  })

  it('is enough for many results in turn, and none is refused while it waits', async () => {
    host = await startHost({ limits: { ...limits, budgetWaitMs: 30_000 } })
    const replies = await Promise.all(
      Array.from({ length: 40 }, (_, i) => ask(host.url, owner(i % 4 ? A : B), repeated(BIG))),
    )
    expect(replies.map(([rows]) => (rows as string[][])[0]?.[0]?.length)).toEqual(replies.map(() => BIG))
  })

  it('is freed by disconnecting a client that does not read its result', async () => {
    host = await startHost({
      limits: { ...limits, resultBytesMax: 8 * MIB, budgetBytesMax: 32 * MIB, sendTimeoutMs: 200 },
    })
    const slow = await askSlowly(A, repeated(8 * MIB - 1000))
    await expect.poll(() => ask(host.url, owner(A), repeated(MIB))).toEqual([[['x'.repeat(MIB)]]])
    await expect(slow.read()).rejects.toThrow()
  })
})

it('refuses a batch of too many statements', async () => {
  host = await startHost({ limits: { statementsMax: 3 } })
  const batch = (length: number) => ask(host.url, owner(A), Array<Query>(length).fill(['select 1']))
  expect(await batch(3)).toEqual([[['1']], [['1']], [['1']]])
  expect(await batch(4)).toEqual([400, '54000', 'the batch has more than 3 statements'])
})

describe('the memory of bodies', () => {
  const limits = { bodiesBytesMax: MIB, budgetWaitMs: 300 }
  const large = (): Query => ['select length($1)', 'x'.repeat(200_000)]

  /** Sends the head of a request and a part of its body, which is to have 200,000 bytes. */
  async function sendPart(name: string, path = '/sql') {
    const url = `postgresql://postgres.${name}@any.host/postgres`
    const headers = {
      ...{ 'neon-connection-string': url, 'x-instance': name },
      ...{ authorization: `Bearer ${KEY}`, 'content-length': 200_000 },
    }
    const req = request(host.url + path, { method: 'POST', headers })
    req.on('error', () => {})
    await new Promise<void>((sent) => req.write('{', () => sent()))
    return req
  }

  it('makes large bodies wait for others of the same instance, until their clients go away', async () => {
    host = await startHost({ limits })
    const slow = await sendPart(A)
    const refusal = [400, '53200', 'the host has no memory left for requests']
    await expect.poll(() => ask(host.url, owner(A), large())).toEqual(refusal)
    expect(await ask(host.url, owner(A), ['select 1'])).toEqual([[['1']]])
    expect(await ask(host.url, owner(B), large())).toEqual([[['200000']]])
    slow.destroy()
    await expect.poll(() => ask(host.url, owner(A), large())).toEqual([[['200000']]])
  })

  it('makes large scripts wait for others of the instance that their header names', async () => {
    host = await startHost({ limits })
    const run = async (instance: string, named: Record<string, string> = { 'x-instance': instance }) => {
      const headers = { authorization: `Bearer ${KEY}`, ...named }
      const body = JSON.stringify({ instance, query: `select length('${'x'.repeat(200_000)}') as n`, read_only: false })
      const reply = await fetch(`${host.url}/script`, { method: 'POST', headers, body })
      return [reply.status, await reply.json()]
    }
    const slow = await sendPart(A, '/script')
    const refusal = [503, { kind: 'unavailable', message: 'the host has no memory left for requests' }]
    await expect.poll(() => run(A)).toEqual(refusal)
    const done = [200, [{ n: 200_000 }]]
    expect(await run(B)).toEqual(done)
    // Older control planes do not send the header.
    expect(await run(A, {})).toEqual(done)
    slow.destroy()
    await expect.poll(() => run(A)).toEqual(done)
  })

  it('is freed by disconnecting a client that does not send its body', async () => {
    host = await startHost({ limits: { ...limits, bodyTimeoutMs: 200 } })
    const slow = await sendPart(A)
    await new Promise((closed) => slow.on('close', closed))
    await expect.poll(() => ask(host.url, owner(A), large())).toEqual([[['200000']]])
  })
})

it('stays under the budget of the process with 30 results of 15 MB at once', async () => {
  host = await startHost()
  const child = fork(new URL('./sql-memory.ts', import.meta.url), { execArgv: [], stdio: 'inherit' })
  const [{ grownBytes, lengths }] = (await once(child, 'message')) as [{ grownBytes: number; lengths: number[] }]
  child.disconnect()
  await once(child, 'exit')
  expect(lengths).toHaveLength(30)
  expect(Math.min(...lengths)).toBeGreaterThan(15_000_000)
  expect(grownBytes).toBeLessThan(256 * MIB)
})
