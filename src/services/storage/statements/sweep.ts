import type { Statement } from '../../../engine/engine.ts'

/** *Server.* Rows `{ version, used }`: bytes that nothing pointed at any more when it was written down, up to `until`; `used` = something does now. */
export function removedVersions(until: Date, countMax: number): Statement {
  return {
    text: `SELECT r.version, EXISTS (SELECT FROM storage.objects AS o WHERE o.version = r.version) AS used
      FROM storage.removed_versions AS r WHERE r.removed_at <= $1::timestamptz ORDER BY r.version LIMIT $2::bigint`,
    params: [until.toISOString(), countMax],
  }
}

/** *Server.* One row, `{ any }`: whether there are such that wait. */
export function anyRemoved(): Statement {
  return { text: 'SELECT EXISTS (SELECT FROM storage.removed_versions) AS any', params: [] }
}

/** *Server.* Once their bytes are gone, or are used. */
export function forgetVersions(versions: readonly string[]): Statement {
  return { text: 'DELETE FROM storage.removed_versions WHERE version = ANY ($1::text[])', params: [versions] }
}

/** *Server.* Rows `{ version }`: those of the versions that an object points at, that an upload under way will, or that wait to be removed. */
export function knownVersions(versions: readonly string[]): Statement {
  return {
    text: `SELECT version FROM storage.objects WHERE version = ANY ($1::text[])
      UNION SELECT version FROM storage.removed_versions WHERE version = ANY ($1::text[])
      UNION SELECT unnest(ARRAY[id::text, tail::text]) FROM storage.resumable_uploads
       WHERE NOT ended AND (id::text = ANY ($1::text[]) OR tail::text = ANY ($1::text[]))`,
    params: [versions],
  }
}

/** *Server.* Rows `{ version }` in their order, those after `after` up to `until` (null: to the end). */
export function versionsBetween(after: string | null, until: string | null, countMax: number): Statement {
  return {
    text: `SELECT version FROM storage.objects WHERE version > coalesce($1::text, '') AND ($2::text IS NULL OR version <= $2::text)
      ORDER BY version LIMIT $3::bigint`,
    params: [after, until, countMax],
  }
}
