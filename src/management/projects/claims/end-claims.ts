import { inArray } from 'drizzle-orm'
import { projectClaimTokens } from '../../../model/tables/index.ts'
import type { Mutation } from '../../kernel/mutate.ts'

/** Deletes the claim tokens of projects that the caller has locked. Returns whether there were any. */
export async function endClaimTokens({ tx }: Pick<Mutation, 'tx'>, refs: readonly string[]): Promise<boolean> {
  const ended = await tx
    .delete(projectClaimTokens)
    .where(inArray(projectClaimTokens.projectRef, [...refs]))
    .returning({ ref: projectClaimTokens.projectRef })
  return ended.length > 0
}
