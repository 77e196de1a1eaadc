import { and, eq, isNull, lte, or, type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { gitBranches, gitDeliveries } from '../../../model/tables/index.ts'
import { purgeRows } from '../../../platform/db/purge.ts'
import { GithubRefused, GithubUnavailable } from '../../../platform/github/client.ts'
import { describeError } from '../../../platform/http/log.ts'
import { GRACE_MS, isLapsed, LEASE_MS, startRenewing, withClaim } from '../../kernel/task-leases.ts'
import { type GitBranch, isLeasedBy } from './followed-branch.ts'
import { type Next, syncGitBranch } from './sync-git-branch.ts'

const ATTEMPTS_MAX = 24
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 300_000
/** Maximum wait that GitHub may request. If it requests a longer one, another attempt is made after this time. */
const REQUESTED_MS_MAX = 3_600_000

/** Synchronizes a due branch of a repository. A second message finds the branch leased or done and does nothing. */
export const runGitBranchTask = (ctx: SystemCtx, id: string): Promise<void> =>
  withClaim(async (claim) => {
    const row = await take(ctx, id, claim)
    if (!row) return
    const renew = async () =>
      ctx.db
        .update(gitBranches)
        .set({ leaseUntil: new Date(ctx.now().getTime() + LEASE_MS) })
        .where(isLeasedBy(row))
    const stop = startRenewing(ctx, row, renew)
    try {
      await release(ctx, row, await syncGitBranch(ctx, row))
    } catch (error) {
      if (!(error instanceof Superseded)) await fail(ctx, row, error)
    } finally {
      stop()
    }
  })

async function take(ctx: SystemCtx, id: string, claim: string): Promise<GitBranch | undefined> {
  const at = ctx.now()
  const [row] = await ctx.db
    .update(gitBranches)
    .set({
      claim,
      leaseUntil: new Date(at.getTime() + LEASE_MS),
      // The attempt is counted before the work, so that a branch that kills its consumer also reaches the limit.
      attempts: sql`${gitBranches.attempts} + 1`,
    })
    .where(and(eq(gitBranches.id, id), isFree(ctx, at)))
    .returning()
  return row
}

const isFree = (ctx: SystemCtx, at: Date): SQL | undefined =>
  and(lte(gitBranches.dueAt, at), or(isNull(gitBranches.leaseUntil), isLapsed(ctx, gitBranches, at)))

/** Releases the lease. A request that arrived meanwhile makes the branch due again. */
async function release(ctx: SystemCtx, row: GitBranch, next: Next): Promise<void> {
  const { db, now } = ctx
  if (next === 'never') {
    const deleted = await db
      .delete(gitBranches)
      .where(and(isLeasedBy(row), eq(gitBranches.asked, row.asked)))
      .returning({ id: gitBranches.id })
    if (deleted.length > 0) return
  }
  const at = now()
  const dueAt = typeof next === 'number' ? new Date(at.getTime() + next) : null
  const due = sql`case when ${gitBranches.asked} = ${row.asked} then ${dueAt?.toISOString() ?? null}::timestamptz
    else ${at.toISOString()}::timestamptz end`
  await releaseWith(ctx, row, { dueAt: due, attempts: 0, lastError: null })
}

async function fail(ctx: SystemCtx, row: GitBranch, error: unknown): Promise<void> {
  const { log, now } = ctx
  const lastError = error instanceof Error ? error.message : String(error)
  log.error('git_branch_failed', { git_branch: row.id, attempt: row.attempts, error: describeError(error) })
  if (error instanceof GithubRefused || row.attempts >= ATTEMPTS_MAX) {
    const due = sql`case when ${gitBranches.asked} = ${row.asked} then null::timestamptz else ${now().toISOString()}::timestamptz end`
    return releaseWith(ctx, row, { dueAt: due, attempts: 0, lastError })
  }
  const backoffMs = Math.min(RETRY_BASE_MS * 2 ** (row.attempts - 1), RETRY_MS_MAX)
  const requestedMs = error instanceof GithubUnavailable ? (error.retryAfterSeconds ?? 0) * 1000 : 0
  const delayMs = Math.min(Math.max(backoffMs, requestedMs), REQUESTED_MS_MAX)
  await releaseWith(ctx, row, {
    dueAt: sql`${new Date(now().getTime() + delayMs).toISOString()}::timestamptz`,
    lastError,
  })
}

interface Release {
  dueAt: SQL
  attempts?: number
  lastError: string | null
}

async function releaseWith({ db, now, bindings }: SystemCtx, row: GitBranch, changes: Release): Promise<void> {
  const [released] = await db
    .update(gitBranches)
    .set({ ...changes, claim: null, leaseUntil: null, updatedAt: now() })
    .where(isLeasedBy(row))
    .returning({ dueAt: gitBranches.dueAt })
  if (!released?.dueAt) return
  const delaySeconds = Math.max(0, Math.ceil((released.dueAt.getTime() - now().getTime()) / 1000))
  // The sweeper sends messages for later times.
  if (delaySeconds < 60) await bindings.PROJECT_TASKS.send({ type: 'git-branch', id: row.id }, { delaySeconds })
}

const SENT_MAX = 100

/** Sends messages for due branches whose message was lost or whose consumer died. */
export async function sendDueGitBranches(ctx: SystemCtx): Promise<void> {
  const { db, now, bindings, log } = ctx
  const due = await db
    .select({ id: gitBranches.id })
    .from(gitBranches)
    .where(isFree(ctx, new Date(now().getTime() - GRACE_MS)))
    .orderBy(gitBranches.dueAt)
    .limit(SENT_MAX)
  if (due.length === 0) return
  await bindings.PROJECT_TASKS.sendBatch(due.map(({ id }) => ({ body: { type: 'git-branch', id } })))
  log.info('git_branches_sent_again', { count: due.length })
}

/** Retention of delivery ids, longer than GitHub allows redeliveries. */
const DELIVERIES_KEPT_MS = 7 * 24 * 3_600_000

/** Once an hour, deletes old delivery ids. */
export async function purgeGitDeliveries(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'git_deliveries'))) return
  const before = new Date(ctx.now().getTime() - DELIVERIES_KEPT_MS).toISOString()
  await purgeRows(ctx.db, gitDeliveries, sql`at <= ${before}`, sql`at`)
}
