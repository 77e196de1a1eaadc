import type { Statement } from '../../../engine/engine.ts'
import { UUID } from '../../../platform/identifiers.ts'

/**
 * This folder has all statements that the storage server sends to a project's database. Those marked *Server* run as the server, to which no
 * policy applies; the others as the caller's role. Counts and sizes are returned as numbers, times as text such as `2026-01-02T03:04:05.678Z`.
 */

export const time = (expression: string) => `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

/** For columns that can hold only UUIDs, such as `owner`; `owner_id` holds any text. In lower case, as Postgres returns it. */
export function uuidOrNull(text: string | null): string | null {
  const uuid = text?.toLowerCase() ?? ''
  return UUID.test(uuid) ? uuid : null
}

/** One row, `{ json }`: an array of the statement's rows as text. Many rows cost much less as one value. */
export function asJson({ text, params }: Statement): Statement {
  return { text: `SELECT coalesce(json_agg(row), '[]')::text AS json FROM (${text}) AS row`, params }
}
