import { authSchema } from '../auth-schema.ts'
import { HOST_NAMES } from '../host/names.ts'
import { APP_OWNER } from '../hosted-names.ts'
import { quoteLiteral } from '../names.ts'
import { API_ROLES, READER_GROUP, STORAGE_GROUP, STORAGE_TIMEOUT } from '../roles.ts'
import { moveEarlierTables, removeEarlierRoles } from './earlier-versions.ts'
import { guard } from './guard.ts'
import { listing } from './listing.ts'
import { AUTH_OWNER, type Grantees, INTERNAL_SCHEMA, SCHEMA_OWNER, STORAGE_OWNER } from './names.ts'
import { policyHelpers } from './policy-helpers.ts'
import { removedVersions } from './removed-versions.ts'
import { resumableUploads } from './resumable-uploads.ts'
import { schemaChanges } from './schema-changes.ts'
import { tables } from './tables.ts'
import { usedTokens } from './used-tokens.ts'

/** Version of the storage schema in a project's database. Change it with every change of what drivers prepare there. */
export const STORAGE_VERSION = 'Storage, schema 15'

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

const HOST_GRANTEES: Grantees = { server: HOST_NAMES.storage, reader: HOST_NAMES.reader }

/**
 * Pins settings for the sessions of the superuser and of the storage server, which the owner's defaults must not change. The pins are only for
 * this database: a dump of the roles would contain others, and no owner of another project may set them.
 */
const PINS = [
  ...pin(SCHEMA_OWNER, { statement_timeout: '0', session_replication_role: 'origin' }),
  ...pin(STORAGE_OWNER, { statement_timeout: STORAGE_TIMEOUT, session_replication_role: 'origin' }),
]

/**
 * Refuses schemas of the platform's names that another role has created. The owner can rename a database of their own to `postgres`, where
 * nothing guards them: triggers and defaults of tables there would run with the administrator's rights. In a superuser's schema, only
 * superusers can create objects.
 */
const REFUSE_OTHER_OWNERS = ['storage', INTERNAL_SCHEMA].flatMap((schema) => [
  `CREATE SCHEMA IF NOT EXISTS ${schema}`,
  `DO $$ DECLARE owner name := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = '${schema}'); BEGIN
     IF owner <> '${SCHEMA_OWNER}' THEN
       RAISE insufficient_privilege USING MESSAGE =
         format('The schema "${schema}" belongs to the role "%s": drop or rename it, so that the platform can create its own', owner);
     END IF;
   END $$`,
])

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
  const grantees = isSuperuser ? HOST_GRANTEES : { server: STORAGE_GROUP, reader: READER_GROUP }
  const { server } = grantees
  return [
    ...(isSuperuser ? REFUSE_OTHER_OWNERS : []),
    ...tables({ leakproof: isSuperuser, tableOwner: isSuperuser ? STORAGE_OWNER : owners, grantees }),
    ...policyHelpers(),
    authSchema(isSuperuser ? AUTH_OWNER : owners, grantees),
    ...internalSchema(server),
    ...removedVersions(server),
    ...usedTokens(server),
    ...resumableUploads(server),
    ...listing(),
    ...schemaChanges({ watch: isSuperuser, server }),
    ...(isSuperuser
      ? [CUSTOM_ROLES, OWNER_ROLES, RESERVED_CONNECTIONS, ...removeEarlierRoles(), ...PINS, ...guard()]
      : []),
    `COMMENT ON SCHEMA storage IS ${quoteLiteral(STORAGE_VERSION)}`,
  ]
}

const internalSchema = (server: string): string[] => [
  `CREATE SCHEMA IF NOT EXISTS ${INTERNAL_SCHEMA}`,
  `ALTER SCHEMA ${INTERNAL_SCHEMA} OWNER TO ${SCHEMA_OWNER}`,
  `GRANT USAGE ON SCHEMA ${INTERNAL_SCHEMA} TO ${STORAGE_OWNER}, ${server}`,
  ...moveEarlierTables(),
]

function pin(role: string, settings: Readonly<Record<string, string>>): string[] {
  const pins = Object.entries(settings)
  return pins.map(([name, value]) => `ALTER ROLE ${role} IN DATABASE ${HOST_NAMES.database} SET ${name} = '${value}'`)
}
