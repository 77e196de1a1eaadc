import { and, eq, isNull, lte, or, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { privateLinkAssociations, projects } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { forEachConcurrently } from '../../../platform/for-each-concurrently.ts'
import { describeError } from '../../../platform/http/log.ts'
import { mutate } from '../../kernel/mutate.ts'
import { isRefusal, openRam, type Ram } from './aws-ram.ts'
import { nextStatus } from './share-state.ts'

type Row = typeof privateLinkAssociations.$inferSelect
type Changes = Partial<Pick<Row, 'status' | 'sharedAt' | 'dueAt' | 'attempts' | 'lastError'>>

/** Duration of a lease, which is longer than WORK_MS_MAX. */
const LEASE_MS = 120_000
const WORK_MS_MAX = 60_000
const ATTEMPTS_MAX = 6
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 60 * 60_000
/** The maximum time until AWS lists a share that was requested. */
const UNLISTED_MS_MAX = 5 * 60_000
/** Work due within this time is queued as a message; the cron handles the rest. */
const SOON_MS = 30_000
const CHECK_MS_MIN = 2_000
const INVITED_MS_MIN = 60_000
const INVITED_MS_MAX = 30 * 60_000
const ACCEPTED_MS = 6 * 60 * 60_000
/** The delay between checks grows with the age of the association. */
const AGE_FRACTION = 1 / 6

/** Does all work that is due for one association. A duplicate message finds the association leased and does nothing. */
export async function workOnAssociation(ctx: SystemCtx, id: string): Promise<void> {
  while (await workOnce(ctx, id)) {}
}

const CONCURRENCY = 4
const BATCH_MAX = 40
/** No association is started after this time; the rest waits for the next tick. */
const START_MS_MAX = 30_000

/** Processes due associations, longest overdue first. */
export async function workOnDueAssociations(ctx: SystemCtx): Promise<void> {
  const endsAt = Date.now() + START_MS_MAX
  const due = await ctx.db
    .select({ id: privateLinkAssociations.id })
    .from(privateLinkAssociations)
    .where(isDue(ctx.now()))
    .orderBy(privateLinkAssociations.dueAt)
    .limit(BATCH_MAX)
  await forEachConcurrently(due, CONCURRENCY, async ({ id }) => {
    if (Date.now() < endsAt) await workOnAssociation(ctx, id)
  })
}

const isDue = (at: Date) =>
  and(
    lte(privateLinkAssociations.dueAt, at),
    or(isNull(privateLinkAssociations.leaseUntil), lte(privateLinkAssociations.leaseUntil, at)),
  )

const isClaimedBy = ({ id, claim }: Row) =>
  and(eq(privateLinkAssociations.id, id), eq(privateLinkAssociations.claim, claim ?? ''))

async function claim({ db, now }: SystemCtx, id: string): Promise<Row | undefined> {
  const at = now()
  const [row] = await db
    .update(privateLinkAssociations)
    .set({
      claim: crypto.randomUUID(),
      leaseUntil: new Date(at.getTime() + LEASE_MS),
      // The attempt is counted before the work, so that an association that always crashes its worker reaches the limit.
      attempts: sql`${privateLinkAssociations.attempts} + 1`,
    })
    .where(and(eq(privateLinkAssociations.id, id), isDue(at)))
    .returning()
  return row
}

/** Returns true if the association is due again at once. */
async function workOnce(ctx: SystemCtx, id: string): Promise<boolean> {
  const row = await claim(ctx, id)
  if (!row) return false
  try {
    if (row.status === 'CREATING' && row.attempts > ATTEMPTS_MAX)
      throw new Error(row.lastError ?? 'its workers crashed')
    // Nothing exists at AWS before the first attempt to create the share.
    if (row.status === 'DELETING' && !row.shareAskedAt) return await removeRow(ctx, row)
    const ram = openRam(ctx.config, row.resourceConfigurationArn, AbortSignal.timeout(WORK_MS_MAX))
    if (row.status === 'DELETING') return await removeShare(ctx, row, ram)
    const shareArn = row.shareArn ?? (await ensureShare(ctx, row, ram))
    return shareArn ? await checkShare(ctx, row, ram, shareArn) : await release(ctx, row)
  } catch (error) {
    return recordFailure(ctx, row, error)
  }
}

/** Creates the share, or finds the one of an earlier attempt. Undefined if the association is being deleted. */
async function ensureShare({ db, now }: SystemCtx, row: Row, ram: Ram): Promise<string | undefined> {
  const foundShare = row.shareAskedAt ? (await ram.findShares({ token: row.id })).find(isShareAlive) : undefined
  row.shareAskedAt = now()
  // From here on, a deletion looks for a share that may have been created.
  const updated = await db
    .update(privateLinkAssociations)
    .set({ shareAskedAt: row.shareAskedAt })
    .where(and(isClaimedBy(row), eq(privateLinkAssociations.status, 'CREATING')))
    .returning({ id: privateLinkAssociations.id })
  if (updated.length === 0) return undefined
  const { databaseIdentifier, awsAccountId: accountId } = row
  const name = `pilothouse-${databaseIdentifier}-${accountId}`
  const shareArn = foundShare?.resourceShareArn ?? (await ram.createShare({ name, token: row.id, accountId }))
  await db.update(privateLinkAssociations).set({ shareArn }).where(isClaimedBy(row))
  return shareArn
}

type Shares = Awaited<ReturnType<Ram['findShares']>>
const isShareAlive = ({ status }: Shares[number]): boolean => status !== 'DELETED' && status !== 'DELETING'

/** Reads the state of the share and schedules the next check. */
async function checkShare(ctx: SystemCtx, row: Row, ram: Ram, shareArn: string): Promise<boolean> {
  const [resources, principals] = await Promise.all([
    ram.associations(shareArn, 'RESOURCE'),
    ram.associations(shareArn, 'PRINCIPAL'),
  ])
  const at = ctx.now()
  const of = (entity: string) => (one: { associatedEntity?: string }) => one.associatedEntity === entity
  const { status, reason } = nextStatus(row.status, {
    resource: resources.find(of(row.resourceConfigurationArn)),
    principal: principals.find(of(row.awsAccountId)),
    isNew: row.status === 'CREATING' && msSinceRequested(row, at) < UNLISTED_MS_MAX,
  })
  if (reason) logFailure(ctx, row, reason)
  const isShared = status === 'READY' || status === 'ASSOCIATION_ACCEPTED'
  return release(ctx, row, {
    status,
    dueAt: nextCheckAt(status, at, row),
    attempts: 0,
    lastError: reason ?? null,
    ...(isShared && !row.sharedAt && { sharedAt: at }),
  })
}

function nextCheckAt(status: Row['status'], at: Date, { createdAt }: Row): Date | null {
  const delayMs = (at.getTime() - createdAt.getTime()) * AGE_FRACTION
  const after = (min: number, max: number) => new Date(at.getTime() + Math.min(Math.max(delayMs, min), max))
  if (status === 'CREATING') return after(CHECK_MS_MIN, SOON_MS)
  if (status === 'READY') return after(INVITED_MS_MIN, INVITED_MS_MAX)
  return status === 'ASSOCIATION_ACCEPTED' ? new Date(at.getTime() + ACCEPTED_MS) : null
}

const msSinceRequested = ({ shareAskedAt }: Row, at: Date): number => at.getTime() - (shareAskedAt?.getTime() ?? 0)

/** Deletes the share at AWS, and the row once AWS no longer has the share. */
async function removeShare(ctx: SystemCtx, row: Row, ram: Ram): Promise<boolean> {
  const shares = await ram.findShares(row.shareArn ? { arn: row.shareArn } : { token: row.id })
  for (const { resourceShareArn } of shares.filter(isShareAlive)) await ram.deleteShare(resourceShareArn)
  const at = ctx.now()
  const mayStillAppear = shares.length === 0 && msSinceRequested(row, at) < UNLISTED_MS_MAX
  if (!mayStillAppear && shares.every(({ status }) => status === 'DELETED')) return removeRow(ctx, row)
  return release(ctx, row, { dueAt: new Date(at.getTime() + delayAfter(row.attempts)) })
}

async function removeRow(ctx: SystemCtx, row: Row): Promise<boolean> {
  await mutate(ctx, async ({ tx, trace }) => {
    const subject = await subjectOf(tx, row)
    const removed = await tx
      .delete(privateLinkAssociations)
      .where(isClaimedBy(row))
      .returning({ id: privateLinkAssociations.id })
    if (removed.length > 0) await trace({ ...subject, action: 'private_link.removed' })
  })
  return false
}

const delayAfter = (attempts: number): number => Math.min(RETRY_BASE_MS * 2 ** (attempts - 1), RETRY_MS_MAX)

/** Marks the association as failed if AWS refuses the share or all attempts have failed. Other errors are retried. */
async function recordFailure(ctx: SystemCtx, row: Row, error: unknown): Promise<boolean> {
  const lastError = describeError(error)
  logFailure(ctx, row, lastError)
  const isFinal = row.status === 'CREATING' && (isRefusal(error) || row.attempts >= ATTEMPTS_MAX)
  if (isFinal) return release(ctx, row, { status: 'CREATION_FAILED', dueAt: null, lastError })
  return release(ctx, row, { dueAt: new Date(ctx.now().getTime() + delayAfter(row.attempts)), lastError })
}

const logFailure = ({ log }: SystemCtx, { id, projectRef, awsAccountId, status, attempts }: Row, error: string) =>
  log.error('private_link_failed', { association: id, project: projectRef, awsAccountId, status, attempts, error })

/**
 * Records changes and releases the claim, if this worker still has it. Returns true if a deletion was requested meanwhile:
 * nothing is recorded then, and the deletion is due.
 */
async function release(ctx: SystemCtx, row: Row, changes: Changes = {}): Promise<boolean> {
  const { db, bindings, now } = ctx
  const recorded = await record(ctx, row, { ...changes, claim: null, leaseUntil: null })
  if (!recorded) {
    const released = await db
      .update(privateLinkAssociations)
      .set({ claim: null, leaseUntil: null })
      .where(isClaimedBy(row))
      .returning({ id: privateLinkAssociations.id })
    return released.length > 0
  }
  const delayMs = (changes.dueAt?.getTime() ?? Number.POSITIVE_INFINITY) - now().getTime()
  if (delayMs > SOON_MS) return false
  await bindings.PROJECT_TASKS.send({ type: 'private-link', id: row.id }, { delaySeconds: Math.ceil(delayMs / 1000) })
  return false
}

async function record(ctx: SystemCtx, row: Row, changes: Partial<Row>): Promise<boolean> {
  const { status = row.status } = changes
  const condition = and(isClaimedBy(row), eq(privateLinkAssociations.status, row.status))
  const returned = { id: privateLinkAssociations.id }
  if (status === row.status) {
    return (await ctx.db.update(privateLinkAssociations).set(changes).where(condition).returning(returned)).length > 0
  }
  return mutate(ctx, async ({ tx, trace }) => {
    const subject = await subjectOf(tx, row)
    const changed = await tx.update(privateLinkAssociations).set(changes).where(condition).returning(returned)
    if (changed.length > 0) await trace({ ...subject, action: `private_link.${status.toLowerCase()}` })
    return changed.length > 0
  })
}

async function subjectOf(tx: Writer, row: Row) {
  const { id, projectRef, awsAccountId, databaseIdentifier: database } = row
  const [project] = await tx
    .select({ organizationId: projects.organizationId })
    .from(projects)
    .where(eq(projects.ref, projectRef))
  return { ...project, projectRef, detail: { association: id, aws_account_id: awsAccountId, database } }
}
