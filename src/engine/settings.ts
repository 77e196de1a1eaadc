import { isDatabaseError, statementFailure } from './database-errors.ts'
import { endSessionsOnce, MAY_END, sessionsOfProject } from './end-sessions.ts'
import { EngineUnavailable } from './engine-errors.ts'
import { type ProjectNames, quoteLiteral, quoteLiterals } from './names.ts'
import { type Cluster, type Session, withAdmin } from './session.ts'

/** The settings of a project's database that the platform makes; the owner makes others in SQL. */
export interface DatabaseSettings {
  /** Atomic; throws `SettingsRefused`. Open sessions may keep the values that they started with. */
  configure(ref: string, configuration: Configuration): Promise<void>
  /** Every setting of the server with its default and the value that a new session of the owner gets. */
  listEffective(ref: string): Promise<EffectiveSetting[]>
  /** Makes new sessions read-only or writable. Read-only ends the open sessions; writable ends the idle ones. */
  setReadOnly(ref: string, readOnly: boolean): Promise<void>
  /** The projects among `refs` whose sessions start read-only in fact. */
  filterReadOnly(refs: readonly string[]): Promise<Set<string>>
  /**
   * Sets rules for the owner and temporary logins; the project's services are exempt. Ends open sessions from other
   * networks. Throws `SettingsRefused` if the driver cannot see where sessions come from.
   */
  setLoginRules(ref: string, rules: LoginRules): Promise<void>
  /** Sizes in bytes; databases that do not exist are omitted. */
  sizesOf(refs: readonly string[]): Promise<Map<string, number>>
  /** The databases of at least this size, with their sizes in bytes. */
  sizesAtLeast(bytesMin: number): Promise<Map<string, number>>
}

export interface Configuration {
  /** All settings that the project has chosen. */
  set: Readonly<Record<string, string | number | boolean>>
  /** Names of settings that the project had chosen before: they return to the server's default. */
  reset: readonly string[]
  /** Null = the server's limit only. */
  connectionsMax: number | null
  /** True restarts a running server; false postpones values that need a restart; absent = restart if a changed value needs it. */
  restart?: boolean
}

export interface EffectiveSetting {
  name: string
  /** In the format of SHOW. */
  value: string
  default: string
  /** `source` of `pg_settings`. */
  source: string
  /** Whether the value changes with the next restart of the server. */
  pendingRestart: boolean
  /** `context` of `pg_settings`; `postmaster` needs a restart. */
  context: string
}

/** Rules that are absent do not change. */
interface LoginRules {
  /** Whether connections must use TLS. */
  ssl?: boolean
  /** In CIDR notation; null = any network. */
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

/** An administrator's session in a project's database. */
export interface ConfigurationTarget {
  admin: Session
  names: ProjectNames
  driver: string
}

/** The roles that the settings apply to. The settings of all other roles must not change. */
const configuredRoles = ({ owner, runner }: ProjectNames): string[] => [...new Set([owner, runner])]

/** Sets the settings that a database can have, for drivers that cannot change those of the server. */
export async function configure(
  target: ConfigurationTarget,
  { set, reset, connectionsMax }: Configuration,
): Promise<void> {
  const { admin, names } = target
  const { database } = names
  await refuseServerSettings(target, Object.keys(set), connectionsMax)
  const statements = [
    `ALTER DATABASE ${database} CONNECTION LIMIT ${connectionsMax ?? -1}`,
    ...reset.map((name) => `ALTER DATABASE ${database} RESET ${name}`),
    ...Object.entries(set).flatMap(([name, value]) => [
      `ALTER DATABASE ${database} SET ${name} = ${quoteLiteral(settingText(value))}`,
      ...configuredRoles(names).flatMap((role) => resetStatements(role, database, name)),
    ]),
  ]
  await runInTransaction(admin, statements)
}

/** Resets a role's own setting, which would override that of the database. */
const resetStatements = (role: string, database: string, name: string): string[] => [
  `ALTER ROLE ${role} RESET ${name}`,
  `ALTER ROLE ${role} IN DATABASE ${database} RESET ${name}`,
]

export const settingText = (value: string | number | boolean): string =>
  typeof value === 'boolean' ? (value ? 'on' : 'off') : String(value)

/** Runs the statements as one query, which is one transaction. */
async function runInTransaction(admin: Session, statements: readonly string[]): Promise<void> {
  try {
    await admin.rows(statements.join(';\n'))
  } catch (error) {
    throw toRefusal(error) ?? statementFailure(error, 0)
  }
}

/** Postgres names the setting in its message about an invalid value. */
function toRefusal(error: unknown): Error | undefined {
  if (!isDatabaseError(error)) return undefined
  if (['3D000', '42704'].includes(error.code)) return new EngineUnavailable(error.message, { code: error.code })
  const setting = /parameter "([^"]+)"/.exec(error.message)?.[1]
  if (!['22023', '42501'].includes(error.code) || !setting) return undefined
  const reason = [error.message, error.detail, error.hint].filter(Boolean).join(' ')
  return new SettingsRefused([{ setting, reason }])
}

const clusterWideReason = (driver: string) => `applies to the whole cluster: the driver ${driver} cannot change it`
const extensionReason = (driver: string) =>
  `belongs to an extension that is not loaded in the cluster of the driver ${driver}`

async function refuseServerSettings(
  { admin, driver }: ConfigurationTarget,
  names: readonly string[],
  connectionsMax: number | null,
) {
  const rows = await admin.rows<{ name: string; scope: 'database' | 'cluster'; connections: number }>(
    `SELECT wanted.name, CASE WHEN context IN ('user', 'superuser') THEN 'database' ELSE coalesce(context, '') END AS scope,
        current_setting('max_connections')::int AS connections
       FROM unnest($1::text[]) AS wanted (name) LEFT JOIN pg_settings ON pg_settings.name = wanted.name`,
    [[...names, 'max_connections']],
  )
  const refusals = rows
    .filter(({ name, scope }) => scope !== 'database' && name !== 'max_connections')
    .map(({ name, scope }) => ({ setting: name, reason: scope ? clusterWideReason(driver) : extensionReason(driver) }))
  const { connections = 0 } = rows[0] ?? {}
  if (connectionsMax !== null && connectionsMax > connections) {
    const reason = `must be at most ${connections}, the limit of the cluster of the driver ${driver}`
    refusals.push({ setting: 'max_connections', reason })
  }
  if (refusals.length > 0) throw new SettingsRefused(refusals)
}

const READ_ONLY = 'default_transaction_read_only'
/** The administrator's own sessions are never read-only. */
const CLIENTS = `backend_type = 'client backend' AND usename <> current_user`

export async function setReadOnly(admin: Session, names: ProjectNames, readOnly: boolean): Promise<void> {
  const { database } = names
  // A database that is read-only already is left alone, because the change would end its sessions again.
  if (readOnly && (await isReadOnly(admin, names))) return
  await runInTransaction(admin, [
    `ALTER DATABASE ${database} ${readOnly ? `SET ${READ_ONLY} = on` : `RESET ${READ_ONLY}`}`,
    ...[...configuredRoles(names), names.storage].flatMap((role) => resetStatements(role, database, READ_ONLY)),
  ])
  if (readOnly) await endSessionsOnce(admin, `${CLIENTS} AND ${sessionsOfProject(names)}`)
  else await endIdleSessions(admin, names)
}

/** Ends idle sessions, which poolers keep open and which would stay read-only. */
async function endIdleSessions(admin: Session, { database }: ProjectNames): Promise<void> {
  await admin.rows(
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
      WHERE state = 'idle' AND ${CLIENTS} AND ${MAY_END} AND datname = ${quoteLiteral(database)}`,
  )
}

export async function isReadOnly(admin: Session, names: ProjectNames): Promise<boolean> {
  const roles = quoteLiterals([...configuredRoles(names), names.storage])
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

/** The administrator's session has settings of its own; for those, this reads the database's value or the default. */
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
