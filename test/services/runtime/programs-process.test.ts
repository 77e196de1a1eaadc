import type { ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { getPriority } from 'node:os'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { and, eq } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { invocations, workers } from '../../../src/model/tables/index.ts'
import type { Bindings } from '../../../src/platform/bindings.ts'
import { recordEnd, recordStart } from '../../../src/services/runtime/call-recorder.ts'
import { CALL_CONTEXT_HEADER } from '../../../src/services/runtime/processes/process-protocol.ts'
import { callScheduledWorkers } from '../../../src/services/workers/cron-calls.ts'
import type { Caller } from '../../support/api.ts'
import { deploy as deployFunction } from '../../support/deploys.ts'
import { extended } from '../../support/extended.ts'
import { invocationsOf, putFunction, type Stores } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { type Installation, startInstallation } from '../../support/storage-installation.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { saying, workerOf } from '../../support/workers.ts'

let installation: Installation
/** The log of the installation. */
const logged: string[] = []
/** All processes started by this file. */
const children: ChildProcess[] = []
const noteChild = (message: unknown) => void children.push((message as { process: ChildProcess }).process)
let organization: Awaited<ReturnType<Installation['newOrganization']>>
let ref: string
let base: string
let origin: string
let owner: Caller
let stores: Stores
beforeAll(async () => {
  subscribe('child_process', noteChild)
  installation = await startInstallation({
    serve: (bindings, folder) =>
      serveLikeStart(bindings, folder, { cpuSeconds: 1, memoryMiB: 1_500, onLine: (line) => logged.push(line) }),
  })
  organization = await installation.newOrganization()
  const storage = await installation.newStorage(organization)
  owner = organization.owner
  ref = storage.ref
  origin = new URL(storage.url).origin
  base = `${origin}/p/${ref}/functions/v1/`
  const { config } = installation.ctxAt()
  const { S3_ENDPOINT: endpoint, S3_BUCKET: bucket } = config
  const s3 = { endpoint, bucket, accessKeyId: config.S3_ACCESS_KEY_ID, secretAccessKey: config.S3_SECRET_ACCESS_KEY }
  stores = { db: installation.control, encryptionKey: config.ENCRYPTION_KEY, s3 }
})
afterAll(() => {
  unsubscribe('child_process', noteChild)
  return installation.stop()
})

async function deploy(body: string, named?: string) {
  const program = `Deno.serve(async (request) => { ${body} })`
  const { slug, id } = await putFunction(ref, program, named === undefined ? {} : { slug: named }, stores)
  return { url: base + slug, id }
}

/** Deploys a program in a project of its own. */
async function deployAlone(body: string) {
  const { ref: own } = await installation.newStorage(organization)
  const { slug, id } = await putFunction(own, `Deno.serve(async (request) => { ${body} })`, {}, stores)
  return { url: `${origin}/p/${own}/functions/v1/${slug}`, ref: own, slug, id }
}

/** Returns the address that a program uses. */
const inside = (url: string): string => url.replace(origin, 'https://api.example.com')

async function replyOf(url: string, init: RequestInit = {}) {
  const response = await fetch(url, init)
  const text = await response.text()
  return { status: response.status, code: response.headers.get('sb-error-code'), text }
}

const answers = (url: string) =>
  vi.waitFor(async () => expect(await replyOf(url)).toMatchObject({ status: 200, text: 'well' }), WAIT)

/** Returns the longest time that the API took to answer until the promise settled. */
async function longestOf<T>(until: Promise<T>): Promise<number> {
  let longest = 0
  let isOver = false
  const over = until.then(() => {
    isOver = true
  })
  while (!isOver) {
    const startedAt = performance.now()
    expect(await replyOf(`${origin}/health`)).toMatchObject({ status: 200 })
    longest = Math.max(longest, performance.now() - startedAt)
    await Promise.race([over, new Promise((resolve) => setTimeout(resolve, 20))])
  }
  return longest
}

describe('a function in an endless loop', () => {
  it('ends its own call, and the API keeps answering', async () => {
    const [looping, healthy] = await Promise.all([deploy('for (;;);'), deploy(`return new Response('well')`)])
    const worker = workerOf(owner, ref, { base: origin })
    expect(await worker.ship(saying('well'))).toMatchObject({ build_state: 'active', instances: { ready: 1 } })
    await answers(healthy.url)
    const called = replyOf(looping.url)
    const counted = vi.waitFor(async () => {
      const { attributes } = (await worker.get()).body.data
      expect(attributes).toHaveProperty('instances_error')
      return attributes
    }, WAIT)
    expect(await longestOf(called)).toBeLessThan(2_500)
    expect(await called).toMatchObject({ status: 503, code: 'PROGRAMS_ENDED' })
    expect(await counted).toMatchObject({
      build_state: 'active',
      instances_error: 'The instances could not be counted: try again later',
    })
    await answers(healthy.url)
    await answers(worker.url())
  })

  it('is held back at once if no other program ran beside it, and a deployment does not change that', async () => {
    const looping = await deployAlone(`if (request.method === 'POST') for (;;); return new Response('well')`)
    const loop = () => replyOf(looping.url, { method: 'POST' })
    await answers(looping.url)
    expect(await loop()).toMatchObject({ status: 546, code: 'WORKER_RESOURCE_LIMIT' })
    expect(await replyOf(looping.url)).toMatchObject({ status: 546, code: 'WORKER_RESOURCE_LIMIT' })
    const secrets = await owner.post(`/v1/projects/${looping.ref}/secrets`, [{ name: 'A', value: 'b' }])
    expect(secrets.status).toBe(201)
    expect((await owner.patch(`/v1/projects/${looping.ref}/functions/${looping.slug}`, { name: 'New' })).status).toBe(
      200,
    )
    expect(await replyOf(looping.url)).toMatchObject({ status: 546 })
    const mended = { slug: looping.slug, files: { 'index.ts': `Deno.serve(() => new Response('well'))` } }
    await deployFunction(owner, looping.ref, { ...mended, metadata: { verify_jwt: false } })
    expect(await replyOf(looping.url)).toMatchObject({ status: 546 })
    const rows = await vi.waitFor(async () => {
      const lost = (await invocationsOf(looping.id, stores)).filter(({ status }) => status !== 200)
      expect(lost).toHaveLength(4)
      return lost.map(({ status, console: lines }) => [status, lines[0]?.message])
    }, WAIT)
    const heldBack = [546, expect.stringContaining('Not run: the program is held back')]
    expect(rows).toEqual([[546, expect.stringContaining('used too much CPU time')], heldBack, heldBack, heldBack])
    // The back-off ends by itself.
    await answers(looping.url)
  })

  it('costs no other project a call, and no other function of its own project is held back', async () => {
    const body = `if (request.method === 'POST') for (;;); return new Response('well')`
    const looping = await Promise.all(Array.from({ length: 8 }, () => deploy(body)))
    const [innocent, neighbour] = await Promise.all([
      deploy(`return new Response('well')`),
      deployAlone(`return new Response('well')`),
    ])
    await Promise.all([answers(innocent.url), answers(neighbour.url)])
    const statuses = { looping: new Set<number>(), innocent: new Set<number>(), neighbour: new Set<number>() }
    const keepCalling = async (url: string, seen: Set<number>, init: RequestInit = {}) => {
      while (!statuses.looping.has(546)) {
        seen.add((await replyOf(url, init)).status)
        await delay(50)
      }
    }
    await Promise.all([
      ...looping.map(({ url }) => keepCalling(url, statuses.looping, { method: 'POST' })),
      keepCalling(innocent.url, statuses.innocent),
      keepCalling(neighbour.url, statuses.neighbour),
    ])
    expect(statuses.neighbour).toEqual(new Set([200]))
    expect(statuses.innocent).not.toContain(546)
    await answers(innocent.url)
  })

  extended('is also detected after its answer', async () => {
    const looping = await deployAlone(
      `setTimeout(() => { for (;;); }, 20); EdgeRuntime.waitUntil(new Promise(() => {})); return new Response('well')`,
    )
    await vi.waitFor(
      async () => expect(await replyOf(looping.url)).toMatchObject({ status: 546, code: 'WORKER_RESOURCE_LIMIT' }),
      { timeout: WAIT_MS, interval: 500 },
    )
  })
})

/** Sends a signal to the processes that run programs; only those have this priority. */
function signalPrograms(signal: NodeJS.Signals): void {
  const running = children.filter(({ pid, exitCode, signalCode }) => pid && exitCode === null && signalCode === null)
  const programs = running.filter(({ pid = 0 }) => getPriority(pid) === 5)
  expect(programs).not.toEqual([])
  for (const program of programs) program.kill(signal)
}

describe.runIf(process.platform === 'linux')('a function that ran alone in a process', () => {
  it('is not held back if that process was killed from outside', async () => {
    const { url } = await deployAlone(`return new Response('well')`)
    await answers(url)
    signalPrograms('SIGKILL')
    const statuses = new Set<number>()
    await vi.waitFor(async () => {
      const { status } = await replyOf(url)
      statuses.add(status)
      expect(status).toBe(200)
    }, WAIT)
    expect([...statuses].filter((status) => status !== 200 && status !== 503)).toEqual([])
  })
})

describe('a function that calls another one', () => {
  it('gets an error for one that is held back, and is not held back itself', async () => {
    const looping = await deploy('for (;;);')
    const caller = await deploy(`const answered = await fetch('${inside(looping.url)}', { method: 'POST' })
      return new Response(answered.body, { status: answered.status, headers: answered.headers })`)
    await vi.waitFor(
      async () => expect(await replyOf(caller.url)).toMatchObject({ status: 546, code: 'WORKER_RESOURCE_LIMIT' }),
      WAIT,
    )
    expect(await replyOf(looping.url)).toMatchObject({ status: 546, code: 'WORKER_RESOURCE_LIMIT' })
    await vi.waitFor(async () => {
      const rows = await invocationsOf(caller.id, stores)
      expect(rows).toContainEqual(expect.objectContaining({ status: 546, console: [] }))
    }, WAIT)
  })
})

it.runIf(process.platform === 'linux')('a function that takes memory endlessly ends its own call', async () => {
  const [taking, healthy] = await Promise.all([
    deploy(`const held = []
      for (let n = 0; n < 60; n += 1) {
        held.push(new Uint8Array(64 * 1024 ** 2).fill(1))
        await new Promise((resolve) => setTimeout(resolve, 20))
      }
      return new Response('well')`),
    deploy(`return new Response('well')`),
  ])
  await answers(healthy.url)
  // Other programs ran in its process before, so it is not known to be at fault.
  expect(await replyOf(taking.url)).toMatchObject({ status: 503, code: 'PROGRAMS_ENDED' })
  const idOf = (what: string) =>
    /"request_id":"([^"]*)"/.exec(logged.findLast((line) => line.includes(what)) ?? '')?.[1]
  await vi.waitFor(() => {
    const lost = idOf('"program_call_lost"')
    expect(lost).toMatch(/^[0-9a-f-]{36}$/)
    expect(idOf('"error":"PROGRAMS_ENDED"')).toBe(lost)
  }, WAIT)
  await answers(healthy.url)
  expect(await replyOf(taking.url)).toMatchObject({ status: 546, code: 'WORKER_RESOURCE_LIMIT' })
})

it('a function that takes memory endlessly at its start gets that error', async () => {
  const { ref: own } = await installation.newStorage(organization)
  const taking = `const held = []
    for (;;) {
      held.push(new Uint8Array(64 * 1024 ** 2).fill(1))
      await new Promise((resolve) => setTimeout(resolve, 20))
    }`
  const deployed = { slug: 'taking', files: { 'index.ts': taking }, metadata: { verify_jwt: false } }
  const { id } = await deployFunction(owner, own, deployed)
  expect(await replyOf(`${origin}/p/${own}/functions/v1/taking`)).toMatchObject({ status: 546 })
  const [row] = await vi.waitFor(async () => {
    const rows = await invocationsOf(id, stores)
    expect(rows).toHaveLength(1)
    return rows
  }, WAIT)
  expect(row?.console).toMatchObject([{ message: expect.stringContaining('too much memory') }])
})

describe('the log of calls', () => {
  beforeAll(() => void vi.stubGlobal('scheduler', { wait: delay }))
  afterAll(() => void vi.unstubAllGlobals())

  /** Records calls of a new function. Returns their rows once they are written. */
  async function recorded(calls: { projectRef: string; status: number; at: number; deploymentId?: string }[]) {
    const { id: programId, deploymentId } = await putFunction(ref, '', {}, stores)
    const waiting: Promise<unknown>[] = []
    const host = {
      bindings: installation.ctxAt().bindings,
      execution: { waitUntil: (work: Promise<unknown>) => waiting.push(work) },
    }
    for (const { status, ...call } of calls) {
      const id = randomUUID()
      recordStart({ kind: 'function', programId, deploymentId, method: 'GET', path: '/', ...call, id })
      recordEnd(host, id, { status, ms: 1 })
    }
    await Promise.all(waiting)
    return invocationsOf(programId, stores)
  }

  it('loses no other call because of one that the database refuses', async () => {
    const calls = Array.from({ length: 5 }, (_, n) => ({ projectRef: ref, status: 200 + n, at: Date.now() }))
    const rows = await recorded(calls.map((call, n) => (n === 3 ? { ...call, deploymentId: 'none' } : call)))
    expect(rows.map(({ status }) => status).sort()).toEqual([200, 201, 202, 204])
  })

  it('has a limited number of rows for each project, and says how many calls are missing', async () => {
    const [busy, other] = [randomUUID(), randomUUID()]
    const at = Date.now() - 60_000
    const many = Array.from({ length: 5_040 }, () => ({ projectRef: busy, status: 200, at }))
    const rows = await recorded([
      ...many,
      { projectRef: other, status: 201, at: at + 500 },
      { projectRef: busy, status: 202, at: at + 1_000 },
      { projectRef: busy, status: 203, at: at + 2_000 },
    ])
    expect(rows.slice(0, -3).map(({ status }) => status)).toEqual(Array(5_000).fill(200))
    expect(rows.slice(-3)).toMatchObject([
      { status: 201, console: [] },
      { status: 202, console: [{ level: 'info', message: '40 calls before this one left no row' }] },
      { status: 203, console: [] },
    ])
  })
})

/** Starts a request whose caller disconnects during the body. */
async function disconnectDuringBody(url: string): Promise<void> {
  const { hostname, port, pathname } = new URL(url)
  const socket = connect(Number(port), hostname)
  await once(socket, 'connect')
  await new Promise((sent) =>
    socket.write(`POST ${pathname} HTTP/1.1\r\nhost: ${hostname}:${port}\r\ncontent-length: 100000\r\n\r\nhalf`, sent),
  )
  socket.destroy()
}

/** Calls without a reused connection. */
function callAlone(url: string, method: string, body?: string) {
  const answered = Promise.withResolvers<IncomingMessage>()
  httpRequest(url, { method, agent: false }, answered.resolve).on('error', answered.reject).end(body)
  return answered.promise
}

describe('a program runs once for a call', () => {
  const failing = `new Response(new ReadableStream({ start(begun) { begun.error(new Error('at its start')) } }))`
  it.each([
    ['whose stream fails at its start', failing, 'at its start'],
    ['whose copied stream fails at its start', `${failing}.clone()`, 'the connection closed'],
    [
      'that cannot be passed on',
      `new Response('', { headers: { 'x-large': 'a'.repeat(600_000) } })`,
      'the connection closed',
    ],
  ])('with an answer %s, which leaves one row that says so', async (_, answer, reason) => {
    const { url, id } = await deploy(
      `if (request.url.endsWith('runs')) return new Response(String(globalThis.runs ?? 0))
      globalThis.runs = (globalThis.runs ?? 0) + 1
      return ${answer}`,
    )
    const methods = ['GET', 'OPTIONS', 'DELETE', 'PUT', 'POST']
    for (const [n, method] of methods.entries()) {
      const response = await callAlone(url, method, method === 'POST' ? 'body' : undefined)
      expect([method, response.statusCode, response.headers['sb-error-code']]).toEqual([
        method,
        500,
        'EDGE_FUNCTION_ERROR',
      ])
      response.resume()
      expect(await replyOf(`${url}?runs`)).toMatchObject({ text: String(n + 1) })
    }
    await vi.waitFor(async () => {
      const rows = (await invocationsOf(id, stores)).filter(({ status }) => status !== 200)
      expect(
        rows.map(({ method, status, console: lines }) => [method, status, lines.map(({ message }) => message)]),
      ).toEqual(methods.map((method) => [method, 500, [expect.stringContaining(reason)]]))
      expect(await invocationsOf(id, stores)).toHaveLength(2 * methods.length)
    }, WAIT)
  })
})

describe('a process does not end because of', () => {
  it('an answer that cannot be passed on', async () => {
    const { url } = await deploy(
      `return new Response('well', request.method === 'POST' ? { headers: { 'x-large': 'a'.repeat(600_000) } } : {})`,
    )
    for (let n = 0; n < 3; n += 1) {
      expect(await replyOf(url, { method: 'POST' })).toMatchObject({ status: 500, code: 'EDGE_FUNCTION_ERROR' })
      expect(await replyOf(url)).toMatchObject({ status: 200, text: 'well' })
    }
  })

  it('a caller that disconnects during the body', async () => {
    const { url } = await deploy(`return new Response((await request.text()) || 'well')`)
    for (let n = 0; n < 3; n += 1) {
      await disconnectDuringBody(url)
      expect(await replyOf(url)).toMatchObject({ status: 200, text: 'well' })
    }
  })
})

describe('a request that cannot be read is refused', () => {
  const replyTo = async (lines: string[]) => {
    const { hostname, port } = new URL(origin)
    const socket = connect(Number(port), hostname)
    socket.end(`${['GET /health HTTP/1.1', 'connection: close', ...lines].join('\r\n')}\r\n\r\n`)
    return text(socket)
  }

  it.each([
    ['two hosts', ['host: 127.0.0.1', 'host: example.com']],
    ['what claims to be of the runtime', ['host: 127.0.0.1', `${CALL_CONTEXT_HEADER}: {`]],
    ['a host that is none', ['host: a b']],
  ])('with %s', async (_, lines) => {
    expect(await replyTo(['host: 127.0.0.1'])).toMatch(/^HTTP\/1.1 200 /)
    expect(await replyTo(lines)).toMatch(/^HTTP\/1.1 400 /)
  })
})

describe('a worker', () => {
  const source = (wrangler: object, program: string) => ({
    'wrangler.json': JSON.stringify({ main: 'index.js', ...wrangler }),
    'index.js': program,
    'public/app.js': 'run()',
  })

  it('is not run for its static assets, held back or not, and can reach them itself', async () => {
    const { ref: own } = await installation.newStorage(organization)
    const worker = workerOf(owner, own, { base: origin })
    const assets = { directory: 'public', binding: 'ASSETS' }
    const program = `export default { fetch: (request, { ASSETS }) =>
      request.method === 'POST' ? (() => { for (;;); })() : ASSETS.fetch('https://any/app.js') }`
    expect(await worker.ship(source({ assets }, program))).toMatchObject({ build_state: 'active' })
    const textOf = async (path: string) => (await replyOf(worker.url(path))).text
    expect(await Promise.all(['/app.js', '/none'].map(textOf))).toEqual(['run()', 'run()'])
    const looping = worker.call('/none', { method: 'POST' })
    while ((await replyOf(worker.url('/none'))).status === 200);
    expect(await looping).toMatchObject({ status: 546 })
    // The program is held back, and its assets are not.
    expect(await textOf('/app.js')).toBe('run()')
    const { pathname } = new URL(worker.url('/app.js'))
    const rows = await vi.waitFor(async () => {
      const all = await installation.control.select().from(invocations).where(eq(invocations.projectRef, own))
      expect(all.length).toBeGreaterThan(1)
      return all
    }, WAIT)
    expect(rows.map(({ path }) => path)).not.toContain(pathname)
  })

  extended('is called by the clock', async () => {
    const worker = workerOf(owner, ref, { base: origin })
    const program = `export default { fetch: () => new Response('well'), scheduled({ cron }) { console.log(cron) } }`
    const triggers = { crons: ['* * * * *'] }
    expect(await worker.ship(source({ triggers }, program))).toMatchObject({ build_state: 'active' })
    await vi.waitFor(
      async () => {
        const called = and(eq(invocations.projectRef, ref), eq(invocations.method, 'CRON'))
        const [row] = await installation.control.select().from(invocations).where(called)
        expect(row).toMatchObject({ path: '* * * * *', status: 204, console: [{ message: '* * * * *' }] })
      },
      { timeout: WAIT_MS, interval: 500 },
    )
    // Later tests run sweeps, which would call it too.
    expect((await worker.delete()).status).toBe(204)
  })
})

describe('a cron call', () => {
  const timeOf = (hour: number, minute: number) => Date.UTC(new Date().getUTCFullYear() + 1, 0, 1, hour, minute, 10)
  const at = new Date(timeOf(4, 30))
  const CRON = '30 4 1 1 *'

  /** Returns a worker, and a context whose supervisor answers as `place` does. */
  async function deployWorker(
    place: () => Response,
    fetch: (request: Request) => Promise<Response> = async () => new Response(null, { status: 204 }),
    crons = [CRON],
  ) {
    const { ref: own } = await installation.newStorage(organization)
    // The workers of one owner share a rate limit.
    const worker = workerOf(owner, own, { base: origin, pollMs: 1_000 })
    const files = {
      'wrangler.json': JSON.stringify({ main: 'index.js', triggers: { crons } }),
      'index.js': 'export default { scheduled() {} }',
    }
    expect(await worker.ship(files)).toMatchObject({ build_state: 'active' })
    const [row] = await installation.control.select().from(workers).where(eq(workers.projectRef, own))
    const ctx = installation.ctxAt(at)
    const programs = { PROGRAMS: { fetch: async () => place() }, PROGRAMS_0: { fetch } }
    const bindings = { ...ctx.bindings, ...programs } as unknown as Bindings
    return { id: row?.id ?? '', ref: own, ctx: { ...ctx, bindings } }
  }

  beforeAll(() => void vi.stubGlobal('scheduler', { wait: delay }))
  afterAll(() => void vi.unstubAllGlobals())

  it('is repeated until there is a process', async () => {
    const places = [Response.error(), Response.json({ result: { id: randomUUID(), slot: 0 } })]
    let runs = 0
    const { ctx } = await deployWorker(
      () => places.shift() ?? expect.fail('asked again'),
      async () => {
        runs += 1
        return new Response(null, { status: 204 })
      },
    )
    await callScheduledWorkers(ctx, at)
    expect(runs).toBe(1)
  })

  it('has a row that says so if there is no process for too long', async () => {
    const { id, ctx } = await deployWorker(() => {
      vi.setSystemTime(Date.now() + 6 * 60_000)
      return Response.error()
    })
    vi.useFakeTimers({ toFake: ['Date'] })
    await callScheduledWorkers(ctx, at)
    vi.useRealTimers()
    await vi.waitFor(async () => {
      const rows = await invocationsOf(id, stores)
      expect(rows).toMatchObject([
        { method: 'CRON', path: CRON, status: 503, console: [{ message: expect.stringContaining('Not run') }] },
      ])
    }, WAIT)
  })

  it('is made next if its project has the fewest running calls, also if an earlier sweep has more', async () => {
    const place = { id: randomUUID(), slot: 0 }
    const calls: { url: string; end(): void }[] = []
    let isOver = false
    const fetch = async ({ url }: Request) => {
      const { promise, resolve } = Promise.withResolvers<void>()
      calls.push({ url, end: resolve })
      if (!isOver) await promise
      return new Response(null, { status: 204 })
    }
    const ship = (crons: string[]) => deployWorker(() => Response.json({ result: place }), fetch, crons)
    const crons = Array.from({ length: 8 }, (_, n) => `30 5 1 1,${n + 2} *`)
    const many: string[] = []
    while (many.length < 5) many.push((await ship(crons)).ref)
    const { ref: last, ctx } = await ship(['31 5 1 1 *'])
    const countOf = (project: string) => calls.filter(({ url }) => url.includes(project)).length
    const sweeps = [callScheduledWorkers(ctx, new Date(timeOf(5, 30)))]
    await vi.waitFor(() => expect(calls).toHaveLength(16), WAIT)
    expect(many.map(countOf).toSorted()).toEqual([3, 3, 3, 3, 4])
    sweeps.push(callScheduledWorkers(ctx, new Date(timeOf(5, 31))))
    for (let ended = 0; countOf(last) === 0; ended += 1) {
      calls[ended]?.end()
      await vi.waitFor(() => expect(calls).toHaveLength(17 + ended), WAIT)
    }
    expect(calls.length).toBeLessThan(40)
    isOver = true
    for (const { end } of calls) end()
    await Promise.all(sweeps)
    expect(calls).toHaveLength(41)
  })
})

describe('the process that runs programs', () => {
  it('does not believe a caller that claims to be the API, and tells programs nothing about it', async () => {
    const echo = await deploy(`return Response.json(Object.fromEntries(request.headers))`)
    const context = JSON.stringify({ key: 'guessed', command: 'alive' })
    const { status, text } = await replyOf(echo.url, { headers: { [CALL_CONTEXT_HEADER]: context, 'x-mine': 'yes' } })
    expect(status).toBe(200)
    expect(JSON.parse(text)).toMatchObject({ 'x-mine': 'yes' })
    expect(JSON.parse(text)).not.toHaveProperty(CALL_CONTEXT_HEADER.toLowerCase())
    expect(text).not.toContain('pilothouse')
  })

  it('tells callers nothing about whether a program ran, and does not believe a program about it', async () => {
    const { url } = await deploy(
      `return new Response('', { headers: { 'x-pilothouse-not-run': '1', 'x-mine': 'yes' } })`,
    )
    for (const [at, status] of [
      [url, 200],
      [`${base}none`, 404],
    ] as const) {
      const response = await fetch(at)
      expect(response.status).toBe(status)
      expect([...response.headers.keys()].filter((name) => name.includes('pilothouse'))).toEqual([])
      expect(response.headers.has('x-mine')).toBe(status === 200)
    }
  })

  it('applies a change through the API with the next call', async () => {
    const { url } = await deploy(`return new Response(Deno.env.get('NEXT') ?? 'none')`)
    expect(await replyOf(url)).toMatchObject({ text: 'none' })
    for (const value of ['one', 'two', 'three']) {
      expect((await owner.post(`/v1/projects/${ref}/secrets`, [{ name: 'NEXT', value }])).status).toBe(201)
      expect(await replyOf(url)).toMatchObject({ text: value })
    }
  })

  it('passes WebSockets through', async () => {
    const { url } = await deploy(`const { socket, response } = Deno.upgradeWebSocket(request)
      socket.onmessage = ({ data }) => socket.send('you said ' + data)
      return response`)
    const socket = new WebSocket(url.replace('http', 'ws'))
    await once(socket, 'open')
    socket.send('hello')
    const [data] = await once(socket, 'message')
    expect(String(data)).toBe('you said hello')
    socket.close()
    await once(socket, 'close')
  })

  it.each(['gzip', 'br'])('passes on an answer of the encoding %s unchanged', async (encoding) => {
    const bytes = (encoding === 'br' ? brotliCompressSync : gzipSync)('x'.repeat(100_000)).toString('base64')
    const { url } = await deploy(
      `const bytes = Uint8Array.from(atob('${bytes}'), (char) => char.charCodeAt(0)); return new Response(bytes, { headers: { 'content-encoding': '${encoding}' } })`,
    )
    const answer = await callAlone(url, 'GET')
    const chunks: Buffer[] = []
    for await (const chunk of answer) chunks.push(chunk)
    expect(answer.headers).toMatchObject({ 'content-encoding': encoding })
    expect(Buffer.concat(chunks).toString('base64')).toBe(bytes)
  })

  it('streams in both directions', async () => {
    const { url } = await deploy(`return new Response(request.body)`)
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>()
    const answered = fetch(url, { method: 'POST', body: readable, duplex: 'half' } as RequestInit)
    const writer = writable.getWriter()
    await writer.write(new TextEncoder().encode('one'))
    const reader = (await answered).body?.getReader()
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('one')
    await writer.write(new TextEncoder().encode('two'))
    expect(new TextDecoder().decode((await reader?.read())?.value)).toBe('two')
    await writer.close()
    expect((await reader?.read())?.done).toBe(true)
  })
})
