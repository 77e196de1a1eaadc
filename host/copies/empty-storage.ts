import { EARLIER_TABLES, SERVER_TABLES } from '../../src/engine/storage/names.ts'
import { REFERENCED_OBJECTS } from '../../src/engine/storage/referenced-objects.ts'
import type { AdminSession, Instance } from '../instances/types.ts'
import { withOwner } from './owner-session.ts'
import { truncate, withoutTriggers } from './without-triggers.ts'

const REFERENCED = `SELECT ${REFERENCED_OBJECTS} AS condition`

const OBJECTS = `SELECT c.oid::int8::int4 AS oid, has_table_privilege('postgres', c.oid, 'SELECT')
    AND has_table_privilege('postgres', c.oid, 'DELETE') AND has_schema_privilege('postgres', relnamespace, 'USAGE') AS "isGranted"
  FROM pg_class AS c WHERE c.oid = to_regclass('storage.objects')`

/** Removes the rows of the parent's objects, whose bytes are not copied, and the internal tables of its storage server. */
export async function emptyStorage(copy: Pick<Instance, 'connect'>, admin: AdminSession): Promise<void> {
  const [objects] = await admin.rows<{ oid: number; isGranted: boolean }>(OBJECTS)
  const [referenced] = await admin.rows<{ condition: string }>(REFERENCED)
  if (objects && referenced) {
    const rights = 'SELECT, DELETE ON storage.objects'
    if (!objects.isGranted) await admin.rows(`GRANT ${rights} TO postgres`)
    // The condition reads the owner's tables: even planning it may call the owner's functions, such as those in indexes.
    await withoutTriggers(admin, [objects.oid], async () =>
      withOwner(await copy.connect(), (owner) =>
        owner.query(`DELETE FROM ONLY storage.objects AS o WHERE NOT (${referenced.condition})`),
      ),
    )
    if (!objects.isGranted) await admin.rows(`REVOKE ${rights} FROM postgres`)
  }
  const tables = await admin.rows<{ oid: number; name: string }>(
    // Truncating a foreign table would open its connection with the superuser's rights.
    `SELECT oid::int8::int4 AS oid, name FROM unnest($1::text[]) AS name JOIN pg_class ON oid = to_regclass(name)
      WHERE relkind = 'r'`,
    [[...SERVER_TABLES, ...EARLIER_TABLES]],
  )
  if (tables.length > 0) await truncate(admin, tables)
}
