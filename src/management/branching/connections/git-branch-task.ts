import { and, eq, type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import { claimHourlyRun } from '../../../model/hourly.ts'
import { gitBranches, gitDeliveries } from '../../../model/tables/index.ts'
import { purgeRows } from '../../../platform/db/purge.ts'
import { GithubRefused, GithubUnavailable } from '../../../platform/github/client.ts'
import { describeError } from '../../../platform/http/log.ts'
import { backoffMs } from '../../kernel/task-leases.ts'
import { type GitBranch, gitBranchLeases, isLeasedBy } from './followed-branch.ts'
import { type Next, syncGitBranch } from './sync-git-branch.ts'

const ATTEMPTS_MAX = 24
/** Maximum wait that GitHub may request. If it requests a longer one, another attempt is made after this time. */
const REQUESTED_MS_MAX = 3_600_000
/** Number of checks of a busy project after which the delay before the next one stays the same, 32 s. */
const BUSY_ATTEMPTS_MAX = 5

/** Synchronizes a due branch of a repository. */
export const runGitBranchTask = (ctx: SystemCtx, id: string): Promise<void> =>
  gitBranchLeases.run(ctx, id, async (row) => {
    try {
      await release(ctx, row, await syncGitBranch(ctx, row))
    } catch (error) {
      if (!(error instanceof Superseded)) await fail(ctx, row, error)
    }
  })

async function release(ctx: SystemCtx, row: GitBranch, next: Next): Promise<void> {
  const { db, now } = ctx
  if (next === 'never') {
    const deleted = await db
      .delete(gitBranches)
      .where(and(isLeasedBy(row), eq(gitBranches.asked, row.asked)))
      .returning({ id: gitBranches.id })
    if (deleted.length > 0) return
  }
  const attempts = next === 'busy' ? Math.min(row.attempts, BUSY_ATTEMPTS_MAX) : 0
  const delayMs = next === 'busy' ? backoffMs(attempts) : next
  const dueAt = typeof delayMs === 'number' ? new Date(now().getTime() + delayMs) : null
  await releaseWith(ctx, row, { dueAt: unlessRequested(ctx, row, dueAt), attempts, lastError: null })
}

async function fail(ctx: SystemCtx, row: GitBranch, error: unknown): Promise<void> {
  const { log, now } = ctx
  const lastError = error instanceof Error ? error.message : String(error)
  log.error('git_branch_failed', { git_branch: row.id, attempt: row.attempts, error: describeError(error) })
  if (error instanceof GithubRefused || row.attempts >= ATTEMPTS_MAX)
    return releaseWith(ctx, row, { dueAt: unlessRequested(ctx, row, null), attempts: 0, lastError })
  const requestedMs = error instanceof GithubUnavailable ? (error.retryAfterSeconds ?? 0) * 1000 : 0
  const delayMs = Math.min(Math.max(backoffMs(row.attempts), requestedMs), REQUESTED_MS_MAX)
  await releaseWith(ctx, row, { dueAt: new Date(now().getTime() + delayMs), lastError })
}

/** A request that arrived during the work makes the branch due at once. */
const unlessRequested = ({ now }: SystemCtx, { asked }: GitBranch, dueAt: Date | null): SQL =>
  sql`case when ${gitBranches.asked} = ${asked} then ${dueAt?.toISOString() ?? null}::timestamptz
    else ${now().toISOString()}::timestamptz end`

interface Release {
  dueAt: SQL | Date
  attempts?: number
  lastError: string | null
}

/** Releases the lease and schedules the next synchronization. */
async function releaseWith(ctx: SystemCtx, row: GitBranch, changes: Release): Promise<void> {
  const [released] = await ctx.db
    .update(gitBranches)
    .set({ ...changes, claim: null, leaseUntil: null, updatedAt: ctx.now() })
    .where(isLeasedBy(row))
    .returning({ dueAt: gitBranches.dueAt })
  if (released?.dueAt) await gitBranchLeases.sendSoon(ctx, row.id, released.dueAt)
}

/** Retention of delivery ids, longer than GitHub allows redeliveries. */
const DELIVERIES_KEPT_MS = 7 * 24 * 3_600_000

/** Once an hour, deletes old delivery ids. */
export async function purgeGitDeliveries(ctx: SystemCtx): Promise<void> {
  if (!(await claimHourlyRun(ctx, 'git_deliveries'))) return
  const before = new Date(ctx.now().getTime() - DELIVERIES_KEPT_MS).toISOString()
  await purgeRows(ctx.db, gitDeliveries, sql`at <= ${before}`, sql`at`)
}
