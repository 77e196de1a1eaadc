import { runBatch } from '../batch.ts'
import { REFERENCED_OBJECTS } from '../copy/storage-rows.ts'
import type { ProjectSpec } from '../engine.ts'
import { loginRoles, type ProjectNames, projectNames, quoteLiteral, quoteLiterals } from '../names.ts'
import { runSql } from '../run.ts'
import { type Cluster, type Session, withAdmin } from '../session.ts'
import { runTransaction } from '../transaction.ts'
import { ensureRoles } from './prepare.ts'

/** A branch comes with the roles and the database of its parent: they get the names and passwords of the new project. */
export async function adopt(cluster: Cluster, from: string, to: ProjectSpec): Promise<void> {
  const [old, names] = [projectNames(from), projectNames(to.ref)]
  await withAdmin(cluster, async (admin) => {
    await closeLogins(admin, old)
    await rename(admin, old, names)
    await ensureRoles(admin, names, to)
    // A copy is there to be changed, whether its parent is closed to writers or not.
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

/** Those that the parent's members hold for a time: what opens the parent must not open its copy. */
async function closeLogins(admin: Session, { owner, ...others }: ProjectNames): Promise<void> {
  const kept = loginRoles({ owner, ...others })
  const rows = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE starts_with(rolname, ${quoteLiteral(`${owner}_`)})
        AND rolname NOT IN (${quoteLiterals(kept)}) AND rolcanlogin`,
  )
  for (const { rolname } of rows) await admin.rows(`ALTER ROLE ${rolname} NOLOGIN`)
}

async function rename(admin: Session, old: ProjectNames, names: ProjectNames): Promise<void> {
  const hasDatabase = await admin.rows(`SELECT FROM pg_database WHERE datname = ${quoteLiteral(old.database)}`)
  if (hasDatabase.length > 0) await admin.rows(`ALTER DATABASE ${old.database} RENAME TO ${names.database}`)
  const present = await admin.rows<{ rolname: string }>(
    `SELECT rolname FROM pg_roles WHERE rolname IN (${quoteLiterals(loginRoles(old))})`,
  )
  const renames = (['owner', 'runner', 'reader', 'storage'] as const)
    .filter((kind) => present.some(({ rolname }) => rolname === old[kind]))
    .map((kind) => `ALTER ROLE ${old[kind]} RENAME TO ${names[kind]}`)
  if (renames.length > 0) await admin.rows(renames.join('; '))
}

/** The history of migrations belongs to the schema. Both ends are the owners' own sessions, as theirs may be the code in it. */
export async function copyHistory(
  { from, to }: Record<'from' | 'to', Cluster>,
  request: Record<'from' | 'to', { ref: string; runnerPassword: string }>,
): Promise<void> {
  const query = `SELECT coalesce(json_agg(m), '[]')::text AS rows FROM supabase_migrations.schema_migrations AS m`
  const { json } = await runSql(from, { ...request.from, query, readOnly: true })
  const [{ rows } = { rows: '[]' }] = JSON.parse(json) as { rows: string }[]
  await runTransaction(to, request.to, (tx) =>
    tx.rows(
      `INSERT INTO supabase_migrations.schema_migrations
         SELECT * FROM json_populate_recordset(NULL::supabase_migrations.schema_migrations, $1) ON CONFLICT DO NOTHING`,
      [rows],
    ),
  )
}

/** An object's bytes stay with the parent. Their rows go in the owner's own session, with his triggers off. */
export async function emptyStorage(cluster: Cluster, login: { ref: string; runnerPassword: string }): Promise<void> {
  await runSql(cluster, { ...login, query: REMOVE_OBJECTS, readOnly: false })
  const statements = ['storage.removed_versions', 'storage.used_tokens'].map((table) => ({
    text: `DELETE FROM ${table}`,
    params: [],
  }))
  await runBatch(cluster, { ...login, statements })
}

const REMOVE_OBJECTS = `SET search_path = pg_catalog;
  DO $do$
    DECLARE
      objects regclass := to_regclass('storage.objects');
      forced boolean;
      disabled jsonb;
      held record;
    BEGIN
      IF objects IS NULL THEN RETURN; END IF;
      SELECT relforcerowsecurity INTO forced FROM pg_class WHERE oid = objects;
      SELECT jsonb_agg(jsonb_build_object('name', tgname, 'enabled', tgenabled)) INTO disabled
        FROM pg_trigger WHERE tgrelid = objects AND NOT tgisinternal AND tgenabled <> 'D';
      ALTER TABLE storage.objects DISABLE TRIGGER USER;
      ALTER TABLE storage.objects NO FORCE ROW LEVEL SECURITY;
      EXECUTE 'DELETE FROM ONLY storage.objects AS o WHERE NOT (' || ${REFERENCED_OBJECTS} || ')';
      SET CONSTRAINTS ALL IMMEDIATE;
      IF forced THEN ALTER TABLE storage.objects FORCE ROW LEVEL SECURITY; END IF;
      FOR held IN SELECT * FROM jsonb_to_recordset(disabled) AS held (name text, enabled text) LOOP
        EXECUTE format('ALTER TABLE storage.objects ENABLE %s TRIGGER %I',
          CASE held.enabled WHEN 'R' THEN 'REPLICA' WHEN 'A' THEN 'ALWAYS' ELSE '' END, held.name);
      END LOOP;
    END $do$`
