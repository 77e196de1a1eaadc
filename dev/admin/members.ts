import { withdrawFromMember } from '../../src/areas/database-access/withdraw.ts'
import { changeHeld, readHeld } from '../../src/areas/members/held.ts'
import { ROLES, type Role } from '../../src/auth/roles.ts'
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
    const member = { organization, user }
    const held = await readHeld({ tx }, member)
    const before = held.find((row) => row.projectRef === projectRef)
    if (before?.role === role) return `${username} is ${role} in ${where} already`
    const others = held.filter((row) => row !== before)
    await changeHeld({ tx, publish }, member, held, [...others, { role, projectRef }])
    await withdrawFromMember(tx, new Date(), { organizationId, userId: user.id })
    const detail = { user: user.id, role, ...(before && { before: before.role }) }
    await trace({ action: 'member.set', organizationId, projectRef, detail })
    return `${username} is ${role} in ${where}`
  })
}

function removeMember(db: ControlDb, slug: string, username: string): Promise<string> {
  return change(db, async ({ tx, trace, publish }) => {
    const organization = await lockOrganization(tx, slug)
    const user = await findUser(tx, username)
    const member = { organization, user }
    const held = await readHeld({ tx }, member)
    if (held.length === 0) throw new StartError(`${username} is no member of ${slug}`)
    await changeHeld({ tx, publish }, member, held, [])
    // The Worker's duty ends the sessions of what is taken from him.
    await withdrawFromMember(tx, new Date(), { organizationId: organization.id, userId: user.id })
    await trace({ action: 'member.remove', organizationId: organization.id, detail: { user: user.id } })
    return `${username} is no longer a member of ${slug}`
  })
}
