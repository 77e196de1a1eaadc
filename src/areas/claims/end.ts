import { inArray } from 'drizzle-orm'
import type { Mutation } from '../../db/mutate.ts'
import { projectClaimTokens } from '../../db/schema/index.ts'

/** Whether there were any. Whoever calls holds the projects. */
export async function endClaimTokens({ tx }: Pick<Mutation, 'tx'>, refs: readonly string[]): Promise<boolean> {
  const ended = await tx
    .delete(projectClaimTokens)
    .where(inArray(projectClaimTokens.projectRef, [...refs]))
    .returning({ ref: projectClaimTokens.projectRef })
  return ended.length > 0
}
