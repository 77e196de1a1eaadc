import { authSchema } from '../auth-schema.ts'
import { quoteLiteral } from '../names.ts'
import { guard } from './guard.ts'
import { listing } from './listing.ts'
import { AUTH_OWNER, STORAGE_OWNER } from './names.ts'
import { policyHelpers } from './policy-helpers.ts'
import { removedVersions } from './removed-versions.ts'
import { resumableUploads } from './resumable-uploads.ts'
import { tables } from './tables.ts'
import { usedTokens } from './used-tokens.ts'

/** The version of the storage schema in a project's database; a change to it gets a new name here. */
export const STORAGE_VERSION = 'Storage, schema 7'

/** Tokens may name roles that the owner has granted to authenticator, as the Data API takes them. */
const CUSTOM_ROLES = `GRANT authenticator TO ${STORAGE_OWNER} WITH INHERIT FALSE, SET TRUE`

/** One row, whose `version` is `STORAGE_VERSION` when nothing is left to do. */
export const STORAGE_VERSION_QUERY = `SELECT obj_description(to_regnamespace('storage'), 'pg_namespace') AS version`

/**
 * For one transaction of an administrator with the search path `pg_catalog`; the shared roles must stand. Nothing here calls
 * what a tenant made, as it would run with the administrator's rights.
 *
 * The tables and what is in `auth` belong to the roles of the services, which takes a superuser, or to the owner of the
 * database: then folded names are searched without their index, as only superusers may call a function leakproof.
 */
export function storageSchema(owners: 'services' | 'pg_database_owner'): string[] {
  const isSuperuser = owners === 'services'
  return [
    ...tables({ leakproof: isSuperuser, tableOwner: isSuperuser ? STORAGE_OWNER : owners }),
    ...policyHelpers(),
    authSchema(isSuperuser ? AUTH_OWNER : owners),
    ...removedVersions(),
    ...usedTokens(),
    ...resumableUploads(),
    ...listing(),
    ...(isSuperuser ? [CUSTOM_ROLES, ...guard()] : []),
    `COMMENT ON SCHEMA storage IS ${quoteLiteral(STORAGE_VERSION)}`,
  ]
}
