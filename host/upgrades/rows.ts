import { pipeline } from 'node:stream/promises'
import type pg from 'pg'
import { from as copyFrom, to as copyTo } from 'pg-copy-streams'
import { quoteLiterals } from '../../src/engine/names.ts'
import { INTERNAL_SCHEMA } from '../../src/engine/storage/names.ts'
import type { Loaders } from './load.ts'
import { IS_PLATFORM_TABLE } from './platform.ts'

const USER_SCHEMA = `n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'`

/**
 * Condition: the table that records changes of the schema, or its sequence. Loading the schema fills it. Until version 13 of the storage
 * schema it was in `storage`.
 */
const RECORDS_CHANGES = `(n.nspname IN (${quoteLiterals([INTERNAL_SCHEMA, 'storage'])})
    AND c.relname IN ('schema_changes', 'schema_changes_id_seq') AND c.relowner IN (SELECT oid FROM pg_roles WHERE rolsuper))`

/** Tables to copy, with a condition that selects the rows of users in tables of extensions. */
const TABLES = `SELECT format('%I.%I', n.nspname, c.relname) AS name, kept.condition,
    ${IS_PLATFORM_TABLE} AS "isPlatform",
    '(' || (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
      WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') || ')' AS columns
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace JOIN pg_roles AS owner ON owner.oid = c.relowner
  LEFT JOIN LATERAL (SELECT condition FROM pg_extension, unnest(extconfig, extcondition) AS k (config, condition)
    WHERE config = c.oid) AS kept ON true
 WHERE c.relkind = 'r' AND c.relpersistence <> 't' AND ${USER_SCHEMA} AND NOT ${RECORDS_CHANGES} AND (kept.condition IS NOT NULL
    OR NOT EXISTS (SELECT FROM pg_depend WHERE classid = 'pg_class'::regclass AND objid = c.oid AND deptype = 'e'))
 ORDER BY c.oid`

const SEQUENCES = `SELECT format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.relkind = 'S' AND c.relpersistence <> 't'
    AND ${USER_SCHEMA} AND NOT ${RECORDS_CHANGES}`

const LARGE_OBJECTS = `SELECT format('SELECT lo_create(%s); ALTER LARGE OBJECT %1$s OWNER TO %I', oid, pg_get_userbyid(lomowner)) ||
    coalesce((SELECT string_agg(format('; GRANT %s ON LARGE OBJECT %s TO %s%s', privilege_type, o.oid,
        CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(grantee)) END,
        CASE WHEN is_grantable THEN ' WITH GRANT OPTION' END), '') FROM aclexplode(lomacl) WHERE grantee <> lomowner), '') ||
    coalesce(format('; COMMENT ON LARGE OBJECT %s IS %L', oid, obj_description(oid, 'pg_largeobject')), '') AS sql
  FROM pg_largeobject_metadata AS o`

interface Table {
  name: string
  isPlatform: boolean
  condition: string | null
  columns: string | null
}

/** Copies the rows of the platform and of extensions. `from` is the session with the snapshot. */
export async function copyPlatformRows(from: pg.Client, { admin }: Loaders): Promise<void> {
  for (const table of await tablesOf(from)) if (table.isPlatform) await copyTable(from, admin, table)
}

/**
 * Copies all other rows, sequences and large objects. No superuser writes tables of the owner, whose checks and generated columns
 * may call the owner's functions.
 */
export async function copyRows(from: pg.Client, { admin, loader }: Loaders): Promise<void> {
  for (const table of await tablesOf(from)) if (!table.isPlatform) await copyTable(from, loader, table)
  for (const { name } of (await from.query<{ name: string }>(SEQUENCES)).rows) {
    const { rows } = await from.query<{ value: string; called: boolean }>(
      `SELECT last_value AS value, is_called AS called FROM ${name}`,
    )
    await admin.query('SELECT setval($1::regclass, $2, $3)', [name, rows[0]?.value, rows[0]?.called])
  }
  const objects = (await from.query<{ sql: string }>(LARGE_OBJECTS)).rows
  for (const { sql } of objects) await admin.query(sql)
  if (objects.length > 0) await copy(from, admin, 'pg_catalog.pg_largeobject', 'pg_catalog.pg_largeobject')
}

const tablesOf = async (from: pg.Client): Promise<Table[]> => (await from.query<Table>(TABLES)).rows

async function copyTable(from: pg.Client, to: pg.Client, { name, condition, columns }: Table): Promise<void> {
  const list = columns ?? ''
  const source = condition ? `(SELECT ${list.slice(1, -1)} FROM ONLY ${name} ${condition})` : `${name} ${list}`
  await copy(from, to, source, `${name} ${list}`)
}

async function copy(from: pg.Client, to: pg.Client, source: string, target: string): Promise<void> {
  const reading = from.query(copyTo(`COPY ${source} TO STDOUT`))
  const writing = to.query(copyFrom(`COPY ${target} FROM STDIN`))
  await pipeline(reading, writing)
  if (reading.rowCount !== writing.rowCount) {
    throw new Error(`Only ${writing.rowCount} of ${reading.rowCount} rows of ${target} were copied`)
  }
}

const EXTENSIONS = `SELECT extname AS name, quote_ident(rolname) AS owner FROM pg_extension JOIN pg_authid AS a ON a.oid = extowner
  WHERE NOT rolsuper`
/** Changes the owner of an extension, for which there is no statement, and records that the role cannot be dropped. */
const SET_EXTENSION_OWNER = `WITH changed AS (UPDATE pg_extension SET extowner = $2::regrole WHERE extname = $1 RETURNING oid)
  INSERT INTO pg_shdepend (dbid, classid, objid, objsubid, refclassid, refobjid, deptype)
  SELECT (SELECT oid FROM pg_database WHERE datname = current_database()), 'pg_extension'::regclass, oid, 0,
    'pg_authid'::regclass, $2::regrole, 'o' FROM changed`

/** Restores the owners of extensions, so that they can drop the extensions that they created. */
export async function copyExtensionOwners(from: pg.Client, { admin }: Loaders): Promise<void> {
  for (const { name, owner } of (await from.query<{ name: string; owner: string }>(EXTENSIONS)).rows) {
    await admin.query(SET_EXTENSION_OWNER, [name, owner])
  }
}
