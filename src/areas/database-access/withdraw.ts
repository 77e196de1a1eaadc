import { and, eq, exists, inArray, sql } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'
import type { Writer } from '../../db/client.ts'
import { jitGrants, memberRoles, projects, temporaryLogins } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { describeError } from '../../http/log.ts'
import { endLogins, expireLogins } from './logins.ts'

/** What a member was given in the databases of an organization, for `endLoginsSoon` after the transaction. */
export async function withdrawFromMember(
  tx: Writer,
  now: Date,
  { organizationId, userId }: { organizationId: string; userId: string },
) {
  const isOfOrganization = (ref: PgColumn) =>
    exists(
      tx
        .select({ ref: projects.ref })
        .from(projects)
        .where(and(eq(projects.ref, ref), eq(projects.organizationId, organizationId))),
    )
  await tx.delete(jitGrants).where(and(eq(jitGrants.userId, userId), isOfOrganization(jitGrants.projectRef)))
  return expireLogins(tx, now, and(eq(temporaryLogins.userId, userId), isOfOrganization(temporaryLogins.projectRef)))
}

/**
 * What was given in these databases to who has no role in them; in the organization that has them now. All logins end: who
 * still may have one asks for it anew.
 */
export async function withdrawFromOutsiders(tx: Writer, now: Date, refs: readonly string[]) {
  const isMember = sql`exists (select from ${projects} p join ${memberRoles} m on m.organization_id = p.organization_id
    where p.ref = ${jitGrants.projectRef} and m.user_id = ${jitGrants.userId}
    and (m.project_ref is null or m.project_ref in (p.ref, p.parent_ref)))`
  await tx.delete(jitGrants).where(and(inArray(jitGrants.projectRef, [...refs]), sql`not ${isMember}`))
  return expireLogins(tx, now, inArray(temporaryLogins.projectRef, [...refs]))
}

/** They are over already for who looks at their time; a duty comes to what is not reached now. */
export const endLoginsSoon = (ctx: SystemCtx, logins: Parameters<typeof endLogins>[1]): void =>
  ctx.waitUntil(
    endLogins(ctx, logins).catch((error) => ctx.log.error('logins_not_ended', { error: describeError(error) })),
  )
