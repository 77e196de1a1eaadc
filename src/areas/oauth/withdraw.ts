import { and, eq, inArray } from 'drizzle-orm'
import type { Writer } from '../../db/client.ts'
import { accessTokens, oauthGrants } from '../../db/schema/index.ts'

/** What a user approved for applications in an organization that he leaves: should he come back, they ask him again. */
export async function withdrawApprovals(
  tx: Pick<Writer, 'select' | 'delete'>,
  { organizationId, userId }: { organizationId: string; userId: string },
): Promise<void> {
  const ofUser = tx.select({ id: accessTokens.id }).from(accessTokens).where(eq(accessTokens.userId, userId))
  const isBy = inArray(oauthGrants.approvedBy, ofUser)
  await tx.delete(oauthGrants).where(and(eq(oauthGrants.organizationId, organizationId), isBy))
}
