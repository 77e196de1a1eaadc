type Level = 'ERROR' | 'WARN' | 'INFO'
type Category = 'PERFORMANCE' | 'SECURITY' | 'HEALTH'
/** `remediation` is a page that tells how to mend it. */
type Text = readonly [title: string, level: Level, category: Category, remediation: string, description: string]

const DOCS = 'https://supabase.com/docs/guides'
const LINTER = `${DOCS}/database/database-linter?lint=`
const PASSWORDS = `${DOCS}/auth/password-security`
const CONNECTIONS = `${DOCS}/database/connecting-to-postgres`
const STATES = `${DOCS}/platform`
const LOG_CONNECTIONS = 'https://www.postgresql.org/docs/current/runtime-config-logging.html#GUC-LOG-CONNECTIONS'

/** Of what the database's own catalogues tell. */
const OF_DATABASE = {
  unindexed_foreign_keys: [
    'Unindexed foreign keys',
    'INFO',
    'PERFORMANCE',
    `${LINTER}0001_unindexed_foreign_keys`,
    'A foreign key whose columns no index begins with: joins over it, and deletes in the table that it refers to, read the whole table.',
  ],
  auth_users_exposed: [
    'Exposed Auth Users',
    'ERROR',
    'SECURITY',
    `${LINTER}0002_auth_users_exposed`,
    'A view of a schema that the API serves shows rows of auth.users to the roles of the API.',
  ],
  auth_rls_initplan: [
    'Auth RLS Initialization Plan',
    'WARN',
    'PERFORMANCE',
    `${LINTER}0003_auth_rls_initplan`,
    'A policy calls current_setting() or a function of the schema auth anew for each row. As (select auth.uid()) the call is made once a statement.',
  ],
  no_primary_key: [
    'No Primary Key',
    'INFO',
    'PERFORMANCE',
    `${LINTER}0004_no_primary_key`,
    'A table without a primary key: its rows cannot be told apart, and large ones are slow to work with.',
  ],
  unused_index: [
    'Unused Index',
    'INFO',
    'PERFORMANCE',
    `${LINTER}0005_unused_index`,
    'No query has used the index since the statistics of the database began: each write pays for it.',
  ],
  multiple_permissive_policies: [
    'Multiple Permissive Policies',
    'WARN',
    'PERFORMANCE',
    `${LINTER}0006_multiple_permissive_policies`,
    'Several permissive policies of a table are for the same role and the same command: each of them runs for each row.',
  ],
  policy_exists_rls_disabled: [
    'Policy Exists RLS Disabled',
    'ERROR',
    'SECURITY',
    `${LINTER}0007_policy_exists_rls_disabled`,
    'A table has policies that do nothing, as its row-level security is disabled.',
  ],
  rls_enabled_no_policy: [
    'RLS Enabled No Policy',
    'INFO',
    'SECURITY',
    `${LINTER}0008_rls_enabled_no_policy`,
    'A table has row-level security without a policy: only roles that bypass it, and its owner, see any row.',
  ],
  duplicate_index: [
    'Duplicate Index',
    'WARN',
    'PERFORMANCE',
    `${LINTER}0009_duplicate_index`,
    'Several indexes of a table are equal but for their names: each write pays for all of them.',
  ],
  security_definer_view: [
    'Security Definer View',
    'ERROR',
    'SECURITY',
    `${LINTER}0010_security_definer_view`,
    "A view of a schema that the API serves reads with its owner's rights, so that the policies of who asks do not hold.",
  ],
  function_search_path_mutable: [
    'Function Search Path Mutable',
    'WARN',
    'SECURITY',
    `${LINTER}0011_function_search_path_mutable`,
    'A function looks its names up in the search_path of whoever calls it, who can put something else in their place.',
  ],
  rls_disabled_in_public: [
    'RLS Disabled in Public',
    'ERROR',
    'SECURITY',
    `${LINTER}0013_rls_disabled_in_public`,
    'A table of a schema that the API serves is open to the roles of the API and has no row-level security.',
  ],
  extension_in_public: [
    'Extension in Public',
    'WARN',
    'SECURITY',
    `${LINTER}0014_extension_in_public`,
    'An extension lies in the schema public, among what the API serves.',
  ],
  rls_references_user_metadata: [
    'RLS references user metadata',
    'ERROR',
    'SECURITY',
    `${LINTER}0015_rls_references_user_metadata`,
    'A policy decides by user metadata, which users can change themselves.',
  ],
  materialized_view_in_api: [
    'Materialized View in API',
    'WARN',
    'SECURITY',
    `${LINTER}0016_materialized_view_in_api`,
    'The roles of the API can read a materialized view, for which no row-level security holds.',
  ],
  foreign_table_in_api: [
    'Foreign Table in API',
    'WARN',
    'SECURITY',
    `${LINTER}0017_foreign_table_in_api`,
    'The roles of the API can reach a foreign table, for which no row-level security holds.',
  ],
  unsupported_reg_types: [
    'Unsupported reg types',
    'WARN',
    'SECURITY',
    `${LINTER}0018_unsupported_reg_types`,
    'A column is of a type that holds object ids, with which Postgres cannot be upgraded to a new major version.',
  ],
  log_connections_not_enabled: [
    'Log Connections Not Enabled',
    'INFO',
    'SECURITY',
    LOG_CONNECTIONS,
    'The server writes no line to its log when somebody connects. PATCH …/config/database/postgres with log_connections true changes that.',
  ],
} satisfies Record<string, Text>

/** Of what the project and its organization are set to. */
const OF_SETTINGS = {
  auth_otp_long_expiry: [
    'Auth OTP Long Expiry',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/going-into-prod#security`,
    'One-time passwords of Auth hold for more than an hour.',
  ],
  auth_otp_short_length: [
    'Auth OTP Short Length',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/going-into-prod#security`,
    'One-time passwords of Auth have less than six digits.',
  ],
  network_restrictions_not_set: [
    'Network Restrictions Not Set',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/network-restrictions`,
    'Whoever knows a password reaches the database, from whatever network.',
  ],
  ssl_not_enforced: [
    'SSL Not Enforced',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/ssl-enforcement`,
    'The database takes connections that are not encrypted.',
  ],
  password_requirements_min_length: [
    'Password Minimum Length Too Short',
    'WARN',
    'SECURITY',
    PASSWORDS,
    'Auth takes passwords of less than eight characters.',
  ],
  pitr_not_enabled: [
    'PITR Not Enabled',
    'INFO',
    'SECURITY',
    `${DOCS}/platform/backups#point-in-time-recovery`,
    'The database cannot be put back to any moment, but to its backups alone.',
  ],
  auth_leaked_password_protection: [
    'Leaked Password Protection Disabled',
    'WARN',
    'SECURITY',
    `${PASSWORDS}#password-strength-and-leaked-password-protection`,
    'Auth takes passwords that are known to have leaked.',
  ],
  auth_insufficient_mfa_options: [
    'Insufficient MFA Options',
    'WARN',
    'SECURITY',
    `${DOCS}/auth/auth-mfa`,
    'Users can choose between less than two second factors.',
  ],
  auth_password_policy_missing: [
    'Password Policy Missing',
    'WARN',
    'SECURITY',
    PASSWORDS,
    'Auth takes passwords of any characters.',
  ],
  no_backup_admin: [
    'No Backup Admin',
    'WARN',
    'SECURITY',
    `${DOCS}/platform/access-control`,
    'One person alone can administer the organization: if he cannot, nobody can.',
  ],
} satisfies Record<string, Text>

/** Of whether the database can be worked with. */
const OF_HEALTH = {
  db_not_reachable: [
    'Database Not Reachable',
    'ERROR',
    'HEALTH',
    CONNECTIONS,
    'Nothing answers where the database of the project should be.',
  ],
  db_connection_failing: [
    'Database Connection Failing',
    'ERROR',
    'HEALTH',
    CONNECTIONS,
    'The server of the database answers and lets nobody in.',
  ],
  db_connection_limit_reached: [
    'Database Connection Limit Reached',
    'ERROR',
    'HEALTH',
    CONNECTIONS,
    'As many sessions are open as may be: who connects is refused until one ends.',
  ],
} satisfies Record<string, Text>

/** Of why something was not looked at. */
const OF_RUN = {
  project_not_active: [
    'Project Not Active',
    'WARN',
    'HEALTH',
    STATES,
    'The project does not run, so that nothing can be said of its database.',
  ],
  advisor_check_unavailable: [
    'Advisor Check Unavailable',
    'INFO',
    'HEALTH',
    STATES,
    'What was asked for could not be checked.',
  ],
} satisfies Record<string, Text>

/** Where nothing that they would look at exists. */
const UNKNOWABLE = {
  leaked_service_key: 'nothing here looks for keys that have leaked',
  vulnerable_postgres_version: 'nothing here knows which versions of Postgres are vulnerable',
  instance_telemetry_lost: 'no telemetry of instances is kept here',
  instance_db_down: 'no telemetry of instances is kept here',
  instance_alert_firing: 'no telemetry of instances is kept here',
  log_data_api_error_rate_high: 'no Data API runs here',
  log_auth_error_rate_high: 'no Auth server runs here',
  log_storage_error_rate_high: 'no rates of errors are kept here',
  log_edge_function_error_rate_high: 'no rates of errors are kept here',
  // The four above in one, as older clients ask for them.
  log_service_error_rate_high: 'no rates of errors are kept here',
  realtime_authorization_timeouts: 'no Realtime server runs here',
  realtime_postgres_changes_spike: 'no Realtime server runs here',
  realtime_concurrent_users_near_limit: 'no Realtime server runs here',
} satisfies Record<string, string>

export type DatabaseLint = keyof typeof OF_DATABASE
export type SettingLint = keyof typeof OF_SETTINGS
export type HealthLint = keyof typeof OF_HEALTH
type UnknowableLint = keyof typeof UNKNOWABLE
/** What can be asked for. */
export type AskedLint = DatabaseLint | SettingLint | HealthLint | UnknowableLint
/** What can be answered. */
export type ToldLint = DatabaseLint | SettingLint | HealthLint | keyof typeof OF_RUN

// What an object's keys are is what its type is made of.
const namesOf = <Name extends string>(group: Record<Name, unknown>) => Object.keys(group) as Name[]

export const ASKED = namesOf({ ...OF_DATABASE, ...OF_SETTINGS, ...OF_HEALTH, ...UNKNOWABLE })
const TEXTS: Record<ToldLint, Text> = { ...OF_DATABASE, ...OF_SETTINGS, ...OF_HEALTH, ...OF_RUN }
export const TOLD = namesOf(TEXTS)

export const isOfDatabase = (lint: AskedLint): lint is DatabaseLint => lint in OF_DATABASE
export const isOfSettings = (lint: AskedLint): lint is SettingLint => lint in OF_SETTINGS
export const isOfHealth = (lint: AskedLint): lint is HealthLint => lint in OF_HEALTH

/** Undefined for what can be known. */
export const whyUnknowable = (lint: AskedLint): string | undefined =>
  Object.entries(UNKNOWABLE).find(([name]) => name === lint)?.[1]

export const textOf = (lint: ToldLint) => {
  const [title, level, category, remediation, description] = TEXTS[lint]
  return { title, level, category, remediation, description }
}

/** Those of a category; what is known of the settings alone can be left out. */
export const lintsOf = (category: Category, { settings = true } = {}): AskedLint[] =>
  ASKED.filter((lint) => isTold(lint) && textOf(lint).category === category && (settings || isOfDatabase(lint)))

const isTold = (lint: AskedLint): lint is AskedLint & ToldLint => lint in TEXTS
