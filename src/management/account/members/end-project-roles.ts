import { and, eq, inArray, sql } from 'drizzle-orm'
import { memberRoles, users } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { withdrawApprovals } from '../oauth/withdraw-approvals.ts'
import { cancelInvitationsTo } from './cancel-invitations.ts'
import { eventsOf } from './member-roles.ts'

/**
 * Ends the roles and invitations for projects that have left the organization. Members without another role leave the organization.
 * The caller must hold the lock of the organization. The number of round trips does not depend on the number of members.
 */
export async function endProjectRoles(
  mutation: Mutation,
  organization: { id: string; slug: string },
  refs: readonly string[],
): Promise<void> {
  const { tx, publish } = mutation
  const isMember = eq(memberRoles.organizationId, organization.id)
  const columns = { userId: memberRoles.userId, role: memberRoles.role, projectRef: memberRoles.projectRef }
  const ended = await tx
    .delete(memberRoles)
    .where(and(isMember, inArray(memberRoles.projectRef, [...refs])))
    .returning(columns)
  if (ended.length > 0) {
    const endedByUser = Map.groupBy(ended, ({ userId }) => userId)
    const ids = [...endedByUser.keys()]
    const anyOfThem = sql`any(${sql.param(ids)}::uuid[])`
    const people = await tx
      .select({ id: users.id, primaryEmail: users.primaryEmail })
      .from(users)
      .where(sql`${users.id} = ${anyOfThem}`)
      .orderBy(users.id)
    const roles = await tx
      .select(columns)
      .from(memberRoles)
      .where(and(isMember, sql`${memberRoles.userId} = ${anyOfThem}`))
    const remaining = Map.groupBy(roles, ({ userId }) => userId)
    await withdrawApprovals(tx, { organizationId: organization.id, userIds: ids.filter((id) => !remaining.has(id)) })
    await publish(
      people.flatMap((user) => {
        const after = remaining.get(user.id) ?? []
        return eventsOf({ organization, user }, [...after, ...(endedByUser.get(user.id) ?? [])], after)
      }),
    )
  }
  await cancelInvitationsTo(mutation, organization, refs)
}
