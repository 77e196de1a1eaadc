/** Owns what tenants must not change; has no right to anything else, in any database. */
export const STORAGE_OWNER = 'supabase_storage_admin'
/** Owns the tables of `auth` where they belong to services. */
export const AUTH_OWNER = 'supabase_auth_admin'
/**
 * Owns the schemas `storage` and `auth`: the command line, where it resets a database, drops all others that a user may
 * have made.
 */
export const SCHEMA_OWNER = 'supabase_admin'
/** Opens the tables to the login roles that the storage server uses. */
export const STORAGE_GROUP = 'pilothouse_storage'
/** Tables of the storage server's own: a branch begins without their rows. */
export const SERVER_TABLES = [
  'storage.removed_versions',
  'storage.used_tokens',
  'storage.resumable_parts',
  'storage.resumable_uploads',
]
