import { and, eq, inArray, isNull } from 'drizzle-orm'
import type { HeldRole } from '../../src/management/account/members/member-change.ts'
import { changeRoles, readRoles } from '../../src/management/account/members/member-roles.ts'
import { invitations, organizations, projects } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { type Change, change } from './change.ts'
import type { Command } from './command.ts'
import { findOrganization, findUser, lockOrganization } from './find.ts'

export const invitationCommands: Record<string, Command> = {
  'invitation list': {
    summary: 'List the open invitations of an organization.',
    args: ['slug'],
    run: async (db, [slug = '']) => {
      const { id } = await findOrganization(db, slug)
      const rows = await db
        .select()
        .from(invitations)
        .where(eq(invitations.organizationId, id))
        .orderBy(invitations.createdAt, invitations.email)
      return rows.map(line).join('\n') || 'no open invitations'
    },
  },
  'invitation accept': {
    summary: 'Accept an invitation for a user.',
    args: ['slug', 'username'],
    run: async (db, [slug = '', username = '']) => {
      const user = await findUser(db, username)
      const joined = await accept(db, slug, user)
      if (!joined) throw new StartError(`${user.primaryEmail} has no invitation to ${slug}`)
      return joined
    },
  },
}

const line = ({ email, role, projectRefs, createdAt }: typeof invitations.$inferSelect) =>
  `${createdAt.toISOString()}  ${email}  ${role}${projectRefs ? ` in ${projectRefs.join(', ')}` : ''}`

interface User {
  id: string
  username: string
  primaryEmail: string
}

/** Accepts all invitations of the user's e-mail address. Returns one line for each. */
export async function acceptAll(db: ControlDb, user: User): Promise<string[]> {
  const open = await db
    .select({ slug: organizations.slug })
    .from(invitations)
    .innerJoin(organizations, eq(organizations.id, invitations.organizationId))
    .where(eq(invitations.email, user.primaryEmail.toLowerCase()))
    .orderBy(organizations.slug)
  const lines: string[] = []
  for (const { slug } of open) {
    const joined = await accept(db, slug, user)
    if (joined) lines.push(joined)
  }
  return lines
}

/** Accepts an invitation, with its roles. Returns undefined if there is none. */
function accept(db: ControlDb, slug: string, user: User): Promise<string | undefined> {
  return change(db, async (change) => {
    const { tx, trace } = change
    const organization = await lockOrganization(tx, slug)
    const { id: organizationId } = organization
    const [invitation] = await tx
      .delete(invitations)
      .where(
        and(eq(invitations.organizationId, organizationId), eq(invitations.email, user.primaryEmail.toLowerCase())),
      )
      .returning()
    if (!invitation) return undefined
    const member = { organization, user }
    const invited = await rolesIn(change, invitation)
    const detail = { user: user.id, email: invitation.email, role: invitation.role }
    await trace({ action: 'invitation.accept', organizationId, detail })
    if ((await readRoles(change, member)).length > 0) return `${user.username} is a member of ${slug} already`
    if (invited.length === 0) return `the projects that ${user.username} was invited to no longer exist in ${slug}`
    await changeRoles(change, member, [], invited)
    return `${user.username} is ${invitation.role} in ${invitation.projectRefs ? refsOf(invited) : slug}`
  })
}

const refsOf = (held: readonly HeldRole[]) => held.map(({ projectRef }) => projectRef).join(', ')

/** The roles of an invitation; projects that were removed since are skipped. */
async function rolesIn({ tx }: Change, invitation: typeof invitations.$inferSelect): Promise<HeldRole[]> {
  const { role, projectRefs, organizationId } = invitation
  if (!projectRefs) return [{ role, projectRef: null }]
  const there = await tx
    .select({ ref: projects.ref })
    .from(projects)
    .where(
      and(inArray(projects.ref, projectRefs), eq(projects.organizationId, organizationId), isNull(projects.removedAt)),
    )
    .orderBy(projects.ref)
  return there.map(({ ref }) => ({ role, projectRef: ref }))
}
