import { setTimeout as delay } from 'node:timers/promises'
import type { Environment } from './environment.ts'
import { percentile } from './measure.ts'
import { createProject, deployFunction, PASSWORD } from './project.ts'
import type { Report } from './report.ts'
import { seedOrganization, seedOwners, seedTokens } from './seed.ts'

const LOOPS = 8
const COMPUTING_CALLERS = 2
/** Durations of a computation: two calls of the first are shorter together than the limit that ends a process; one of the second is longer. */
const COMPUTED_SECONDS = [2, 5]
const QUIET_MS = 15_000
const BUSY_MS = 60_000
const CALL_EVERY_MS = 50
/** Pause of a busy caller after each answer. */
const PAUSE_MS = 20
/** Bounds for the function of the other project. */
const P99_MS_MAX = 1_000
const P50_RATIO_MAX = 3
/** The status of a program that is held back. */
const HELD_BACK = 546

const HELLO = `Deno.serve(() => new Response('hello'))`
const LOOP = `Deno.serve(() => { for (;;); })`
/** Computes the number of steps that the request names: a program that computes cannot read the time, because its clock stands still. */
const COMPUTE = `Deno.serve(async (request) => {
  let value = 1
  for (let n = Number(await request.text()); n > 0; n -= 1) value = (value * 48271) % 2147483647
  return new Response(String(value))
})`

interface Latencies {
  p50Ms: number
  p99Ms: number
  msMax: number
  calls: number
  /** Calls by status, other than 200. */
  failures: Map<number, number>
}

/** Measures the latency of a small function while other functions compute, in the same project and in another one. */
export async function programs(environment: Environment, report: Report): Promise<void> {
  const { busy, other, call } = await prepare(environment)
  const compute = (steps: number) => call(`${busy}/functions/v1/compute`, String(steps))
  const stepsPerSecond = await findStepsPerSecond(compute)
  const loads: Record<string, (() => Promise<number>)[]> = {}
  for (const seconds of COMPUTED_SECONDS) {
    const computeLong = () => compute(Math.round(stepsPerSecond * seconds))
    loads[`${COMPUTING_CALLERS} callers of a computation of ${seconds} s`] = Array(COMPUTING_CALLERS).fill(computeLong)
  }
  const loops = Array.from({ length: LOOPS }, (_, n) => `${busy}/functions/v1/loop-${n}`)
  loads[`${LOOPS} functions that loop without end`] = loops.map((path) => () => call(path))
  const measureBoth = async (forMs: number) => {
    const measure = (ref: string) => measureCalls(() => call(`${ref}/functions/v1/hello`), forMs)
    const [same, another] = await Promise.all([measure(busy), measure(other)])
    return { same, another }
  }
  for (const [name, callers] of Object.entries(loads)) {
    report.title(`${name}, for ${BUSY_MS / 1_000} s`)
    const quiet = await measureBoth(QUIET_MS)
    const stop = keepCalling(callers)
    const during = await measureBoth(BUSY_MS)
    report.line(`their calls: ${formatCounts(await stop())}`)
    reportPhases(report, 'same project', { quiet: quiet.same, during: during.same })
    reportPhases(report, 'another project', { quiet: quiet.another, during: during.another })
    const { failures, p50Ms, p99Ms } = during.another
    report.atMost('another project: failures', sum(failures.values()), 0)
    report.atMost('another project: p99 ms', Math.round(p99Ms), P99_MS_MAX)
    report.atMost('another project: p50 / quiet', ratio(p50Ms, quiet.another.p50Ms), P50_RATIO_MAX)
    report.atMost('same project: calls held back', during.same.failures.get(HELD_BACK) ?? 0, 0)
  }
}

const ratio = (of: number, to: number) => Number((of / to).toFixed(2))
const sum = (counts: Iterable<number>) => [...counts].reduce((total, count) => total + count, 0)
const formatCounts = (counts: Map<number, number>) =>
  [...counts].map(([status, count]) => `${count}× ${status}`).join(', ') || 'none'

function reportPhases(report: Report, who: string, phases: Record<string, Latencies>): void {
  for (const [phase, { p50Ms, p99Ms, msMax, calls, failures }] of Object.entries(phases)) {
    const latencies = `p50 ${p50Ms.toFixed(1)}, p99 ${p99Ms.toFixed(1)}, longest ${msMax.toFixed(0)} ms`
    report.line(`${who}, ${phase}: ${latencies}; ${calls} calls, failures: ${formatCounts(failures)}`)
  }
}

/** Resolves to the status, 0 if the connection failed. */
type Call = (path: string, body?: string) => Promise<number>

/** Deploys the functions of two projects. */
async function prepare({ port, control }: Environment): Promise<{ busy: string; other: string; call: Call }> {
  const organization = await seedOrganization(control, 'programs', 0)
  const [token = ''] = await seedTokens(control, await seedOwners(control, [organization], 1), 1)
  const fields = { organization_slug: organization.slug, db_pass: PASSWORD }
  const busy = await createProject(port, token, { name: 'busy', ...fields })
  const other = await createProject(port, token, { name: 'other', ...fields })
  const deploy = (ref: string, slug: string, code: string) => deployFunction(port, token, { ref, slug, code })
  for (const ref of [busy, other]) await deploy(ref, 'hello', HELLO)
  await deploy(busy, 'compute', COMPUTE)
  for (let n = 0; n < LOOPS; n += 1) await deploy(busy, `loop-${n}`, LOOP)
  const call: Call = async (path, body) => {
    const init = body === undefined ? {} : { method: 'POST', body }
    try {
      const response = await fetch(`http://127.0.0.1:${port}/p/${path}`, init)
      await response.arrayBuffer()
      return response.status
    } catch {
      return 0
    }
  }
  return { busy, other, call }
}

const TRIED_STEPS = 50_000_000

async function findStepsPerSecond(compute: (steps: number) => Promise<number>): Promise<number> {
  await compute(TRIED_STEPS)
  const startedAt = performance.now()
  await compute(TRIED_STEPS)
  return (TRIED_STEPS * 1_000) / (performance.now() - startedAt)
}

/** Calls at a fixed rate, so that a slow answer delays no later call. */
async function measureCalls(call: () => Promise<number>, forMs: number): Promise<Latencies> {
  const ms: number[] = []
  const failures = new Map<number, number>()
  const calls: Promise<void>[] = []
  const startedAt = performance.now()
  const callOnce = async () => {
    const sentAt = performance.now()
    const status = await call()
    if (status === 200) ms.push(performance.now() - sentAt)
    else count(failures, status)
  }
  for (let n = 1; n * CALL_EVERY_MS <= forMs; n += 1) {
    calls.push(callOnce())
    await delay(startedAt + n * CALL_EVERY_MS - performance.now())
  }
  await Promise.all(calls)
  return {
    ...{ p50Ms: percentile(ms, 0.5), p99Ms: percentile(ms, 0.99), msMax: Math.max(...ms) },
    ...{ calls: calls.length, failures },
  }
}

const count = (counts: Map<number, number>, status: number) => counts.set(status, (counts.get(status) ?? 0) + 1)

/** Repeats each call as soon as it is answered; the returned function ends that and resolves to the counts by status. */
function keepCalling(callers: readonly (() => Promise<number>)[]): () => Promise<Map<number, number>> {
  const statuses = new Map<number, number>()
  let isOver = false
  const loops = callers.map(async (call) => {
    while (!isOver) {
      count(statuses, await call())
      await delay(PAUSE_MS)
    }
  })
  return async () => {
    isOver = true
    await Promise.all(loops)
    return statuses
  }
}
