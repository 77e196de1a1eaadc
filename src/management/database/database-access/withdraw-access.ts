import { and, eq, inArray, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { accessTokens, jitGrants, memberRoles, projects, temporaryLogins } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { describeError } from '../../../platform/http/log.ts'
import { endLogins, expireLogins, HAS_ROLE } from './temporary-logins.ts'

/** Whether the grantee has a role in the project, through the organization that owns it now. */
const IS_MEMBER = sql`exists (select from ${projects} p join ${memberRoles} m on m.organization_id = p.organization_id
  where p.ref = ${jitGrants.projectRef} and m.user_id = ${jitGrants.userId}
  and (m.project_ref is null or m.project_ref in (p.ref, p.parent_ref)))`

/**
 * Revokes the database grants and logins that a member's changed roles no longer allow. Pass the result to `endLoginsSoon`
 * after the transaction.
 */
export async function withdrawFromMember(
  tx: Pick<Writer, 'delete' | 'update'>,
  now: Date,
  { organizationId, userId }: { organizationId: string; userId: string },
) {
  const isOfOrganization = sql`exists (select from ${projects} p
    where p.ref = ${jitGrants.projectRef} and p.organization_id = ${organizationId})`
  await tx.delete(jitGrants).where(and(eq(jitGrants.userId, userId), isOfOrganization, sql`not ${IS_MEMBER}`))
  const lost = sql`select l.role from ${accessTokens} t join ${temporaryLogins} l on l.token_id = t.id
    join ${projects} p on p.ref = l.project_ref
    where t.user_id = ${userId} and p.organization_id = ${organizationId} and not ${HAS_ROLE}`
  return expireLogins(tx, now, sql`${temporaryLogins.role} in (${lost})`)
}

/** Revokes the grants of users without a role in these projects, and expires all logins; members can open new ones. */
export async function withdrawOutsiderAccess(tx: Writer, now: Date, refs: readonly string[]) {
  await tx.delete(jitGrants).where(and(inArray(jitGrants.projectRef, [...refs]), sql`not ${IS_MEMBER}`))
  return expireLogins(tx, now, inArray(temporaryLogins.projectRef, [...refs]))
}

/** Ends expired logins in the background. `endDueLogins` retries those that fail. */
export const endLoginsSoon = (ctx: SystemCtx, logins: Parameters<typeof endLogins>[1]): void =>
  ctx.waitUntil(
    endLogins(ctx, logins).catch((error) => ctx.log.error('logins_not_ended', { error: describeError(error) })),
  )
