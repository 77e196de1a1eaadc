import type { AdminSession } from '../instances/types.ts'

/**
 * Runs `work` while no trigger or rule of the tables with these oids fires, those that are `ENABLE ALWAYS` included. If this is
 * cut off, the next call restores the tables' flags: they can be true where there is nothing, and are then only looked at.
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
