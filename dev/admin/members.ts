import { and, eq } from 'drizzle-orm'
import { ROLE_NAMES, ROLES, type Role, strongest } from '../../src/auth/roles.ts'
import { memberRoles } from '../../src/db/schema/index.ts'
import type { Payloads } from '../../src/events/catalogue.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { findProject, findUser, lockOrganization } from './find.ts'

export const memberCommands: Record<string, Command> = {
  'member set': {
    args: ['slug', 'username', ROLES.join('|')],
    options: '[--project ref]',
    run: (db, [slug = '', username = '', role = ''], { project }) => {
      const known = ROLES.find((name) => name === role)
      if (!known) throw new StartError(`${role} is no role: ${ROLES.join(', ')}`)
      return setRole(db, { slug, username, role: known, projectRef: project ?? null })
    },
  },
  'member remove': {
    args: ['slug', 'username'],
    run: (db, [slug = '', username = '']) => removeMember(db, slug, username),
  },
}

interface NewRole {
  slug: string
  username: string
  role: Role
  projectRef: string | null
}

function setRole(db: ControlDb, { slug, username, role, projectRef }: NewRole): Promise<string> {
  const where = projectRef ?? slug
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const { id: organizationId } = organization
    const user = await findUser(tx, username)
    if (projectRef !== null) await findProject(tx, organizationId, projectRef)
    const held = await tx.select().from(memberRoles).where(rolesOf(organizationId, user.id))
    const before = held.find((row) => row.projectRef === projectRef)
    if (before?.role === role) return `${username} is ${role} in ${where} already`
    await tx
      .insert(memberRoles)
      .values({ organizationId, userId: user.id, role, projectRef })
      .onConflictDoUpdate({
        target: [memberRoles.organizationId, memberRoles.userId, memberRoles.projectRef],
        set: { role },
      })
    const what = before ? 'role.updated' : held.length > 0 ? 'role.assigned' : 'added'
    await publish({
      type: `v1.organization.member.${what}`,
      organization,
      projectRef: null,
      fields: memberOf(user, [{ role, projectRef }]),
    })
    const detail = { user: user.id, role, ...(before && { before: before.role }) }
    await trace({ action: 'member.set', organizationId, projectRef, detail })
    return `${username} is ${role} in ${where}`
  })
}

function removeMember(db: ControlDb, slug: string, username: string): Promise<string> {
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const user = await findUser(tx, username)
    const removed = await tx.delete(memberRoles).where(rolesOf(organization.id, user.id)).returning()
    if (removed.length === 0) throw new StartError(`${username} is no member of ${slug}`)
    await publish({
      type: 'v1.organization.member.removed',
      organization,
      projectRef: null,
      fields: memberOf(user, removed),
    })
    await trace({ action: 'member.remove', organizationId: organization.id, detail: { user: user.id } })
    return `${username} is no longer a member of ${slug}`
  })
}

const rolesOf = (organizationId: string, userId: string) =>
  and(eq(memberRoles.organizationId, organizationId), eq(memberRoles.userId, userId))

interface Held {
  role: Role
  projectRef: string | null
}

/** An event has room for one role: the one in the whole organization, else the strongest and the projects that have it. */
function memberOf(
  { id, primaryEmail }: { id: string; primaryEmail: string },
  held: readonly Held[],
): Payloads['v1.organization.member.added'] {
  const everywhere = held.find(({ projectRef }) => projectRef === null)
  const role = everywhere?.role ?? strongest(held.map((row) => row.role))
  if (!role) throw new Error(`the user ${id} has no role`)
  const refs = held.flatMap((row) => (row.role === role && row.projectRef !== null ? [row.projectRef] : []))
  const projects = everywhere ? null : refs.sort().map((ref) => ({ ref }))
  return { member: { user_id: id, primary_email: primaryEmail, role: { name: ROLE_NAMES[role], projects } } }
}
