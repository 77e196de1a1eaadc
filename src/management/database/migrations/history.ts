import type { SystemCtx } from '../../../ctx.ts'
import type { Transaction } from '../../../engine/engine.ts'
import { SqlError, SqlResultTooLarge, Superseded } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import { type SplitStatement, splitStatements } from '../../../engine/split-statements.ts'
import { runnerPasswordOf } from '../../../model/secrets/project.ts'
import type { MigrationRow } from '../../../model/tables/index.ts'
import { PermanentError } from '../../projects/projects/tasks.ts'
import { versionAfter } from './version.ts'

/** A project's database, described by fields of the row of the project. */
export interface Database {
  ref: string
  sealedRunnerPassword: string
}

const TABLE = 'supabase_migrations.schema_migrations'
const COLUMNS = {
  version: 'text',
  statements: 'text[]',
  name: 'text',
  created_by: 'text',
  idempotency_key: 'text UNIQUE',
  rollback: 'text[]',
}
/** Selects migrations. Rows are read as JSON, because a table that another tool created may lack columns. */
const MIGRATION = `SELECT migration.version, array_remove(migration.statements, NULL) AS statements, migration.name,
  migration.created_by, migration.idempotency_key, array_remove(migration.rollback, NULL) AS rollback FROM ${TABLE} AS found, jsonb_to_record(to_jsonb(found)) AS migration
  (version text, statements text[], name text, created_by text, idempotency_key text, rollback text[])`
const UNDEFINED_TABLE = '42P01'
const PAGE_MAX = 2_000
const MIGRATIONS_MAX = 100_000
const BYTES_MAX = 128 * 1024 * 1024

interface ReadOptions {
  /** Checked before each page; if it fails, reading ends with `Superseded`. */
  fence: Fence
  bytesMax?: number
}

/**
 * Yields every migration with its statements, oldest first, in pages: a history may be larger than the memory. The owner
 * controls the table and may make it endless, so reading ends with a permanent error past the limits.
 */
export async function* listMigrations(
  ctx: SystemCtx,
  database: Database,
  { fence, bytesMax = BYTES_MAX }: ReadOptions,
): AsyncGenerator<MigrationRow> {
  let limit = PAGE_MAX
  let count = 0
  let bytes = 0
  for (let after = ''; ; ) {
    if (!(await fence())) throw new Superseded(`another process has taken over ${database.ref}`)
    const text = await readPage(ctx, database, after, limit).catch((error) => {
      if (error instanceof SqlResultTooLarge && limit > 1) return undefined
      throw error
    })
    if (text === undefined) {
      limit = Math.ceil(limit / 4)
      continue
    }
    const page = JSON.parse(text) as MigrationRow[]
    count += page.length
    bytes += text.length
    if (count > MIGRATIONS_MAX) throw new PermanentError(`${database.ref} has more than ${MIGRATIONS_MAX} migrations`)
    if (bytes > bytesMax) throw historyTooLarge(database, bytesMax)
    yield* page
    const last = page.at(-1)
    if (!last || page.length < limit) return
    after = last.version
  }
}

export const historyTooLarge = ({ ref }: Database, bytesMax: number): PermanentError =>
  new PermanentError(`the migrations of ${ref} are larger than ${bytesMax} bytes as JSON`)

const readPage = (ctx: SystemCtx, database: Database, after: string, limit: number): Promise<string> =>
  historyText(ctx, database, `${MIGRATION} WHERE found.version > $1 ORDER BY found.version LIMIT $2`, [after, limit])

async function readHistory<Row>(
  ctx: SystemCtx,
  database: Database,
  query: string,
  parameters: readonly unknown[] = [],
): Promise<Row[]> {
  return JSON.parse(await historyText(ctx, database, query, parameters)) as Row[]
}

/** Runs a query on the history as a read-only role and returns JSON; an empty list if the owner has dropped the table. */
async function historyText(
  ctx: SystemCtx,
  database: Database,
  query: string,
  parameters: readonly unknown[],
): Promise<string> {
  const session = await sessionOf(ctx, database)
  try {
    return await new Response(await ctx.engine.runSql({ ...session, query, parameters, readOnly: true })).text()
  } catch (error) {
    if (error instanceof SqlError && error.code === UNDEFINED_TABLE) return '[]'
    throw error
  }
}

export async function findMigration(
  ctx: SystemCtx,
  database: Database,
  version: string,
): Promise<MigrationRow | undefined> {
  const [found] = await readHistory<MigrationRow>(ctx, database, `${MIGRATION} WHERE found.version = $1`, [version])
  return found
}

export const listVersions = (ctx: SystemCtx, database: Database) =>
  readHistory<Pick<MigrationRow, 'version' | 'name'>>(
    ctx,
    database,
    // If the table lacks the column `name`, as with older tools, the name refers to the NULL of the outer query.
    `SELECT listed.* FROM (SELECT NULL::text AS name) AS absent, LATERAL
      (SELECT version::text, name::text FROM ${TABLE} WHERE version IS NOT NULL) AS listed ORDER BY listed.version`,
  )

/**
 * Runs and records a migration of another database under its version. Returns false if the history already has it. If a request
 * with the same idempotency key has run the same statements here, the migration is only recorded.
 */
export const applyMigration = (ctx: SystemCtx, database: Database, migration: MigrationRow): Promise<boolean> =>
  changeHistory(ctx, database, async (tx) => {
    const { version, statements } = migration
    const found = await tx.rows(`SELECT FROM ${TABLE} WHERE version = $1`, [version])
    if (found.length > 0) return false
    const ofKey = await findByKey(tx, migration.idempotency_key)
    await insertMigration(tx, ofKey ? { ...migration, idempotency_key: undefined } : migration)
    if (ofKey && hasSameStatements(ofKey, migration)) return true
    // Other tools store several statements as one.
    await tx.run((statements ?? []).flatMap((text) => splitStatements(text)))
    return true
  })

export interface NewMigration {
  statements: readonly SplitStatement[]
  name?: string | undefined
  rollback?: string | undefined
  createdBy: string
  idempotencyKey?: string | undefined
}

/**
 * Runs and records a migration once per idempotency key. Returns its version; null if an earlier request has run it, and undefined
 * if the key belongs to other statements.
 */
export const runMigration = (
  ctx: SystemCtx,
  database: Database,
  migration: NewMigration,
): Promise<string | null | undefined> =>
  changeHistory(ctx, database, async (tx) => {
    const row = await toRow(ctx, tx, migration)
    const existing = await findByKey(tx, migration.idempotencyKey)
    if (existing) return hasSameStatements(existing, row) ? null : undefined
    await insertMigration(tx, row)
    await tx.run(migration.statements)
    return row.version
  })

/** Records a migration without running it, and replaces the record with the same idempotency key. Returns its version. */
export const recordMigration = (ctx: SystemCtx, database: Database, migration: NewMigration): Promise<string> =>
  changeHistory(ctx, database, async (tx) => {
    const row = await toRow(ctx, tx, migration)
    const existing = await findByKey(tx, migration.idempotencyKey)
    if (!existing) {
      await insertMigration(tx, row)
      return row.version
    }
    await tx.rows(`UPDATE ${TABLE} SET statements = $2, name = $3, rollback = $4 WHERE version = $1`, [
      existing.version,
      row.statements,
      row.name,
      row.rollback,
    ])
    return existing.version
  })

/** Updates the name and the rollback; returns false if the version is not in the history. */
export const updateRecord = (
  ctx: SystemCtx,
  database: Database,
  { version, name, rollback }: { version: string; name?: string | undefined; rollback?: string | undefined },
): Promise<boolean> =>
  changeHistory(ctx, database, async (tx) => {
    const found = await tx.rows(
      `UPDATE ${TABLE} SET name = coalesce($2, name), rollback = coalesce($3, rollback) WHERE version = $1 RETURNING version`,
      [version, name, toTexts(rollback)],
    )
    return found.length > 0
  })

/**
 * Rolls back every migration from this version on, newest first, all or none. Returns their number and the versions without a
 * rollback, in which case nothing happens. Versions are compared as text, as in lists.
 */
export const rollBack = (
  ctx: SystemCtx,
  database: Database,
  from: string,
): Promise<{ count: number; irreversible: string[] }> =>
  changeHistory(ctx, database, async (tx) => {
    const irreversible = await tx.rows<MigrationRow>(
      `SELECT version FROM ${TABLE} WHERE ${FROM_VERSION} AND rollback IS NULL ORDER BY version`,
      [from],
    )
    if (irreversible.length > 0) return { count: 0, irreversible: irreversible.map(({ version }) => version) }
    const undone = await tx.rows<MigrationRow>(
      `DELETE FROM ${TABLE} WHERE ${FROM_VERSION} RETURNING version, rollback`,
      [from],
    )
    undone.sort((a, b) => (a.version < b.version ? 1 : -1))
    for (const { rollback } of undone) await tx.run((rollback ?? []).flatMap((text) => splitStatements(text)))
    return { count: undone.length, irreversible: [] }
  })

const FROM_VERSION = `version >= $1 AND version ~ '^[0-9]+$'`

/** Serializes changes of the history, so that versions increase; readers do not wait. */
async function changeHistory<Value>(
  ctx: SystemCtx,
  database: Database,
  change: (tx: Transaction) => Promise<Value>,
): Promise<Value> {
  return ctx.engine.transaction(await sessionOf(ctx, database), async (tx) => {
    await ensureTable(tx)
    await tx.rows(`LOCK TABLE ${TABLE} IN SHARE ROW EXCLUSIVE MODE`)
    return change(tx)
  })
}

const sessionOf = async (ctx: SystemCtx, database: Database) => ({
  ref: database.ref,
  runnerPassword: await runnerPasswordOf(ctx, database),
  timeoutMs: ctx.config.SQL_TIMEOUT_SECONDS * 1000,
})

/** Creates the table or its missing columns: the owner may have dropped the table, and other tools create fewer columns. */
async function ensureTable(tx: Transaction): Promise<void> {
  const [found] = await tx.rows<{ columns: string[] | null }>(
    `SELECT array_agg(attname::text) AS columns FROM pg_attribute
      WHERE attrelid = to_regclass('${TABLE}') AND attnum > 0 AND NOT attisdropped`,
  )
  const present = found?.columns ?? []
  const missing = Object.entries(COLUMNS).filter(([name]) => !present.includes(name))
  if (missing.length === 0) return
  await tx.rows(`SELECT pg_advisory_xact_lock(hashtextextended('${TABLE}', 0))`)
  await tx.rows('CREATE SCHEMA IF NOT EXISTS supabase_migrations')
  await tx.rows(`CREATE TABLE IF NOT EXISTS ${TABLE} (version text PRIMARY KEY)`)
  for (const [name, type] of missing) await tx.rows(`ALTER TABLE ${TABLE} ADD COLUMN IF NOT EXISTS ${name} ${type}`)
}

async function toRow(ctx: SystemCtx, tx: Transaction, migration: NewMigration): Promise<MigrationRow> {
  const [latest] = await tx.rows<MigrationRow>(
    `SELECT version FROM ${TABLE} WHERE version ~ '^[0-9]{14}$' AND version < '9999' ORDER BY version DESC LIMIT 1`,
  )
  const { statements, name, rollback, createdBy, idempotencyKey } = migration
  return {
    version: versionAfter(latest?.version, ctx.now()),
    statements: statements.map(({ text }) => text.trim()),
    name,
    rollback: toTexts(rollback),
    created_by: createdBy,
    idempotency_key: idempotencyKey,
  }
}

const hasSameStatements = (one: MigrationRow, other: MigrationRow) =>
  JSON.stringify(one.statements) === JSON.stringify(other.statements)

const toTexts = (script: string | undefined) =>
  script === undefined ? undefined : splitStatements(script).map(({ text }) => text.trim())

async function findByKey(tx: Transaction, key: MigrationRow['idempotency_key']): Promise<MigrationRow | undefined> {
  if (key === undefined || key === null) return undefined
  const [found] = await tx.rows<MigrationRow>(`SELECT version, statements FROM ${TABLE} WHERE idempotency_key = $1`, [
    key,
  ])
  return found
}

async function insertMigration(tx: Transaction, migration: MigrationRow): Promise<void> {
  const { version, statements, name, created_by, idempotency_key, rollback } = migration
  await tx.rows(
    `INSERT INTO ${TABLE} (version, statements, name, created_by, idempotency_key, rollback) VALUES ($1, $2, $3, $4, $5, $6)`,
    [version, statements, name, created_by, idempotency_key, rollback],
  )
}
