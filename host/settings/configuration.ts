import type { InstancePaths, InstanceRecord, Programs } from '../instances/types.ts'
import { sizeSettings } from './sizes.ts'

/** Facts that an instance's configuration depends on besides its record. */
export interface ConfigurationFacts {
  /** Memory of the machine. */
  memoryBytes: number
  /** False loses data if the machine crashes, and is faster: for tests. */
  isDurable: boolean
  /** Whether the host has an archive for finished WAL segments. */
  isArchiving: boolean
  paths: Pick<InstancePaths, 'socket'>
  programs: Pick<Programs, 'major' | 'libraries'>
}

/** The fields of `log_line_prefix`, each followed by a tab; severity and message follow. Further lines of a message start with a tab. */
export const LOG_FIELDS = {
  timestamp: '%m',
  process_id: '%p',
  session_id: '%c',
  sql_state_code: '%e',
  backend_type: '%b',
  user_name: '%u',
  database_name: '%d',
  connection_from: '%h',
  application_name: '%a',
}

const LOG_SETTINGS = {
  // The daemon redirects stderr to a file, which saves the process of the logging collector.
  logging_collector: 'off',
  log_destination: 'stderr',
  log_timezone: 'UTC',
  lc_messages: 'C',
  log_line_prefix: Object.values(LOG_FIELDS)
    .map((field) => `${field}\t`)
    .join(''),
  // Statements may contain secrets: no message may quote one, neither as STATEMENT nor as CONTEXT.
  log_statement: 'none',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_min_messages: 'warning',
  'pg_stat_statements.track_utility': 'off',
}

/** Reserved connections: three for superusers, ten for the roles of services. The gateway keeps clients from them. */
const RESERVED = { superuser_reserved_connections: '3', reserved_connections: '10' }

const COMMON = {
  // Clients come through the gateway.
  listen_addresses: '',
  unix_socket_permissions: '0700',
  password_encryption: 'scram-sha-256',
  timezone: 'UTC',
  jit: 'off',
  huge_pages: 'off',
  random_page_cost: '1.1',
  wal_level: 'logical',
  min_wal_size: '2MB',
  'pg_stat_statements.max': '1000',
  client_connection_check_interval: '1s',
  idle_in_transaction_session_timeout: '10min',
  ...RESERVED,
  ...LOG_SETTINGS,
}

/** Settings of the control database, which only the API uses. */
const CONTROL = {
  max_connections: '200',
  shared_buffers: '256MB',
  max_wal_size: '1GB',
  // The control database is written to all the time, so segments are recycled instead of created.
  min_wal_size: '256MB',
  max_worker_processes: '8',
  autovacuum_max_workers: '3',
}

const NOT_DURABLE = { fsync: 'off', synchronous_commit: 'off', full_page_writes: 'off' }

/**
 * The daemon bundles and encrypts the files in the folder; losing the machine loses at most the WAL of `archive_timeout`. The
 * folder is relative to the data, because the account of an instance may be unable to enter its parents.
 */
const ARCHIVE = {
  archive_mode: 'on',
  archive_library: 'basic_archive',
  'basic_archive.archive_directory': '../wal',
  archive_timeout: '60s',
}

/** Without a backup no WAL is archived. `archive_mode` stays on, because changing it needs a restart. */
const NO_ARCHIVE = { archive_mode: 'on', archive_command: 'true' }

/** Port number of the socket, in the replica's socket folder, at which the daemon relays connections to the primary. */
export const RELAY_PORT = 5433

/** The relay replaces user and address, so these only have to be syntactically complete. */
const standby = (slot: string, folder: string) => ({
  primary_conninfo: `host='${folder.replaceAll(/['\\]/g, '\\$&')}' port=${RELAY_PORT} user=replication`,
  primary_slot_name: slot,
  wal_retrieve_retry_interval: '500ms',
})

const cron = ({ isPaused }: InstanceRecord) => ({
  // pg_cron cannot log in through the socket.
  'cron.use_background_workers': 'on',
  // The server of a paused instance runs only for a backup, or for a login that may fail.
  'cron.launch_active_jobs': isPaused ? 'off' : 'on',
})

/** All settings of an instance; those of its owner override the others. */
export function configurationOf(record: InstanceRecord, facts: ConfigurationFacts): Record<string, string> {
  const { major, libraries = [] } = facts.programs
  const chosen: Record<string, string> = {
    ...COMMON,
    cluster_name: record.name,
    port: '5432',
    unix_socket_directories: facts.paths.socket,
    shared_preload_libraries: ['pg_stat_statements', ...libraries].join(','),
    ...(record.name === 'control' ? CONTROL : sizeSettings(record.size, facts.memoryBytes)),
    ...(facts.isDurable ? {} : NOT_DURABLE),
    ...(facts.isArchiving ? (record.isArchived ? ARCHIVE : NO_ARCHIVE) : {}),
    ...(libraries.includes('pg_cron') ? cron(record) : {}),
    ...record.settings,
    ...(record.primary ? standby(record.primary.slot, facts.paths.socket) : {}),
  }
  return { ...chosen, ...versionSettings(Number(major), Number(chosen.autovacuum_max_workers)) }
}

function versionSettings(major: number, autovacuumWorkers: number): Record<string, string> {
  return {
    // Only the daemon changes the configuration.
    ...(major >= 17 && { allow_alter_system: 'off' }),
    // Worker processes for I/O would be three more for each instance. The slots bound the owner's `autovacuum_max_workers`.
    ...(major >= 18 && { io_method: 'sync', autovacuum_worker_slots: String(Math.max(3, autovacuumWorkers || 0)) }),
  }
}

/** The default of Postgres for `max_replication_slots` and `max_wal_senders`. */
export const SLOTS_DEFAULT = 10

/** Renders the `postgresql.conf` of an instance that has this number of replication slots. With fewer allowed, it would not start. */
export function renderConfiguration(record: InstanceRecord, facts: ConfigurationFacts, slots = 0): string {
  const chosen = configurationOf(record, facts)
  const hasTooFew = slots > 0 && Number(chosen.max_replication_slots ?? SLOTS_DEFAULT) < slots
  const all = hasTooFew ? { ...chosen, max_replication_slots: String(slots) } : chosen
  const lines = Object.entries(all).map(([name, value]) => `${name} = ${quote(name, value)}`)
  return ['# Written by the database host: changes are overwritten.', ...lines, ''].join('\n')
}

function quote(name: string, value: string): string {
  if (!/^[a-z_]+(\.[a-z_]+)?$/.test(name)) throw new TypeError(`Not the name of a setting: ${JSON.stringify(name)}`)
  if (value.includes('\0')) throw new TypeError(`${name} must not contain NUL`)
  const escaped = value.replaceAll('\\', '\\\\').replaceAll("'", "''").replaceAll('\n', '\\n').replaceAll('\r', '\\r')
  return `'${escaped.replaceAll('\t', '\\t')}'`
}
