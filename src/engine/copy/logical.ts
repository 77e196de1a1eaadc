import { SqlError } from '../engine.ts'
import { statementFailure } from '../failure.ts'
import { quoteLiteral } from '../names.ts'
import type { Session } from '../session.ts'
import { TEMPLATE } from '../template.ts'
import type { Copy } from './copy.ts'
import { connect, dropLink, LINK, openLink } from './link.ts'
import { loadRows, readTables, type Snapshot } from './load.ts'
import { readSchema, type Schema, TEMPLATE_PARTS } from './schema/read.ts'
import { asOwner, superuser, withSession } from './sessions.ts'
import { createUnfinished } from './unfinished.ts'

/** All that the parent has is made anew; only the schemas `storage` and `public` are the template's. */
const EMPTY = `
  DO $do$
    DECLARE object record;
    BEGIN
      FOR object IN SELECT extname FROM pg_extension WHERE extname <> 'plpgsql' LOOP
        EXECUTE format('DROP EXTENSION %I CASCADE', object.extname);
      END LOOP;
      FOR object IN SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname NOT IN ('information_schema', 'storage', 'public') LOOP
        EXECUTE format('DROP SCHEMA %I CASCADE', object.nspname);
      END LOOP;
    END $do$`

/**
 * Object by object and row by row, from one snapshot of a parent that goes on working. What the parent's owner wrote can run
 * only in sessions of the copy's owner: a superuser's read catalogues, and make what runs no code.
 */
export async function copyLogically(copy: Copy): Promise<void> {
  const { admin, from, to } = copy
  await createUnfinished(admin, to, { template: TEMPLATE, strategy: 'WAL_LOG' })
  await withSession(superuser(copy, to.database), async (inside) => {
    await inside.rows(EMPTY)
    const templateParts = (await inside.rows<{ name: string }>(TEMPLATE_PARTS)).map(({ name }) => name)
    await withSession(superuser(copy, from.database), async (parent) => {
      await parent.rows('BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY')
      const schema = await unlocked(parent, () => readSchema(parent, copy, templateParts))
      const snapshot = await readTables(parent, copy, templateParts)
      const address = await openLink(copy, inside)
      try {
        await withSession(asOwner(copy), (owner) => build(copy, { owner, inside, schema, snapshot, address }))
      } finally {
        await dropLink(admin, to)
      }
      await inside.rows(`DROP SCHEMA ${LINK} CASCADE`)
      await runAll(inside, schema.access)
      await inside.rows(MARK_PROVED, [JSON.stringify(schema.proved)])
    })
  })
}

/** Definitions are read with locks on the tables that they name, and those must not last as long as the snapshot. */
async function unlocked<Value>(parent: Session, read: () => Promise<Value>): Promise<Value> {
  await parent.rows('SAVEPOINT unlocked')
  const value = await read()
  await parent.rows('ROLLBACK TO unlocked; RELEASE unlocked')
  return value
}

interface Build {
  owner: Session
  inside: Session
  schema: Schema
  snapshot: Snapshot
  address: string
}

async function build(copy: Copy, { owner, inside, schema, snapshot, address }: Build): Promise<void> {
  await connect(copy, { owner, inside, address })
  await runAll(inside, schema.hasPublic ? [] : ['DROP SCHEMA public'])
  await runAll(owner, schema.schemas)
  for (const { statement, asOwner } of schema.extensions) await runAll(asOwner ? owner : inside, [statement])
  await runAll(owner, schema.early)
  // Functions that generate columns find what they call as they do in the parent.
  const path = await searchPath(copy)
  await withPath(owner, path, () => loadRows(owner, snapshot).catch(failed))
  await runAll(owner, schema.late)
  const refresh = schema.materializedViews.map((name) => `REFRESH MATERIALIZED VIEW ${name}`)
  await withPath(owner, path, () => runAll(owner, refresh))
}

const PER_ROUND = 100

async function runAll(session: Session, statements: readonly string[]): Promise<void> {
  for (let at = 0; at < statements.length; at += PER_ROUND) {
    const round = statements.slice(at, at + PER_ROUND)
    await session.rows(round.join(';\n')).catch(() => runEach(session, round))
  }
}

/** Finds out which of them failed: nothing of the round is left. */
async function runEach(session: Session, statements: readonly string[]): Promise<void> {
  for (const statement of statements) {
    await session.rows(statement).catch((error) => {
      const failure = statementFailure(error, 0)
      throw failure instanceof SqlError ? new SqlError({ ...failure, message: failure.message, statement }) : failure
    })
  }
}

function failed(error: unknown): never {
  throw statementFailure(error, 0)
}

async function searchPath({ admin, from }: Copy): Promise<string> {
  const [row] = await admin.rows<{ path: string }>(
    `SELECT substr(entry, length('search_path=') + 1) AS path FROM pg_db_role_setting, unnest(setconfig) AS entry
      WHERE setrole = 0 AND starts_with(entry, 'search_path=')
        AND setdatabase = (SELECT oid FROM pg_database WHERE datname = ${quoteLiteral(from.database)})`,
  )
  return row?.path ?? '"$user", public'
}

async function withPath(session: Session, path: string, work: () => Promise<void>): Promise<void> {
  await session.rows(`SELECT set_config('search_path', $1, false)`, [path])
  await work()
  await session.rows(`SELECT set_config('search_path', 'pg_catalog', false)`)
}

/** They hold in the parent, of whose rows these are one snapshot. */
const MARK_PROVED = `
  UPDATE pg_constraint AS k SET convalidated = true
    FROM jsonb_to_recordset($1::jsonb) AS held (relation text, type text, name text)
   WHERE NOT convalidated AND conname = held.name
     AND CASE WHEN contypid <> 0 THEN held.type = format_type(contypid, NULL) ELSE held.type IS NULL AND held.relation = conrelid::regclass::text END`
