import { and, asc, eq, exists, inArray, isNotNull, isNull, ne, or, type SQL, sql } from 'drizzle-orm'
import type * as z from 'zod'
import { type ProjectAccess, requirePermission, requireTokenScope } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { Power } from '../../../engine/logins.ts'
import { type JitRole, jitGrants, memberRoles, projects, temporaryLogins, users } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { type Reader, readSettings, saveSettings } from '../../projects/settings/read-settings.ts'
import type { JitAccess, UpdateJitAccess, UpdateJitMapping } from './schema.ts'
import { endLogins, expireLogins } from './temporary-logins.ts'

/** The first version of Postgres with login triggers, one of which checks the networks. */
const POSTGRES_MIN = 17

const isSupported = ({ postgresVersion }: ProjectAccess) => Number.parseInt(postgresVersion || '0', 10) >= POSTGRES_MIN

function whyUnavailable({ engine }: Ctx, project: ProjectAccess): z.input<typeof JitAccess> | undefined {
  if (!engine.capabilities.loginNetworks || isSupported(project)) return undefined
  return { state: 'unavailable', unavailableReason: 'postgres_upgrade_required' }
}

export async function getJitAccess(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof JitAccess>> {
  const unavailable = whyUnavailable(ctx, project)
  if (unavailable) return unavailable
  return { state: (await readSettings(ctx.db, project.ref, 'jit')).value.state, appliedSuccessfully: true }
}

export async function updateJitAccess(
  ctx: Ctx,
  project: ProjectAccess,
  { state }: z.output<typeof UpdateJitAccess>,
): Promise<z.input<typeof JitAccess>> {
  const unavailable = whyUnavailable(ctx, project)
  if (unavailable) return unavailable
  const { ref } = project
  const now = ctx.now()
  const ended = await mutate(ctx, async ({ tx, trace }) => {
    await lockProject({ tx }, ref)
    await saveSettings(tx, { ref, area: 'jit', value: { state }, updatedAt: now })
    await trace({ project, action: 'project.jit.update', detail: { state } })
    if (state === 'enabled') return []
    return expireLogins(tx, now, and(eq(temporaryLogins.projectRef, ref), isNotNull(temporaryLogins.userId)))
  })
  await endLogins(ctx, ended)
  return { state, appliedSuccessfully: true }
}

export async function getJitMapping({ db, actor: { userId } }: Ctx, project: ProjectAccess) {
  const grants = applicableGrants(project, await selectGrants(db, project, userId))
  return { user_id: userId, user_roles: grants.map(({ entry }) => entry) }
}

/** Builds the query of the grants that may apply to a project, its own first. Pass its rows to `applicableGrants`. */
export const selectGrants = (reader: Reader, { ref, parentRef }: ProjectAccess, userId: string) =>
  reader
    .select({ ref: jitGrants.projectRef, roles: jitGrants.roles })
    .from(jitGrants)
    .where(and(inArray(jitGrants.projectRef, [ref, parentRef ?? ref]), eq(jitGrants.userId, userId)))
    .orderBy(ne(jitGrants.projectRef, ref))

/** Returns the project's own grants and, for a branch, those grants of its parent that are for branches. */
export function applicableGrants(
  { ref, parentRef }: ProjectAccess,
  grants: readonly { ref: string; roles: readonly JitRole[] }[],
): { ref: string; entry: JitRole }[] {
  const applies = (from: string, { branches_only: branchesOnly = false }: JitRole) =>
    from === ref ? !branchesOnly || parentRef !== null : branchesOnly
  return grants.flatMap(({ ref: from, roles }) =>
    roles.filter((entry) => applies(from, entry)).map((entry) => ({ ref: from, entry })),
  )
}

const grantOf = (ref: string, userId: string) => and(eq(jitGrants.projectRef, ref), eq(jitGrants.userId, userId))

/** Lists the grants of current members. Grants of former members have no effect. */
export async function listJitMappings({ db }: Ctx, project: ProjectAccess) {
  requireAdministrator(project)
  const rows = await db
    .select({ userId: jitGrants.userId, email: users.primaryEmail, roles: jitGrants.roles })
    .from(jitGrants)
    .innerJoin(users, eq(users.id, jitGrants.userId))
    .where(and(eq(jitGrants.projectRef, project.ref), exists(memberships(db, project, jitGrants.userId))))
    .orderBy(asc(users.primaryEmail))
  return {
    items: rows.map(({ userId, email, roles }) => ({
      user_id: userId,
      primary_email: email,
      invite_id: null,
      expires_at: null,
      user_roles: roles,
    })),
  }
}

const memberships = (
  reader: Reader,
  { organizationId, ref, parentRef }: ProjectAccess,
  userId: string | SQL | typeof jitGrants.userId,
) =>
  reader
    .select({ id: memberRoles.id })
    .from(memberRoles)
    .where(
      and(
        eq(memberRoles.organizationId, organizationId),
        eq(memberRoles.userId, userId),
        or(
          isNull(memberRoles.projectRef),
          eq(memberRoles.projectRef, ref),
          eq(memberRoles.projectRef, parentRef ?? ref),
        ),
      ),
    )

export async function updateJitMapping(
  ctx: Ctx,
  project: ProjectAccess,
  { user_id: userId, roles: requested }: z.output<typeof UpdateJitMapping>,
) {
  requireAdministrator(project)
  const roles = requested.map(normalizeRole)
  requireGrantableRoles(ctx, project.ref, roles)
  requireFutureExpiry(ctx, roles)
  const { ref } = project
  const now = ctx.now()
  const ended = await mutate(ctx, async ({ tx, trace }) => {
    // The lock makes the removal of the member wait, so that it finds this grant too.
    const [member] = await memberships(tx, project, userId).limit(1).for('key share')
    if (!member) throw invalid('body.user_id', 'must be a member of the organization with access to this project')
    const [before] = await tx
      .select({ roles: jitGrants.roles })
      .from(jitGrants)
      .where(grantOf(ref, userId))
      .for('update')
    await tx
      .insert(jitGrants)
      .values({ projectRef: ref, userId, roles, updatedAt: now })
      .onConflictDoUpdate({ target: [jitGrants.projectRef, jitGrants.userId], set: { roles, updatedAt: now } })
    const detail = { userId, roles: roles.map(({ role }) => role) }
    await trace({ project, action: 'project.jit.grant', detail })
    const changed = changedPowers((role) => ctx.engine.logins.powerOf(ref, role), before?.roles ?? [], roles)
    return expireLogins(
      tx,
      now,
      and(loginsOf(ref, userId), sql`${temporaryLogins.grantedRole} = any(${sql.param(changed)}::text[])`),
    )
  })
  await endLogins(ctx, ended)
  return { user_id: userId, user_roles: roles }
}

/** Rounds `expires_at` down, and drops `allowed_networks` if both lists are empty, which means any network. */
function normalizeRole({ expires_at: at, allowed_networks: networks, ...others }: JitRole): JitRole {
  const role = { ...others, ...(at !== undefined && { expires_at: Math.floor(at) }) }
  const { allowed_cidrs: v4 = [], allowed_cidrs_v6: v6 = [] } = networks ?? {}
  return v4.length + v6.length > 0 ? { ...role, allowed_networks: networks } : role
}

function requireGrantableRoles({ engine }: Ctx, ref: string, roles: readonly JitRole[]): void {
  const seen = new Set<Power>()
  for (const [index, { role, allowed_networks: networks }] of roles.entries()) {
    const power = engine.logins.powerOf(ref, role)
    if (!power) throw invalid(`body.roles.${index}.role`, 'must be a role of this project that can be granted')
    if (seen.has(power)) throw invalid(`body.roles.${index}.role`, 'must not be listed twice')
    if (networks && !engine.capabilities.loginNetworks) {
      throw invalid(
        `body.roles.${index}.allowed_networks`,
        `must be absent: the driver ${engine.name} cannot check networks`,
      )
    }
    seen.add(power)
  }
}

function requireFutureExpiry({ now }: Ctx, roles: readonly JitRole[]): void {
  const expired = roles.findIndex(({ expires_at: at }) => at !== undefined && at * 1000 <= now().getTime())
  if (expired >= 0) throw invalid(`body.roles.${expired}.expires_at`, 'must be in the future')
}

/** Returns the roles whose grant was revoked or changed: logins that use them must end. */
function changedPowers(powerOf: PowerOf, before: readonly JitRole[], after: readonly JitRole[]): Power[] {
  const kept = new Set(after.map((entry) => JSON.stringify(grantKey(powerOf, entry))))
  return before
    .filter((entry) => !kept.has(JSON.stringify(grantKey(powerOf, entry))))
    .flatMap(({ role }) => powerOf(role) ?? [])
}

type PowerOf = (role: string) => Power | undefined

const grantKey = (
  powerOf: PowerOf,
  { role, expires_at, allowed_networks: networks, branches_only = false }: JitRole,
) => [
  powerOf(role),
  expires_at,
  networks && [networks.allowed_cidrs ?? [], networks.allowed_cidrs_v6 ?? []],
  branches_only,
]

/** Selects the user's logins in the project and in its branches, to which some of its grants apply. */
const loginsOf = (ref: string, userId: string) =>
  and(
    eq(temporaryLogins.userId, userId),
    sql`${temporaryLogins.projectRef} in (select ${ref} union all
      select ${projects.ref} from ${projects} where ${projects.parentRef} = ${ref} and ${projects.removedAt} is null)`,
  )

/** Revokes the grants of a user. Members may revoke their own; those of others require an administrator. */
export async function deleteJitMapping(ctx: Ctx, project: ProjectAccess, userId: string): Promise<void> {
  if (userId !== ctx.actor.userId) {
    requireTokenScope(ctx.actor, 'database:write')
    requireAdministrator(project)
  }
  const { ref } = project
  const ended = await mutate(ctx, async ({ tx, trace }) => {
    const deleted = await tx.delete(jitGrants).where(grantOf(ref, userId)).returning({ userId: jitGrants.userId })
    if (deleted.length === 0) throw new ApiError('not_found.jit_access')
    await trace({ project, action: 'project.jit.revoke', detail: { userId } })
    return expireLogins(tx, ctx.now(), loginsOf(ref, userId))
  })
  await endLogins(ctx, ended)
}

function requireAdministrator({ role }: ProjectAccess): void {
  requirePermission(role, 'database:write')
  if (role === 'owner' || role === 'administrator') return
  throw new ApiError('forbidden.permission_denied', {
    detail: `the role ${role} cannot grant database access: this requires owner or administrator`,
  })
}

const invalid = (field: string, message: string): ApiError => invalidField(field, message, 'custom')
