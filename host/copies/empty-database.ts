import type { AdminSession } from '../instances/types.ts'
import { truncate } from './without-triggers.ts'

/** The migration histories, whose rows are kept. */
const KEPT_TABLES = ['supabase_migrations.schema_migrations', 'auth.schema_migrations', 'storage.migrations']
const TABLES_AT_ONCE = 200
const LARGE_OBJECTS_AT_ONCE = 1_000

const USER_SCHEMA = `n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`
const OF_EXTENSION = `SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e'`
/** Tables of extensions whose rows belong to users: pg_dump includes them. */
const FILLED_BY_USERS = `SELECT FROM pg_extension, unnest(extconfig, extcondition) AS k (config, condition)
  WHERE config = c.oid AND condition = ''`

const TABLES = `SELECT c.oid::int8::int4 AS oid, format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND ${USER_SCHEMA}
   AND (NOT EXISTS (${OF_EXTENSION}) OR EXISTS (${FILLED_BY_USERS}))
   AND n.nspname || '.' || c.relname <> ALL ($1::text[]) ORDER BY c.oid`

const RESTART_SEQUENCES = `SELECT setval(seqrelid, seqstart, false)
  FROM pg_sequence JOIN pg_class AS c ON c.oid = seqrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE ${USER_SCHEMA} AND NOT EXISTS (${OF_EXTENSION})`

const VIEWS = `SELECT format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
 WHERE c.relkind = 'm' AND c.relispopulated AND ${USER_SCHEMA}`

/** Deletes all rows but the migration history, and keeps the schema. Deletes planner statistics too: they contain sample values. */
export async function emptyDatabase(admin: AdminSession): Promise<void> {
  const tables = await admin.rows<{ oid: number; name: string }>(TABLES, [KEPT_TABLES])
  for (let at = 0; at < tables.length; at += TABLES_AT_ONCE) {
    await truncate(admin, tables.slice(at, at + TABLES_AT_ONCE))
  }
  await admin.rows(RESTART_SEQUENCES)
  for (const { name } of await admin.rows<{ name: string }>(VIEWS)) {
    await admin.rows(`REFRESH MATERIALIZED VIEW ${name} WITH NO DATA`)
  }
  await admin.rows('DELETE FROM pg_statistic WHERE starelid >= 16384')
  await admin.rows('DELETE FROM pg_statistic_ext_data')
  await removeLargeObjects(admin)
}

async function removeLargeObjects(admin: AdminSession): Promise<void> {
  const some = `SELECT oid FROM pg_largeobject_metadata LIMIT ${LARGE_OBJECTS_AT_ONCE}`
  for (;;) {
    const removed = await admin.rows(`SELECT lo_unlink(oid) FROM (${some}) AS found`)
    if (removed.length < LARGE_OBJECTS_AT_ONCE) return
  }
}
