import { and, eq, inArray, isNull, or } from 'drizzle-orm'
import type { Payloads } from '../../../model/event-types.ts'
import { ROLES, type Role, strongestRole } from '../../../model/roles.ts'
import { memberRoles } from '../../../model/tables/index.ts'
import type { NewEvent } from '../../../outbound/events/publish.ts'
import { withdrawApprovals } from '../oauth/withdraw-approvals.ts'
import { cancelInvitationsBy } from './cancel-invitations.ts'
import { type Assignment, type HeldRole, type Member, type MemberChange, toEventRole } from './member-change.ts'

type Payload = Payloads['v1.organization.member.added']

const isRoleOf = ({ organization, user }: Member) =>
  and(eq(memberRoles.organizationId, organization.id), eq(memberRoles.userId, user.id))

export const readRoles = ({ tx }: Pick<MemberChange, 'tx'>, member: Member): Promise<HeldRole[]> =>
  tx.select({ role: memberRoles.role, projectRef: memberRoles.projectRef }).from(memberRoles).where(isRoleOf(member))

/** Returns the roles in `these` that are not in `those`. */
const without = (these: readonly HeldRole[], those: readonly HeldRole[]) =>
  these.filter((one) => !those.some(({ role, projectRef }) => role === one.role && projectRef === one.projectRef))

/** Returns the roles that a change gives or takes away. */
export const rolesChanged = (before: readonly HeldRole[], after: readonly HeldRole[]): Set<Role> =>
  new Set([...without(before, after), ...without(after, before)].map(({ role }) => role))

/**
 * Changes a member's roles from `before`, the current ones, to `after`, and publishes the events. A member without roles leaves, and
 * invitations that the member could no longer send end. The caller must hold the lock of the organization and write the audit entry.
 */
export async function changeRoles(
  change: MemberChange,
  member: Member,
  before: readonly HeldRole[],
  after: readonly HeldRole[],
): Promise<void> {
  const { tx } = change
  const removed = without(before, after)
  const added = without(after, before)
  if (removed.length > 0) {
    const refs = removed.flatMap(({ projectRef }) => projectRef ?? [])
    const isEverywhere = removed.some(({ projectRef }) => projectRef === null)
    const which = or(isEverywhere ? isNull(memberRoles.projectRef) : undefined, inArray(memberRoles.projectRef, refs))
    await tx.delete(memberRoles).where(and(isRoleOf(member), which))
  }
  const { organization, user } = member
  const rows = added.map((role) => ({ ...role, organizationId: organization.id, userId: user.id }))
  if (rows.length > 0) await tx.insert(memberRoles).values(rows)
  if (after.length === 0) await withdrawApprovals(tx, { organizationId: organization.id, userIds: [user.id] })
  if (removed.length > 0) await cancelInvitationsBy(change, member, after)
  await change.publish(eventsOf(member, before, after))
}

/** Returns the events of a change from `before` to `after`. */
export function eventsOf(member: Member, before: readonly HeldRole[], after: readonly HeldRole[]): NewEvent[] {
  const subject = { organization: member.organization, projectRef: null }
  if (before.length === 0 || after.length === 0) {
    const verb = before.length === 0 ? 'added' : 'removed'
    return [{ ...subject, type: `v1.organization.member.${verb}`, fields: withOneRole(member, [...before, ...after]) }]
  }
  return changes(assignments(before), assignments(after)).map(({ verb, ...assignment }) => ({
    ...subject,
    type: `v1.organization.member.role.${verb}` as const,
    fields: toPayload(member, assignment),
  }))
}

function assignments(roles: readonly HeldRole[]): Assignment[] {
  return ROLES.filter((name) => roles.some(({ role }) => role === name)).map((role) => {
    const projectRefs = roles.filter((one) => one.role === role).map(({ projectRef }) => projectRef)
    const refs = projectRefs.flatMap((ref) => ref ?? [])
    return { role, refs: projectRefs.includes(null) ? null : refs.sort() }
  })
}

interface Change extends Assignment {
  verb: 'assigned' | 'updated' | 'removed'
}

const hasSameRefs = (one: Assignment, other: Assignment) => String(one.refs) === String(other.refs)

/** Lists the changed assignments. Another role for the same projects is an update, not a removal and an assignment. */
function changes(before: readonly Assignment[], after: readonly Assignment[]): Change[] {
  const ended = before.filter(({ role }) => !after.some((one) => one.role === role))
  const begun = after.filter(({ role }) => !before.some((one) => one.role === role))
  const moved = after.filter((one) => before.some((other) => other.role === one.role && !hasSameRefs(one, other)))
  const replaced = ended.filter((one) => begun.some((other) => hasSameRefs(one, other)))
  return [
    ...ended.filter((one) => !replaced.includes(one)).map((one) => ({ ...one, verb: 'removed' as const })),
    ...moved.map((one) => ({ ...one, verb: 'updated' as const })),
    ...begun.map((one) => ({
      ...one,
      verb: replaced.some((other) => hasSameRefs(one, other)) ? ('updated' as const) : ('assigned' as const),
    })),
  ]
}

/** An event names one role: the one in the whole organization, else the strongest one with its projects. */
function withOneRole(member: Member, roles: readonly HeldRole[]): Payload {
  const everywhere = roles.find(({ projectRef }) => projectRef === null)
  const role = everywhere?.role ?? strongestRole(roles.map((one) => one.role))
  const assignment = assignments(roles).find((one) => one.role === role)
  if (!assignment) throw new Error(`the user ${member.user.id} has no role`)
  return toPayload(member, assignment)
}

const toPayload = ({ user }: Member, assignment: Assignment): Payload => ({
  member: { user_id: user.id, primary_email: user.primaryEmail, role: toEventRole(assignment) },
})
