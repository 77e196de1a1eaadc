import type pg from 'pg'
import { errorCode } from '../../dev/start-error.ts'
import { endOfToken, isBlank } from '../../src/engine/split-statements.ts'
import { SUPERUSER } from '../template/roles.ts'

/** Two sessions in the database that is being loaded. */
export interface Loaders {
  admin: pg.Client
  /** Session of a role that is a member of all roles except superusers. */
  loader: pg.Client
}

const NAME = '(?:[a-z_][a-z0-9_$]*|"(?:[^"]|"")+")'
const SETS_UP = /^SET (?!SESSION AUTHORIZATION)/
const SETS_PATH = /^SELECT pg_catalog\.set_config\('search_path'/
const COMES_LAST =
  /^(GRANT|REVOKE|ALTER DEFAULT PRIVILEGES|SET SESSION AUTHORIZATION|RESET SESSION AUTHORIZATION|REFRESH MATERIALIZED VIEW|(CREATE|ALTER) EVENT TRIGGER) /
/**
 * Statements that only the superuser may run, or that need privileges granted later. None of them calls a function of the
 * owner. Tables may, in partition bounds and generated columns, as may domains, aggregates, indexes and constraints.
 */
const FOR_ADMIN =
  /^(CREATE (DATABASE|SCHEMA|EXTENSION|FUNCTION|PROCEDURE|TYPE|OPERATOR|CAST|TRANSFORM|PUBLICATION|SERVER|USER MAPPING|FOREIGN DATA WRAPPER|(TRUSTED )?(PROCEDURAL )?LANGUAGE|ACCESS METHOD|TEXT SEARCH (PARSER|TEMPLATE))|ALTER (DATABASE|ROLE|PUBLICATION|OPERATOR FAMILY)|COMMENT ON|SECURITY LABEL) /
const CREATES_CONTAINER = new RegExp(`^CREATE (SCHEMA|SERVER) (${NAME})`)

export interface DeferredStatements {
  /** Statements to run after all others: first `owners`, then `last`. */
  owners: string[]
  last: string[]
}

/** Runs the statements that create objects, and adds those that grant privileges on them to `deferred`. */
export async function loadObjects(
  { admin, loader }: Loaders,
  statements: readonly string[],
  deferred: DeferredStatements,
) {
  for (const statement of statements) {
    const owner = newOwnerIn(statement)
    if (SETS_UP.test(statement)) for (const client of [admin, loader]) await client.query(statement)
    else if (SETS_PATH.test(statement)) await setPaths({ admin, loader }, statement)
    else if (COMES_LAST.test(`${statement} `)) deferred.last.push(statement)
    // Until then the loader owns the object, because it may not touch objects of superusers.
    else if (owner === SUPERUSER) deferred.owners.push(statement)
    else await run(owner !== undefined || FOR_ADMIN.test(statement) ? admin : loader, statement)
    const [, kind, name] = CREATES_CONTAINER.exec(statement) ?? []
    if (kind && name) await grantToLoader(String(loader.user), admin, kind, name)
  }
}

/** Puts `pg_catalog` before the search path of the database, on which the owner's functions may rely. */
async function setPaths({ admin, loader }: Loaders, statement: string): Promise<void> {
  await admin.query(statement)
  await loader.query(
    `SELECT set_config('search_path', concat_ws(', ', 'pg_catalog', nullif(current_setting('search_path'), '')), false)`,
  )
}

/** Runs the deferred statements. Filling materialized views calls the owner's functions and needs the privileges granted here. */
export async function finishObjects({ admin, loader }: Loaders, { owners, last }: DeferredStatements): Promise<void> {
  const [views, others] = [owners.filter(isView), owners.filter((statement) => !isView(statement))]
  for (const statement of [...others, ...last, ...views]) {
    await run(statement.startsWith('REFRESH ') ? loader : admin, statement).catch((error) => {
      // A missing function can only be one that a newer version of an extension has removed.
      const isGone = /^(GRANT|REVOKE) /.test(statement) && errorCode(error.cause) === UNDEFINED_FUNCTION
      if (!isGone) throw error
    })
  }
}

const isView = (statement: string) => statement.startsWith('ALTER MATERIALIZED VIEW ')

const UNDEFINED_FUNCTION = '42883'

export const grantToLoader = (loader: string, admin: pg.Client, kind: string, name: string) =>
  admin.query(
    kind === 'SCHEMA' ? `GRANT ALL ON SCHEMA ${name} TO ${loader}` : `GRANT ALL ON FOREIGN SERVER ${name} TO ${loader}`,
  )

/** The role of `ALTER … OWNER TO role`; undefined for other statements. */
function newOwnerIn(statement: string): string | undefined {
  if (!statement.startsWith('ALTER ')) return undefined
  const last: string[] = []
  for (let at = 0; at < statement.length; ) {
    const end = endOfToken(statement, at)
    if (!isBlank(statement, at)) last.push(statement.slice(at, end))
    if (last.length > 3) last.shift()
    at = end
  }
  return last[0] === 'OWNER' && last[1] === 'TO' ? last[2] : undefined
}

async function run(client: pg.Client, statement: string): Promise<void> {
  await client.query(statement).catch((error) => {
    throw new Error(`${error.message} (${statement.replaceAll(/\s+/g, ' ').slice(0, 200)})`, { cause: error })
  })
}
