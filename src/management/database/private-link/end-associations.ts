import { and, eq, inArray, ne, type SQL } from 'drizzle-orm'
import { privateLinkAssociations } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import type { Mutation } from '../../kernel/mutate.ts'

export const ofProjects = (refs: readonly string[]) => inArray(privateLinkAssociations.projectRef, [...refs])

/** Marks associations for deletion and returns the newly marked ones. A worker that has claimed one continues with its deletion. */
export const markForDeletion = (tx: Writer, condition: SQL | undefined, at: Date): Promise<{ id: string }[]> =>
  tx
    .update(privateLinkAssociations)
    .set({ status: 'DELETING', dueAt: at, attempts: 0 })
    .where(and(condition, ne(privateLinkAssociations.status, 'DELETING')))
    .returning({ id: privateLinkAssociations.id })

/** Marks associations for deletion and queues the work after the commit. Returns their number. */
export async function endAssociations(
  { tx, enqueue }: Pick<Mutation, 'tx' | 'enqueue'>,
  condition: SQL | undefined,
  at: Date,
): Promise<number> {
  const ended = await markForDeletion(tx, condition, at)
  for (const { id } of ended) enqueue({ type: 'private-link', id })
  return ended.length
}

/** Ends the associations of a project's read replicas when all replicas are removed with their database or lost with their host. */
export const endReplicaAssociations = (mutation: Pick<Mutation, 'tx' | 'enqueue'>, ref: string, at: Date) =>
  endAssociations(mutation, and(ofProjects([ref]), eq(privateLinkAssociations.databaseType, 'READ_REPLICA')), at)
