import type { Statement } from '../../../engine/engine.ts'

/**
 * Every statement that the storage server sends to a project's database is in this folder. Those marked *server* run as the server, whom no
 * policy binds; the others as the caller's role. Numbers of rows and bytes come as numbers, times as text such as `2026-01-02T03:04:05.678Z`.
 */

export const time = (expression: string) => `to_char(${expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i
/** The older column can hold only the users whose ids are UUIDs. */
export const uuidOrNull = (text: string | null) => (text !== null && UUID.test(text) ? text : null)

/** One row, `{ json }`: the text of an array of the statement's rows. Many rows cost much less as one value. */
export function asJson({ text, params }: Statement): Statement {
  return { text: `SELECT coalesce(json_agg(row), '[]')::text AS json FROM (${text}) AS row`, params }
}
