import { and, eq, inArray, sql } from 'drizzle-orm'
import { accessTokens, oauthGrants } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'

/** Deletes the users' approvals in an organization that they leave: if they return, they must approve again. */
export async function withdrawApprovals(
  tx: Pick<Writer, 'select' | 'delete'>,
  { organizationId, userIds }: { organizationId: string; userIds: readonly string[] },
): Promise<void> {
  const ofUser = tx
    .select({ id: accessTokens.id })
    .from(accessTokens)
    .where(sql`${accessTokens.userId} = any(${sql.param(userIds)}::uuid[])`)
  const isBy = inArray(oauthGrants.approvedBy, ofUser)
  await tx.delete(oauthGrants).where(and(eq(oauthGrants.organizationId, organizationId), isBy))
}
