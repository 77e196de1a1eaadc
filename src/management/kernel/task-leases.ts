import { and, eq, isNull, lte, notInArray, or, type SQL, sql } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'
import type { SystemCtx } from '../../ctx.ts'
import type { gitBranches, privateLinkAssociations, projectTasks, workerTasks } from '../../model/tables/index.ts'
import { describeError } from '../../platform/http/log.ts'
import type { Message } from '../../platform/queue/message.ts'
import { send, sendLater } from '../../platform/queue/send.ts'
import type { Mutation } from './mutate.ts'

/** Tables of tasks that a queue distributes. The holder of a task's lease runs it. */
type Table = typeof projectTasks | typeof workerTasks

/** A task as read by the holder of its lease. */
interface LeasedTask {
  id: string
  claim: string | null
  attempts: number
}

type MessageType = Extract<Message, { id: string }>['type']

interface Options {
  table: Table
  type: MessageType
  /** Expression for the project of a task. */
  project: SQL | PgColumn
  /** Maximum number of tasks of a project that run at once. The sweeper sends at most this many. */
  runningMax: number
}

const LEASE_MS = 30_000
const RENEWAL_MS = 7_500
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000
const WAIT_MS = 3_000
const SENT_MAX = 100
/** Time that the sweeper leaves a message to arrive before it sends another one. */
const GRACE_MS = 5_000
const DEAD_DELAY_MS = 60_000

/** Claims of the tasks that this isolate is running. */
const heldClaims = new Set<string>()

/** Runs work under a new claim. */
async function withClaim<Value>(work: (claim: string) => Promise<Value>): Promise<Value> {
  const claim = crypto.randomUUID()
  heldClaims.add(claim)
  try {
    return await work(claim)
  } finally {
    heldClaims.delete(claim)
  }
}

/** Matches leases that have expired or whose holder is dead. With a single Worker, every claim that it does not hold is dead. */
export function isLapsed(
  { config }: SystemCtx,
  { leaseUntil, claim }: Record<'leaseUntil' | 'claim', PgColumn>,
  at: Date,
) {
  const expired = lte(leaseUntil, at)
  return config.SOLE_WORKER ? or(expired, notInArray(claim, [...heldClaims])) : expired
}

/** Renews a lease until the returned function is called, as work may take longer than one lease. */
function startRenewing({ log }: SystemCtx, task: { id: string }, renew: () => Promise<unknown>): () => void {
  const timer = setInterval(
    () => renew().catch((error) => log.error('lease_not_renewed', { task: task.id, error: describeError(error) })),
    RENEWAL_MS,
  )
  return () => clearInterval(timer)
}

const leaseEnd = ({ now }: SystemCtx) => new Date(now().getTime() + LEASE_MS)

/** Delay of the next attempt after this number of failed ones. */
export const backoffMs = (attempts: number, maxMs = RETRY_MS_MAX): number =>
  Math.min(RETRY_BASE_MS * 2 ** (attempts - 1), maxMs)

async function sendAgain(ctx: SystemCtx, type: MessageType, due: readonly { id: string }[]): Promise<void> {
  if (due.length === 0) return
  await send(
    ctx,
    due.map(({ id }) => ({ type, id })),
  )
  ctx.log.info('tasks_sent_again', { type, count: due.length })
}

/** Leases and retries for the tasks of one table. */
export function createLeases({ table, type, project, runningMax }: Options) {
  const isLeasedBy = ({ id, claim }: LeasedTask) =>
    and(eq(table.id, id), eq(table.state, 'running'), eq(table.claim, claim ?? ''))

  const isAbandoned = (ctx: SystemCtx, at: Date) => and(eq(table.state, 'running'), isLapsed(ctx, table, at))

  /** Leases the task and returns the condition that selects its row; undefined if another consumer runs it or has finished it. */
  async function take(ctx: SystemCtx, id: string, claim: string): Promise<SQL | undefined> {
    const at = ctx.now()
    const [claimed] = await ctx.db
      .update(table)
      .set({
        state: 'running',
        claim,
        leaseUntil: leaseEnd(ctx),
        // The attempt is counted before the work, so that a task that kills its consumer also reaches the limit.
        attempts: sql`${table.attempts} + 1`,
      })
      .where(and(eq(table.id, id), or(and(eq(table.state, 'pending'), lte(table.dueAt, at)), isAbandoned(ctx, at))))
      .returning({ id: table.id, claim: table.claim, attempts: table.attempts })
    return claimed && isLeasedBy(claimed)
  }

  return {
    leaseEnd,
    /** Selects the task's row for as long as this holder has the lease. */
    isLeasedBy,

    /** Runs work under a lease and renews it meanwhile. A second message for the same task does nothing. */
    run: (ctx: SystemCtx, id: string, work: (row: SQL) => Promise<void>): Promise<void> =>
      withClaim(async (claim) => {
        const row = await take(ctx, id, claim)
        if (!row) return
        const renew = async () =>
          ctx.db
            .update(table)
            .set({ leaseUntil: leaseEnd(ctx) })
            .where(row)
        const stop = startRenewing(ctx, { id }, renew)
        await work(row).finally(stop)
      }),

    /** False if another consumer has the lease or the task has ended: the caller must stop. */
    async hasLease({ db }: SystemCtx, task: LeasedTask): Promise<boolean> {
      return (await db.select({ id: table.id }).from(table).where(isLeasedBy(task))).length > 0
    },

    /** Releases the task after a failed attempt and schedules a retry. False if the lease is lost. */
    async postpone(ctx: SystemCtx, task: LeasedTask, lastError: string): Promise<boolean> {
      const delayMs = backoffMs(task.attempts)
      const dueAt = new Date(ctx.now().getTime() + delayMs)
      const freed = await ctx.db
        .update(table)
        .set({ state: 'pending', claim: null, leaseUntil: null, dueAt, lastError })
        .where(isLeasedBy(task))
        .returning({ id: table.id })
      if (freed.length === 0) return false
      await sendLater(ctx, { type, id: task.id }, delayMs)
      return true
    },

    /** Releases the task to wait for other work, without counting the attempt. */
    async postponeUncounted(ctx: SystemCtx, task: LeasedTask, lastError: string): Promise<void> {
      const dueAt = new Date(ctx.now().getTime() + WAIT_MS)
      const freed = await ctx.db
        .update(table)
        .set({ state: 'pending', claim: null, leaseUntil: null, dueAt, lastError, attempts: task.attempts - 1 })
        .where(isLeasedBy(task))
        .returning({ id: table.id })
      if (freed.length > 0) await sendLater(ctx, { type, id: task.id }, WAIT_MS)
    },

    /** Ends the task in the transaction. False if the lease is lost: the transaction must then change nothing else. */
    async end(
      { now }: SystemCtx,
      { tx }: Mutation,
      task: LeasedTask,
      outcome: { state: 'done' | 'failed'; lastError?: string | null },
    ): Promise<boolean> {
      const ended = await tx
        .update(table)
        .set({ ...outcome, claim: null, leaseUntil: null, finishedAt: now() })
        .where(isLeasedBy(task))
        .returning({ id: table.id })
      return ended.length > 0
    },

    /** Sends messages for tasks whose message was lost or whose consumer died. */
    async sendDue(ctx: SystemCtx): Promise<void> {
      const at = ctx.now()
      const isOverdue = and(eq(table.state, 'pending'), lte(table.dueAt, new Date(at.getTime() - GRACE_MS)))
      const rank = sql<number>`row_number() over (partition by ${project} order by ${table.dueAt})`.as('rank')
      const ranked = ctx.db
        .select({ id: table.id, dueAt: table.dueAt, rank })
        .from(table)
        .where(or(isOverdue, isAbandoned(ctx, at)))
        .as('ranked')
      const due = await ctx.db
        .select({ id: ranked.id })
        .from(ranked)
        .where(lte(ranked.rank, runningMax))
        .orderBy(ranked.dueAt)
        .limit(SENT_MAX)
      await sendAgain(ctx, type, due)
    },

    /** Delays a task whose message is dead-lettered; the sweeper then sends it again. */
    async postponeDead({ db, now }: SystemCtx, id: string): Promise<void> {
      await db
        .update(table)
        .set({ dueAt: new Date(now().getTime() + DEAD_DELAY_MS) })
        .where(and(eq(table.id, id), eq(table.state, 'pending')))
    },
  }
}

/** Time between two runs of the sweeper, which sends the messages for later times. */
const SWEEP_MS = 60_000

type DueTable = typeof gitBranches | typeof privateLinkAssociations

/** Leases for rows that are processed each time they are due. A row without a due time waits until something makes it due. */
export function createDueLeases<T extends DueTable>({ table, type }: { table: T; type: MessageType }) {
  type Row = T['$inferSelect']
  const columns: DueTable = table

  /** Selects the row for as long as this holder has the lease. */
  const isLeasedBy = ({ id, claim }: Pick<Row, 'id' | 'claim'>) =>
    and(eq(columns.id, id), eq(columns.claim, claim ?? ''))

  const isDue = (ctx: SystemCtx, at: Date) =>
    and(lte(columns.dueAt, at), or(isNull(columns.leaseUntil), isLapsed(ctx, columns, at)))

  return {
    isLeasedBy,

    /** Runs work on a due row under a lease and renews it meanwhile. A second message finds the row leased and does nothing. */
    run: (ctx: SystemCtx, id: string, work: (row: Row) => Promise<void>): Promise<void> =>
      withClaim(async (claim) => {
        const [row] = await ctx.db
          .update(columns)
          // The attempt is counted before the work, so that a row that kills its consumer also reaches the limit.
          .set({ claim, leaseUntil: leaseEnd(ctx), attempts: sql`${columns.attempts} + 1` })
          .where(and(eq(columns.id, id), isDue(ctx, ctx.now())))
          .returning()
        if (!row) return
        const renew = async () =>
          ctx.db
            .update(columns)
            .set({ leaseUntil: leaseEnd(ctx) })
            .where(isLeasedBy(row))
        const stop = startRenewing(ctx, row, renew)
        await work(row as Row).finally(stop)
      }),

    /** Sends the message for a row that is due before the sweeper runs. */
    async sendSoon(ctx: SystemCtx, id: string, dueAt: Date): Promise<void> {
      const delayMs = Math.max(0, dueAt.getTime() - ctx.now().getTime())
      if (delayMs < SWEEP_MS) await sendLater(ctx, { type, id }, delayMs)
    },

    /** Sends messages for rows whose message was lost or whose consumer died, longest overdue first. */
    async sendDue(ctx: SystemCtx): Promise<void> {
      const due = await ctx.db
        .select({ id: columns.id })
        .from(columns)
        .where(isDue(ctx, new Date(ctx.now().getTime() - GRACE_MS)))
        .orderBy(columns.dueAt)
        .limit(SENT_MAX)
      await sendAgain(ctx, type, due)
    },
  }
}
