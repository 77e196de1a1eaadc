/** Owns the objects that tenants must not change; has no other rights in any database. */
export const STORAGE_OWNER = 'supabase_storage_admin'
/** Owns the tables of `auth` on drivers where services own them. */
export const AUTH_OWNER = 'supabase_auth_admin'
/** Owns the schemas `storage` and `auth`; `supabase db reset` drops schemas that belong to other roles. */
export const SCHEMA_OWNER = 'supabase_admin'
/** Grants the storage server's login roles access to the tables. */
export const STORAGE_GROUP = 'pilothouse_storage'
/** Internal tables of the storage server; a branch starts without their rows. */
export const SERVER_TABLES = [
  'storage.removed_versions',
  'storage.used_tokens',
  'storage.resumable_parts',
  'storage.resumable_uploads',
]
