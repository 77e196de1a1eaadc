import { and, eq, isNull, lte, or, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { privateLinkAssociations, projects } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { describeError } from '../../../platform/http/log.ts'
import { mutate } from '../../kernel/mutate.ts'
import { isRefusal, openRam, type Ram } from './aws-ram.ts'
import { standingOf } from './share-state.ts'

type Row = typeof privateLinkAssociations.$inferSelect
type Changes = Partial<Pick<Row, 'status' | 'sharedAt' | 'dueAt' | 'attempts' | 'lastError'>>

/** Longer than one piece of work can take. */
const LEASE_MS = 120_000
const WORK_MS_MAX = 60_000
const ATTEMPTS_MAX = 6
const RETRY_BASE_MS = 2_000
const RETRY_MS_MAX = 60 * 60_000
/** So long may pass until AWS tells of what it was asked to make. */
const UNTOLD_MS_MAX = 5 * 60_000
/** What is due so soon is asked for by a message; the cron comes to all else. */
const SOON_MS = 30_000
const WAIT_MS_MIN = 2_000
const INVITED_MS_MIN = 60_000
const INVITED_MS_MAX = 30 * 60_000
const ACCEPTED_MS = 6 * 60 * 60_000
/** The wait for something grows with the time for which it has been waited for. */
const WAITED_PART = 1 / 6

/** Does what is due with one association, and what falls due meanwhile. A second message finds it leased and does nothing. */
export async function workOnAssociation(ctx: SystemCtx, id: string): Promise<void> {
  while (await workOnce(ctx, id)) {}
}

const AT_ONCE = 4
const WORKED_ON_MAX = 40
/** After it none is begun: the rest is for the next tick. */
const BEGUN_MS_MAX = 30_000

/** What has been due for longest comes first. */
export async function workOnDueAssociations(ctx: SystemCtx): Promise<void> {
  const endsAt = Date.now() + BEGUN_MS_MAX
  const due = await ctx.db
    .select({ id: privateLinkAssociations.id })
    .from(privateLinkAssociations)
    .where(isDue(ctx.now()))
    .orderBy(privateLinkAssociations.dueAt)
    .limit(WORKED_ON_MAX)
  const workOnNext = async () => {
    for (let next = due.shift(); next && Date.now() < endsAt; next = due.shift()) await workOnAssociation(ctx, next.id)
  }
  await Promise.all(Array.from({ length: AT_ONCE }, workOnNext))
}

const isDue = (at: Date) =>
  and(
    lte(privateLinkAssociations.dueAt, at),
    or(isNull(privateLinkAssociations.leaseUntil), lte(privateLinkAssociations.leaseUntil, at)),
  )

const isHeld = ({ id, claim }: Row) =>
  and(eq(privateLinkAssociations.id, id), eq(privateLinkAssociations.claim, claim ?? ''))

async function claim({ db, now }: SystemCtx, id: string): Promise<Row | undefined> {
  const at = now()
  const [row] = await db
    .update(privateLinkAssociations)
    .set({
      claim: crypto.randomUUID(),
      leaseUntil: new Date(at.getTime() + LEASE_MS),
      // Counted before the work, so that one that kills its worker each time also comes to an end.
      attempts: sql`${privateLinkAssociations.attempts} + 1`,
    })
    .where(and(eq(privateLinkAssociations.id, id), isDue(at)))
    .returning()
  return row
}

/** True where it is due again at once. */
async function workOnce(ctx: SystemCtx, id: string): Promise<boolean> {
  const row = await claim(ctx, id)
  if (!row) return false
  try {
    if (row.status === 'CREATING' && row.attempts > ATTEMPTS_MAX) throw new Error(row.lastError ?? 'its workers died')
    // There is nothing at AWS before the first attempt to make it.
    if (row.status === 'DELETING' && !row.shareAskedAt) return await forget(ctx, row)
    const ram = openRam(ctx.config, row.resourceConfigurationArn, AbortSignal.timeout(WORK_MS_MAX))
    if (row.status === 'DELETING') return await remove(ctx, row, ram)
    const shareArn = row.shareArn ?? (await share(ctx, row, ram))
    return shareArn ? await look(ctx, row, ram, shareArn) : await release(ctx, row)
  } catch (error) {
    return fail(ctx, row, error)
  }
}

/** Makes the share, or finds the one that an earlier attempt made. Undefined where that is not wanted any more. */
async function share({ db, now }: SystemCtx, row: Row, ram: Ram): Promise<string | undefined> {
  const found = row.shareAskedAt ? (await ram.findShares({ token: row.id })).find(isThere) : undefined
  row.shareAskedAt = now()
  // From here on its deletion looks for what may have been made.
  const asked = await db
    .update(privateLinkAssociations)
    .set({ shareAskedAt: row.shareAskedAt })
    .where(and(isHeld(row), eq(privateLinkAssociations.status, 'CREATING')))
    .returning({ id: privateLinkAssociations.id })
  if (asked.length === 0) return undefined
  const { databaseIdentifier, awsAccountId: accountId } = row
  const name = `pilothouse-${databaseIdentifier}-${accountId}`
  const shareArn = found?.resourceShareArn ?? (await ram.createShare({ name, token: row.id, accountId }))
  await db.update(privateLinkAssociations).set({ shareArn }).where(isHeld(row))
  return shareArn
}

type Shares = Awaited<ReturnType<Ram['findShares']>>
const isThere = ({ status }: Shares[number]): boolean => status !== 'DELETED' && status !== 'DELETING'

/** Sees how the share stands, and when that is to be looked at again. */
async function look(ctx: SystemCtx, row: Row, ram: Ram, shareArn: string): Promise<boolean> {
  const [resources, principals] = await Promise.all([
    ram.associations(shareArn, 'RESOURCE'),
    ram.associations(shareArn, 'PRINCIPAL'),
  ])
  const at = ctx.now()
  const of = (entity: string) => (one: { associatedEntity?: string }) => one.associatedEntity === entity
  const { status, reason } = standingOf(row.status, {
    resource: resources.find(of(row.resourceConfigurationArn)),
    principal: principals.find(of(row.awsAccountId)),
    isNew: row.status === 'CREATING' && msSinceAsked(row, at) < UNTOLD_MS_MAX,
  })
  if (reason) tell(ctx, row, reason)
  const isShared = status === 'READY' || status === 'ASSOCIATION_ACCEPTED'
  return release(ctx, row, {
    status,
    dueAt: nextLook(status, at, row),
    attempts: 0,
    lastError: reason ?? null,
    ...(isShared && !row.sharedAt && { sharedAt: at }),
  })
}

function nextLook(status: Row['status'], at: Date, { createdAt }: Row): Date | null {
  const waitedMs = (at.getTime() - createdAt.getTime()) * WAITED_PART
  const within = (least: number, most: number) => new Date(at.getTime() + Math.min(Math.max(waitedMs, least), most))
  if (status === 'CREATING') return within(WAIT_MS_MIN, SOON_MS)
  if (status === 'READY') return within(INVITED_MS_MIN, INVITED_MS_MAX)
  return status === 'ASSOCIATION_ACCEPTED' ? new Date(at.getTime() + ACCEPTED_MS) : null
}

const msSinceAsked = ({ shareAskedAt }: Row, at: Date): number => at.getTime() - (shareAskedAt?.getTime() ?? 0)

/** The row goes once AWS has no share of it any more. */
async function remove(ctx: SystemCtx, row: Row, ram: Ram): Promise<boolean> {
  const shares = await ram.findShares(row.shareArn ? { arn: row.shareArn } : { token: row.id })
  for (const { resourceShareArn } of shares.filter(isThere)) await ram.deleteShare(resourceShareArn)
  const at = ctx.now()
  const mayComeYet = shares.length === 0 && msSinceAsked(row, at) < UNTOLD_MS_MAX
  if (!mayComeYet && shares.every(({ status }) => status === 'DELETED')) return forget(ctx, row)
  return release(ctx, row, { dueAt: new Date(at.getTime() + delayAfter(row.attempts)) })
}

async function forget(ctx: SystemCtx, row: Row): Promise<boolean> {
  await mutate(ctx, async ({ tx, trace }) => {
    const subject = await subjectOf(tx, row)
    const removed = await tx
      .delete(privateLinkAssociations)
      .where(isHeld(row))
      .returning({ id: privateLinkAssociations.id })
    if (removed.length > 0) await trace({ ...subject, action: 'private_link.removed' })
  })
  return false
}

const delayAfter = (attempts: number): number => Math.min(RETRY_BASE_MS * 2 ** (attempts - 1), RETRY_MS_MAX)

/** A share that cannot be made as it was asked for has failed; all else is tried again. */
async function fail(ctx: SystemCtx, row: Row, error: unknown): Promise<boolean> {
  const lastError = describeError(error)
  tell(ctx, row, lastError)
  const isFinal = row.status === 'CREATING' && (isRefusal(error) || row.attempts >= ATTEMPTS_MAX)
  if (isFinal) return release(ctx, row, { status: 'CREATION_FAILED', dueAt: null, lastError })
  return release(ctx, row, { dueAt: new Date(ctx.now().getTime() + delayAfter(row.attempts)), lastError })
}

const tell = ({ log }: SystemCtx, { id, projectRef, awsAccountId, status, attempts }: Row, error: string) =>
  log.error('private_link_failed', { association: id, project: projectRef, awsAccountId, status, attempts, error })

/**
 * What was found is recorded by who still holds the association, unless its end has been asked for meanwhile: then that comes
 * next, and this returns true.
 */
async function release(ctx: SystemCtx, row: Row, changes: Changes = {}): Promise<boolean> {
  const { db, bindings, now } = ctx
  const recorded = await record(ctx, row, { ...changes, claim: null, leaseUntil: null })
  if (!recorded) {
    const freed = await db
      .update(privateLinkAssociations)
      .set({ claim: null, leaseUntil: null })
      .where(isHeld(row))
      .returning({ id: privateLinkAssociations.id })
    return freed.length > 0
  }
  const delayMs = (changes.dueAt?.getTime() ?? Number.POSITIVE_INFINITY) - now().getTime()
  if (delayMs > SOON_MS) return false
  await bindings.PROJECT_TASKS.send({ type: 'private-link', id: row.id }, { delaySeconds: Math.ceil(delayMs / 1000) })
  return false
}

async function record(ctx: SystemCtx, row: Row, changes: Partial<Row>): Promise<boolean> {
  const { status = row.status } = changes
  const which = and(isHeld(row), eq(privateLinkAssociations.status, row.status))
  const returned = { id: privateLinkAssociations.id }
  if (status === row.status) {
    return (await ctx.db.update(privateLinkAssociations).set(changes).where(which).returning(returned)).length > 0
  }
  return mutate(ctx, async ({ tx, trace }) => {
    const subject = await subjectOf(tx, row)
    const changed = await tx.update(privateLinkAssociations).set(changes).where(which).returning(returned)
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
