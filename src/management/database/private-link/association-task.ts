import { and, eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { privateLinkAssociations, projects } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { describeError } from '../../../platform/http/log.ts'
import { mutate } from '../../kernel/mutate.ts'
import { backoffMs, createDueLeases } from '../../kernel/task-leases.ts'
import { isRefusal, openRam, type Ram } from './aws-ram.ts'
import { nextStatus } from './share-state.ts'

type Row = typeof privateLinkAssociations.$inferSelect
type Changes = Partial<Pick<Row, 'status' | 'sharedAt' | 'dueAt' | 'attempts' | 'lastError'>>

const WORK_MS_MAX = 60_000
const ATTEMPTS_MAX = 6
const RETRY_MS_MAX = 60 * 60_000
/** The maximum time until AWS lists a share that was requested. */
const UNLISTED_MS_MAX = 5 * 60_000
const CREATING_MS_MIN = 2_000
const CREATING_MS_MAX = 30_000
const INVITED_MS_MIN = 60_000
const INVITED_MS_MAX = 30 * 60_000
const ACCEPTED_MS = 6 * 60 * 60_000
/** The delay between checks grows with the age of the association. */
const AGE_FRACTION = 1 / 6

export const associationLeases = createDueLeases({ table: privateLinkAssociations, type: 'private-link' })
const { isLeasedBy } = associationLeases

/** Does the work that is due for one association. */
export const workOnAssociation = (ctx: SystemCtx, id: string): Promise<void> =>
  associationLeases.run(ctx, id, (row) => work(ctx, row).catch((error) => recordFailure(ctx, row, error)))

async function work(ctx: SystemCtx, row: Row): Promise<void> {
  if (row.status === 'CREATING' && row.attempts > ATTEMPTS_MAX) throw new Error(row.lastError ?? 'its workers crashed')
  // Nothing exists at AWS before the first attempt to create the share.
  if (row.status === 'DELETING' && !row.shareAskedAt) return removeRow(ctx, row)
  const ram = openRam(ctx.config, row.resourceConfigurationArn, AbortSignal.timeout(WORK_MS_MAX))
  if (row.status === 'DELETING') return removeShare(ctx, row, ram)
  const shareArn = row.shareArn ?? (await ensureShare(ctx, row, ram))
  await (shareArn ? checkShare(ctx, row, ram, shareArn) : release(ctx, row))
}

/** Creates the share, or finds the one of an earlier attempt. Undefined if the association is being deleted. */
async function ensureShare({ db, now }: SystemCtx, row: Row, ram: Ram): Promise<string | undefined> {
  const foundShare = row.shareAskedAt ? (await ram.findShares({ token: row.id })).find(isShareAlive) : undefined
  row.shareAskedAt = now()
  // From here on, a deletion looks for a share that may have been created.
  const updated = await db
    .update(privateLinkAssociations)
    .set({ shareAskedAt: row.shareAskedAt })
    .where(and(isLeasedBy(row), eq(privateLinkAssociations.status, 'CREATING')))
    .returning({ id: privateLinkAssociations.id })
  if (updated.length === 0) return undefined
  const { databaseIdentifier, awsAccountId: accountId } = row
  const name = `pilothouse-${databaseIdentifier}-${accountId}`
  const shareArn = foundShare?.resourceShareArn ?? (await ram.createShare({ name, token: row.id, accountId }))
  await db.update(privateLinkAssociations).set({ shareArn }).where(isLeasedBy(row))
  return shareArn
}

type Shares = Awaited<ReturnType<Ram['findShares']>>
const isShareAlive = ({ status }: Shares[number]): boolean => status !== 'DELETED' && status !== 'DELETING'

/** Reads the state of the share and schedules the next check. */
async function checkShare(ctx: SystemCtx, row: Row, ram: Ram, shareArn: string): Promise<void> {
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
  if (status === 'CREATING') return after(CREATING_MS_MIN, CREATING_MS_MAX)
  if (status === 'READY') return after(INVITED_MS_MIN, INVITED_MS_MAX)
  return status === 'ASSOCIATION_ACCEPTED' ? new Date(at.getTime() + ACCEPTED_MS) : null
}

const msSinceRequested = ({ shareAskedAt }: Row, at: Date): number => at.getTime() - (shareAskedAt?.getTime() ?? 0)

/** Deletes the share at AWS, and the row once AWS no longer has the share. */
async function removeShare(ctx: SystemCtx, row: Row, ram: Ram): Promise<void> {
  const shares = await ram.findShares(row.shareArn ? { arn: row.shareArn } : { token: row.id })
  for (const { resourceShareArn } of shares.filter(isShareAlive)) await ram.deleteShare(resourceShareArn)
  const at = ctx.now()
  const mayStillAppear = shares.length === 0 && msSinceRequested(row, at) < UNLISTED_MS_MAX
  if (!mayStillAppear && shares.every(({ status }) => status === 'DELETED')) return removeRow(ctx, row)
  return release(ctx, row, { dueAt: new Date(at.getTime() + backoffMs(row.attempts, RETRY_MS_MAX)) })
}

async function removeRow(ctx: SystemCtx, row: Row): Promise<void> {
  await mutate(ctx, async ({ tx, trace }) => {
    const subject = await subjectOf(tx, row)
    const removed = await tx
      .delete(privateLinkAssociations)
      .where(isLeasedBy(row))
      .returning({ id: privateLinkAssociations.id })
    if (removed.length > 0) await trace({ ...subject, action: 'private_link.removed' })
  })
}

/** Marks the association as failed if AWS refuses the share or all attempts have failed. Other errors are retried. */
async function recordFailure(ctx: SystemCtx, row: Row, error: unknown): Promise<void> {
  const lastError = describeError(error)
  logFailure(ctx, row, lastError)
  const isFinal = row.status === 'CREATING' && (isRefusal(error) || row.attempts >= ATTEMPTS_MAX)
  if (isFinal) return release(ctx, row, { status: 'CREATION_FAILED', dueAt: null, lastError })
  return release(ctx, row, { dueAt: new Date(ctx.now().getTime() + backoffMs(row.attempts, RETRY_MS_MAX)), lastError })
}

const logFailure = ({ log }: SystemCtx, { id, projectRef, awsAccountId, status, attempts }: Row, error: string) =>
  log.error('private_link_failed', { association: id, project: projectRef, awsAccountId, status, attempts, error })

/** Records changes and releases the lease. If a deletion was requested meanwhile, nothing is recorded: the deletion is due. */
async function release(ctx: SystemCtx, row: Row, changes: Changes = {}): Promise<void> {
  const released = { claim: null, leaseUntil: null }
  if (await record(ctx, row, { ...changes, ...released })) {
    if (changes.dueAt) await associationLeases.sendSoon(ctx, row.id, changes.dueAt)
    return
  }
  await ctx.db.update(privateLinkAssociations).set(released).where(isLeasedBy(row))
  await associationLeases.sendSoon(ctx, row.id, ctx.now())
}

async function record(ctx: SystemCtx, row: Row, changes: Partial<Row>): Promise<boolean> {
  const { status = row.status } = changes
  const condition = and(isLeasedBy(row), eq(privateLinkAssociations.status, row.status))
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
