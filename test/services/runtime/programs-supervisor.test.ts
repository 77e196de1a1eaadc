import type { ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { usageFromPs, usageOf } from '../../../dev/child-process.ts'
import { type Programs, startPrograms } from '../../../dev/programs.ts'
import type { Bindings } from '../../../src/platform/bindings.ts'
import { forwardCall } from '../../../src/services/runtime/processes/forward-call.ts'
import {
  type EndReason,
  LEASE_MS,
  type Place,
  type PlaceRequest,
} from '../../../src/services/runtime/processes/process-protocol.ts'
import { acquireProcess } from '../../../src/services/runtime/processes/process-table.ts'
import { WAIT } from '../../support/machine.ts'

/** Answers the supervisor as the real host does, and misbehaves as its path says. */
const HOST = `export default {}
export const ProgramsHost = { async fetch(request, { PROGRAMS_PROCESS }) {
  const { pathname } = new URL(request.url)
  if (pathname === '/loop') for (;;);
  if (pathname === '/memory') for (const held = []; ; await scheduler.wait(1)) held.push(new Uint8Array(64 * 1024 ** 2).fill(1))
  if (pathname === '/objects') for (let n = 0, held = []; ; n += 1) held.push(new Array(100).fill(n))
  if (pathname === '/arrays') for (const held = []; ; ) held.push(new Array(1_000_000).fill(held.length))
  return Response.json({ result: PROGRAMS_PROCESS })
} }`
const worker = {
  name: 'programs',
  compatibilityDate: '2026-11-01',
  modules: [{ type: 'ESModule', path: 'host.js', contents: HOST }],
}

const children: ChildProcess[] = []
const noteChild = (message: unknown) => void children.push((message as { process: ChildProcess }).process)
beforeAll(() => subscribe('child_process', noteChild))
afterAll(() => unsubscribe('child_process', noteChild))

const started: Programs[] = []
afterEach(async () => {
  for (const programs of started.splice(0)) await programs.stop()
  children.length = 0
})

const LIMITS = { cpuSeconds: 1, memoryMiB: 600, silentSeconds: 60 }
async function start(measure = usageOf, limits = LIMITS): Promise<Programs> {
  const programs = await startPrograms({ worker, measure, ...limits, api: '127.0.0.1:1', onLine: () => {} })
  started.push(programs)
  return programs
}

async function ask<T>({ address, key }: Programs, path: string, about: unknown): Promise<T | undefined> {
  const headers = { authorization: `Bearer ${key}` }
  const response = await fetch(`http://${address}${path}`, { method: 'POST', headers, body: JSON.stringify(about) })
  return ((await response.json()) as { result?: T }).result
}

async function place(programs: Programs, request: Partial<PlaceRequest> = {}): Promise<Place | undefined> {
  const group = randomUUID()
  return ask<Place>(programs, '/place', {
    group,
    ref: group,
    mayStart: true,
    busy: [],
    listedAt: Date.now(),
    ...request,
  })
}

/** Returns how a process of a new group ends after the action; undefined if it does not end. */
async function endingAfter(programs: Programs, act: (origin: string) => unknown): Promise<EndReason | undefined> {
  const { id, slot } = (await place(programs)) ?? expect.fail('there is no process')
  const origin = `http://${programs.slots[slot]}`
  expect((await fetch(origin)).status).toBe(200)
  await act(origin)
  return ask<EndReason>(programs, '/ending', { id })
}

const callTo = (path: string) => (origin: string) => fetch(origin + path).catch(() => {})
/** Signals the first runtime, which is the first to be assigned. Other children are those of `ps`. */
const sendSignal = (signal: NodeJS.Signals) => () => {
  const runtime = children.find(({ spawnfile }) => spawnfile.endsWith('workerd'))
  expect(runtime?.kill(signal)).toBe(true)
}

const measures = [
  ['by /proc', usageOf],
  ['by ps, as on macOS', usageFromPs],
] as const

describe.runIf(process.platform === 'linux').each(measures)('a process that is measured %s', (_, measure) => {
  it('ends after its processor time or its memory is used up', async () => {
    const programs = await start(measure)
    expect(await endingAfter(programs, callTo('/loop'))).toBe('cpu')
    expect(await endingAfter(programs, callTo('/memory'))).toBe('memory')
  })

  it.each([
    ['silent', 'SIGSTOP', 5],
    ['killed', 'SIGKILL', 60],
  ] as const)('ends as %s by %s from outside', async (ending, signal, silentSeconds) => {
    const programs = await start(measure, { ...LIMITS, silentSeconds })
    expect(await endingAfter(programs, sendSignal(signal))).toBe(ending)
  })

  it('has its time and memory reported', async () => {
    const [usage, own] = await Promise.all([measure(process.pid), process.cpuUsage()])
    expect(usage?.cpuSeconds).toBeGreaterThan((own.user + own.system) / 1e6 - 2)
    expect(usage?.cpuSeconds).toBeLessThan((own.user + own.system) / 1e6 + 2)
    expect(usage?.residentMiB).toBeGreaterThan(50)
    expect(usage?.residentMiB).toBeLessThan(4_000)
    expect(await measure(2 ** 22 + 1)).toBeUndefined()
  })
})

it.runIf(process.platform === 'linux').each(['/objects', '/arrays'])(
  'a process ends for its memory if its heap is full: %s',
  async (path) => {
    const programs = await start(usageOf, { cpuSeconds: 300, memoryMiB: 4_096, silentSeconds: 300 })
    expect(await endingAfter(programs, callTo(path))).toBe('memory')
  },
)

describe('a process that gets little processor time', () => {
  it('is not silent, and ends after its processor time is used up', async () => {
    let cpuSeconds = 0
    const slow = async () => {
      cpuSeconds += 0.2
      return { cpuSeconds, residentMiB: 100 }
    }
    const programs = await start(slow, { cpuSeconds: 3, memoryMiB: 600, silentSeconds: 1 })
    expect(await endingAfter(programs, callTo('/loop'))).toBe('cpu')
  })
})

describe('a process that used much processor time before it was asked', () => {
  it('is not ended for that time', async () => {
    let cpuSeconds = 0
    const measure = async () => ({ cpuSeconds, residentMiB: 100 })
    const programs = await start(measure, { cpuSeconds: 3, memoryMiB: 600, silentSeconds: 2 })
    const stopAfterWork = () => {
      cpuSeconds = 10
      sendSignal('SIGSTOP')()
    }
    expect(await endingAfter(programs, stopAfterWork)).toBe('silent')
  })
})

describe('an unmeasured process', () => {
  it('ends once it is silent, without a known fault', async () => {
    const programs = await start(async () => undefined, { ...LIMITS, silentSeconds: 3 })
    expect(await endingAfter(programs, () => {})).toBeUndefined()
    expect(await endingAfter(programs, callTo('/loop'))).toBe('silent')
  })
})

describe('a process without calls', () => {
  it('is ended to make room only if the API reported that after it could send calls without asking', async () => {
    const programs = await start()
    const ref = randomUUID()
    const early = { listedAt: Date.now() }
    const placeOf = async (group: string, report: Partial<PlaceRequest> = early) =>
      (await place(programs, { group, ref, ...report }))?.id
    const endingOf = (id = '') => ask<EndReason>(programs, '/ending', { id })
    const first = (await placeOf('first')) ?? ''
    const [second, third] = [await placeOf('second'), await placeOf('third')]
    expect(await placeOf('fourth')).toBeUndefined()
    expect(await Promise.all([first, second, third].map(endingOf))).toEqual([undefined, undefined, undefined])
    const listedAt = Date.now() + LEASE_MS + 1
    expect(await placeOf('fourth', { busy: [first], listedAt })).toEqual(expect.any(String))
    expect(await Promise.all([first, second, third].map(endingOf))).toEqual([undefined, 'unused', undefined])
  })
})

describe('the API', () => {
  const request = new Request('http://localhost/')

  /** Returns bindings with a process that answers as `fetch` does, and the requests for a process. */
  function bindingsWith(fetch: () => Promise<Response>, { isRunning = false } = {}) {
    const requests: PlaceRequest[] = []
    const id = randomUUID()
    const programs = async (url: string, { body }: { body: string }) => {
      if (!url.endsWith('/place')) return Response.json(isRunning ? {} : { result: 'unused' })
      requests.push(JSON.parse(body))
      return Response.json({ result: { id: requests.length === 1 ? id : randomUUID(), slot: requests.length } })
    }
    const bindings = { PROGRAMS: { fetch: programs }, PROGRAMS_1: { fetch } } as unknown as Bindings
    return { bindings, requests, id }
  }

  async function call(bindings: Bindings) {
    const name = { kind: 'function', ref: randomUUID(), name: 'a' } as const
    const address = { ...name, path: '/', servicePath: '/', prefix: '/', url: request.url, isShared: false }
    await acquireProcess(bindings, name)
    const settled: Promise<unknown>[] = []
    const execution = { waitUntil: (work: Promise<unknown>) => void settled.push(work.catch(() => {})) }
    return { response: await forwardCall({ request, address, bindings, execution }), settled }
  }

  it.each([
    ['a call', 0],
    ['a call that is repeated', 1],
  ])('reports %s until the end of its answer, even if that has a length', async (_name, failures) => {
    // Node lacks the stream of the runtime.
    vi.stubGlobal('IdentityTransformStream', TransformStream)
    const { readable, writable } = new TransformStream()
    const answer = new Response(readable, { headers: { 'content-length': '2' } })
    let sent = 0
    const fetch = async () => {
      sent += 1
      if (sent <= failures) throw new Error('the connection closed')
      return answer
    }
    const { bindings, requests, id } = bindingsWith(fetch, { isRunning: true })
    const { response } = await call(bindings)
    const busyNow = async () => {
      await acquireProcess(bindings, { kind: 'function', ref: randomUUID(), name: 'b' })
      return requests.at(-1)?.busy
    }
    expect(await busyNow()).toContain(id)
    const writer = writable.getWriter()
    await Promise.all([writer.write(new TextEncoder().encode('ok')).then(() => writer.close()), response.text()])
    await vi.waitFor(async () => expect(await busyNow()).not.toContain(id), WAIT)
    vi.unstubAllGlobals()
  })

  it('lets 500 calls of a project wait for a process, and asks for it once for all of them', async () => {
    vi.useFakeTimers()
    vi.stubGlobal('scheduler', { wait: (ms: number) => new Promise((resolve) => setTimeout(resolve, ms)) })
    const requests: PlaceRequest[] = []
    const places = new Map<string, Place>()
    const programs = async (_url: string, { body }: { body: string }) => {
      const request: PlaceRequest = JSON.parse(body)
      requests.push(request)
      return Response.json({ result: places.get(request.ref) })
    }
    const bindings = { PROGRAMS: { fetch: programs } } as unknown as Bindings
    const [full, other] = [randomUUID(), randomUUID()]
    const acquire = (ref: string) => acquireProcess(bindings, { kind: 'function', ref, name: 'a' })
    const waiting = [acquire(full)]
    await vi.advanceTimersByTimeAsync(1)
    for (let n = 1; n < 500; n += 1) waiting.push(acquire(full))
    expect(await acquire(full)).toBeUndefined()
    places.set(other, { id: randomUUID(), slot: 1 })
    expect(await acquire(other)).toMatchObject({ slot: 1 })
    await vi.advanceTimersByTimeAsync(2_000)
    const asked = requests.filter(({ ref }) => ref === full).length
    expect(asked).toBeGreaterThan(5)
    expect(asked).toBeLessThan(25)
    places.set(full, { id: randomUUID(), slot: 2 })
    await vi.advanceTimersByTimeAsync(300)
    expect(await Promise.all(waiting)).toEqual(Array(500).fill(expect.objectContaining({ slot: 2 })))
    expect(requests.filter(({ ref }) => ref === full).length).toBeLessThan(asked + 4)
    vi.useRealTimers()
    vi.unstubAllGlobals()
  })

  it('does not repeat a call that may have begun in a process that was ended', async () => {
    const { bindings, requests } = bindingsWith(() => Promise.reject(new Error('the connection closed')))
    const { response, settled } = await call(bindings)
    expect([response.status, response.headers.get('sb-error-code')]).toEqual([503, 'PROGRAMS_ENDED'])
    await Promise.all(settled)
    expect(requests).toHaveLength(1)
  })
})

describe('a process without known measurements', () => {
  it('counts as killed, which is not a fault of its programs', async () => {
    expect(await ask<EndReason>(await start(), '/ending', { id: 'unknown' })).toBe('killed')
  })
})
