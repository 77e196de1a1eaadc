type Level = 'ERROR' | 'WARN' | 'INFO'
type Category = 'PERFORMANCE' | 'SECURITY' | 'HEALTH'
/** `remediation` is the address of a page that explains the fix. */
type Text = readonly [title: string, level: Level, category: Category, remediation: string, description: string]

const DOCS = 'https://supabase.com/docs/guides'
const LINTER = `${DOCS}/database/database-linter?lint=`
const PASSWORDS = `${DOCS}/auth/password-security`
const CONNECTIONS = `${DOCS}/database/connecting-to-postgres`
const STATES = `${DOCS}/platform`
const LOG_CONNECTIONS = 'https://www.postgresql.org/docs/current/runtime-config-logging.html#GUC-LOG-CONNECTIONS'

/** Lints that are checked in the catalogue of the database. */
const DATABASE_LINTS = {
  unindexed_foreign_keys: [
    'Unindexed foreign keys',
    'INFO',
    'PERFORMANCE',
    `${LINTER}0001_unindexed_foreign_keys`,
    'A foreign key has no index that starts with its columns: joins on it, and deletes in the referenced table, scan the whole table.',
  ],
  auth_users_exposed: [
    'Exposed Auth Users',
    'ERROR',
    'SECURITY',
    `${LINTER}0002_auth_users_exposed`,
    'A view in a schema that the API serves exposes rows of auth.users to the API roles.',
  ],
  auth_rls_initplan: [
    'Auth RLS Initialization Plan',
    'WARN',
    'PERFORMANCE',
    `${LINTER}0003_auth_rls_initplan`,
    'A policy calls current_setting() or a function of the schema auth for each row. Written as (select auth.uid()), the call runs once per statement.',
  ],
  no_primary_key: [
    'No Primary Key',
    'INFO',
    'PERFORMANCE',
    `${LINTER}0004_no_primary_key`,
    'A table has no primary key: its rows cannot be distinguished, and large tables are slow to work with.',
  ],
  unused_index: [
    'Unused Index',
    'INFO',
    'PERFORMANCE',
    `${LINTER}0005_unused_index`,
    'No query has used the index since the database statistics were last reset, but each write updates it.',
  ],
  multiple_permissive_policies: [
    'Multiple Permissive Policies',
    'WARN',
    'PERFORMANCE',
    `${LINTER}0006_multiple_permissive_policies`,
    'A table has several permissive policies for the same role and command: each of them runs for each row.',
  ],
  policy_exists_rls_disabled: [
    'Policy Exists RLS Disabled',
    'ERROR',
    'SECURITY',
    `${LINTER}0007_policy_exists_rls_disabled`,
    'A table has policies without effect, because its row-level security is disabled.',
  ],
  rls_enabled_no_policy: [
    'RLS Enabled No Policy',
    'INFO',
    'SECURITY',
    `${LINTER}0008_rls_enabled_no_policy`,
    'A table has row-level security without a policy: only its owner and roles that bypass row-level security see any row.',
  ],
  duplicate_index: [
    'Duplicate Index',
    'WARN',
    'PERFORMANCE',
    `${LINTER}0009_duplicate_index`,
    'Several indexes of a table differ only in their names: each write updates all of them.',
  ],
  security_definer_view: [
    'Security Definer View',
    'ERROR',
    'SECURITY',
    `${LINTER}0010_security_definer_view`,
    "A view in a schema that the API serves reads with its owner's rights, so the caller's policies do not apply.",
  ],
  function_search_path_mutable: [
    'Function Search Path Mutable',
    'WARN',
    'SECURITY',
    `${LINTER}0011_function_search_path_mutable`,
    "A function resolves names with the caller's search_path, so a caller can substitute other objects.",
  ],
  rls_disabled_in_public: [
    'RLS Disabled in Public',
    'ERROR',
    'SECURITY',
    `${LINTER}0013_rls_disabled_in_public`,
    'A table in a schema that the API serves is open to the API roles and has no row-level security.',
  ],
  extension_in_public: [
    'Extension in Public',
    'WARN',
    'SECURITY',
    `${LINTER}0014_extension_in_public`,
    'An extension is installed in the schema public, which the API serves.',
  ],
  rls_references_user_metadata: [
    'RLS references user metadata',
    'ERROR',
    'SECURITY',
    `${LINTER}0015_rls_references_user_metadata`,
    'A policy depends on user metadata, which users can change themselves.',
  ],
  materialized_view_in_api: [
    'Materialized View in API',
    'WARN',
    'SECURITY',
    `${LINTER}0016_materialized_view_in_api`,
    'The API roles can read a materialized view, to which row-level security does not apply.',
  ],
  foreign_table_in_api: [
    'Foreign Table in API',
    'WARN',
    'SECURITY',
    `${LINTER}0017_foreign_table_in_api`,
    'The API roles can reach a foreign table, to which row-level security does not apply.',
  ],
  unsupported_reg_types: [
    'Unsupported reg types',
    'WARN',
    'SECURITY',
    `${LINTER}0018_unsupported_reg_types`,
    'A column has a type that stores object ids, which prevents an upgrade to a new major version of Postgres.',
  ],
  log_connections_not_enabled: [
    'Log Connections Not Enabled',
    'INFO',
    'SECURITY',
    LOG_CONNECTIONS,
    'The server does not log connections. To enable this, set log_connections to true with PATCH …/config/database/postgres.',
  ],
} satisfies Record<string, Text>

/** Lints that are checked in the settings of the project and its organization. */
const SETTING_LINTS = {
  auth_otp_long_expiry: [
    'Auth OTP Long Expiry',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/going-into-prod#security`,
    'One-time passwords of Auth are valid for more than an hour.',
  ],
  auth_otp_short_length: [
    'Auth OTP Short Length',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/going-into-prod#security`,
    'One-time passwords of Auth have fewer than six digits.',
  ],
  network_restrictions_not_set: [
    'Network Restrictions Not Set',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/network-restrictions`,
    'Anyone who knows a password can connect to the database from any network.',
  ],
  ssl_not_enforced: [
    'SSL Not Enforced',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/ssl-enforcement`,
    'The database accepts connections that are not encrypted.',
  ],
  password_requirements_min_length: [
    'Password Minimum Length Too Short',
    'WARN',
    'SECURITY',
    PASSWORDS,
    'Auth accepts passwords of fewer than eight characters.',
  ],
  pitr_not_enabled: [
    'PITR Not Enabled',
    'INFO',
    'SECURITY',
    `${DOCS}/platform/backups#point-in-time-recovery`,
    'The database can only be restored to its backups, not to any point in time.',
  ],
  auth_leaked_password_protection: [
    'Leaked Password Protection Disabled',
    'WARN',
    'SECURITY',
    `${PASSWORDS}#password-strength-and-leaked-password-protection`,
    'Auth accepts passwords that are known to have leaked.',
  ],
  auth_insufficient_mfa_options: [
    'Insufficient MFA Options',
    'WARN',
    'SECURITY',
    `${DOCS}/auth/auth-mfa`,
    'Users can choose from fewer than two second factors.',
  ],
  auth_password_policy_missing: [
    'Password Policy Missing',
    'WARN',
    'SECURITY',
    PASSWORDS,
    'Auth does not require any kinds of characters in passwords.',
  ],
  no_backup_admin: [
    'No Backup Admin',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/access-control`,
    'Only one member can administer the organization: if that member is unavailable, nobody can.',
  ],
} satisfies Record<string, Text>

/** Lints of the database's availability. */
const HEALTH_LINTS = {
  db_not_reachable: [
    'Database Not Reachable',
    'ERROR',
    'HEALTH',
    CONNECTIONS,
    'The database of the project does not answer.',
  ],
  db_connection_failing: [
    'Database Connection Failing',
    'ERROR',
    'HEALTH',
    CONNECTIONS,
    'The database server answers but refuses connections.',
  ],
  db_connection_limit_reached: [
    'Database Connection Limit Reached',
    'ERROR',
    'HEALTH',
    CONNECTIONS,
    'The maximum number of sessions is open: new connections are refused until one ends.',
  ],
} satisfies Record<string, Text>

/** Findings that report why a check did not run. */
const RUN_LINTS = {
  project_not_active: [
    'Project Not Active',
    'WARN',
    'HEALTH',
    STATES,
    'The project is not running, so its database cannot be checked.',
  ],
  advisor_check_unavailable: [
    'Advisor Check Unavailable',
    'INFO',
    'HEALTH',
    STATES,
    'The requested check could not run.',
  ],
} satisfies Record<string, Text>

/** Lints that cannot be checked on this installation, with the reason. */
const UNCHECKABLE_LINTS = {
  leaked_service_key: 'this installation does not search for leaked keys',
  vulnerable_postgres_version: 'this installation has no list of vulnerable Postgres versions',
  instance_telemetry_lost: 'this installation stores no instance telemetry',
  instance_db_down: 'this installation stores no instance telemetry',
  instance_alert_firing: 'this installation stores no instance telemetry',
  log_data_api_error_rate_high: 'this installation stores no error rates',
  log_auth_error_rate_high: 'this installation runs no Auth server',
  log_storage_error_rate_high: 'this installation stores no error rates',
  log_edge_function_error_rate_high: 'this installation stores no error rates',
  // Older clients request the four lints above under this name.
  log_service_error_rate_high: 'this installation stores no error rates',
  realtime_authorization_timeouts: 'this installation runs no Realtime server',
  realtime_postgres_changes_spike: 'this installation runs no Realtime server',
  realtime_concurrent_users_near_limit: 'this installation runs no Realtime server',
} satisfies Record<string, string>

export type DatabaseLint = keyof typeof DATABASE_LINTS
export type SettingLint = keyof typeof SETTING_LINTS
export type HealthLint = keyof typeof HEALTH_LINTS
type UncheckableLint = keyof typeof UNCHECKABLE_LINTS
/** Lints that a caller can request. */
export type RequestableLint = DatabaseLint | SettingLint | HealthLint | UncheckableLint
/** Lints that can appear in a reply. */
export type ReportedLint = DatabaseLint | SettingLint | HealthLint | keyof typeof RUN_LINTS

// The keys of the object are exactly those of its type.
const namesOf = <Name extends string>(group: Record<Name, unknown>) => Object.keys(group) as Name[]

export const REQUESTABLE_LINTS = namesOf({ ...DATABASE_LINTS, ...SETTING_LINTS, ...HEALTH_LINTS, ...UNCHECKABLE_LINTS })
const TEXTS: Record<ReportedLint, Text> = { ...DATABASE_LINTS, ...SETTING_LINTS, ...HEALTH_LINTS, ...RUN_LINTS }
export const REPORTED_LINTS = namesOf(TEXTS)

export const isDatabaseLint = (lint: RequestableLint): lint is DatabaseLint => lint in DATABASE_LINTS
export const isSettingLint = (lint: RequestableLint): lint is SettingLint => lint in SETTING_LINTS
export const isHealthLint = (lint: RequestableLint): lint is HealthLint => lint in HEALTH_LINTS

/** Returns the reason why a lint cannot be checked; undefined if it can. */
export const reasonUncheckable = (lint: RequestableLint): string | undefined =>
  Object.entries(UNCHECKABLE_LINTS).find(([name]) => name === lint)?.[1]

export const textOf = (lint: ReportedLint) => {
  const [title, level, category, remediation, description] = TEXTS[lint]
  return { title, level, category, remediation, description }
}

/** The lints of a category, optionally without those of the settings. */
export const lintsOf = (category: Category, { settings = true } = {}): RequestableLint[] =>
  REQUESTABLE_LINTS.filter(
    (lint) => isReportable(lint) && textOf(lint).category === category && (settings || isDatabaseLint(lint)),
  )

const isReportable = (lint: RequestableLint): lint is RequestableLint & ReportedLint => lint in TEXTS
