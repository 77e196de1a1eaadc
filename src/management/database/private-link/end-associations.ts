import { and, inArray, ne, type SQL } from 'drizzle-orm'
import { privateLinkAssociations } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import type { Mutation } from '../../kernel/mutate.ts'

export const ofProjects = (refs: readonly string[]) => inArray(privateLinkAssociations.projectRef, [...refs])

/** From now on they are being deleted; returns those that were not yet. Whoever works on one goes on with that. */
export const markEnded = (tx: Writer, which: SQL | undefined, at: Date): Promise<{ id: string }[]> =>
  tx
    .update(privateLinkAssociations)
    .set({ status: 'DELETING', dueAt: at, attempts: 0 })
    .where(and(which, ne(privateLinkAssociations.status, 'DELETING')))
    .returning({ id: privateLinkAssociations.id })

/** The same, worked on once it has committed. Returns how many there were. */
export async function endAssociations(
  { tx, enqueue }: Pick<Mutation, 'tx' | 'enqueue'>,
  which: SQL | undefined,
  at: Date,
): Promise<number> {
  const ended = await markEnded(tx, which, at)
  for (const { id } of ended) enqueue({ type: 'private-link', id })
  return ended.length
}
