import { setTimeout as delay } from 'node:timers/promises'
import { get } from './client.ts'
import type { Environment } from './environment.ts'
import type { Report } from './report.ts'
import { type Arrival, type Receivers, withReceivers } from './webhooks/ledger.ts'
import { ask, latencies, publishAtRate, type Spread, sendInParallel, spreadOf, wakeAll } from './webhooks/load.ts'
import type { Statements } from './webhooks/routes.ts'
import { type Endpoints, publishedAt, removePending, seedEndpoints, seedPending } from './webhooks/seed.ts'

const P50_MS_MAX = 25
const P99_MS_MAX = 150
const PER_SECOND = 500
const LATENCY = [
  { perSecond: 100, count: 1_000, bounded: false },
  { perSecond: PER_SECOND, count: 5_000, bounded: true },
]
const DELIVERIES_PER_SECOND_MIN = 2_000
const SATURATION = { rounds: 3, perEndpoint: 500, slots: 4 }
const HANGING = { rounds: 12, perSecond: 200, count: 1_000 }
const GROWTH_MAX = 1.1
const BACKLOG = 100_000
const WAKE_SECONDS_MAX = 60
const DEADLINE_MS = 60_000
const QUIET_MS = 2_000
const BACKLOG_DEADLINE_MS = 60_000

interface WebhookBench extends Environment {
  receivers: Receivers
  report: Report
  seed(slug: string, count: number): Promise<Endpoints>
}

/** Measures latency, throughput and fairness of webhook deliveries, and what each costs the database. */
export async function webhooks(environment: Environment, report: Report): Promise<void> {
  const { control, encryptionKey, port, workerRssBytes } = environment
  await withReceivers(async (receivers) => {
    const seed = (slug: string, count: number) =>
      seedEndpoints(control, { slug, count, receiverUrl: receivers.url, encryptionKey })
    const bench: WebhookBench = { ...environment, receivers, report, seed }
    await ask(port, '/bench/arm')
    const ten = await seed('ten', 10)
    await warmUp(bench, ten)
    const parts: Record<string, () => Promise<void>> = {
      latency: () => latency(bench, ten),
      saturation: () => saturation(bench, ten),
      hanging: () => hanging(bench, ten),
      'backlog of ten': () => backlog(bench, ten),
      'backlog of a thousand': async () => backlog(bench, await seed('thousand', 1_000)),
    }
    const mebibytes = async () => `${Math.round((await workerRssBytes()) / 2 ** 20)} MiB`
    const memory = [`${await mebibytes()} before`]
    for (const [name, part] of Object.entries(parts)) {
      await part()
      memory.push(`${await mebibytes()} after the ${name}`)
    }
    report.title('memory of workerd')
    report.line(memory.join(', '))
  })
}

async function warmUp({ port, receivers }: WebhookBench, ten: Endpoints) {
  await publishAtRate(port, ten, { perSecond: PER_SECOND, count: 1_000 })
  await receivers.expect(1_000, DEADLINE_MS)
  await receivers.take()
}

async function latency(bench: WebhookBench, ten: Endpoints) {
  const { port, report, control } = bench
  for (const { bounded, ...load } of LATENCY) {
    await statementsSince(port)
    const { perSecond, arrivals } = await publishAndReceive(bench, ten, load)
    const spread = spreadOf(latencies(arrivals, await publishedAt(control, ten)))
    const title = `${load.count} events to 10 endpoints, committed at ${perSecond.toFixed(0)}/s (wanted ${load.perSecond}/s)`
    report.title(`${title}: from the commit to the first byte`)
    report.line(spreadText(spread))
    if (bounded) {
      report.atMost('p50 ms', Math.round(spread.p50Ms), P50_MS_MAX)
      report.atMost('p99 ms', Math.round(spread.p99Ms), P99_MS_MAX)
    }
    reportStatements(report, await statementsSince(port), load.count)
  }
}

/** Delivers rows that are all due, in turn with a loop that only POSTs. */
async function saturation({ port, control, receivers, report }: WebhookBench, ten: Endpoints) {
  const { rounds, perEndpoint, slots } = SATURATION
  const count = perEndpoint * ten.endpoints.length
  const bare: number[] = []
  const delivered: number[] = []
  await statementsSince(port)
  for (let round = 0; round < rounds; round++) {
    const elapsedMs = await sendInParallel(
      port,
      ten.endpoints.map(({ path }) =>
        get(`/bench/post?url=${receivers.url}${path}&count=${perEndpoint}&slots=${slots}`),
      ),
    )
    bare.push((count * 1000) / elapsedMs)
    await receivers.take()

    await seedPending(control, ten, perEndpoint)
    const startedAt = Date.now()
    await wakeAll(port, ten.endpoints)
    await receivers.expect(count, DEADLINE_MS)
    const { arrivals } = await receivers.take()
    delivered.push((count * 1000) / (lastAt(arrivals) - startedAt))
  }
  const statements = await statementsSince(port)
  report.title(
    `saturation: 10 endpoints, ${slots} at a time each, ${rounds} × ${count} deliveries in turns with a bare loop`,
  )
  const rates = (values: number[]) => values.map((value) => value.toFixed(0)).join(', ')
  report.line(`a loop that only POSTs, a second: ${rates(bare)}`)
  report.line(`deliveries a second:              ${rates(delivered)}`)
  report.line(`ratio of the medians: ${(median(delivered) / median(bare)).toFixed(2)}`)
  report.atLeast('deliveries a second, median', Math.round(median(delivered)), DELIVERIES_PER_SECOND_MIN)
  reportStatements(report, statements, rounds * count)
}

/** Half of the receivers do not answer during a round, so all slots for them are taken while more events arrive. */
async function hanging(bench: WebhookBench, ten: Endpoints) {
  const { control, receivers, report } = bench
  const { rounds, ...load } = HANGING
  const hangingPaths = ten.endpoints.slice(ten.endpoints.length / 2).map(({ path }) => path)
  const ofHealthy = (arrivals: Arrival[], published: ReadonlyMap<string, number>) =>
    latencies(
      arrivals.filter(({ path }) => !hangingPaths.includes(path)),
      published,
    )
  const healthyAlone = async () => {
    const { arrivals } = await publishAndReceive(bench, ten, load)
    return ofHealthy(arrivals, await publishedAt(control, ten))
  }
  const healthyBeside = async () => {
    await receivers.hang(hangingPaths)
    await publishAtRate(bench.port, ten, load)
    await receivers.expect(load.count / 2, DEADLINE_MS)
    const published = await publishedAt(control, ten)
    // Otherwise retries of deliveries that timed out would continue in the next round.
    await removePending(control)
    await receivers.hang([])
    return ofHealthy((await receivers.take()).arrivals, published)
  }
  const alone: number[][] = []
  const beside: number[][] = []
  for (let round = 0; round < rounds; round++) {
    // The order alternates, because the second measurement has larger tables.
    if (round % 2 === 0) alone.push(await healthyAlone())
    beside.push(await healthyBeside())
    if (round % 2 === 1) alone.push(await healthyAlone())
  }
  // The median of the rounds is used, because one pause of the machine dominates the p99 of its round.
  const p99s = (side: number[][]) => side.map((taken) => spreadOf(taken).p99Ms)
  const rounded = (side: number[][]) => p99s(side).map(Math.round).join(', ')
  report.title(`5 of 10 endpoints hang, ${load.perSecond} events/s, ${rounds} rounds in turns: the other five`)
  report.line(`none hangs: ${spreadText(spreadOf(alone.flat()))}; p99 of the rounds: ${rounded(alone)}`)
  report.line(`five hang:  ${spreadText(spreadOf(beside.flat()))}; p99 of the rounds: ${rounded(beside)}`)
  report.atMost(
    'p99, growth of the median',
    Number((median(p99s(beside)) / median(p99s(alone))).toFixed(2)),
    GROWTH_MAX,
  )
}

/** Measures a backlog after the queue has lost every message, so that only the sweeper finds what is due. */
async function backlog({ port, control, receivers, report }: WebhookBench, to: Endpoints) {
  const count = to.endpoints.length
  await statementsSince(port)
  const startedAt = await seedPending(control, to, BACKLOG / count)
  const all = await receivers.reached(BACKLOG, BACKLOG_DEADLINE_MS)
  const left = all ? 0 : await removePending(control)
  const statements = await waitUntilQuiet(port)
  const { arrivals, duplicates } = await receivers.take()

  const firsts = new Map<string, number>()
  for (const { path, at } of arrivals) if (!firsts.has(path)) firsts.set(path, at)
  // A sweep may find the rows before their writer knows that they are committed.
  const seconds = (at: number) => Number((Math.max(0, at - startedAt) / 1000).toFixed(1))
  const first = Math.min(...firsts.values())
  const rate = ((arrivals.length * 1000) / (lastAt(arrivals) - first)).toFixed(0)
  report.title(`${thousands(BACKLOG)} pending on ${thousands(count)} endpoints, no message left in the queue`)
  const woken = firsts.size === count ? seconds(Math.max(...firsts.values())) : Number.POSITIVE_INFINITY
  report.atMost('s until all were sent to', woken, WAKE_SECONDS_MAX)
  const delivered = all
    ? 'all'
    : `${thousands(arrivals.length)}, when the benchmark removed the other ${thousands(left)},`
  report.line(
    `the first after ${seconds(first)} s, ${delivered} after ${seconds(lastAt(arrivals))} s: ${rate} a second`,
  )
  report.atMost('delivered twice', duplicates, 0)
  reportStatements(report, statements, arrivals.length)
}

async function publishAndReceive(
  { port, receivers }: WebhookBench,
  to: Endpoints,
  load: { perSecond: number; count: number },
) {
  const { perSecond } = await publishAtRate(port, to, load)
  await receivers.expect(load.count, DEADLINE_MS)
  return { perSecond, ...(await receivers.take()) }
}

const thousands = (value: number) => value.toLocaleString('en')

const statementsSince = async (port: number): Promise<Statements> => JSON.parse(await ask(port, '/bench/statements'))

/** Waits until nothing is being delivered; returns the statements since the last call. */
async function waitUntilQuiet(port: number): Promise<Statements> {
  const total = await statementsSince(port)
  for (;;) {
    await delay(QUIET_MS)
    const { claim, settle } = await statementsSince(port)
    if (!claim && !settle) return total
  }
}

function reportStatements(report: Report, statements: Statements, deliveries: number) {
  const parts = Object.entries(statements).map(
    ([kind, { count, ms }]) => `${kind} ${(count / deliveries).toFixed(2)} (${(ms / count).toFixed(1)} ms each)`,
  )
  report.line(`round trips to the database a delivery: ${parts.join(', ')}`)
}

const spreadText = ({ p50Ms, p99Ms, maxMs, count }: Spread) =>
  `p50 ${p50Ms.toFixed(0)} ms, p99 ${p99Ms.toFixed(0)} ms, longest ${maxMs.toFixed(0)} ms (${count})`
const lastAt = (arrivals: readonly Arrival[]) => arrivals.at(-1)?.at ?? Number.NaN
const median = (values: readonly number[]) => spreadOf(values).p50Ms
