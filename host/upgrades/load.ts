import type pg from 'pg'
import { errorCode } from '../../dev/start-error.ts'
import { endOfToken, isBlank } from '../../src/engine/split-statements.ts'
import type { DumpEntry } from './dump.ts'
import { isOfPlatform, type Platform } from './platform.ts'

/** Two sessions in the database that is being loaded. */
export interface Loaders {
  admin: pg.Client
  /** Session of a role that has the rights of all roles except superusers. It runs what may call functions of the owner. */
  loader: pg.Client
  platform: Platform
}

const NAME = '(?:[a-z_][a-z0-9_$]*|"(?:[^"]|"")+")'
const SETS_UP = /^SET (?!SESSION AUTHORIZATION)/
const SETS_PATH = /^SELECT pg_catalog\.set_config\('search_path'/
const COMES_LAST =
  /^(GRANT|REVOKE|ALTER DEFAULT PRIVILEGES|SET SESSION AUTHORIZATION|RESET SESSION AUTHORIZATION|REFRESH MATERIALIZED VIEW) /
/**
 * Statements that only the superuser may run, or that need privileges granted later. None of them calls a function of the
 * owner. Most others can: even a literal calls the constraints of a domain when it is parsed.
 */
const FOR_ADMIN =
  /^(CREATE (SCHEMA|EXTENSION|PUBLICATION|SERVER|USER MAPPING|FOREIGN DATA WRAPPER|(TRUSTED )?(PROCEDURAL )?LANGUAGE|ACCESS METHOD|OPERATOR (CLASS|FAMILY)|TEXT SEARCH (PARSER|TEMPLATE))|ALTER OPERATOR FAMILY|COMMENT ON|SECURITY LABEL) /
/** Statements that create a database and set its properties. */
const FOR_DATABASE =
  /^(SET|RESET|CREATE DATABASE|ALTER DATABASE|ALTER ROLE|COMMENT ON DATABASE|SECURITY LABEL|GRANT|REVOKE) /
const CREATES_CONTAINER = new RegExp(`^CREATE (SCHEMA|SERVER) (${NAME})`)

/** Creates a database. None of these statements may call a function of the owner. */
export async function createDatabase(admin: pg.Client, statements: readonly string[]): Promise<void> {
  for (const statement of statements) {
    if (!FOR_DATABASE.test(statement) && !SETS_PATH.test(statement))
      throw new Error(`Unexpected statement: ${beginningOf(statement)}`)
    await run(admin, statement)
  }
}

/** Runs the statements that create objects, and adds those that grant privileges on them to `deferred`. */
export async function loadObjects(loaders: Loaders, entries: readonly DumpEntry[], deferred: string[]): Promise<void> {
  for (const entry of entries) {
    const isPlatform = isOfPlatform(entry, loaders.platform)
    for (const statement of entry.statements) await loadStatement(loaders, statement, { isPlatform, deferred })
  }
}

interface LoadOptions {
  isPlatform: boolean
  deferred: string[]
}

async function loadStatement(loaders: Loaders, statement: string, { isPlatform, deferred }: LoadOptions) {
  const { admin, loader, platform } = loaders
  const owner = newOwnerIn(statement)
  if (SETS_UP.test(statement)) for (const client of [admin, loader]) await run(client, statement)
  else if (SETS_PATH.test(statement)) await setPaths(loaders, statement)
  else if (COMES_LAST.test(`${statement} `)) deferred.push(statement)
  else {
    // Objects that the loader has created must not go to a superuser: functions of the owner may have changed them.
    if (!isPlatform && owner !== undefined && platform.superusers.has(owner))
      throw new Error(`Unexpected owner: ${beginningOf(statement)}`)
    await run(isPlatform || owner !== undefined || FOR_ADMIN.test(statement) ? admin : loader, statement)
  }
  const [, kind, name] = CREATES_CONTAINER.exec(statement) ?? []
  if (kind && name) await grantToLoader(String(loader.user), admin, isPlatform ? 'USAGE' : 'ALL', `${kind} ${name}`)
}

/** Puts `pg_catalog` before the search path of the database, on which the owner's functions may rely. */
async function setPaths({ admin, loader }: Loaders, statement: string): Promise<void> {
  await run(admin, statement)
  await loader.query(
    `SELECT set_config('search_path', concat_ws(', ', 'pg_catalog', nullif(current_setting('search_path'), '')), false)`,
  )
}

/** Runs the deferred statements. Filling materialized views calls the owner's functions and needs the privileges granted here. */
export async function finishObjects({ admin, loader }: Loaders, deferred: readonly string[]): Promise<void> {
  for (const statement of deferred) {
    await run(statement.startsWith('REFRESH ') ? loader : admin, statement).catch((error) => {
      // A missing function can only be one that a newer version of an extension has removed.
      const isGone = /^(GRANT|REVOKE) /.test(statement) && errorCode(error.cause) === UNDEFINED_FUNCTION
      if (!isGone) throw error
    })
  }
}

const UNDEFINED_FUNCTION = '42883'

export const grantToLoader = (loader: string, admin: pg.Client, privileges: 'USAGE' | 'ALL', target: string) =>
  admin.query(`GRANT ${privileges} ON ${target.replace(/^SERVER /, 'FOREIGN SERVER ')} TO ${loader}`)

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
  if (last[0] !== 'OWNER' || last[1] !== 'TO') return undefined
  return last[2]?.replace(/^"(.*)"$/s, '$1').replaceAll('""', '"')
}

/** Runs a single statement: the extended protocol refuses more. */
async function run(client: pg.Client, statement: string): Promise<void> {
  const query = { text: statement, queryMode: 'extended' }
  await client.query(query).catch((error) => {
    throw new Error(`${error.message} (${beginningOf(statement)})`, { cause: error })
  })
}

const beginningOf = (statement: string): string => statement.replaceAll(/\s+/g, ' ').slice(0, 200)
