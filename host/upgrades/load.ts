import type pg from 'pg'
import { errorCode } from '../../dev/start-error.ts'
import { endOfToken, isBlank } from '../../src/engine/split-statements.ts'
import { SUPERUSER } from '../template/roles.ts'

/** Both are in the database that is loaded. */
export interface Loaders {
  admin: pg.Client
  /** Of a role that is a member of all that are no superusers. */
  loader: pg.Client
}

const NAME = '(?:[a-z_][a-z0-9_$]*|"(?:[^"]|"")+")'
const SETS_UP = /^SET (?!SESSION AUTHORIZATION)/
const SETS_PATH = /^SELECT pg_catalog\.set_config\('search_path'/
const COMES_LAST =
  /^(GRANT|REVOKE|ALTER DEFAULT PRIVILEGES|SET SESSION AUTHORIZATION|RESET SESSION AUTHORIZATION|REFRESH MATERIALIZED VIEW|(CREATE|ALTER) EVENT TRIGGER) /
/**
 * Statements that only the superuser may run, or that need rights which are granted last. None of these calls a function of the
 * owner's: tables do, in partition bounds and generated columns, and so do domains, aggregates, indexes and constraints.
 */
const FOR_ADMIN =
  /^(CREATE (DATABASE|SCHEMA|EXTENSION|FUNCTION|PROCEDURE|TYPE|OPERATOR|CAST|TRANSFORM|PUBLICATION|SERVER|USER MAPPING|FOREIGN DATA WRAPPER|(TRUSTED )?(PROCEDURAL )?LANGUAGE|ACCESS METHOD|TEXT SEARCH (PARSER|TEMPLATE))|ALTER (DATABASE|ROLE|PUBLICATION|OPERATOR FAMILY)|COMMENT ON|SECURITY LABEL) /
const HOLDS_OTHERS = new RegExp(`^CREATE (SCHEMA|SERVER) (${NAME})`)

export interface Schema {
  /** What has to be done after all else, in this order. */
  owners: string[]
  last: string[]
}

/** Runs what makes objects; what gives rights on them is left for the end. */
export async function loadObjects({ admin, loader }: Loaders, statements: readonly string[], rest: Schema) {
  for (const statement of statements) {
    const owner = newOwner(statement)
    if (SETS_UP.test(statement)) for (const client of [admin, loader]) await client.query(statement)
    else if (SETS_PATH.test(statement)) await setPaths({ admin, loader }, statement)
    else if (COMES_LAST.test(`${statement} `)) rest.last.push(statement)
    // Until then it is the loader's, which may not touch what superusers own.
    else if (owner === SUPERUSER) rest.owners.push(statement)
    else await run(owner !== undefined || FOR_ADMIN.test(statement) ? admin : loader, statement)
    const [, kind, name] = HOLDS_OTHERS.exec(statement) ?? []
    if (kind && name) await openTo(String(loader.user), admin, kind, name)
  }
}

/** Functions of the owner's may rely on the path that is set for the database, behind Postgres's own names. */
async function setPaths({ admin, loader }: Loaders, statement: string): Promise<void> {
  await admin.query(statement)
  await loader.query(
    `SELECT set_config('search_path', concat_ws(', ', 'pg_catalog', nullif(current_setting('search_path'), '')), false)`,
  )
}

/** What fills views calls functions of the owner's, and takes the rights that are granted here. */
export async function finishObjects({ admin, loader }: Loaders, { owners, last }: Schema): Promise<void> {
  const [views, others] = [owners.filter(isView), owners.filter((statement) => !isView(statement))]
  for (const statement of [...others, ...last, ...views]) {
    await run(statement.startsWith('REFRESH ') ? loader : admin, statement).catch((error) => {
      // All functions but those that an extension no longer has are there.
      const isGone = /^(GRANT|REVOKE) /.test(statement) && errorCode(error.cause) === UNDEFINED_FUNCTION
      if (!isGone) throw error
    })
  }
}

const isView = (statement: string) => statement.startsWith('ALTER MATERIALIZED VIEW ')

const UNDEFINED_FUNCTION = '42883'

export const openTo = (loader: string, admin: pg.Client, kind: string, name: string) =>
  admin.query(
    kind === 'SCHEMA' ? `GRANT ALL ON SCHEMA ${name} TO ${loader}` : `GRANT ALL ON FOREIGN SERVER ${name} TO ${loader}`,
  )

/** Of `ALTER … OWNER TO role`. */
function newOwner(statement: string): string | undefined {
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
