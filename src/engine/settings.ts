import { endPresentSessions, MAY_END, ofProject } from './end-sessions.ts'
import { EngineUnavailable } from './engine.ts'
import { isDatabaseError, statementFailure } from './failure.ts'
import { type ProjectNames, quoteLiteral, quoteLiterals } from './names.ts'
import { type Cluster, type Session, withAdmin } from './session.ts'

/** The settings of a project's database beside those that its owner makes in SQL. */
export interface DatabaseSettings {
  /** All or nothing; throws `SettingsRefused`. Open sessions may keep the values that they started with. */
  configure(ref: string, configuration: Configuration): Promise<void>
  /** Every setting of the server, with its default, as new sessions of the owner have it. */
  effective(ref: string): Promise<EffectiveSetting[]>
  /** Sessions start read-only from now on; those that are open end, or, back to writable, those of them that idle. */
  setReadOnly(ref: string, readOnly: boolean): Promise<void>
  /** Those among them whose sessions really start read-only. */
  readOnlyAmong(refs: readonly string[]): Promise<Set<string>>
  /**
   * Rules for the owner and temporary logins from now on; the project's services are exempt. Open sessions from other networks
   * end. Throws `SettingsRefused` where the driver cannot know how a session comes.
   */
  setLoginRules(ref: string, rules: LoginRules): Promise<void>
  /** In bytes; a database that is not there is left out. */
  sizesOf(refs: readonly string[]): Promise<Map<string, number>>
  /** Databases of this size and more. */
  sizesFrom(bytesMin: number): Promise<Map<string, number>>
}

export interface Configuration {
  set: Readonly<Record<string, string | number | boolean>>
  /** Taken back to the server's own. */
  reset: readonly string[]
  /** Null for no bound but the server's. */
  connectionsMax: number | null
  /** False leaves what needs a restart for the next one; absent restarts where a value needs it. */
  restart?: boolean
}

export interface EffectiveSetting {
  name: string
  /** As SHOW tells it. */
  value: string
  default: string
  /** As `pg_settings` names it. */
  source: string
  /** Whether the value is another one once the server has restarted. */
  pendingRestart: boolean
  /** As `pg_settings` names it: `postmaster` needs a restart. */
  context: string
}

/** In a change, what is absent stays. */
interface LoginRules {
  /** Whether connections must use TLS. */
  ssl?: boolean
  /** In CIDR notation; null for any. */
  networks?: readonly string[] | null
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

/** A session in the database of a project. */
export interface Place {
  admin: Session
  names: ProjectNames
  driver: string
}

/** The roles whose sessions the database's settings are for; the others have settings of their own that must stay. */
const configured = ({ owner, runner }: ProjectNames): string[] => [...new Set([owner, runner])]

/** For a driver that cannot change the server's own settings: sets those that a database may have. */
export async function configure(place: Place, { set, reset, connectionsMax }: Configuration): Promise<void> {
  const { admin, names } = place
  const { database } = names
  await refuseForServer(place, Object.keys(set), connectionsMax)
  const statements = [
    `ALTER DATABASE ${database} CONNECTION LIMIT ${connectionsMax ?? -1}`,
    ...reset.map((name) => `ALTER DATABASE ${database} RESET ${name}`),
    ...Object.entries(set).flatMap(([name, value]) => [
      `ALTER DATABASE ${database} SET ${name} = ${quoteLiteral(textOf(value))}`,
      ...configured(names).flatMap((role) => resetsOf(role, database, name)),
    ]),
  ]
  await atOnce(admin, statements)
}

/** Settings of a role would win over those of the database. */
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

async function refuseForServer({ admin, driver }: Place, names: readonly string[], connectionsMax: number | null) {
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
/** An administrator's sessions are never read-only. */
const CLIENTS = `backend_type = 'client backend' AND usename <> current_user`

export async function setReadOnly(admin: Session, names: ProjectNames, readOnly: boolean): Promise<void> {
  const { database } = names
  await atOnce(admin, [
    `ALTER DATABASE ${database} ${readOnly ? `SET ${READ_ONLY} = on` : `RESET ${READ_ONLY}`}`,
    ...[...configured(names), names.storage].flatMap((role) => resetsOf(role, database, READ_ONLY)),
  ])
  if (readOnly) await endPresentSessions(admin, `${CLIENTS} AND ${ofProject(names)}`)
  else await endIdleSessions(admin, names)
}

/** Poolers keep sessions for long, and those would stay read-only. */
async function endIdleSessions(admin: Session, { database }: ProjectNames): Promise<void> {
  await admin.rows(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE state = 'idle' AND ${CLIENTS} AND ${MAY_END} AND datname = ${quoteLiteral(database)}`,
  )
}

export async function isReadOnly(admin: Session, names: ProjectNames): Promise<boolean> {
  const roles = quoteLiterals([...configured(names), names.storage])
  const rows = await admin.rows(
    `SELECT FROM pg_database
      WHERE datname = ${quoteLiteral(names.database)}
        AND EXISTS (SELECT FROM pg_db_role_setting
          WHERE setdatabase = pg_database.oid AND setrole = 0 AND '${READ_ONLY}=on' = ANY (setconfig))
        AND NOT EXISTS (SELECT FROM pg_db_role_setting JOIN pg_roles ON pg_roles.oid = setrole,
            unnest(setconfig) AS setting
          WHERE setdatabase IN (0, pg_database.oid) AND setting LIKE '${READ_ONLY}=%' AND rolname IN (${roles}))`,
  )
  return rows.length > 0
}

/** The administrator's session brings settings of its own: for those, what the database has been given, or the default. */
const EFFECTIVE = `
  SELECT s.name, coalesce(given.value, CASE WHEN s.source IN ('client', 'session') THEN defaults.value ELSE current_setting(s.name) END) AS value,
         defaults.value AS default, CASE WHEN given.value IS NULL THEN s.source ELSE 'database' END AS source,
         s.pending_restart AS "pendingRestart", s.context
    FROM pg_settings AS s
   CROSS JOIN LATERAL (SELECT CASE
        WHEN s.unit IS NULL OR s.boot_val IN ('0', '-1') THEN coalesce(s.boot_val, '')
        WHEN s.unit ~ '^[0-9]'
          THEN s.boot_val::numeric * substring(s.unit FROM '^[0-9]+')::numeric || substring(s.unit FROM '[A-Za-z]+$')
        ELSE s.boot_val || s.unit END AS value) AS defaults
    LEFT JOIN LATERAL (SELECT substr(entry, strpos(entry, '=') + 1) AS value
        FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase, unnest(setconfig) AS entry
       WHERE datname = current_database() AND setrole = 0 AND split_part(entry, '=', 1) = s.name) AS given ON true
   ORDER BY s.name`

export const effectiveSettings = (cluster: Cluster): Promise<EffectiveSetting[]> =>
  withAdmin(cluster, (inside) => inside.rows<EffectiveSetting>(EFFECTIVE), cluster.names.database)
