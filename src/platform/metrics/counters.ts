import type { Bindings } from '../bindings.ts'
import { createLogger, describeError } from '../http/log.ts'
import { addCounts, type Counts } from './counts.ts'

interface Host {
  bindings: Bindings
  waitUntil(work: Promise<unknown>): void
}

/** Counters by their metric's name; the labels of each, in this order. */
export const COUNTERS = {
  http_requests: ['operation', 'status'],
  webhook_attempts: ['status'],
  tasks_ended: ['queue', 'kind', 'state'],
} as const
type Counter = keyof typeof COUNTERS

/** Of requests, in seconds; the last bucket has no bound. */
export const BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
export const DURATION = 'http_request_duration_seconds'

const HANDED_OVER_AFTER_MS = 10_000
/** The request that was to hand over has gone away. */
const GONE_AFTER_MS = 3 * HANDED_OVER_AFTER_MS
/** Far more than there are operations and statuses. */
const SERIES_MAX = 10_000

/** Counted in this isolate, and not handed over yet. */
let counts: Counts = new Map()
let handingOverSince = 0

export const seriesOf = (metric: string, labels: readonly string[]): string => [metric, ...labels].join(' ')

/**
 * Counts in memory: nothing waits for it. A few seconds later it is handed over, with all else that the isolate has counted, to
 * the object that sums up; an isolate that is killed before loses it.
 */
export function count(host: Host, metric: Counter, labels: readonly string[], by = 1): void {
  if (!isCounted(host)) return
  add(seriesOf(metric, labels), [by])
  handOverSoon(host)
}

interface Measured {
  service: 'management' | 'storage' | 'functions' | 'workers' | 'keys'
  operation: string
  status: number
  ms: number
}

export function measureRequest(host: Host, { service, operation, status, ms }: Measured): void {
  if (!isCounted(host)) return
  const seconds = ms / 1_000
  const bucket = BUCKETS.findIndex((bound) => seconds <= bound)
  const numbers = [...BUCKETS.map(() => 0), 0, seconds]
  numbers[bucket === -1 ? BUCKETS.length : bucket] = 1
  add(seriesOf('http_requests', [operation, String(status)]), [1])
  add(seriesOf(DURATION, [service]), numbers)
  handOverSoon(host)
}

interface Call {
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** Of a service that has one operation. */
export async function measureCall(
  { bindings, execution }: Call,
  service: Measured['service'],
  answer: () => Response | Promise<Response>,
): Promise<Response> {
  const startedAt = performance.now()
  const response = await answer()
  const host = { bindings, waitUntil: (work: Promise<unknown>) => execution.waitUntil(work) }
  const ms = performance.now() - startedAt
  measureRequest(host, { service, operation: `${service}.call`, status: response.status, ms })
  return response
}

/** Calls in a process of programs have been counted by the API, which sent them there. */
const isCounted = ({ bindings }: Host): boolean => bindings.PROGRAMS_PROCESS === undefined

function add(series: string, numbers: number[]): void {
  if (counts.size < SERIES_MAX || counts.has(series)) addCounts(counts, new Map([[series, numbers]]))
}

function handOverSoon(host: Host): void {
  const now = Date.now()
  if (handingOverSince > 0 && now - handingOverSince < GONE_AFTER_MS) return
  handingOverSince = now
  const waiting = scheduler.wait(HANDED_OVER_AFTER_MS).then(() => handOver(host.bindings))
  host.waitUntil(
    waiting.catch((error) => createLogger('').error('metrics_not_handed_over', { error: describeError(error) })),
  )
}

/** Returns the totals of the installation. What the object did not take is handed over with the next. */
export async function handOver({ METRICS: objects }: Bindings): Promise<Counts> {
  const own = counts
  counts = new Map()
  handingOverSince = 0
  try {
    return await objects.get(objects.idFromName('only')).add(own)
  } catch (error) {
    addCounts(counts, own)
    throw error
  }
}
