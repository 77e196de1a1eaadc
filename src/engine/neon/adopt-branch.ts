import { sessionsOf } from '../cluster-sessions.ts'
import type { ProjectSpec } from '../engine.ts'
import { SqlError, SqlResultTooLarge } from '../engine-errors.ts'
import { joinText } from '../json-bytes.ts'
import { disableLogins } from '../logins.ts'
import { loginRoles, type ProjectNames, projectNames, quoteLiteral } from '../names.ts'
import { runBatch } from '../run-batch.ts'
import { runSql, SQL_TIMEOUT_MS_MAX } from '../run-sql.ts'
import { type Cluster, type Session, withAdmin } from '../session.ts'
import { EARLIER_TABLES, SERVER_TABLES } from '../storage/names.ts'
import { REFERENCED_OBJECTS } from '../storage/referenced-objects.ts'
import { runTransaction } from '../transaction.ts'
import { ensureRoles, existingAmong } from './prepare.ts'

/** Gives the roles and the database, which a branch inherits, the names and passwords of the new project. */
export async function adoptBranch(cluster: Cluster, from: string, to: ProjectSpec): Promise<void> {
  const [old, { names }] = [projectNames(from), cluster]
  await withAdmin(cluster, async (admin) => {
    await disableLogins(admin)
    await rename(admin, old, names)
    await ensureRoles(admin, names, to)
    // A copy is writable even if its parent is read-only.
    const readOnly = 'RESET default_transaction_read_only'
    const { database, owner, runner, storage } = names
    await admin.rows(
      [
        `ALTER DATABASE ${database} ${readOnly}`,
        ...[owner, runner, storage].flatMap((role) => [
          `ALTER ROLE ${role} ${readOnly}`,
          `ALTER ROLE ${role} IN DATABASE ${database} ${readOnly}`,
        ]),
      ].join('; '),
    )
  })
}

async function rename(admin: Session, old: ProjectNames, names: ProjectNames): Promise<void> {
  const hasDatabase = await admin.rows(`SELECT FROM pg_database WHERE datname = ${quoteLiteral(old.database)}`)
  if (hasDatabase.length > 0) await admin.rows(`ALTER DATABASE ${old.database} RENAME TO ${names.database}`)
  const present = await existingAmong(admin, loginRoles(old))
  const renames = (['owner', 'runner', 'reader', 'storage'] as const)
    .filter((kind) => present.has(old[kind]))
    .map((kind) => `ALTER ROLE ${old[kind]} RENAME TO ${names[kind]}`)
  if (renames.length > 0) await admin.rows(renames.join('; '))
}

/** A project's database and the password of the role that runs its owner's SQL. */
export interface ProjectLogin {
  cluster: Cluster
  ref: string
  runnerPassword: string
}

const HISTORY = 'supabase_migrations.schema_migrations'
const UNDEFINED_TABLE = '42P01'
const PAGE_MAX = 100

/** A digest of the migration history; empty if the owner has dropped it. */
export async function historyDigest(project: ProjectLogin): Promise<string> {
  const [found] = await inHistory<{ history: string }>(
    project,
    `SELECT count(*) || ':' || coalesce(sum(hashtextextended(m::text, 0)::numeric), 0) AS history FROM ${HISTORY} AS m`,
  )
  return found?.history ?? ''
}

/**
 * Copies the migration history, which belongs to the schema. Both sides use sessions of the owners, because the table may
 * run an owner's code.
 */
export async function copyHistory(from: ProjectLogin, { cluster, ...to }: ProjectLogin): Promise<void> {
  await runTransaction(sessionsOf(cluster), { ...to, timeoutMs: SQL_TIMEOUT_MS_MAX }, async (tx) => {
    for await (const page of pagesOf(from)) {
      await tx.rows(
        `INSERT INTO ${HISTORY} SELECT * FROM json_populate_recordset(NULL::${HISTORY}, $1) ON CONFLICT DO NOTHING`,
        [page],
      )
    }
  })
}

/** Pages of the migration history, which may be larger than one result. */
async function* pagesOf(project: ProjectLogin): AsyncGenerator<string> {
  let limit = PAGE_MAX
  for (let after = ''; ; ) {
    try {
      const page = await pageOf(project, after, limit)
      if (!page) return
      yield page.rows
      after = page.last
    } catch (error) {
      if (!(error instanceof SqlResultTooLarge) || limit === 1) throw error
      limit = Math.ceil(limit / 4)
    }
  }
}

async function pageOf(project: ProjectLogin, after: string, limit: number) {
  const [page] = await inHistory<{ rows: string; last: string | null }>(
    project,
    `SELECT json_agg(m)::text AS rows, max(m.version::text) AS last
       FROM (SELECT * FROM ${HISTORY} WHERE version::text > $1 ORDER BY version::text LIMIT $2) AS m`,
    [after, limit],
  )
  return page && page.last !== null ? { rows: page.rows, last: page.last } : undefined
}

/** Queries the history as the read-only role; returns no rows if the owner has dropped the table. */
async function inHistory<Row>({ cluster, ...login }: ProjectLogin, query: string, parameters: readonly unknown[] = []) {
  try {
    const json = await runSql(sessionsOf(cluster), { ...login, query, parameters, readOnly: true })
    return JSON.parse(joinText(json)) as Row[]
  } catch (error) {
    if (error instanceof SqlError && error.code === UNDEFINED_TABLE) return []
    throw error
  }
}

/** Rows to delete at once, few enough for the storage role's timeout. */
const PORTION = 10_000

/** Removes the rows of objects, in a session of the owner and without triggers: the bytes stay with the parent. */
export async function emptyStorage({ cluster, ...login }: ProjectLogin): Promise<void> {
  for (let hasMore = true; hasMore; ) {
    const request = { ...login, query: REMOVE_OBJECTS, readOnly: false, timeoutMs: SQL_TIMEOUT_MS_MAX }
    const [removed] = JSON.parse(joinText(await runSql(sessionsOf(cluster), request))) as { count: number }[]
    hasMore = removed?.count === PORTION
  }
  // A parent of an older version does not have all tables.
  const [tables = []] = await runBatch(cluster, {
    ...login,
    statements: [{ text: EXISTING_TABLES, params: [[...SERVER_TABLES, ...EARLIER_TABLES]] }],
  })
  for (const { name: table } of tables as { name: string }[]) {
    const text = `WITH removed AS (
        DELETE FROM ${table} WHERE ctid = ANY (ARRAY(SELECT ctid FROM ${table} LIMIT ${PORTION})) RETURNING 1)
      SELECT count(*)::int AS count FROM removed`
    for (let hasMore = true; hasMore; ) {
      const [rows] = await runBatch(cluster, { ...login, statements: [{ text, params: [] }] })
      hasMore = rows?.[0]?.count === PORTION
    }
  }
}

const EXISTING_TABLES = 'SELECT name FROM unnest($1::text[]) AS name WHERE to_regclass(name) IS NOT NULL'

/** Removes one portion in one transaction, or all rows if a foreign key of the table refers to the table itself. */
const REMOVE_OBJECTS = `SET search_path = pg_catalog;
  SET pilothouse.removed = 0;
  DO $do$
    DECLARE
      objects regclass := to_regclass('storage.objects');
      forced boolean;
      disabled jsonb;
      held record;
      portion int;
      removed int;
    BEGIN
      IF objects IS NULL THEN RETURN; END IF;
      SELECT relforcerowsecurity INTO forced FROM pg_class WHERE oid = objects;
      SELECT jsonb_agg(jsonb_build_object('name', tgname, 'enabled', tgenabled)) INTO disabled
        FROM pg_trigger WHERE tgrelid = objects AND NOT tgisinternal AND tgenabled <> 'D';
      ALTER TABLE storage.objects DISABLE TRIGGER USER;
      ALTER TABLE storage.objects NO FORCE ROW LEVEL SECURITY;
      IF NOT EXISTS (SELECT FROM pg_constraint WHERE conrelid = objects AND confrelid = objects) THEN portion := ${PORTION}; END IF;
      EXECUTE 'DELETE FROM ONLY storage.objects WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM ONLY storage.objects AS o WHERE NOT (' || ${REFERENCED_OBJECTS} || ') LIMIT $1))' USING portion;
      GET DIAGNOSTICS removed = ROW_COUNT;
      PERFORM set_config('pilothouse.removed', removed::text, false);
      SET CONSTRAINTS ALL IMMEDIATE;
      IF forced THEN ALTER TABLE storage.objects FORCE ROW LEVEL SECURITY; END IF;
      FOR held IN SELECT * FROM jsonb_to_recordset(disabled) AS held (name text, enabled text) LOOP
        EXECUTE format('ALTER TABLE storage.objects ENABLE %s TRIGGER %I',
          CASE held.enabled WHEN 'R' THEN 'REPLICA' WHEN 'A' THEN 'ALWAYS' ELSE '' END, held.name);
      END LOOP;
    END $do$;
  SELECT current_setting('pilothouse.removed')::int AS count`
