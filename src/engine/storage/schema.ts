import { authSchema } from '../auth-schema.ts'
import { APP_OWNER } from '../hosted-names.ts'
import { quoteLiteral } from '../names.ts'
import { API_ROLES } from '../roles.ts'
import { guard } from './guard.ts'
import { listing } from './listing.ts'
import { AUTH_OWNER, SCHEMA_OWNER, STORAGE_OWNER } from './names.ts'
import { policyHelpers } from './policy-helpers.ts'
import { removedVersions } from './removed-versions.ts'
import { resumableUploads } from './resumable-uploads.ts'
import { schemaChanges } from './schema-changes.ts'
import { tables } from './tables.ts'
import { usedTokens } from './used-tokens.ts'

/** Version of the storage schema in a project's database. Change it with every change of what drivers prepare there. */
export const STORAGE_VERSION = 'Storage, schema 12'

/** Lets tokens use the roles that the owner has granted to `authenticator`, as in the Data API. */
const CUSTOM_ROLES = `GRANT authenticator TO ${STORAGE_OWNER} WITH INHERIT FALSE, SET TRUE`

/**
 * Lets the owner change the settings of these roles and grant them to others, as on the hosted service. Postgres requires the ADMIN
 * option for both. It includes the right to set their passwords, so gateways of database hosts refuse logins as these roles.
 */
const OWNER_ROLES = `GRANT ${API_ROLES.join(', ')}, authenticator TO ${APP_OWNER} WITH ADMIN TRUE, INHERIT TRUE, SET TRUE`

/**
 * The gateway keeps clients from the reserved connections, so only the API uses them, also as the owner. Two of these roles are NOINHERIT:
 * without the option, Postgres refuses them the connections.
 */
const RESERVED_CONNECTIONS = `GRANT pg_use_reserved_connections
  TO ${APP_OWNER}, authenticator, ${STORAGE_OWNER}, ${AUTH_OWNER}, supabase_read_only_user WITH INHERIT TRUE`

/**
 * Refuses a schema `storage` that another role has created. The owner can rename a database of their own to `postgres`, where nothing
 * guards the schema: triggers and defaults of tables there would run with the administrator's rights. In a superuser's schema, only
 * superusers can create objects.
 */
const REFUSE_OTHER_OWNER = [
  'CREATE SCHEMA IF NOT EXISTS storage',
  `DO $$ DECLARE owner name := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'storage'); BEGIN
     IF owner <> '${SCHEMA_OWNER}' THEN
       RAISE insufficient_privilege USING MESSAGE =
         format('The schema "storage" belongs to the role "%s": drop or rename it, so that the platform can create its own', owner);
     END IF;
   END $$`,
]

/** Returns one row; its `version` is `STORAGE_VERSION` if the schema is up to date. */
export const STORAGE_VERSION_QUERY = `SELECT obj_description(to_regnamespace('storage'), 'pg_namespace') AS version`

/**
 * Statements that create or upgrade the storage schema, for one transaction of an administrator with the search path
 * `pg_catalog`; the shared roles must exist. They must not call a tenant's functions, which would run with the
 * administrator's rights.
 *
 * The tables and the objects of `auth` belong to the roles of the services, which needs a superuser, or to the owner of the
 * database. In the second case searches by folded name use no index, because only superusers may define leakproof functions.
 */
export function storageSchema(owners: 'services' | 'pg_database_owner'): string[] {
  const isSuperuser = owners === 'services'
  return [
    ...(isSuperuser ? REFUSE_OTHER_OWNER : []),
    ...tables({ leakproof: isSuperuser, tableOwner: isSuperuser ? STORAGE_OWNER : owners }),
    ...policyHelpers(),
    authSchema(isSuperuser ? AUTH_OWNER : owners),
    ...removedVersions(),
    ...usedTokens(),
    ...resumableUploads(),
    ...listing(),
    ...schemaChanges({ watch: isSuperuser }),
    ...(isSuperuser ? [CUSTOM_ROLES, OWNER_ROLES, RESERVED_CONNECTIONS, ...guard()] : []),
    `COMMENT ON SCHEMA storage IS ${quoteLiteral(STORAGE_VERSION)}`,
  ]
}
