import { APP_GRANTEES, APP_OWNER } from './app-roles.ts'
import { quoteLiteral, quoteLiterals } from './names.ts'
import { API_ROLES, READER_GROUP } from './roles.ts'
import type { Session } from './session.ts'
import { STORAGE_GROUP, STORAGE_OWNER } from './storage/names.ts'

/** What a hidden original is called; its old name becomes a view of the rows that concern the current database. */
const HIDDEN = 'of_cluster'

const DATABASE = `(SELECT oid FROM pg_catalog.pg_database_${HIDDEN} WHERE datname = current_database())`
const OWN_ROLE_NAMES = `current_database(), current_database() || '_sql', current_database() || '_read', current_database() || '_storage'`
/** Between these lie the names of its temporary logins, so that they are found by the index. */
const TEMPORARY = ['cli', 'jit']
  .map((kind) => `OR (rolname > current_database() || '_${kind}_' AND rolname < current_database() || '_${kind}_~')`)
  .join(' ')
const OWN_ROLES = `(SELECT oid FROM pg_catalog.pg_authid WHERE rolname IN (${OWN_ROLE_NAMES}) ${TEMPORARY})`
const SHARED_ROLE_NAMES = quoteLiterals([
  ...API_ROLES,
  APP_OWNER,
  ...APP_GRANTEES,
  READER_GROUP,
  STORAGE_OWNER,
  STORAGE_GROUP,
])
/** An array, as it is made once for a statement: a list of rows would be searched for anew by each look-up of one role. */
const VISIBLE_ROLES = `ANY (ARRAY(
  SELECT oid FROM pg_catalog.pg_authid WHERE oid < 16384 OR rolsuper
  UNION ALL
  SELECT oid FROM pg_catalog.pg_authid WHERE rolname IN (${OWN_ROLE_NAMES}, ${SHARED_ROLE_NAMES}) ${TEMPORARY}))`

/** Tables that anybody may read in stock Postgres, with the rows a project may see. */
const TABLE_ROWS: Readonly<Record<string, string>> = {
  pg_database: 'datname = current_database()',
  pg_db_role_setting: `setdatabase = ${DATABASE} OR (setdatabase = 0 AND setrole IN ${OWN_ROLES})`,
  pg_auth_members: `roleid = ${VISIBLE_ROLES} AND member = ${VISIBLE_ROLES}`,
  pg_shdescription: `(classoid = 1262 AND objoid = ${DATABASE}) OR (classoid = 1260 AND objoid = ${VISIBLE_ROLES})`,
}

/** The same for views over tables. */
const VIEW_ROWS: Readonly<Record<string, string>> = {
  pg_roles: `oid = ${VISIBLE_ROLES}`,
  pg_user: `usesysid = ${VISIBLE_ROLES}`,
  pg_group: `grosysid IN ${OWN_ROLES}`,
}

/** And for views over functions, which check the reader's own rights: a superuser's function reads those for them. */
const ACTIVITY_ROWS: Readonly<Record<string, string>> = {
  pg_stat_activity: `datid = ${DATABASE} AND (usesysid IS NULL OR usesysid IN ${OWN_ROLES})`,
  pg_locks: `pid IN (SELECT pid FROM pg_catalog.pg_stat_activity_${HIDDEN}
    WHERE datid = ${DATABASE} AND (usesysid IS NULL OR usesysid IN ${OWN_ROLES}))`,
  pg_stat_database: `datid = ${DATABASE}`,
  pg_stat_database_conflicts: `datid = ${DATABASE}`,
  pg_stat_progress_analyze: `datid = ${DATABASE}`,
  pg_stat_progress_cluster: `datid = ${DATABASE}`,
  pg_stat_progress_copy: `datid = ${DATABASE}`,
  pg_stat_progress_create_index: `datid = ${DATABASE}`,
  pg_stat_progress_vacuum: `datid = ${DATABASE}`,
}

/** Who asks is not `current_user` in a superuser's function; nobody can set `role` to what he may not become. */
const READER = `CASE current_setting('role') WHEN 'none' THEN session_user::text ELSE current_setting('role') END`
/** As in stock Postgres to those alone who may act as the session's role; all to who may act as the project's owner. */
const IS_SHOWN = `pg_has_role(${READER}, (SELECT datdba FROM pg_catalog.pg_database_${HIDDEN} WHERE datname = current_database()), 'USAGE')
  OR pg_has_role(${READER}, usesysid, 'USAGE')`
/** Of sessions that are not shown. */
const MASKED: Readonly<Record<string, string>> = {
  query: `'<insufficient privilege>'`,
  ...Object.fromEntries(
    [
      ...['state', 'state_change', 'wait_event_type', 'wait_event', 'xact_start', 'query_start', 'backend_start'],
      ...['client_addr', 'client_hostname', 'client_port', 'backend_type', 'leader_pid', 'query_id'],
    ].map((column) => [column, 'NULL']),
  ),
}

const CLOSED_RELATIONS = [
  'pg_prepared_xacts',
  'pg_replication_origin',
  'pg_replication_slots',
  'pg_shdepend',
  'pg_stat_gssapi',
  'pg_stat_progress_basebackup',
  'pg_stat_replication',
  'pg_stat_replication_slots',
  'pg_stat_ssl',
  'pg_stat_subscription',
  'pg_stat_subscription_stats',
  'pg_stat_wal_receiver',
]

const CLOSED_FUNCTIONS =
  '^(pg_stat_get_(activity|progress_info|wal_senders|wal_receiver|replication_slot|subscription|subscription_stats)' +
  '|pg_stat_get_(backend|db)_.*|pg_lock_status|pg_prepared_xact|pg_get_replication_slots|pg_tablespace_databases)$'

/** How Postgres itself defines the views that are filtered, by their names. */
export type StockViews = ReadonlyMap<string, string>

/** In the session of a superuser in a database whose catalogue is not closed. */
export async function stockViews(admin: Session): Promise<StockViews> {
  const names = quoteLiterals([...Object.keys(VIEW_ROWS), ...Object.keys(ACTIVITY_ROWS)])
  const views = await admin.rows<{ name: string; definition: string }>(
    `SELECT relname AS name, rtrim(pg_get_viewdef(oid), ';') AS definition FROM pg_class
      WHERE relnamespace = 'pg_catalog'::regnamespace AND relname IN (${names})`,
  )
  return new Map(views.map(({ name, definition }) => [name, ofCluster(definition)]))
}

const FILTERED_TABLE = new RegExp(`\\b(${Object.keys(TABLE_ROWS).join('|')})\\b`, 'g')

/** Where the catalogue is closed, the names of tables are those of views that show a part. */
const ofCluster = (definition: string): string => definition.replace(FILTERED_TABLE, `$1_${HIDDEN}`)

/**
 * Closes a database's catalogue to its neighbours' names, settings and activity: a stock one, or one that any earlier version of
 * this has closed, which `close` alone changes. What is new in a transaction cannot get another object id there, so `move` is for
 * one of its own, as is each of `hide`, which waits for all who have looked at a table of the cluster. What a list above names no more must be given back by a statement.
 */
export function closedCatalogue(stock: StockViews): { hide: string[]; move: string[]; close: string[] } {
  const tables = Object.entries(TABLE_ROWS)
  return {
    hide: tables.map(([table, rows]) => hideTable(table, rows)),
    move: tables.map(([table]) => moveAmongSystemObjects(table)),
    close: [
      ...tables.map(([table, rows]) => filterTable(table, rows)),
      ...Object.entries(VIEW_ROWS).map(([view, rows]) => filterView(view, rows, stock)),
      ...Object.entries(ACTIVITY_ROWS).map(([view, rows]) => filterActivity(view, rows, stock)),
      `REVOKE ALL ON ${CLOSED_RELATIONS.map((name) => `pg_catalog.${name}`).join(', ')} FROM PUBLIC`,
      revokeFunctions(),
      describeSharedObjects(),
      asIfAlwaysSo('pg_class', 'relacl', 'relnamespace'),
      asIfAlwaysSo('pg_proc', 'proacl', 'pronamespace'),
    ],
  }
}

/** The server finds its catalogues by object id, clients by name: so the name can go to a view. */
function hideTable(table: string, rows: string): string {
  return `DO $$ BEGIN
    IF to_regclass('pg_catalog.${table}_${HIDDEN}') IS NULL THEN
      ALTER TABLE pg_catalog.${table} RENAME TO ${table}_${HIDDEN};
      ${filterTable(table, rows)};
    END IF;
  END $$`
}

function filterTable(table: string, rows: string): string {
  const hidden = `pg_catalog.${table}_${HIDDEN}`
  return [
    `REVOKE ALL ON ${hidden} FROM PUBLIC`,
    // A barrier, or a cheap function in a reader's WHERE would be shown the rows that the filter drops.
    `CREATE OR REPLACE VIEW pg_catalog.${table} WITH (security_barrier) AS SELECT *, tableoid FROM ${hidden} WHERE ${rows}`,
    `GRANT SELECT ON pg_catalog.${table} TO PUBLIC`,
  ].join('; ')
}

/** pg_dump reads no view whose object id is not a system object's, so the new views get such ids. */
function moveAmongSystemObjects(view: string): string {
  return `DO $$
    DECLARE
      old oid := 'pg_catalog.${view}'::regclass;
      new oid := (SELECT max(oid::int8) + 1 FROM pg_class WHERE oid < 16384);
    BEGIN
      IF old < 16384 THEN RETURN; END IF;
      IF new >= 16384 THEN RAISE 'no object id is left below 16384'; END IF;
      UPDATE pg_class SET oid = new WHERE oid = old;
      UPDATE pg_attribute SET attrelid = new WHERE attrelid = old;
      UPDATE pg_type SET typrelid = new WHERE typrelid = old;
      UPDATE pg_rewrite SET ev_class = new WHERE ev_class = old;
      UPDATE pg_depend SET objid = new WHERE classid = 'pg_class'::regclass AND objid = old;
      UPDATE pg_depend SET refobjid = new WHERE refclassid = 'pg_class'::regclass AND refobjid = old;
      UPDATE pg_shdepend SET objid = new WHERE classid = 'pg_class'::regclass AND objid = old
        AND dbid = (SELECT oid FROM pg_database_${HIDDEN} WHERE datname = current_database());
    END $$`
}

function filterView(view: string, rows: string, stock: StockViews): string {
  return `CREATE OR REPLACE VIEW pg_catalog.${view} WITH (security_barrier) AS
    SELECT * FROM (${stockOf(view, stock)}) AS stock WHERE ${rows}`
}

function filterActivity(view: string, rows: string, stock: StockViews): string {
  const hidden = `pg_catalog.${view}_${HIDDEN}`
  const reader = `pg_catalog.${view}_of_database()`
  return [
    `CREATE OR REPLACE VIEW ${hidden} AS ${stockOf(view, stock)}`,
    `DO $$ BEGIN EXECUTE format('CREATE OR REPLACE FUNCTION ${reader} RETURNS SETOF ${hidden} LANGUAGE sql VOLATILE SECURITY DEFINER
       PARALLEL RESTRICTED BEGIN ATOMIC SELECT %s FROM ${hidden} WHERE %s; END', ${columnsOf(view)}, ${quoteLiteral(rows)}); END $$`,
    `CREATE OR REPLACE VIEW pg_catalog.${view} AS SELECT * FROM ${reader}`,
  ].join('; ')
}

function stockOf(view: string, stock: StockViews): string {
  const definition = stock.get(view)
  if (!definition) throw new Error(`Postgres has no view ${view}`)
  return definition
}

const columnsOf = (view: string): string =>
  view !== 'pg_stat_activity'
    ? `'*'`
    : `(SELECT string_agg(coalesce('CASE WHEN ' || ${quoteLiteral(IS_SHOWN)} || ' THEN ' || attname ||
          ' ELSE ' || (${quoteLiteral(JSON.stringify(MASKED))}::jsonb ->> attname) || ' END', attname), ', ' ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = 'pg_catalog.${view}_${HIDDEN}'::regclass AND attnum > 0)`

function revokeFunctions(): string {
  return `DO $$
    DECLARE function regprocedure;
    BEGIN
      FOR function IN SELECT oid FROM pg_proc
        WHERE pronamespace = 'pg_catalog'::regnamespace AND proname ~ ${quoteLiteral(CLOSED_FUNCTIONS).trim()}
      LOOP EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', function); END LOOP;
    END $$`
}

/** The stock function reads the hidden table; this one reads the view that took its place. */
function describeSharedObjects(): string {
  return `CREATE OR REPLACE FUNCTION pg_catalog.shobj_description(oid, name) RETURNS text
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
    BEGIN ATOMIC
      SELECT description FROM pg_catalog.pg_shdescription WHERE objoid = $1 AND classoid =
        (SELECT oid FROM pg_catalog.pg_class WHERE relnamespace = 'pg_catalog'::regnamespace AND relisshared
          AND relname::text IN ($2::text, $2::text || '_${HIDDEN}'));
    END`
}

/** Recorded as the initial rights, so that `pg_dump` does not write them into a project's dump. */
function asIfAlwaysSo(catalogue: string, rights: string, namespace: string): string {
  const ours = `SELECT oid FROM ${catalogue} WHERE ${namespace} = 'pg_catalog'::regnamespace AND NOT EXISTS (SELECT FROM pg_depend
      WHERE classid = '${catalogue}'::regclass AND objid = ${catalogue}.oid AND deptype = 'e')`
  return `DELETE FROM pg_init_privs WHERE classoid = '${catalogue}'::regclass AND objsubid = 0 AND objoid IN (${ours});
    INSERT INTO pg_init_privs (objoid, classoid, objsubid, privtype, initprivs)
      SELECT oid, '${catalogue}'::regclass, 0, 'i', ${rights} FROM ${catalogue} WHERE oid IN (${ours}) AND ${rights} IS NOT NULL`
}
