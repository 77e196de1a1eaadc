import type { SystemCtx } from '../../ctx.ts'
import type { LogFields } from '../../platform/http/log.ts'
import { describeError } from '../../platform/http/log.ts'
import { destinationRules } from '../../platform/net/egress.ts'
import { timeout } from '../../platform/timeout.ts'
import { type Batch, SendFailure } from './backend.ts'
import { BACKENDS } from './backends/index.ts'
import { openWay } from './drain-connection.ts'
import { openSecrets } from './secrets.ts'
import {
  type ClaimedDrain,
  claimDrain,
  ENTRIES_MAX,
  type Entry,
  keepLease,
  type Pending,
  readPending,
  recordFailure,
  recordSent,
  release,
} from './store.ts'
import { checkTarget } from './target.ts'

/** Of one run; the next sweep goes on. */
const BATCHES_MAX = 50
const STATEMENT_MS = 10_000
const DELAY_MS = 10_000
const DELAY_MS_MAX = 15 * 60_000
const JITTER = 0.2
/** Our own fault: no failure of the destination's. */
const POSTPONED_MS = 15_000
/** So many that are refused one after another are no exceptions: then it is the destination that takes nothing. */
const REFUSED_MAX = 10

/** Something of ours that a batch needs and that is not there now. */
class Postponed extends Error {
  override name = 'Postponed'
  readonly delayMs: number

  constructor(message: string, delayMs = POSTPONED_MS) {
    super(message)
    this.delayMs = delayMs
  }
}

interface Opened {
  send(batch: Batch): Promise<void>
  lingerMs: number
}

/**
 * Sends what waits for one drain, batch after batch, until nothing does or one is not taken. A lease keeps others off; what is sent
 * and not recorded, because the sender died or the database was away, is sent again once it has ended. Returns after how long a failure
 * is to be tried again.
 */
export async function runDrain(ctx: SystemCtx, drainId: string): Promise<number | undefined> {
  const { db, databaseNow: now, log } = ctx
  const drain = await inTime(claimDrain(db, now, drainId))
  if (!drain) return undefined
  const about = { drain: drain.id, project: drain.projectRef, backend: drain.backendType }
  const tally = { batches: 0, rows: 0 }
  let retryMs: number | undefined
  try {
    const opened = await open(ctx, drain)
    const left = await sendAll(ctx, drain, opened, (batch) => {
      tally.batches += 1
      tally.rows += batch.rows
      const { lost } = batch
      for (const reason of ['gone', 'refused'] as const) {
        if (lost[reason] > 0) log.error('log_drain_rows_lost', { ...about, rows: lost[reason], reason })
      }
    })
    if (left !== 'taken over') await inTime(release(db, now, drain, left === 'nothing' ? opened.lingerMs : 0))
  } catch (error) {
    retryMs = await settleFailure(ctx, drain, error, about)
  }
  if (tally.batches > 0) log.info('log_drain_sent', { ...about, ...tally })
  return retryMs
}

async function settleFailure(ctx: SystemCtx, drain: ClaimedDrain, error: unknown, about: LogFields): Promise<number> {
  const { db, databaseNow: now, log } = ctx
  if (error instanceof Postponed) {
    log.error('log_drain_postponed', { ...about, reason: error.message })
    await inTime(release(db, now, drain, error.delayMs))
    return error.delayMs
  }
  // Not the destination: the database, whose rows wait. The lease ends by itself.
  if (!(error instanceof SendFailure)) throw error
  const failures = drain.failures + 1
  const backOffMs = Math.min(DELAY_MS * 2 ** drain.failures, DELAY_MS_MAX) * (1 + JITTER * Math.random())
  const delayMs = Math.round(Math.max(backOffMs, Math.min(error.retryAfterMs ?? 0, DELAY_MS_MAX)))
  const failingSince = drain.failingSince ?? ctx.now().getTime()
  log.error('log_drain_failed', {
    ...about,
    error_code: error.code,
    reason: error.message,
    failures,
    failing_s: Math.round((ctx.now().getTime() - failingSince) / 1_000),
    next_s: Math.round(delayMs / 1_000),
  })
  await inTime(recordFailure(db, now, drain, delayMs))
  return delayMs
}

/** Where it leads to is judged before each batch. */
async function open(ctx: SystemCtx, drain: ClaimedDrain): Promise<Opened> {
  const backend = BACKENDS[drain.backendType]
  if (!backend) throw new Error(`nothing can be sent to ${drain.backendType}`)
  const secrets = await openSecrets(ctx.config.ENCRYPTION_KEY, drain.id, drain.sealedSecrets).catch((error) => {
    throw new Postponed(`the secrets cannot be opened: ${describeError(error)}`, DELAY_MS_MAX)
  })
  const config = backend.config.parse({ ...drain.config, ...secrets })
  const rules = destinationRules(ctx)
  const timeoutMs = ctx.config.WEBHOOK_TIMEOUT_SECONDS * 1_000
  return {
    lingerMs: backend.lingerMs?.(config) ?? 0,
    async send(batch) {
      const verdict = await checkTarget(backend.target(config), rules)
      if (verdict.kind === 'unavailable') throw new Postponed(verdict.reason)
      if (verdict.kind === 'refused') throw new SendFailure('destination_refused', verdict.reason)
      if (verdict.kind === 'unresolved') throw new SendFailure('name_not_resolved', verdict.reason)
      const { signal, clear } = timeout(timeoutMs)
      try {
        await backend.send(config, batch, openWay(ctx, signal))
      } catch (error) {
        if (error instanceof SendFailure) throw error
        // In our words: those of the runtime tell of its inside.
        throw signal.aborted
          ? new SendFailure('timeout', `the destination gave no answer within ${timeoutMs / 1_000} s`)
          : new SendFailure('connection_failed', 'the connection failed before an answer came')
      } finally {
        clear()
      }
    },
  }
}

interface Recorded {
  rows: number
  lost: { gone: number; refused: number }
}

/**
 * Tells what is left in the end: nothing, more, or somebody else has the drain. Rows that a destination refuses for what they are hold up no others: they are
 * looked for by halving the batch, down to the rows of one entry, passed over, and given up once it has taken others.
 */
async function sendAll(
  { db, databaseNow: now }: SystemCtx,
  drain: ClaimedDrain,
  { send }: Opened,
  record: (batch: Recorded) => void,
): Promise<'nothing' | 'more' | 'taken over'> {
  const refused: Entry[] = []
  let refusal: SendFailure | undefined
  let count = ENTRIES_MAX
  let left: 'nothing' | 'more' = 'nothing'
  for (let batches = 0; batches < BATCHES_MAX; batches++) {
    const pending = await inTime(readPending(db, drain.id, { after: refused.at(-1)?.id, count }))
    const { entries, rows, isFull } = pending
    left = isFull ? 'more' : 'nothing'
    if (entries.length === 0) break
    const found = new Set(rows.map(({ entry }) => entry))
    const gone = entries.filter(({ id }) => !found.has(id))
    let refusedRows = 0
    try {
      if (rows.length > 0) await send(batchOf(drain, pending))
    } catch (error) {
      refusal = contentRefusal(error)
      count = Math.ceil(entries.length / 2)
      if (entries.length > 1) continue
      const taken = await sendApart(batchOf(drain, pending), send, () => inTime(keepLease(db, now, drain)))
      if (taken === 'taken over') return taken
      refusedRows = rows.length - taken
      if (taken === 0) {
        refused.push(...entries)
        if (refused.length === REFUSED_MAX) break
        continue
      }
    }
    // Where nothing was sent, nothing was taken after what was refused.
    const givenUp = rows.length > 0 ? refused.splice(0) : []
    const done = { sent: idsOf(entries), givenUp: idsOf(givenUp) }
    const isOurs = await inTime(recordSent(db, now, drain, done))
    record({ rows: rows.length - refusedRows, lost: { gone: sum(gone), refused: sum(givenUp) + refusedRows } })
    if (!isOurs) return 'taken over'
    drain.failures = 0
    drain.failingSince = null
    count = Math.min(count * 2, ENTRIES_MAX)
    if (!isFull) break
  }
  if (refused.length > 0 && refusal) throw refusal
  return left
}

function contentRefusal(error: unknown): SendFailure {
  if (error instanceof SendFailure && error.isOfContent) return error
  throw error
}

/**
 * Sends the halves of a refused batch, and their halves. Returns how many rows were taken; where the first several rows are all refused
 * one by one, none.
 */
async function sendApart(
  batch: Batch,
  send: Opened['send'],
  keep: () => Promise<boolean>,
): Promise<number | 'taken over'> {
  const waiting = halvesOf(0, batch.rows.length)
  let [taken, refused] = [0, 0]
  for (let range = waiting.shift(); range; range = waiting.shift()) {
    const [start, end] = range
    if (!(await keep())) return 'taken over'
    try {
      await send({ ...batch, id: `${batch.id}-${start}-${end}`, rows: batch.rows.slice(start, end) })
      taken += end - start
    } catch (error) {
      contentRefusal(error)
      if (end - start === 1) refused += 1
      else waiting.unshift(...halvesOf(start, end))
      if (taken === 0 && refused === REFUSED_MAX) return 0
    }
  }
  return taken
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
  if (!first || !last) throw new Error('an empty batch')
  // The time is in the first part of the id.
  const at = new Date(Number.parseInt(first.id.replaceAll('-', '').slice(0, 12), 16))
  return { id: `${first.id}-${last.id.slice(-12)}`, projectRef, at, rows: rows.map(({ entry: _, ...row }) => row) }
}

/** A sender that waits for ever would be the drain's last. */
async function inTime<T>(work: PromiseLike<T>): Promise<T> {
  const { signal, clear } = timeout(STATEMENT_MS)
  const tooLate = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('the database did not answer in time')), { once: true })
  })
  try {
    return await Promise.race([work, tooLate])
  } finally {
    clear()
  }
}
