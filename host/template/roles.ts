import { APP_OWNER } from '../../src/engine/hosted-names.ts'
import { API_ROLES } from '../../src/engine/roles.ts'
import { AUTH_OWNER, SCHEMA_OWNER, STORAGE_OWNER } from '../../src/engine/storage/names.ts'

/** The superuser of every instance; its owner is the role `postgres`. */
export const SUPERUSER = SCHEMA_OWNER
export const OWNER = APP_OWNER
/** Replicas stream as this role. */
export const REPLICATOR = 'supabase_replication_admin'
const API = API_ROLES.join(', ')

/**
 * Roles as which only trusted callers may log in, even with a password. The owner's code runs in sessions of the storage
 * server, and a session can give its own role a password; those of the API's roles the owner can set.
 */
export const SERVICE_ROLES: ReadonlySet<string> = new Set([
  ...[SUPERUSER, STORAGE_OWNER, AUTH_OWNER, 'authenticator', 'supabase_read_only_user'],
  ...[...API_ROLES, REPLICATOR, 'dashboard_user'],
])

/** No role has a password here. */
const ATTRIBUTES: Readonly<Record<string, string>> = {
  anon: 'NOLOGIN',
  authenticated: 'NOLOGIN',
  service_role: 'NOLOGIN BYPASSRLS',
  authenticator: 'LOGIN NOINHERIT',
  [OWNER]: 'LOGIN CREATEROLE CREATEDB BYPASSRLS REPLICATION',
  dashboard_user: 'NOLOGIN CREATEROLE CREATEDB REPLICATION',
  [STORAGE_OWNER]: 'LOGIN',
  [AUTH_OWNER]: 'LOGIN NOINHERIT',
  supabase_read_only_user: 'LOGIN BYPASSRLS',
  // Migrations written for the hosted service name these two.
  supabase_realtime_admin: 'NOLOGIN NOINHERIT',
  [REPLICATOR]: 'LOGIN REPLICATION',
}

const SETTINGS: readonly (readonly [role: string, setting: string, value: string])[] = [
  ['anon', 'statement_timeout', '3s'],
  ['authenticated', 'statement_timeout', '8s'],
  ['authenticator', 'statement_timeout', '8s'],
  ['authenticator', 'lock_timeout', '8s'],
  [AUTH_OWNER, 'search_path', 'auth'],
  [AUTH_OWNER, 'idle_in_transaction_session_timeout', '60s'],
  ['supabase_read_only_user', 'default_transaction_read_only', 'on'],
]

/**
 * The owner can set defaults for every session of the database, which settings of a role override. Sessions of the superuser
 * and of the storage server must neither call the owner's code nor be stopped by the owner's limits. The schema of the services pins
 * two more settings, which a dump of the roles would contain.
 */
const PINNED: Readonly<Record<string, string>> = {
  role: 'none',
  search_path: 'pg_catalog',
  default_transaction_isolation: 'read committed',
  default_transaction_read_only: 'off',
  standard_conforming_strings: 'on',
  row_security: 'on',
  lock_timeout: '0',
  transaction_timeout: '0',
  idle_session_timeout: '0',
  idle_in_transaction_session_timeout: '0',
}

/** Memberships without the ADMIN option. The schema of the services grants the owner those with it. */
const MEMBERSHIPS = [
  `GRANT ${API} TO authenticator WITH INHERIT FALSE, SET TRUE`,
  `GRANT ${API} TO ${STORAGE_OWNER} WITH INHERIT FALSE, SET TRUE`,
  `GRANT pg_monitor, pg_read_all_data, pg_signal_backend, pg_create_subscription, pg_checkpoint TO ${OWNER}`,
  // Only the owner of a table can add policies and triggers; the guard refuses everything else that owners can do. With SET TRUE,
  // the owner could set the passwords of these roles.
  `GRANT ${STORAGE_OWNER}, ${AUTH_OWNER} TO ${OWNER} WITH INHERIT TRUE, SET FALSE`,
  'GRANT pg_read_all_data, pg_monitor TO supabase_read_only_user',
]

/** Superuser settings that owners may change in their sessions and for their roles, as on the hosted service. */
const OWNER_SETTINGS = [
  'session_replication_role',
  'log_lock_waits',
  'log_min_duration_statement',
  'log_statement',
  'log_temp_files',
  'track_functions',
  'track_io_timing',
  'pg_stat_statements.track',
]

export const roles = (): string[] => [
  ...Object.entries(ATTRIBUTES).map(([role, attributes]) => `CREATE ROLE ${role} WITH ${attributes}`),
  ...MEMBERSHIPS,
  ...[SUPERUSER, STORAGE_OWNER].flatMap((role) =>
    Object.entries(PINNED).map(([setting, value]) => `ALTER ROLE ${role} SET ${setting} = '${value}'`),
  ),
  ...SETTINGS.map(([role, setting, value]) => `ALTER ROLE ${role} SET ${setting} = '${value}'`),
  ...OWNER_SETTINGS.map((setting) => `GRANT SET ON PARAMETER ${setting} TO ${OWNER}`),
]
