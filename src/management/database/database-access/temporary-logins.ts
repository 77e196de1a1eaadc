import { and, eq, gt, inArray, lte, type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { EngineUnavailable, Superseded, UnsupportedByDriver } from '../../../engine/engine-errors.ts'
import type { LoginSpec } from '../../../engine/logins.ts'
import { ROLES, roleAllows } from '../../../model/roles.ts'
import { passwordOf } from '../../../model/secrets/project.ts'
import {
  accessTokens,
  memberRoles,
  oauthApps,
  organizations,
  type ProjectStatus,
  projects,
  temporaryLogins,
  users,
} from '../../../model/tables/index.ts'
import { rowsOf, type Writer } from '../../../platform/db/client.ts'
import { forEachConcurrently } from '../../../platform/for-each-concurrently.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { describeError } from '../../../platform/http/log.ts'
import { mutate } from '../../kernel/mutate.ts'

/**
 * Creates the role of a login whose row exists. The row is inserted before the role is created and deleted after the role is
 * dropped, so a role without a row is an orphan, and deleting or expiring the row also stops a concurrent creation.
 */
export async function makeLogin(ctx: SystemCtx, login: LoginSpec): Promise<void> {
  const { role } = login
  const isStillWanted = async () => {
    const live = and(eq(temporaryLogins.role, role), gt(temporaryLogins.expiresAt, ctx.now()))
    return (await ctx.db.select({ role: temporaryLogins.role }).from(temporaryLogins).where(live)).length > 0
  }
  try {
    await ctx.engine.logins.put(login, isStillWanted)
  } catch (error) {
    if (error instanceof Superseded) {
      throw new ApiError('forbidden.permission_denied', { detail: 'the access was withdrawn', cause: error })
    }
    if (error instanceof UnsupportedByDriver) {
      throw new ApiError('forbidden.permission_denied', { detail: error.message, cause: error })
    }
    throw unavailable(error)
  }
}

/** Marks logins as expired. Call `endLogins` after the transaction; if that fails, `endDueLogins` ends them later. */
export const expireLogins = (tx: Pick<Writer, 'update'>, now: Date, condition: SQL | undefined) =>
  tx
    .update(temporaryLogins)
    .set({ expiresAt: sql`least(${temporaryLogins.expiresAt}, ${now.toISOString()})` })
    .where(condition)
    .returning({ role: temporaryLogins.role, projectRef: temporaryLogins.projectRef })

const WRITERS = ROLES.filter((role) => roleAllows(role, 'database:write'))

/** Whether the enabled user of token `t` has a role for login `l` in project `p`. CLI logins need a role with write access. */
export const HAS_ROLE = sql`exists (select from ${memberRoles} m
  join ${users} u on u.id = m.user_id and u.disabled_at is null
  join ${organizations} o on o.id = m.organization_id and o.disabled_at is null
  where m.organization_id = p.organization_id
  and m.user_id = t.user_id and (m.project_ref is null or m.project_ref in (p.ref, p.parent_ref))
  and (l.user_id is not null or m.role = any(${sql.param(WRITERS)}::text[])))`

interface Login {
  role: string
  projectRef: string
}

/** Statuses of a project whose database is replaced by one with the logins that were read some time before. */
const REPLACING: readonly (ProjectStatus | undefined)[] = ['RESTORING', 'UPGRADING']

/**
 * Ends logins now. Those of an inactive project end in `endDueLogins` once the project is active, and those that its new database may
 * have end there again.
 */
export async function endLogins(ctx: SystemCtx, logins: readonly Login[]): Promise<void> {
  for (const [ref, ended] of Map.groupBy(logins, ({ projectRef }) => projectRef)) {
    if ((await statusOf(ctx, ref)) === 'INACTIVE') continue
    const roles = ended.map(({ role }) => role)
    // All of them end with a database that does not exist any more.
    let due: readonly string[] = roles
    const selectDue = async (ending: readonly string[]) => {
      due = await withoutRenewed(ctx, ending)
      return due
    }
    await ctx.engine.logins
      .end(ref, roles, () => ownerPassword(ctx, ref), selectDue)
      .catch((error) => {
        throw unavailable(error)
      })
    if (REPLACING.includes(await statusOf(ctx, ref))) continue
    // A login that was renewed and has expired since has not ended yet.
    await ctx.db
      .delete(temporaryLogins)
      .where(and(inArray(temporaryLogins.role, due), lte(temporaryLogins.expiresAt, ctx.now())))
  }
}

/** Leaves out logins that have been renewed. A role without a row is an orphan, so it still ends. */
async function withoutRenewed({ db, now }: SystemCtx, roles: readonly string[]): Promise<string[]> {
  const { role, expiresAt } = temporaryLogins
  const rows = await db
    .select({ role })
    .from(temporaryLogins)
    .where(and(inArray(role, roles), gt(expiresAt, now())))
  const renewed = new Set(rows.map((row) => row.role))
  return roles.filter((name) => !renewed.has(name))
}

/** The roles of a project's temporary logins that have sessions. */
export const loginsInUse = (ctx: SystemCtx, ref: string): Promise<string[]> =>
  ctx.engine.logins.listInUse(ref).catch((error) => {
    throw unavailable(error)
  })

async function statusOf({ db }: SystemCtx, ref: string): Promise<ProjectStatus | undefined> {
  const [row] = await db.select({ status: projects.status }).from(projects).where(eq(projects.ref, ref))
  return row?.status
}

async function ownerPassword(ctx: SystemCtx, ref: string): Promise<string> {
  const { sealedPassword } = projects
  const [row] = await ctx.db.select({ ref: projects.ref, sealedPassword }).from(projects).where(eq(projects.ref, ref))
  if (!row) throw new Error(`the project ${ref} has no row`)
  return passwordOf(ctx, row)
}

const unavailable = (error: unknown): unknown =>
  error instanceof EngineUnavailable ? new ApiError('service_unavailable.project_database', { cause: error }) : error

const ENDED_MAX = 500
/** Projects whose logins end at once: a database host that does not answer must not delay the others. */
const CONCURRENCY = 8

/**
 * Ends logins that have expired, that have lost their token or the role of their user, or whose application belongs to a disabled
 * organization.
 */
export async function endDueLogins(ctx: SystemCtx): Promise<void> {
  const found = await dueLogins(ctx)
  if (found.length === 0) return
  const due = await mutate(ctx, ({ tx }) => expireLogins(tx, ctx.now(), isUnchanged(found)))
  const byProject = Map.groupBy(due, ({ projectRef }) => projectRef)
  await forEachConcurrently(byProject, CONCURRENCY, ([ref, ended]) =>
    endLogins(ctx, ended).catch(async (error) => {
      ctx.log.error('logins_not_ended', { project: ref, error: describeError(error) })
      await ctx.db.update(temporaryLogins).set({ failedAt: ctx.now() }).where(isAnyOf(ended))
    }),
  )
}

const isAnyOf = (logins: readonly Login[]) =>
  sql`${temporaryLogins.role} = any(${sql.param(logins.map(({ role }) => role))}::text[])`

interface DueLogin {
  role: string
  /** Expiry as Postgres writes it. */
  expiresAt: string
}

/** Leaves out logins that have been renewed since they were found. */
const isUnchanged = (logins: readonly DueLogin[]) => {
  const roles = sql.param(logins.map(({ role }) => role))
  const ends = sql.param(logins.map(({ expiresAt }) => expiresAt))
  return sql`(${temporaryLogins.role}, ${temporaryLogins.expiresAt}) in
    (select * from unnest(${roles}::text[], ${ends}::timestamptz[]))`
}

/**
 * Selects due logins. Those whose end failed before come last: an unreachable database must not delay the others. Those that were
 * withdrawn before their expiry come first: Postgres refuses the expired ones anyway.
 */
function dueLogins({ db, now }: SystemCtx): Promise<DueLogin[]> {
  const at = now().toISOString()
  return rowsOf<DueLogin>(
    db,
    sql`select l.role, l.expires_at::text as "expiresAt" from ${temporaryLogins} l
      left join ${accessTokens} t on t.id = l.token_id
      left join ${projects} p on p.ref = l.project_ref
      where p.status <> 'INACTIVE' and (l.expires_at <= ${at} or l.token_id is null or t.revoked_at is not null or t.expires_at <= ${at}
        or not ${HAS_ROLE} or exists (select from ${oauthApps} a join ${organizations} o on o.id = a.organization_id
          where a.id = t.oauth_app_id and o.disabled_at is not null))
      order by l.failed_at nulls first, l.expires_at <= ${at}, l.expires_at limit ${ENDED_MAX}`,
  )
}
