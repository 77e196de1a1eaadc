import type { Bindings } from '../bindings.ts'
import { createLogger, describeError } from '../http/log.ts'
import { addCounts, type Counts } from './counts.ts'

/** Parts of a context that counting needs. */
interface MetricsCtx {
  bindings: Bindings
  waitUntil(work: Promise<unknown>): void
}

/** Every counter, with its labels in the order of their values. */
export const COUNTERS = {
  http_requests: {
    labels: ['operation', 'status'],
    help: 'Requests by operation and status, of all isolates.',
  },
  webhook_attempts: { labels: ['status'], help: 'Attempts to deliver webhooks by their result.' },
  tasks_ended: { labels: ['queue', 'kind', 'state'], help: 'Background tasks that have ended.' },
} as const
type Counter = keyof typeof COUNTERS

/** Upper bounds of the request duration buckets in seconds. There is one more bucket without a bound. */
export const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
export const DURATION = 'http_request_duration_seconds'

const FLUSH_AFTER_MS = 10_000
/** After this time, the request that was to flush has been terminated. */
const FLUSH_LOST_AFTER_MS = 3 * FLUSH_AFTER_MS
/** Far more than there are combinations of operation and status. */
const SERIES_MAX = 10_000

/** Counts of this isolate that have not been flushed yet. */
let counts: Counts = new Map()
let flushingSince = 0

export const seriesOf = (metric: string, labels: readonly string[]): string => [metric, ...labels].join(' ')

/**
 * Adds to a counter in memory. The isolate flushes all its counters to the MetricsCollector a few seconds later; counts are lost if
 * the isolate is terminated before.
 */
export function count(ctx: MetricsCtx, metric: Counter, labels: readonly string[], by = 1): void {
  if (!isCounted(ctx)) return
  increase(numbersOf(seriesOf(metric, labels)), 0, by)
  scheduleFlush(ctx)
}

interface Measured {
  service: 'management' | 'storage' | 'data-api' | 'functions' | 'workers' | 'keys'
  operation: string
  status: number
  ms: number
}

export function measureRequest(ctx: MetricsCtx, { service, operation, status, ms }: Measured): void {
  if (!isCounted(ctx)) return
  const seconds = ms / 1_000
  const bucket = BUCKETS.findIndex((bound) => seconds <= bound)
  increase(numbersOf(seriesOf('http_requests', [operation, String(status)])), 0, 1)
  const durations = numbersOf(seriesOf(DURATION, [service]), BUCKETS.length + 2)
  increase(durations, bucket === -1 ? BUCKETS.length : bucket, 1)
  increase(durations, BUCKETS.length + 1, seconds)
  scheduleFlush(ctx)
}

interface Call {
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** Runs and measures a call of a service that has a single operation. */
export async function measureCall(
  { bindings, execution }: Call,
  service: Measured['service'],
  answer: () => Response | Promise<Response>,
): Promise<Response> {
  const startedAt = performance.now()
  const response = await answer()
  const ctx = { bindings, waitUntil: (work: Promise<unknown>) => execution.waitUntil(work) }
  const ms = performance.now() - startedAt
  measureRequest(ctx, { service, operation: `${service}.call`, status: response.status, ms })
  return response
}

/** A program process does not count: the API, which forwards the calls, has already counted them. */
const isCounted = ({ bindings }: MetricsCtx): boolean => bindings.PROGRAMS_PROCESS === undefined

/** The numbers of a series, to be changed in place. They are not kept if there are too many series. */
function numbersOf(series: string, length = 1): number[] {
  const known = counts.get(series)
  if (known) return known
  const numbers = Array.from({ length }, () => 0)
  if (counts.size < SERIES_MAX) counts.set(series, numbers)
  return numbers
}

function increase(numbers: number[], n: number, by: number): void {
  numbers[n] = (numbers[n] ?? 0) + by
}

function scheduleFlush(ctx: MetricsCtx): void {
  const now = Date.now()
  if (flushingSince > 0 && now - flushingSince < FLUSH_LOST_AFTER_MS) return
  flushingSince = now
  const flushed = scheduler.wait(FLUSH_AFTER_MS).then(() => flushCounts(ctx.bindings))
  ctx.waitUntil(
    flushed.catch((error) => createLogger('').error('metrics_flush_failed', { error: describeError(error) })),
  )
}

/** Sends the counts to the collector and returns the totals of the installation. Counts that fail to arrive are sent next time. */
export async function flushCounts({ METRICS: objects }: Bindings): Promise<Counts> {
  const own = counts
  counts = new Map()
  flushingSince = 0
  try {
    return await objects.get(objects.idFromName('only')).add(own)
  } catch (error) {
    addCounts(counts, own)
    throw error
  }
}
