import { and, eq, inArray, isNull, ne } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import type { Role } from '../../../model/roles.ts'
import { memberRoles, projects, users } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { endLoginsSoon, withdrawFromMember } from '../../database/database-access/withdraw-access.ts'
import { lockOrganization } from '../../kernel/lock-organization.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { requirePlan } from '../organizations/plan-features.ts'
import { toMemberRole } from './list-members.ts'
import type { HeldRole, Member } from './member-change.ts'
import { changeRoles, readRoles, rolesChanged } from './member-roles.ts'
import { rolesAfterAssignment } from './role-assignment.ts'
import type { AssignedRole, AssignRole } from './schema.ts'

/**
 * Locks the organization, so that changes of members run one after another and the last owner is known. Fails if the caller's own
 * role has changed since the request was authorized.
 */
export async function lockMembers({ actor }: Ctx, { tx }: Mutation, { id, role }: OrganizationAccess): Promise<void> {
  await lockOrganization({ tx }, id)
  const [own] = await tx
    .select({ role: memberRoles.role })
    .from(memberRoles)
    .where(
      and(eq(memberRoles.organizationId, id), eq(memberRoles.userId, actor.userId), isNull(memberRoles.projectRef)),
    )
  if (own?.role === role) return
  throw new ApiError('forbidden.permission_denied', { detail: `your role ${role} has just been changed: try again` })
}

/**
 * Assigns a role in the given projects, or in the whole organization if no projects are given. The role replaces the member's
 * other roles there. A stronger role in the whole organization ends; a weaker one stays.
 */
export async function assignRole(
  ctx: Ctx,
  organization: OrganizationAccess,
  userId: string,
  { data }: z.output<typeof AssignRole>,
): Promise<z.input<typeof AssignedRole>> {
  requirePlan(organization, 'members')
  const { role, projects: requested } = data.attributes
  const { named, logins } = await mutate(ctx, async (mutation) => {
    await lockMembers(ctx, mutation, organization)
    const { member, currentRoles } = await findMember(mutation, organization, userId)
    const named =
      requested &&
      requireProjects(await findProjects(mutation.tx, organization, requested), requested, 'body.data.attributes')
    const refs = named?.map(({ ref }) => ref)
    const after = await rolesAfterAssignment(mutation.tx, currentRoles, { role, refs })
    const changed = rolesChanged(currentRoles, after)
    if (changed.size === 0) return { named, logins: [] }
    requireMayChange(organization, changed)
    await requireAnotherOwner(mutation.tx, member, currentRoles, after)
    await changeRoles(mutation, member, currentRoles, after)
    const detail = { user: userId, role, ...(refs && { projects: refs }) }
    await mutation.trace({ action: 'member.role.assign', organizationId: organization.id, detail })
    return { named, logins: await withdrawAccess(ctx, mutation, member) }
  })
  endLoginsSoon(ctx, logins)
  return { data: { type: 'organization_member_role', attributes: toMemberRole(role, named ?? null) } }
}

const withdrawAccess = (ctx: Ctx, { tx }: Mutation, { organization, user }: Member) =>
  withdrawFromMember(tx, ctx.now(), { organizationId: organization.id, userId: user.id })

/** Removes a member. Everything that depends on the membership ends, including open logins to databases. */
export async function removeMember(ctx: Ctx, organization: OrganizationAccess, userId: string): Promise<void> {
  const logins = await mutate(ctx, async (mutation) => {
    await lockMembers(ctx, mutation, organization)
    const { member, currentRoles } = await findMember(mutation, organization, userId)
    requireMayChange(organization, rolesChanged(currentRoles, []))
    await requireAnotherOwner(mutation.tx, member, currentRoles, [])
    await changeRoles(mutation, member, currentRoles, [])
    await mutation.trace({ action: 'member.remove', organizationId: organization.id, detail: { user: userId } })
    return withdrawAccess(ctx, mutation, member)
  })
  endLoginsSoon(ctx, logins)
}

async function findMember(mutation: Mutation, { id, slug }: OrganizationAccess, userId: string) {
  const [user] = await mutation.tx
    .select({ id: users.id, primaryEmail: users.primaryEmail })
    .from(users)
    .where(eq(users.id, userId))
  const member = user && { organization: { id, slug }, user }
  const currentRoles = member ? await readRoles(mutation, member) : []
  if (!member || currentRoles.length === 0) throw new ApiError('not_found.member')
  return { member, currentRoles }
}

/** Requires an owner if the role owner is given or taken: an administrator could otherwise become an owner. */
export function requireMayChange({ role: own }: Pick<OrganizationAccess, 'role'>, changed: ReadonlySet<Role>): void {
  if (own === 'owner' || !changed.has('owner')) return
  throw new ApiError('forbidden.permission_denied', {
    detail: `the role ${own} may not give or take the role owner`,
  })
}

const isOwner = (roles: readonly HeldRole[]) =>
  roles.some(({ role, projectRef }) => role === 'owner' && projectRef === null)

/** An owner whom the operator has disabled does not count: nobody could act for the organization. */
async function requireAnotherOwner(
  tx: Writer,
  { organization, user }: Member,
  before: readonly HeldRole[],
  after: readonly HeldRole[],
): Promise<void> {
  if (!isOwner(before) || isOwner(after)) return
  const [other] = await tx
    .select({ userId: memberRoles.userId })
    .from(memberRoles)
    .innerJoin(users, eq(users.id, memberRoles.userId))
    .where(
      and(
        eq(memberRoles.organizationId, organization.id),
        eq(memberRoles.role, 'owner'),
        isNull(memberRoles.projectRef),
        ne(memberRoles.userId, user.id),
        isNull(users.disabledAt),
      ),
    )
    .limit(1)
  if (!other) throw new ApiError('conflict.last_owner')
}

interface NamedProject {
  ref: string
  name: string
}
type FoundProjects = ReadonlyMap<string, NamedProject & { parentRef: string | null }>

/** Finds the projects of the organization among these refs, ordered by name. */
export async function findProjects(
  tx: Pick<Writer, 'select'>,
  { id }: Pick<OrganizationAccess, 'id'>,
  refs: readonly { ref: string }[],
): Promise<FoundProjects> {
  if (refs.length === 0) return new Map()
  const requested = Array.from(new Set(refs.map(({ ref }) => ref)))
  const found = await tx
    .select({ ref: projects.ref, name: projects.name, parentRef: projects.parentRef })
    .from(projects)
    .where(and(inArray(projects.ref, requested), eq(projects.organizationId, id), isNull(projects.removedAt)))
    .orderBy(projects.name, projects.ref)
  return new Map(found.map((row) => [row.ref, row]))
}

/** Returns the requested projects, each once; `field` is their path in the body. */
export function requireProjects(
  found: FoundProjects,
  requested: readonly { ref: string }[],
  field: string,
): NamedProject[] {
  const issues = requested.flatMap(({ ref }, index) => {
    const row = found.get(ref)
    if (row && row.parentRef === null) return []
    const message = row
      ? `is a branch: assign a role in ${row.parentRef}, which also applies to its branches`
      : 'is not a project of the organization'
    return [{ field: `${field}.projects.${index}.ref`, code: 'custom', message }]
  })
  if (issues.length > 0) throw new ApiError('bad_request.validation_failed', { issues })
  const refs = new Set(requested.map(({ ref }) => ref))
  return Array.from(found.values()).flatMap(({ ref, name }) => (refs.has(ref) ? [{ ref, name }] : []))
}
