import { and, eq, inArray, isNull, or } from 'drizzle-orm'
import type { Payloads } from '../../../model/event-types.ts'
import { ROLE_NAMES, ROLES, type Role, strongestRole } from '../../../model/roles.ts'
import { memberRoles } from '../../../model/tables/index.ts'
import type { NewEvent } from '../../../outbound/events/publish.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { withdrawApprovals } from '../oauth/withdraw-approvals.ts'

/** A role in the whole organization, or in one project. */
export interface HeldRole {
  role: Role
  projectRef: string | null
}

/** Whose roles change, and who is told: the API and the command line write alike. */
export interface MemberChange {
  tx: Pick<Writer, 'select' | 'insert' | 'delete'>
  publish(events: readonly NewEvent[]): Promise<void>
}

export interface Member {
  organization: { id: string; slug: string }
  user: { id: string; primaryEmail: string }
}

type Payload = Payloads['v1.organization.member.added']

const rowsOf = ({ organization, user }: Member) =>
  and(eq(memberRoles.organizationId, organization.id), eq(memberRoles.userId, user.id))

export const readRoles = ({ tx }: Pick<MemberChange, 'tx'>, member: Member): Promise<HeldRole[]> =>
  tx.select({ role: memberRoles.role, projectRef: memberRoles.projectRef }).from(memberRoles).where(rowsOf(member))

/** What is in `these` and not in `those`. */
const without = (these: readonly HeldRole[], those: readonly HeldRole[]) =>
  these.filter((one) => !those.some(({ role, projectRef }) => role === one.role && projectRef === one.projectRef))

/** The roles that a change takes or gives; none where it changes nothing. */
export const rolesChanged = (before: readonly HeldRole[], after: readonly HeldRole[]): Set<Role> =>
  new Set([...without(before, after), ...without(after, before)].map(({ role }) => role))

/**
 * From `before`, which is what the member holds, to `after`, with the events that tell of it. Whoever calls holds the
 * organization's lock and leaves a trace. Who holds nothing any more has left.
 */
export async function changeRoles(
  change: MemberChange,
  member: Member,
  before: readonly HeldRole[],
  after: readonly HeldRole[],
): Promise<void> {
  const { tx } = change
  const gone = without(before, after)
  const come = without(after, before)
  if (gone.length > 0) {
    const refs = gone.flatMap(({ projectRef }) => projectRef ?? [])
    const isEverywhere = gone.some(({ projectRef }) => projectRef === null)
    const which = or(isEverywhere ? isNull(memberRoles.projectRef) : undefined, inArray(memberRoles.projectRef, refs))
    await tx.delete(memberRoles).where(and(rowsOf(member), which))
  }
  const { organization, user } = member
  const rows = come.map((held) => ({ ...held, organizationId: organization.id, userId: user.id }))
  if (rows.length > 0) await tx.insert(memberRoles).values(rows)
  if (after.length === 0) await withdrawApprovals(tx, { organizationId: organization.id, userIds: [user.id] })
  await change.publish(eventsOf(member, before, after))
}

/** What tells of the change from `before` to `after`. */
export function eventsOf(member: Member, before: readonly HeldRole[], after: readonly HeldRole[]): NewEvent[] {
  const subject = { organization: member.organization, projectRef: null }
  if (before.length === 0 || after.length === 0) {
    const verb = before.length === 0 ? 'added' : 'removed'
    return [{ ...subject, type: `v1.organization.member.${verb}`, fields: inOneRole(member, [...before, ...after]) }]
  }
  return changes(assignments(before), assignments(after)).map(({ verb, ...assignment }) => ({
    ...subject,
    type: `v1.organization.member.role.${verb}` as const,
    fields: payload(member, assignment),
  }))
}

/** A role with all places that it is held in: null for the whole organization, which includes every project. */
interface Assignment {
  role: Role
  refs: readonly string[] | null
}

function assignments(held: readonly HeldRole[]): Assignment[] {
  return ROLES.filter((name) => held.some(({ role }) => role === name)).map((role) => {
    const places = held.filter((one) => one.role === role).map(({ projectRef }) => projectRef)
    const refs = places.flatMap((ref) => ref ?? [])
    return { role, refs: places.includes(null) ? null : refs.sort() }
  })
}

interface Change extends Assignment {
  verb: 'assigned' | 'updated' | 'removed'
}

const samePlaces = (one: Assignment, other: Assignment) => String(one.refs) === String(other.refs)

/** Another role in the very same places is an update, not an end and a beginning. */
function changes(before: readonly Assignment[], after: readonly Assignment[]): Change[] {
  const ended = before.filter(({ role }) => !after.some((one) => one.role === role))
  const begun = after.filter(({ role }) => !before.some((one) => one.role === role))
  const moved = after.filter((one) => before.some((other) => other.role === one.role && !samePlaces(one, other)))
  const replaced = ended.filter((one) => begun.some((other) => samePlaces(one, other)))
  return [
    ...ended.filter((one) => !replaced.includes(one)).map((one) => ({ ...one, verb: 'removed' as const })),
    ...moved.map((one) => ({ ...one, verb: 'updated' as const })),
    ...begun.map((one) => ({
      ...one,
      verb: replaced.some((other) => samePlaces(one, other)) ? ('updated' as const) : ('assigned' as const),
    })),
  ]
}

/** An event has room for one role: the one in the whole organization, else the strongest and the projects that have it. */
function inOneRole(member: Member, held: readonly HeldRole[]): Payload {
  const everywhere = held.find(({ projectRef }) => projectRef === null)
  const role = everywhere?.role ?? strongestRole(held.map((one) => one.role))
  const assignment = assignments(held).find((one) => one.role === role)
  if (!assignment) throw new Error(`the user ${member.user.id} has no role`)
  return payload(member, assignment)
}

const payload = ({ user }: Member, assignment: Assignment): Payload => ({
  member: { user_id: user.id, primary_email: user.primaryEmail, role: toEventRole(assignment) },
})

/** A role as events name it. */
export const toEventRole = ({ role, refs }: Assignment) => ({
  name: ROLE_NAMES[role],
  projects: refs?.toSorted().map((ref) => ({ ref })) ?? null,
})
