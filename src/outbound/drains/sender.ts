import type { SystemCtx } from '../../ctx.ts'
import type { LogFields } from '../../platform/http/log.ts'
import { describeError } from '../../platform/http/log.ts'
import { destinationRules } from '../../platform/net/egress.ts'
import { timeout, withTimeout } from '../../platform/timeout.ts'
import { type Batch, SendFailure } from './backend.ts'
import { BACKENDS } from './backends/index.ts'
import { openTransport } from './drain-connection.ts'
import { openSecrets } from './secrets.ts'
import {
  type ClaimedDrain,
  claimDrain,
  ENTRIES_MAX,
  type Entry,
  type Pending,
  readPending,
  recordFailure,
  recordSent,
  release,
  renewDrainLease,
} from './store.ts'
import { checkTarget } from './target.ts'

/** The maximum number of batches per run; the next sweep continues. */
const BATCHES_MAX = 50
const STATEMENT_MS = 10_000
const DELAY_MS = 10_000
const DELAY_MS_MAX = 15 * 60_000
const JITTER = 0.2
/** The delay after a local problem, which does not count as a failure of the destination. */
const LOCAL_DELAY_MS = 15_000
/** After this many consecutive rejections, the destination is considered to accept nothing. */
const REJECTED_MAX = 10

/** A local dependency that a batch needs is unavailable. */
class DependencyUnavailable extends Error {
  override name = 'DependencyUnavailable'
  readonly delayMs: number

  constructor(message: string, delayMs = LOCAL_DELAY_MS) {
    super(message)
    this.delayMs = delayMs
  }
}

interface OpenDrain {
  send(batch: Batch): Promise<void>
  lingerMs: number
}

/**
 * Sends the pending entries of a drain in batches until none is left or one fails. The drain is leased; a batch that was sent but
 * not recorded, because of a crash or a database failure, is sent again after the lease. Returns the delay until the retry of a
 * failure.
 */
export async function runDrain(ctx: SystemCtx, drainId: string): Promise<number | undefined> {
  const { db, databaseNow: now, log } = ctx
  const drain = await limitTime(claimDrain(db, now, drainId))
  if (!drain) return undefined
  const logFields = { drain: drain.id, project: drain.projectRef, backend: drain.backendType }
  const totals = { batches: 0, rows: 0 }
  let retryMs: number | undefined
  try {
    const opened = await open(ctx, drain)
    const remaining = await sendAll(ctx, drain, opened, (batch) => {
      totals.batches += 1
      totals.rows += batch.rows
      const { lost } = batch
      for (const reason of ['gone', 'refused'] as const) {
        if (lost[reason] > 0) log.error('log_drain_rows_lost', { ...logFields, rows: lost[reason], reason })
      }
    })
    if (remaining !== 'taken over')
      await limitTime(release(db, now, drain, remaining === 'nothing' ? opened.lingerMs : 0))
  } catch (error) {
    retryMs = await handleFailure(ctx, drain, error, logFields)
  }
  if (totals.batches > 0) log.info('log_drain_sent', { ...logFields, ...totals })
  return retryMs
}

async function handleFailure(
  ctx: SystemCtx,
  drain: ClaimedDrain,
  error: unknown,
  logFields: LogFields,
): Promise<number> {
  const { db, databaseNow: now, log } = ctx
  if (error instanceof DependencyUnavailable) {
    log.error('log_drain_postponed', { ...logFields, reason: error.message })
    await limitTime(release(db, now, drain, error.delayMs))
    return error.delayMs
  }
  // Any other error is one of the database, not of the destination: the rows stay pending, and the lease expires.
  if (!(error instanceof SendFailure)) throw error
  const failures = drain.failures + 1
  const backOffMs = Math.min(DELAY_MS * 2 ** drain.failures, DELAY_MS_MAX) * (1 + JITTER * Math.random())
  const delayMs = Math.round(Math.max(backOffMs, Math.min(error.retryAfterMs ?? 0, DELAY_MS_MAX)))
  const failingSince = drain.failingSince ?? ctx.now().getTime()
  log.error('log_drain_failed', {
    ...logFields,
    error_code: error.code,
    reason: error.message,
    failures,
    failing_s: Math.round((ctx.now().getTime() - failingSince) / 1_000),
    next_s: Math.round(delayMs / 1_000),
  })
  await limitTime(recordFailure(db, now, drain, delayMs))
  return delayMs
}

/** Opens a drain for sending. The destination is checked before each batch. */
async function open(ctx: SystemCtx, drain: ClaimedDrain): Promise<OpenDrain> {
  const backend = BACKENDS[drain.backendType]
  if (!backend) throw new Error(`unsupported log drain backend ${drain.backendType}`)
  const secrets = await openSecrets(ctx.config.ENCRYPTION_KEY, drain.id, drain.sealedSecrets).catch((error) => {
    throw new DependencyUnavailable(`the secrets cannot be decrypted: ${describeError(error)}`, DELAY_MS_MAX)
  })
  const config = backend.config.parse({ ...drain.config, ...secrets })
  const rules = destinationRules(ctx)
  const timeoutMs = ctx.config.WEBHOOK_TIMEOUT_SECONDS * 1_000
  return {
    lingerMs: backend.lingerMs?.(config) ?? 0,
    async send(batch) {
      const verdict = await checkTarget(backend.target(config), rules)
      if (verdict.kind === 'unavailable') throw new DependencyUnavailable(verdict.reason)
      if (verdict.kind === 'refused') throw new SendFailure('destination_refused', verdict.reason)
      if (verdict.kind === 'unresolved') throw new SendFailure('name_not_resolved', verdict.reason)
      const { signal, clear } = timeout(timeoutMs)
      try {
        await backend.send(config, batch, openTransport(ctx, signal))
      } catch (error) {
        if (error instanceof SendFailure) throw error
        // The message is fixed, because runtime errors expose internals.
        throw signal.aborted
          ? new SendFailure('timeout', `the destination did not answer within ${timeoutMs / 1_000} s`)
          : new SendFailure('connection_failed', 'the connection failed before a response arrived')
      } finally {
        clear()
      }
    },
  }
}

interface BatchRecord {
  rows: number
  lost: { gone: number; refused: number }
}

/**
 * Sends batches and returns whether entries remain or another sender has taken over the drain. Rows that the destination rejects
 * do not block others: they are found by halving the batch down to the rows of one entry, skipped, and dropped once later rows
 * were accepted.
 */
async function sendAll(
  { db, databaseNow: now }: SystemCtx,
  drain: ClaimedDrain,
  { send }: OpenDrain,
  record: (batch: BatchRecord) => void,
): Promise<'nothing' | 'more' | 'taken over'> {
  const rejected: Entry[] = []
  let rejection: SendFailure | undefined
  let count = ENTRIES_MAX
  let remaining: 'nothing' | 'more' = 'nothing'
  for (let batches = 0; batches < BATCHES_MAX; batches++) {
    const pending = await limitTime(readPending(db, drain.id, { after: rejected.at(-1)?.id, count }))
    const { entries, rows, isFull } = pending
    remaining = isFull ? 'more' : 'nothing'
    if (entries.length === 0) break
    const present = new Set(rows.map(({ entry }) => entry))
    const missing = entries.filter(({ id }) => !present.has(id))
    let rejectedRows = 0
    try {
      if (rows.length > 0) await send(batchOf(drain, pending))
    } catch (error) {
      rejection = requireContentRejection(error)
      count = Math.ceil(entries.length / 2)
      if (entries.length > 1) continue
      const accepted = await sendHalves(batchOf(drain, pending), send, () => limitTime(renewDrainLease(db, now, drain)))
      if (accepted === 'taken over') return accepted
      rejectedRows = rows.length - accepted
      if (accepted === 0) {
        rejected.push(...entries)
        if (rejected.length === REJECTED_MAX) break
        continue
      }
    }
    // Rejected entries are only dropped after the destination has accepted later rows.
    const dropped = rows.length > 0 ? rejected.splice(0) : []
    const outcome = { sent: idsOf(entries), dropped: idsOf(dropped) }
    const isClaimed = await limitTime(recordSent(db, now, drain, outcome))
    record({ rows: rows.length - rejectedRows, lost: { gone: sum(missing), refused: sum(dropped) + rejectedRows } })
    if (!isClaimed) return 'taken over'
    drain.failures = 0
    drain.failingSince = null
    count = Math.min(count * 2, ENTRIES_MAX)
    if (!isFull) break
  }
  if (rejected.length > 0 && rejection) throw rejection
  return remaining
}

function requireContentRejection(error: unknown): SendFailure {
  if (error instanceof SendFailure && error.isContentRejection) return error
  throw error
}

/**
 * Sends the halves of a rejected batch, and recursively their halves. Returns the number of accepted rows; 0 if the first
 * REJECTED_MAX rows are all rejected.
 */
async function sendHalves(
  batch: Batch,
  send: OpenDrain['send'],
  renewLease: () => Promise<boolean>,
): Promise<number | 'taken over'> {
  const waiting = halvesOf(0, batch.rows.length)
  let [accepted, rejected] = [0, 0]
  for (let range = waiting.shift(); range; range = waiting.shift()) {
    const [start, end] = range
    if (!(await renewLease())) return 'taken over'
    try {
      await send({ ...batch, id: `${batch.id}-${start}-${end}`, rows: batch.rows.slice(start, end) })
      accepted += end - start
    } catch (error) {
      requireContentRejection(error)
      if (end - start === 1) rejected += 1
      else waiting.unshift(...halvesOf(start, end))
      if (accepted === 0 && rejected === REJECTED_MAX) return 0
    }
  }
  return accepted
}

function halvesOf(start: number, end: number): [start: number, end: number][] {
  const middle = Math.ceil((start + end) / 2)
  return end - start < 2
    ? []
    : [
        [start, middle],
        [middle, end],
      ]
}

const idsOf = (entries: readonly Entry[]): string[] => entries.map(({ id }) => id)

const sum = (entries: readonly Entry[]): number => entries.reduce((total, { rows }) => total + rows, 0)

function batchOf({ projectRef }: ClaimedDrain, { entries, rows }: Pending): Batch {
  const [first] = entries
  const last = entries.at(-1)
  if (!first || !last) throw new Error('a batch must have entries')
  // The id starts with the time.
  const at = new Date(Number.parseInt(first.id.replaceAll('-', '').slice(0, 12), 16))
  return { id: `${first.id}-${last.id.slice(-12)}`, projectRef, at, rows: rows.map(({ entry: _, ...row }) => row) }
}

/** Limits the time of a statement: a sender that waits forever would block its drain. */
const limitTime = <T>(work: PromiseLike<T>): Promise<T> =>
  withTimeout(STATEMENT_MS, work, () => new Error('the database did not answer in time'))
