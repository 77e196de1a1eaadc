import { appRightsInside } from '../app-roles.ts'
import { authSchema } from '../auth-schema.ts'
import { quoteLiteral } from '../names.ts'
import { listing } from './listing.ts'
import { policyHelpers } from './policy-helpers.ts'
import { removedVersions } from './removed-versions.ts'
import { resumableUploads } from './resumable-uploads.ts'
import { tables } from './tables.ts'
import { usedTokens } from './used-tokens.ts'

/** What storage is in a project's database; a change to it gets a new name here. */
export const STORAGE_VERSION = 'Storage, schema 4'

/** One row, whose `version` is `STORAGE_VERSION` when nothing is left to do. */
export const STORAGE_VERSION_QUERY = `SELECT obj_description(to_regnamespace('storage'), 'pg_namespace') AS version`

/**
 * For one transaction of a superuser with the search path `pg_catalog`, in the template or in any project's database;
 * the shared roles must stand. Nothing here calls what a tenant made, as it would run with a superuser's rights.
 * Without a superuser, one who may do all that the roles here may: then folded names are searched without their index.
 */
export function storageSchema({ superuser = true }: { superuser?: boolean } = {}): string[] {
  return [
    ...tables({ leakproof: superuser }),
    ...policyHelpers(),
    authSchema(),
    appRightsInside(),
    ...removedVersions(),
    ...usedTokens(),
    ...resumableUploads(),
    ...listing(),
    `COMMENT ON SCHEMA storage IS ${quoteLiteral(STORAGE_VERSION)}`,
  ]
}
