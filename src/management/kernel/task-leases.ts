import { and, eq, lte, notInArray, or, type SQL, sql } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'
import type { SystemCtx } from '../../ctx.ts'
import type { projectTasks, workerTasks } from '../../model/tables/index.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Message } from '../../platform/queue/message.ts'
import { send, sendLater } from '../../platform/queue/send.ts'
import type { Mutation } from './mutate.ts'

/** Tables of tasks that a queue hands out. Each is done by who holds its lease. */
type Table = typeof projectTasks | typeof workerTasks

/** A task as its holder has read it. */
interface Held {
  id: string
  claim: string | null
  attempts: number
}

interface Terms {
  table: Table
  type: Extract<Message, { id: string }>['type']
}

export const LEASE_MS = 30_000
const RENEWAL_MS = 7_500
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000
const WAIT_MS = 3_000
const SWEPT_MAX = 100
/** A message sent this long ago may still be on its way; sooner than that the sweeper would only send doubles. */
export const GRACE_MS = 5_000
const BURIED_DELAY_MS = 60_000

/** The claims under which this isolate works now. */
const working = new Set<string>()

/** Runs work under a claim of its own. */
export async function withClaim<Value>(work: (claim: string) => Promise<Value>): Promise<Value> {
  const claim = crypto.randomUUID()
  working.add(claim)
  try {
    return await work(claim)
  } finally {
    working.delete(claim)
  }
}

/** A lease that has expired, or whose holder is dead: where one Worker does all work, claims of others are those of the dead. */
export function isLapsed(
  { config }: SystemCtx,
  { leaseUntil, claim }: Record<'leaseUntil' | 'claim', PgColumn>,
  at: Date,
) {
  const expired = lte(leaseUntil, at)
  return config.SOLE_WORKER ? or(expired, notInArray(claim, [...working])) : expired
}

/** Renews a lease until it is stopped: work may take longer than one. */
export function startRenewing({ log }: SystemCtx, task: { id: string }, renew: () => Promise<unknown>): () => void {
  const timer = setInterval(
    () => renew().catch((error) => log.error('lease_not_renewed', { task: task.id, error: describeError(error) })),
    RENEWAL_MS,
  )
  return () => clearInterval(timer)
}

/** Who may do a task, for how long, and when it is tried again: the same for all tasks, by the rows of their table. */
export function createLeases({ table, type }: Terms) {
  const until = ({ now }: SystemCtx) => new Date(now().getTime() + LEASE_MS)

  const held = ({ id, claim }: Held) => and(eq(table.id, id), eq(table.state, 'running'), eq(table.claim, claim ?? ''))

  const isAbandoned = (ctx: SystemCtx, at: Date) => and(eq(table.state, 'running'), isLapsed(ctx, table, at))

  /** Selects the row for who holds it now; undefined for a task that somebody else does, or has done. */
  async function take(ctx: SystemCtx, id: string, claim: string): Promise<SQL | undefined> {
    const at = ctx.now()
    const [claimed] = await ctx.db
      .update(table)
      .set({
        state: 'running',
        claim,
        leaseUntil: until(ctx),
        // Counted before the work, so that work that kills its consumer each time also comes to an end.
        attempts: sql`${table.attempts} + 1`,
      })
      .where(and(eq(table.id, id), or(and(eq(table.state, 'pending'), lte(table.dueAt, at)), isAbandoned(ctx, at))))
      .returning({ id: table.id, claim: table.claim, attempts: table.attempts })
    return claimed && held(claimed)
  }

  return {
    until,
    /** Which row is the task's for as long as nobody else has taken its place. */
    held,

    /** Does the work under a lease that is renewed meanwhile. A second message for the same task does nothing. */
    run: (ctx: SystemCtx, id: string, work: (row: SQL) => Promise<void>): Promise<void> =>
      withClaim(async (claim) => {
        const row = await take(ctx, id, claim)
        if (!row) return
        const renew = async () =>
          ctx.db
            .update(table)
            .set({ leaseUntil: until(ctx) })
            .where(row)
        const stop = startRenewing(ctx, { id }, renew)
        await work(row).finally(stop)
      }),

    /** False when the lease went to somebody else or the task was ended: then nothing may be done any more. */
    async isHeld({ db }: SystemCtx, task: Held): Promise<boolean> {
      return (await db.select({ id: table.id }).from(table).where(held(task))).length > 0
    },

    /** Gives the task back after a failed attempt, to be tried again later. False where it is not held any more. */
    async postpone(ctx: SystemCtx, task: Held, lastError: string): Promise<boolean> {
      const delayMs = Math.min(RETRY_BASE_MS * 2 ** (task.attempts - 1), RETRY_MS_MAX)
      const dueAt = new Date(ctx.now().getTime() + delayMs)
      const freed = await ctx.db
        .update(table)
        .set({ state: 'pending', claim: null, leaseUntil: null, dueAt, lastError })
        .where(held(task))
        .returning({ id: table.id })
      if (freed.length === 0) return false
      await sendLater(ctx, { type, id: task.id }, delayMs)
      return true
    },

    /** Gives the task back until what it waits for is over, as if there had been no attempt. */
    async postponeUncounted(ctx: SystemCtx, task: Held, lastError: string): Promise<void> {
      const dueAt = new Date(ctx.now().getTime() + WAIT_MS)
      const freed = await ctx.db
        .update(table)
        .set({ state: 'pending', claim: null, leaseUntil: null, dueAt, lastError, attempts: task.attempts - 1 })
        .where(held(task))
        .returning({ id: table.id })
      if (freed.length > 0) await sendLater(ctx, { type, id: task.id }, WAIT_MS)
    },

    /** False where it is not held any more: then nothing may commit with it. */
    async end(
      { now }: SystemCtx,
      { tx }: Mutation,
      task: Held,
      outcome: { state: 'done' | 'failed'; lastError?: string | null },
    ): Promise<boolean> {
      const ended = await tx
        .update(table)
        .set({ ...outcome, claim: null, leaseUntil: null, finishedAt: now() })
        .where(held(task))
        .returning({ id: table.id })
      return ended.length > 0
    },

    /** Tasks whose message got lost or whose consumer died. */
    async sendDue(ctx: SystemCtx): Promise<void> {
      const at = ctx.now()
      const isOverdue = and(eq(table.state, 'pending'), lte(table.dueAt, new Date(at.getTime() - GRACE_MS)))
      const due = await ctx.db
        .select({ id: table.id })
        .from(table)
        .where(or(isOverdue, isAbandoned(ctx, at)))
        .orderBy(table.dueAt)
        .limit(SWEPT_MAX)
      if (due.length === 0) return
      await send(
        ctx,
        due.map(({ id }) => ({ type, id })),
      )
      ctx.log.info('tasks_sent_again', { type, count: due.length })
    },

    /** After its message failed for good, a task waits a while and is then taken up by the sweeper. */
    async bury({ db, now }: SystemCtx, id: string): Promise<void> {
      await db
        .update(table)
        .set({ dueAt: new Date(now().getTime() + BURIED_DELAY_MS) })
        .where(and(eq(table.id, id), eq(table.state, 'pending')))
    },
  }
}
