import type { SystemCtx } from '../../ctx.ts'
import type { BatchRequest, Row, Statement } from '../../engine/engine.ts'
import { EngineUnavailable } from '../../engine/engine-errors.ts'
import { SizedCache } from '../../platform/sized-cache.ts'
import { withTimeout } from '../../platform/timeout.ts'
import type { DataApiConfig } from '../gateway/data-api-config.ts'
import type { OpenedProject } from '../gateway/open-project.ts'
import { prepareIfDue } from '../gateway/prepare-project.ts'
import type { Caller } from './caller.ts'
import type { Compiled, ResultRow } from './compile.ts'
import { DataApiError } from './data-api-error.ts'
import type { Preferences } from './request/preferences.ts'
import { introspect } from './schema/introspection.ts'
import { loadedSchemaOf } from './schema/schema-cache.ts'
import { type LoadedSchema, SCHEMA_SIZE_MAX, type SchemaCache } from './schema/types.ts'
import { VERSION } from './schema/version.ts'
import { BODY, Parameters, quote } from './sql/builder.ts'
import { BODY_COLUMN, requireVersion } from './sql/result-sql.ts'
import { isSchemaChanged, isUnprepared } from './sql-error.ts'

export interface DataApi {
  ctx: SystemCtx
  project: OpenedProject
  config: DataApiConfig
}

/** Longer than any statement may take. */
const ANSWER_MS_MAX = 40_000

/** Runs statements in one transaction and one round trip. */
async function run(
  { ctx, project }: DataApi,
  statements: readonly Statement[],
  options: Pick<BatchRequest, 'isolation' | 'separate' | 'sessionKey'> = {},
): Promise<Row[][]> {
  const { ref, runnerPassword } = project
  const send = () =>
    withTimeout(
      ANSWER_MS_MAX,
      ctx.engine.runBatch({ ref, runnerPassword, service: 'dataApi', statements, ...options }),
      () => new EngineUnavailable('The database did not answer in time'),
    )
  const sentAt = ctx.now().getTime()
  try {
    return await send()
  } catch (error) {
    if (!isUnprepared(error) || !(await prepareIfDue({ ctx, project }, sentAt))) throw error
    return send()
  }
}

/**
 * Schemas by project and exposed schemas, bounded by their sizes; as objects they take a few times as much memory. They
 * are read again after a while, because some changes, such as those of server settings, do not change their version.
 */
const schemas = new SizedCache<LoadedSchema>({ sizeMax: 2 * SCHEMA_SIZE_MAX, ms: 600_000 })

const keyOf = ({ project, config }: DataApi) => [project.ref, ...config.schemas].join('\0')

export const cachedSchema = (api: DataApi): LoadedSchema | undefined => schemas.get(keyOf(api), api.ctx.now().getTime())

async function loadSchema(api: DataApi): Promise<LoadedSchema> {
  const path: Statement = { text: `SELECT set_config('search_path', 'pg_catalog', true)`, params: [] }
  // A new session: one from before a change of the settings could fail because of them.
  const [, rows] = await run(api, [path, introspect(api.config.schemas)], { sessionKey: crypto.randomUUID() })
  const text = String(rows?.[0]?.found)
  const cache = loadedSchemaOf(text)
  schemas.set(keyOf(api), cache, cache.size, api.ctx.now().getTime())
  return cache
}

/** Whether the database has another schema than the cache. */
async function isOutdated(api: DataApi, { version, sessionKey }: LoadedSchema): Promise<boolean> {
  const [rows] = await run(api, [{ text: `SELECT ${VERSION} AS version`, params: [] }], { sessionKey })
  return rows?.[0]?.version !== version
}

/** The schema as it is now, for replies that need no other statement. */
export async function currentSchema(api: DataApi): Promise<SchemaCache> {
  const known = cachedSchema(api)
  return requireReadable(known && !(await isOutdated(api, known)) ? known : await loadSchema(api))
}

function requireReadable(loaded: LoadedSchema): SchemaCache {
  if (!('isTooLarge' in loaded)) return loaded
  throw new DataApiError({
    ...{ status: 500, code: '54000', message: 'The exposed schemas are too large' },
    details: `The names and types of their tables and functions, and the relationships, take more than ${SCHEMA_SIZE_MAX} bytes.`,
    hint: 'Expose fewer schemas, or schemas with less in them.',
  })
}

export interface Outcome {
  compiled: Compiled
  row: ResultRow
  estimate: number | undefined
}

interface Request {
  caller: Caller
  schema: string
  preferences: Preferences
  /** The cached schema, if there is one. */
  known: LoadedSchema | undefined
  /** The text of the body, a parameter of the statement. */
  body: string | undefined
  compile(cache: SchemaCache): Compiled
}

/**
 * Compiles and runs a request: one round trip if the schema is cached. The transaction fails before its main statement if the schema
 * has changed since; then the schema is read again. A request that the cached schema refuses may be allowed by now: that is checked.
 */
export async function execute(api: DataApi, request: Request): Promise<Outcome> {
  const { known } = request
  if (known) {
    try {
      return await runCompiled(api, request, { loaded: known, checksVersion: true })
    } catch (error) {
      const isStale = isSchemaChanged(error) || (error instanceof DataApiError && (await isOutdated(api, known)))
      if (!isStale) throw error
    }
  }
  // This schema has all changes from before the request. Those that come after it must not keep the request busy.
  return runCompiled(api, request, { loaded: await loadSchema(api), checksVersion: false })
}

interface Schema {
  loaded: LoadedSchema
  /** Whether to fail if the database has another schema. */
  checksVersion: boolean
}

async function runCompiled(api: DataApi, request: Request, { loaded, checksVersion }: Schema): Promise<Outcome> {
  const cache = requireReadable(loaded)
  const compiled = request.compile(cache)
  const { preferences } = request
  const preRequest = cache.settings['pgrst.db_pre_request']
  const settings = settingsOf(api, request, cache, compiled)
  const complete = withBody(compiled.main, request.body)
  const main = compiled.media.plan ? explained(complete, compiled.media.plan) : complete
  const statements = [
    settingsStatement(settings, checksVersion ? cache.version : undefined),
    ...(preRequest ? [{ text: `SELECT ${functionName(preRequest)}()`, params: [] }] : []),
    main,
    ...(compiled.estimate ? [compiled.estimate] : []),
    // A change that is rolled back still fails if it breaks a deferred constraint.
    ...(preferences.tx === 'rollback' ? [{ text: 'SET CONSTRAINTS ALL IMMEDIATE', params: [] }, ROLLBACK] : []),
  ]
  const statement = preRequest ? 2 : 1
  const { format } = compiled.media
  // A function may return a media type of its own as an encoded value, which is decoded and so not passed on.
  const isPassedOn = format !== 'custom' && format !== 'plan' && !compiled.readsBody
  const results = await run(api, statements, {
    isolation: ISOLATION[settings.default_transaction_isolation?.toLowerCase() ?? ''],
    separate: isPassedOn ? { statement, column: BODY_COLUMN } : undefined,
    // A session keeps the settings that its role had at its login, and the types that its statements had when they were prepared.
    sessionKey: cache.sessionKey,
  })
  const [rows = [], estimated] = results.slice(statement)
  // The main statement returns exactly one row of this shape.
  const row = compiled.media.plan ? planRow(rows) : (rows[0] as unknown as ResultRow)
  return { compiled, row, estimate: compiled.estimate ? rowsIn(estimated) : undefined }
}

const ISOLATION: Readonly<Record<string, BatchRequest['isolation']>> = {
  'repeatable read': 'RepeatableRead',
  serializable: 'Serializable',
}

/** The batch ends with a COMMIT, which would warn in the database's log that there is no transaction. */
const ROLLBACK: Statement = { text: 'ROLLBACK AND CHAIN', params: [] }

/** A function's name, with or without its schema, as in the setting of PostgREST. */
const functionName = (name: string): string =>
  name
    .split('.')
    .map((part) => quote(part.replaceAll('"', '')))
    .join('.')

const withBody = ({ text, params }: Statement, body: string | undefined): Statement =>
  body === undefined ? { text, params } : { text, params: params.map((value) => (value === BODY ? body : value)) }

function explained(
  { text, params }: Statement,
  { asText, options }: NonNullable<Compiled['media']['plan']>,
): Statement {
  const list = [...options.map((option) => option.toUpperCase()), `FORMAT ${asText ? 'TEXT' : 'JSON'}`]
  return { text: `EXPLAIN (${list.join(', ')}) ${text}`, params }
}

function planRow(rows: readonly Row[]): ResultRow {
  const lines = rows.map((row) => row['QUERY PLAN'])
  const body = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n')
  return { rows: 1, total: null, body, headers: null, status: null }
}

function rowsIn(rows: readonly Row[] | undefined): number | undefined {
  const plan = rows?.[0]?.['QUERY PLAN'] as [{ Plan?: Record<string, unknown> }] | undefined
  const count = plan?.[0]?.Plan?.['Plan Rows']
  return typeof count === 'number' ? count : undefined
}

/**
 * Settings of the transaction: the role and claims of the caller, and what functions can read about the request. Postgres checks the
 * role: the login role may become only those that are granted to it. The settings of the role come first, because only the login role
 * may be allowed to set some of them.
 */
function settingsOf(
  api: DataApi,
  { caller, preferences, schema }: Request,
  cache: SchemaCache,
  compiled: Compiled,
): Readonly<Record<string, string>> {
  const path = [schema, ...api.config.extraSearchPath].map(quote).join(', ')
  const timezone = preferences.timezone
  return {
    search_path: path,
    ...cache.roleSettings.get(caller.role),
    role: caller.role,
    'request.jwt.claims': JSON.stringify({ ...caller.claims, role: caller.role }),
    'request.method': caller.method,
    'request.path': caller.path,
    'request.headers': caller.headers,
    'request.cookies': caller.cookies,
    ...compiled.settings,
    ...(timezone !== undefined && { timezone }),
    ...(compiled.isReadOnly && { transaction_read_only: 'on' }),
    // The reply is decoded from this form.
    ...(compiled.media.format === 'custom' && { bytea_output: 'hex' }),
  }
}

/** Fails if the database has another version of the schema than this one. */
function settingsStatement(settings: Readonly<Record<string, string>>, version: string | undefined): Statement {
  const params = new Parameters()
  const calls = Object.entries(settings).map(
    ([name, value]) => `set_config(${params.add(name)}, ${params.add(value)}, true)`,
  )
  const check = version === undefined ? '' : `${requireVersion(params, VERSION, version)} AS checked, `
  return { text: `SELECT ${check}num_nulls(${calls.join(', ')}) AS settings`, params: params.values }
}
