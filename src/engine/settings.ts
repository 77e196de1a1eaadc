import { endPresentSessions, MAY_END, ofProject } from './ending.ts'
import { EngineUnavailable } from './engine.ts'
import { isDatabaseError, statementFailure } from './failure.ts'
import { changeLoginRules, endSessionsFromElsewhere, ensureLoginCheck, type LoginRules } from './login-check.ts'
import { type ProjectNames, projectNames, quoteLiteral, quoteLiterals } from './names.ts'
import { type Server, type Session, withAdmin } from './session.ts'

/** What a project's database runs with, beside what its owner sets himself in SQL. */
export interface DatabaseSettings {
  /** All or nothing; throws `SettingsRefused`. Sessions that are open keep what they started with. */
  configure(ref: string, configuration: Configuration): Promise<void>
  /** Sessions start read-only from now on; those that are open end, or, back to writable, those of them that idle. */
  setReadOnly(ref: string, readOnly: boolean): Promise<void>
  /** Those among them whose sessions really start read-only. */
  readOnlyAmong(refs: readonly string[]): Promise<Set<string>>
  /**
   * What the owner and temporary logins must keep to from now on; the services come through the proxy. Those that are open from other networks
   * end. Throws `SettingsRefused` where the driver cannot know how a session comes.
   */
  setLoginRules(ref: string, rules: LoginRules): Promise<void>
  /** In bytes; a database that is not there is left out. */
  sizesOf(refs: readonly string[]): Promise<Map<string, number>>
  /** Databases of this size and more. With very many of them each turn looks at some, and a row of turns at all. */
  sizesFrom(bytesMin: number, turn: number): Promise<Map<string, number>>
}

interface Configuration {
  set: Readonly<Record<string, string | number | boolean>>
  /** Taken back to the cluster's own. */
  reset: readonly string[]
  /** Null for no bound but the cluster's. */
  connectionsMax: number | null
}

interface Refusal {
  setting: string
  reason: string
}

export class SettingsRefused extends Error {
  override readonly name = 'SettingsRefused'
  readonly refusals: readonly Refusal[]

  constructor(refusals: readonly Refusal[]) {
    super(refusals.map(({ setting, reason }) => `${setting}: ${reason}`).join('; '))
    this.refusals = refusals
  }
}

type InProject = <Value>(ref: string, work: (admin: Session) => Promise<Value>) => Promise<Value>

/** `inProject` keeps operations on one project apart. */
export function databaseSettings(cluster: Server, inProject: InProject, driver = 'postgres'): DatabaseSettings {
  return {
    configure: (ref, configuration) =>
      inProject(ref, (admin) => configure({ admin, driver }, projectNames(ref), configuration)),
    setReadOnly: (ref, readOnly) => inProject(ref, (admin) => setReadOnly(admin, projectNames(ref), readOnly)),
    readOnlyAmong: (refs) => withAdmin(cluster, (admin) => readOnlyAmong(admin, refs)),
    setLoginRules: (ref, rules) =>
      inProject(ref, (admin) => setLoginRules({ cluster, admin }, projectNames(ref), rules)),
    sizesOf: (refs) => withAdmin(cluster, (admin) => sizesOf(admin, refs)),
    sizesFrom: (bytesMin, turn) => withAdmin(cluster, (admin) => sizesFrom(admin, bytesMin, turn)),
  }
}

/** The roles whose sessions the database's settings are for; the others have settings of their own that must stay. */
const configured = ({ owner, runner }: ProjectNames): string[] => [owner, runner]

interface Place {
  admin: Session
  driver: string
}

async function configure(place: Place, names: ProjectNames, { set, reset, connectionsMax }: Configuration) {
  const { database } = names
  await refuseForCluster(place, Object.keys(set), connectionsMax)
  const statements = [
    `ALTER DATABASE ${database} CONNECTION LIMIT ${connectionsMax ?? -1}`,
    ...reset.map((name) => `ALTER DATABASE ${database} RESET ${name}`),
    ...Object.entries(set).flatMap(([name, value]) => [
      `ALTER DATABASE ${database} SET ${name} = ${quoteLiteral(textOf(value))}`,
      ...configured(names).flatMap((role) => resetsOf(role, database, name)),
    ]),
  ]
  await atOnce(place.admin, statements)
}

/** What was set for the role alone would win over what is set for the database. */
const resetsOf = (role: string, database: string, name: string): string[] => [
  `ALTER ROLE ${role} RESET ${name}`,
  `ALTER ROLE ${role} IN DATABASE ${database} RESET ${name}`,
]

export const textOf = (value: string | number | boolean): string =>
  typeof value === 'boolean' ? (value ? 'on' : 'off') : String(value)

/** As one query, hence one transaction. */
async function atOnce(admin: Session, statements: readonly string[]): Promise<void> {
  try {
    await admin.rows(statements.join(';\n'))
  } catch (error) {
    throw refusalOf(error) ?? statementFailure(error, 0)
  }
}

/** Postgres names the setting in each message on a value that it does not take. */
function refusalOf(error: unknown): Error | undefined {
  if (!isDatabaseError(error)) return undefined
  if (['3D000', '42704'].includes(error.code)) return new EngineUnavailable(error.message, { code: error.code })
  const setting = /parameter "([^"]+)"/.exec(error.message)?.[1]
  if (!['22023', '42501'].includes(error.code) || !setting) return undefined
  const reason = [error.message, error.detail, error.hint].filter(Boolean).join(' ')
  return new SettingsRefused([{ setting, reason }])
}

const ofCluster = (driver: string) => `is set for the whole cluster, which the driver ${driver} leaves as it is`
const unknownTo = (driver: string) => `belongs to an extension that the cluster of the driver ${driver} does not run`

async function refuseForCluster({ admin, driver }: Place, names: readonly string[], connectionsMax: number | null) {
  const rows = await admin.rows<{ name: string; reach: 'database' | 'cluster'; connections: number }>(
    `SELECT wanted.name, CASE WHEN context IN ('user', 'superuser') THEN 'database' ELSE coalesce(context, '') END AS reach,
        current_setting('max_connections')::int AS connections
       FROM unnest($1::text[]) AS wanted (name) LEFT JOIN pg_settings ON pg_settings.name = wanted.name`,
    [[...names, 'max_connections']],
  )
  const refusals = rows
    .filter(({ name, reach }) => reach !== 'database' && name !== 'max_connections')
    .map(({ name, reach }) => ({ setting: name, reason: reach ? ofCluster(driver) : unknownTo(driver) }))
  const { connections = 0 } = rows[0] ?? {}
  if (connectionsMax !== null && connectionsMax > connections) {
    const reason = `the cluster of the driver ${driver} takes ${connections} connections in all`
    refusals.push({ setting: 'max_connections', reason })
  }
  if (refusals.length > 0) throw new SettingsRefused(refusals)
}

const READ_ONLY = 'default_transaction_read_only'

async function setReadOnly(admin: Session, names: ProjectNames, readOnly: boolean): Promise<void> {
  const { database } = names
  await atOnce(admin, [
    `ALTER DATABASE ${database} ${readOnly ? `SET ${READ_ONLY} = on` : `RESET ${READ_ONLY}`}`,
    ...[...configured(names), names.storage].flatMap((role) => resetsOf(role, database, READ_ONLY)),
  ])
  if (readOnly) await endPresentSessions(admin, ofProject(names))
  else await endIdleSessions(admin, names)
}

/** Poolers keep sessions for long, and those would stay read-only. */
async function endIdleSessions(admin: Session, { database }: ProjectNames): Promise<void> {
  await admin.rows(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle' AND ${MAY_END} AND datname = ${quoteLiteral(database)}`,
  )
}

async function readOnlyAmong(admin: Session, refs: readonly string[]): Promise<Set<string>> {
  if (refs.length === 0) return new Set()
  const databases = quoteLiterals(refs.map((ref) => projectNames(ref).database))
  const rows = await admin.rows<{ ref: string }>(
    `SELECT substr(datname, 3) AS ref FROM pg_database
      WHERE datname IN (${databases})
        AND EXISTS (SELECT FROM pg_db_role_setting
          WHERE setdatabase = pg_database.oid AND setrole = 0 AND '${READ_ONLY}=on' = ANY (setconfig))
        AND NOT EXISTS (SELECT FROM pg_db_role_setting JOIN pg_roles ON pg_roles.oid = setrole,
            unnest(setconfig) AS setting
          WHERE setdatabase IN (0, pg_database.oid) AND setting LIKE '${READ_ONLY}=%'
            AND rolname IN (datname, datname || '_sql', datname || '_storage'))`,
  )
  return new Set(rows.map(({ ref }) => ref))
}

const TLS_OFF = 'the cluster of the driver postgres has TLS off'
const NOT_CHECKED = 'needs Postgres 17 or newer with the driver postgres'

interface OpenServer {
  cluster: Server
  admin: Session
}

async function setLoginRules({ cluster, admin }: OpenServer, { database, owner }: ProjectNames, rules: LoginRules) {
  const [server] = await admin.rows<{ tls: boolean; checks: boolean }>(
    `SELECT current_setting('ssl')::bool AS tls, current_setting('server_version_num')::int >= 170000 AS checks`,
  )
  const { ssl, networks } = rules
  const problem = server?.checks ? undefined : NOT_CHECKED
  const tlsProblem = problem ?? (server?.tls ? undefined : TLS_OFF)
  const refusals = [
    ...(ssl && tlsProblem ? [{ setting: 'requestedConfig.database', reason: tlsProblem }] : []),
    ...(networks && problem ? [{ setting: 'dbAllowedCidrs', reason: problem }] : []),
  ]
  if (refusals.length > 0) throw new SettingsRefused(refusals)
  if (problem) return
  await withAdmin(cluster, ensureLoginCheck, database)
  await changeLoginRules(admin, owner, rules)
  if (networks) await endSessionsFromElsewhere(admin, owner, networks)
}

interface Size {
  ref: string
  bytes: string
}

const sizesIn = (rows: readonly Size[]) => new Map(rows.map(({ ref, bytes }) => [ref, Number(bytes)]))

async function sizesOf(admin: Session, refs: readonly string[]): Promise<Map<string, number>> {
  if (refs.length === 0) return new Map()
  const databases = quoteLiterals(refs.map((ref) => projectNames(ref).database))
  return sizesIn(
    await admin.rows<Size>(
      `SELECT substr(datname, 3) AS ref, pg_database_size(oid) AS bytes FROM pg_database WHERE datname IN (${databases})`,
    ),
  )
}

/** Measuring one reads its folder: so many a turn at most. */
const MEASURED_MAX = 1_000

async function sizesFrom(admin: Session, bytesMin: number, turn: number): Promise<Map<string, number>> {
  return sizesIn(
    await admin.rows<Size>(
      `WITH projects AS (SELECT oid, datname FROM pg_database WHERE datname ~ '^p_[a-z]{20}$' AND datallowconn),
         turns AS (SELECT count(*) / ${MEASURED_MAX} + 1 AS number FROM projects),
         measured AS MATERIALIZED (SELECT datname, pg_database_size(oid) AS bytes FROM projects, turns
           WHERE oid::int8 % number = $1::int8 % number)
       SELECT substr(datname, 3) AS ref, bytes FROM measured WHERE bytes >= $2::int8`,
      [turn, Math.ceil(bytesMin)],
    ),
  )
}
