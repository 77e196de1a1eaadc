import type { AdminSession } from '../instances/types.ts'

/** Deletes all rows of these tables, and of no partition or child. Tables that refer to each other can be emptied in any order. */
export const truncate = (admin: AdminSession, tables: readonly { oid: number; name: string }[]): Promise<void> =>
  withoutTriggers(
    admin,
    tables.map(({ oid }) => oid),
    // Foreign keys are triggers too.
    () => admin.rows(`TRUNCATE ${tables.map(({ name }) => `ONLY ${name}`).join(', ')}`),
  )

/**
 * Runs `work` while no trigger or rule of these tables fires, not even one that is `ENABLE ALWAYS`. If a crash interrupts this,
 * the next call restores the flags of the tables. A flag that is true without triggers does no harm.
 */
export async function withoutTriggers(
  admin: AdminSession,
  oids: readonly number[],
  work: () => Promise<unknown>,
): Promise<void> {
  await admin.rows('UPDATE pg_class SET relhastriggers = false, relhasrules = false WHERE oid = ANY ($1::oid[])', [
    oids,
  ])
  try {
    await work()
  } finally {
    await admin.rows(
      `UPDATE pg_class SET relhastriggers = EXISTS (SELECT FROM pg_trigger WHERE tgrelid = pg_class.oid),
          relhasrules = EXISTS (SELECT FROM pg_rewrite WHERE ev_class = pg_class.oid)
        WHERE oid = ANY ($1::oid[])`,
      [oids],
    )
  }
}
