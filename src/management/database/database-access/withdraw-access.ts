import { and, eq, inArray, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { accessTokens, jitGrants, memberRoles, projects, temporaryLogins } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { describeError } from '../../../platform/http/log.ts'
import { endLogins, expireLogins, HAS_ROLE } from './temporary-logins.ts'

/** Whether who was granted something in a project has a role in it; in the organization that has it now. */
const IS_MEMBER = sql`exists (select from ${projects} p join ${memberRoles} m on m.organization_id = p.organization_id
  where p.ref = ${jitGrants.projectRef} and m.user_id = ${jitGrants.userId}
  and (m.project_ref is null or m.project_ref in (p.ref, p.parent_ref)))`

/**
 * What a member has in the databases of an organization and no role of his allows any more, now that they have changed; for
 * `endLoginsSoon` after the transaction.
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

/** What was given in these databases to who has no role in them. All logins end: who still may have one asks for it anew. */
export async function withdrawFromOutsiders(tx: Writer, now: Date, refs: readonly string[]) {
  await tx.delete(jitGrants).where(and(inArray(jitGrants.projectRef, [...refs]), sql`not ${IS_MEMBER}`))
  return expireLogins(tx, now, inArray(temporaryLogins.projectRef, [...refs]))
}

/** They are over already for who looks at their time; a duty comes to what is not reached now. */
export const endLoginsSoon = (ctx: SystemCtx, logins: Parameters<typeof endLogins>[1]): void =>
  ctx.waitUntil(
    endLogins(ctx, logins).catch((error) => ctx.log.error('logins_not_ended', { error: describeError(error) })),
  )
