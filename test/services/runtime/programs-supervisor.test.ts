import type { ChildProcess } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { usageFromPs, usageOf } from '../../../dev/child-process.ts'
import { type Programs, startPrograms } from '../../../dev/programs.ts'
import type { EndReason, Place, PlaceRequest } from '../../../src/services/runtime/processes/process-protocol.ts'
import { WAIT } from '../../support/machine.ts'

/** Answers the supervisor as the real host does, and misbehaves as its path says. */
const HOST = `export default {}
export const ProgramsHost = { async fetch(request, { PROGRAMS_PROCESS }) {
  const { pathname } = new URL(request.url)
  if (pathname === '/loop') for (;;);
  if (pathname === '/memory') for (const held = []; ; await scheduler.wait(1)) held.push(new Uint8Array(64 * 1024 ** 2).fill(1))
  if (pathname === '/objects') for (let n = 0, held = []; ; n += 1) held.push({ n })
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
  return ask<Place>(programs, '/place', { group, ref: group, mayStart: true, busy: [], ...request })
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
/** Signals the first process, which is the first to be assigned. */
const sendSignal = (signal: NodeJS.Signals) => () => expect(children[0]?.kill(signal)).toBe(true)

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

  it.each(['/objects', '/arrays'])('ends for its memory if its heap is full: %s', async (path) => {
    const programs = await start(measure, { cpuSeconds: 5, memoryMiB: 4_096, silentSeconds: 60 })
    expect(await endingAfter(programs, callTo(path))).toBe('memory')
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

describe('an unmeasured process', () => {
  it('ends once it is silent, without a known fault', async () => {
    const programs = await start(async () => undefined, { ...LIMITS, silentSeconds: 3 })
    expect(await endingAfter(programs, () => {})).toBeUndefined()
    expect(await endingAfter(programs, callTo('/loop'))).toBe('silent')
  })
})

describe('a process assigned to a call', () => {
  it('is not ended to make room for a call that started to wait earlier', async () => {
    const programs = await start()
    const ref = randomUUID()
    const placeOf = async (group: string, busy: string[]) => (await place(programs, { group, ref, busy }))?.id ?? ''
    const first = await placeOf('first', [])
    const second = await placeOf('second', [first])
    const third = await placeOf('third', [first, second])
    const given: string[] = []
    const wait = async (group: string, busy: string[]) => void given.push(await placeOf(group, busy))
    void wait('fourth', [first, second, third])
    void wait('fifth', [second, third])
    const releaseUntilGiven = (count: number, busy: string[]) =>
      vi.waitFor(async () => {
        await placeOf('third', [...busy, ...given])
        expect(given).toHaveLength(count)
      }, WAIT)
    await releaseUntilGiven(1, [second])
    await releaseUntilGiven(2, [])
    const endings = [first, second, third, ...given].map((id) => ask<EndReason>(programs, '/ending', { id }))
    expect(await Promise.all(endings)).toEqual(['unused', 'unused', undefined, undefined, undefined])
  })
})

describe('a process without known measurements', () => {
  it('counts as killed, which is not a fault of its programs', async () => {
    expect(await ask<EndReason>(await start(), '/ending', { id: 'unknown' })).toBe('killed')
  })
})
