import { and, desc, eq, gte, inArray, lt, lte } from 'drizzle-orm'
import { auditLog, oauthApps, organizations, users } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import { type Command, DAY_MS, type Options } from './command.ts'
import { findOrganizationOrDeleted, findUser } from './find.ts'
import { readTime } from './time.ts'

const LISTED_MAX = 1_000
const LISTED_MS = 30 * DAY_MS
/** Rows that each statement deletes, so that none holds many locks for long. */
const REMOVED_AT_ONCE = 10_000

export const auditCommands: Record<string, Command> = {
  'audit list': {
    summary: 'Print audit entries as JSON lines, newest first.',
    args: [],
    options: '[--organization slug] [--project ref] [--user name] [--since time] [--until time]',
    run: list,
  },
  'audit purge': {
    summary: 'Delete audit entries older than a time.',
    args: [],
    options: '--until time [--dry-run]',
    run: purge,
  },
}

/** Prints entries as JSON lines, newest first. The time of the last line, as `--until`, continues the list. */
async function list(db: ControlDb, _: string[], { organization, project, user, since, until }: Options) {
  const end = until === undefined ? new Date() : readTime('--until', until)
  const begin = since === undefined ? new Date(end.getTime() - LISTED_MS) : readTime('--since', since)
  if (begin > end) throw new StartError(`--since ${since} is not before ${until ?? 'now'}`)
  const entries = await db
    .select({
      at: auditLog.createdAt,
      action: auditLog.action,
      user: users.username,
      application: oauthApps.name,
      organization: organizations.slug,
      project: auditLog.projectRef,
      detail: auditLog.detail,
      request: auditLog.requestId,
    })
    .from(auditLog)
    .leftJoin(users, eq(users.id, auditLog.actorUserId))
    .leftJoin(oauthApps, eq(oauthApps.id, auditLog.actorAppId))
    .leftJoin(organizations, eq(organizations.id, auditLog.organizationId))
    .where(
      and(
        gte(auditLog.createdAt, begin),
        lte(auditLog.createdAt, end),
        organization === undefined
          ? undefined
          : eq(auditLog.organizationId, (await findOrganizationOrDeleted(db, organization)).id),
        user === undefined ? undefined : eq(auditLog.actorUserId, (await findUser(db, user)).id),
        project === undefined ? undefined : eq(auditLog.projectRef, project),
      ),
    )
    .orderBy(desc(auditLog.createdAt))
    .limit(LISTED_MAX)
  return entries.map((entry) => JSON.stringify(withoutNulls(entry))).join('\n') || 'no entries'
}

const withoutNulls = (entry: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== null))

/** Deletes old entries. There is no automatic deletion, because the law that applies to the operator decides how long to keep them. */
async function purge(db: ControlDb, _: string[], { until, 'dry-run': dryRun }: Options): Promise<string> {
  if (until === undefined) throw new StartError('--until is missing: entries older than this time are removed')
  const end = readTime('--until', until)
  if (end > new Date()) throw new StartError(`--until ${until} is in the future`)
  const older = lt(auditLog.createdAt, end)
  const found = await db.$count(auditLog, older)
  if (dryRun) return `Nothing was changed.\nentries that would be removed: ${found}`
  // Written first, so that the entry exists even if the deletion is interrupted.
  await change(db, ({ trace }) => trace({ action: 'audit.purge', detail: { until: end, entries: found } }))
  let entries = 0
  for (let removed = REMOVED_AT_ONCE; removed === REMOVED_AT_ONCE; entries += removed) {
    const some = db.select({ id: auditLog.id }).from(auditLog).where(older).limit(REMOVED_AT_ONCE)
    removed = (await db.delete(auditLog).where(inArray(auditLog.id, some))).rowCount ?? 0
  }
  return `entries removed: ${entries}`
}
