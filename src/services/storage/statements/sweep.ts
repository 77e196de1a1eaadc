import type { Statement } from '../../../engine/engine.ts'
import { INTERNAL_SCHEMA } from '../../../engine/storage/names.ts'

/** *Server.* Rows `{ version, used }`: versions that were recorded as removed by `until`; `used` if an object refers to one again. */
export function removedVersions(until: Date, countMax: number): Statement {
  return {
    text: `SELECT r.version, EXISTS (SELECT FROM storage.objects AS o WHERE o.version = r.version) AS used
      FROM ${INTERNAL_SCHEMA}.removed_versions AS r WHERE r.removed_at <= $1::timestamptz ORDER BY r.version LIMIT $2::bigint`,
    params: [until.toISOString(), countMax],
  }
}

/** *Server.* One row, `{ any }`: whether any version is recorded as removed. */
export function anyRemoved(): Statement {
  return { text: `SELECT EXISTS (SELECT FROM ${INTERNAL_SCHEMA}.removed_versions) AS any`, params: [] }
}

/** *Server.* Deletes the records of removed versions, once their bytes are deleted or in use. */
export function deleteVersionRecords(versions: readonly string[]): Statement {
  return {
    text: `DELETE FROM ${INTERNAL_SCHEMA}.removed_versions WHERE version = ANY ($1::text[])`,
    params: [versions],
  }
}

/** *Server.* Rows `{ version }`: those of the versions that belong to an object or an unfinished upload, or are recorded as removed. */
export function knownVersions(versions: readonly string[]): Statement {
  return {
    text: `SELECT version FROM storage.objects WHERE version = ANY ($1::text[])
      UNION SELECT version FROM ${INTERNAL_SCHEMA}.removed_versions WHERE version = ANY ($1::text[])
      UNION SELECT unnest(ARRAY[id::text, tail::text]) FROM ${INTERNAL_SCHEMA}.resumable_uploads
       WHERE NOT ended AND (id::text = ANY ($1::text[]) OR tail::text = ANY ($1::text[]))`,
    params: [versions],
  }
}

/** *Server.* Rows `{ version }` in order, after `after` up to and including `until` (null: to the end). */
export function versionsBetween(after: string | null, until: string | null, countMax: number): Statement {
  return {
    text: `SELECT version FROM storage.objects WHERE version > coalesce($1::text, '') AND ($2::text IS NULL OR version <= $2::text)
      ORDER BY version LIMIT $3::bigint`,
    params: [after, until, countMax],
  }
}
