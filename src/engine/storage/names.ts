/** Owns the objects that tenants must not change; has no other rights in any database. */
export const STORAGE_OWNER = 'supabase_storage_admin'
/** Owns the tables of `auth` on drivers where services own them. */
export const AUTH_OWNER = 'supabase_auth_admin'
/** Owns the schemas `storage` and `auth`; `supabase db reset` drops schemas that belong to other roles. */
export const SCHEMA_OWNER = 'supabase_admin'
/**
 * Schema of the tables that only the platform uses. Its name is that of the hosted service's pooler, because the CLI leaves this schema out
 * of dumps and comparisons: rows of the platform in a dump could not be loaded into another project.
 */
export const INTERNAL_SCHEMA = 'pgbouncer'
const TABLES = ['removed_versions', 'used_tokens', 'resumable_parts', 'resumable_uploads']
/** Internal tables of the storage server; a branch starts without their rows. */
export const SERVER_TABLES = TABLES.map((name) => `${INTERNAL_SCHEMA}.${name}`)
/** Names of the internal tables before version 13 of the schema. */
export const EARLIER_TABLES = [...TABLES, 'schema_changes'].map((name) => `storage.${name}`)

/** Roles that get the rights of services. */
export interface Grantees {
  /** Role of the storage server, or a group of such roles. */
  server: string
  /** Role that reads objects of the services, or a group of such roles. */
  reader: string
}
