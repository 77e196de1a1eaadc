import { and, desc, eq, gte, inArray, sql } from 'drizzle-orm'
import { functionDeletions } from '../../../model/tables/index.ts'
import type { Db, Writer } from '../../../platform/db/client.ts'

type Kind = (typeof functionDeletions.$inferInsert)['kind']

/** Deletions of a kind that a project keeps. A merge reads all of them, and names can be created and deleted without end. */
const KEPT_MAX = 1_000

interface Deletion {
  ref: string
  kind: Kind
  names: readonly string[]
  at: Date
}

export async function recordDeletion(tx: Writer, { ref, kind, names, at }: Deletion): Promise<void> {
  if (names.length === 0) return
  await tx
    .insert(functionDeletions)
    .values(names.map((name) => ({ projectRef: ref, kind, name, deletedAt: at })))
    .onConflictDoUpdate({
      target: [functionDeletions.projectRef, functionDeletions.kind, functionDeletions.name],
      set: { deletedAt: sql`excluded.deleted_at` },
    })
  const { name, deletedAt } = functionDeletions
  const forgotten = tx
    .select({ name })
    .from(functionDeletions)
    .where(ofKind(ref, kind))
    .orderBy(desc(deletedAt), name)
    .offset(KEPT_MAX)
  await tx.delete(functionDeletions).where(and(ofKind(ref, kind), inArray(name, forgotten)))
}

const ofKind = (ref: string, kind: Kind) => and(eq(functionDeletions.projectRef, ref), eq(functionDeletions.kind, kind))

export const selectDeletions = (db: Pick<Db | Writer, 'select'>, ref: string, kind: Kind) =>
  db.select().from(functionDeletions).where(ofKind(ref, kind))

export async function isFunctionDeletedSince(tx: Writer, ref: string, slug: string, at: Date): Promise<boolean> {
  const isLater = and(eq(functionDeletions.name, slug), gte(functionDeletions.deletedAt, at))
  return (await tx.$count(functionDeletions, and(ofKind(ref, 'function'), isLater))) > 0
}

/** Clears recorded deletions of a project that now has exactly the items of another project. */
export async function clearDeletions(tx: Pick<Db | Writer, 'delete'>, ref: string, kind: Kind): Promise<void> {
  await tx.delete(functionDeletions).where(ofKind(ref, kind))
}

export const deletedAtByName = (rows: readonly (typeof functionDeletions.$inferSelect)[]): Map<string, Date> =>
  new Map(rows.map(({ name, deletedAt }) => [name, deletedAt]))
