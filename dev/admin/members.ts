import type { HeldRole } from '../../src/management/account/members/member-change.ts'
import { changeRoles, readRoles, rolesChanged } from '../../src/management/account/members/member-roles.ts'
import { rolesAfterAssignment } from '../../src/management/account/members/role-assignment.ts'
import { withdrawFromMember } from '../../src/management/database/database-access/withdraw-access.ts'
import { ROLES, type Role } from '../../src/model/roles.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { findUser, lockOrganization, requireProject } from './find.ts'

export const memberCommands: Record<string, Command> = {
  'member set': {
    summary: "Set a member's role, in the organization or in one project.",
    args: ['slug', 'username', ROLES.join('|')],
    options: '[--project ref]',
    run: (db, [slug = '', username = '', role = ''], { project }) => {
      const known = ROLES.find((name) => name === role)
      if (!known) throw new StartError(`${role} is not a role: must be one of ${ROLES.join(', ')}`)
      return setRole(db, { slug, username, role: known, projectRef: project ?? null })
    },
  },
  'member remove': {
    summary: 'Remove a member, or with --project only the role in that project.',
    args: ['slug', 'username'],
    options: '[--project ref]',
    run: (db, [slug = '', username = ''], { project }) =>
      project === undefined
        ? removeMember(db, slug, username)
        : removeRole(db, { slug, username, projectRef: project }),
  },
}

interface NewRole {
  slug: string
  username: string
  role: Role
  /** Null for the whole organization. */
  projectRef: string | null
}

function setRole(db: ControlDb, { slug, username, role, projectRef }: NewRole): Promise<string> {
  const where = projectRef ?? slug
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const { id: organizationId } = organization
    const user = await findUser(tx, username)
    if (projectRef !== null) await requireProject(tx, organizationId, projectRef)
    const member = { organization, user }
    const held = await readRoles({ tx }, member)
    const before = held.find((row) => row.projectRef === projectRef)
    const after = await rolesAfterAssignment(tx, held, {
      role,
      refs: projectRef === null ? undefined : refsOf(held, role, projectRef),
    })
    if (rolesChanged(held, after).size === 0) return `${username} is ${role} in ${where} already`
    await changeRoles({ tx, trace, publish }, member, held, after)
    await withdrawFromMember(tx, new Date(), { organizationId, userId: user.id })
    const detail = { user: user.id, role, ...(before && { before: before.role }) }
    await trace({ action: 'member.set', organizationId, projectRef, detail })
    const ended = held.filter((row) => row !== before && !after.some((one) => one.projectRef === row.projectRef))
    const instead = ended.map((row) => `${row.role} in ${row.projectRef ?? slug}`).join(', ')
    return `${username} is ${role} in ${where}${instead && `, and no longer ${instead}`}`
  })
}

/** The projects in which the member has the role, and the new one. */
const refsOf = (held: readonly HeldRole[], role: Role, projectRef: string): string[] => [
  ...held.flatMap((row) => (row.role === role && row.projectRef !== projectRef ? (row.projectRef ?? []) : [])),
  projectRef,
]

function removeMember(db: ControlDb, slug: string, username: string): Promise<string> {
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const user = await findUser(tx, username)
    const member = { organization, user }
    const held = await readRoles({ tx }, member)
    if (held.length === 0) throw new StartError(`${username} is not a member of ${slug}`)
    await changeRoles({ tx, trace, publish }, member, held, [])
    // A duty of the Worker ends the database sessions that the member may no longer have.
    await withdrawFromMember(tx, new Date(), { organizationId: organization.id, userId: user.id })
    await trace({ action: 'member.remove', organizationId: organization.id, detail: { user: user.id } })
    return `${username} is no longer a member of ${slug}`
  })
}

interface RoleInProject {
  slug: string
  username: string
  projectRef: string
}

function removeRole(db: ControlDb, { slug, username, projectRef }: RoleInProject): Promise<string> {
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const { id: organizationId } = organization
    const user = await findUser(tx, username)
    const member = { organization, user }
    const held = await readRoles({ tx }, member)
    const ended = held.find((row) => row.projectRef === projectRef)
    if (!ended) throw new StartError(`${username} has no role in ${projectRef} alone`)
    const after = held.filter((row) => row !== ended)
    await changeRoles({ tx, trace, publish }, member, held, after)
    await withdrawFromMember(tx, new Date(), { organizationId, userId: user.id })
    await trace({ action: 'member.remove', organizationId, projectRef, detail: { user: user.id, role: ended.role } })
    const left = after.length === 0 ? `, nor a member of ${slug}` : ''
    return `${username} is no longer ${ended.role} in ${projectRef}${left}`
  })
}
