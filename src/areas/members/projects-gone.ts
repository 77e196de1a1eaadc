import { and, eq, inArray } from 'drizzle-orm'
import type { Mutation } from '../../db/mutate.ts'
import { memberRoles, users } from '../../db/schema/index.ts'
import { changeHeld, readHeld } from './held.ts'
import { endInvitationsInto } from './invitations.ts'

/**
 * Ends the roles in projects that the organization does not have any more, and the invitations to them. Who has no other role
 * leaves it. Whoever calls holds the organization's lock.
 */
export async function endRolesIn(
  mutation: Mutation,
  organization: { id: string; slug: string },
  refs: readonly string[],
): Promise<void> {
  const members = await mutation.tx
    .selectDistinct({ id: users.id, primaryEmail: users.primaryEmail })
    .from(memberRoles)
    .innerJoin(users, eq(users.id, memberRoles.userId))
    .where(and(eq(memberRoles.organizationId, organization.id), inArray(memberRoles.projectRef, [...refs])))
    .orderBy(users.id)
  for (const user of members) {
    const member = { organization, user }
    const before = await readHeld(mutation, member)
    const after = before.filter(({ projectRef }) => projectRef === null || !refs.includes(projectRef))
    await changeHeld(mutation, member, before, after)
  }
  await endInvitationsInto(mutation, organization, refs)
}
