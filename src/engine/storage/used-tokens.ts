import { INTERNAL_SCHEMA, STORAGE_OWNER } from './names.ts'

/**
 * SQL for the table of used upload tokens: a signed URL allows one upload. A token's id is kept for two days after the token
 * expires, because an upload that began before may end later.
 */
export function usedTokens(server: string): string[] {
  return [
    `CREATE TABLE IF NOT EXISTS ${INTERNAL_SCHEMA}.used_tokens (id uuid PRIMARY KEY, expires_at timestamptz NOT NULL)`,
    `ALTER TABLE ${INTERNAL_SCHEMA}.used_tokens OWNER TO ${STORAGE_OWNER}`,
    `GRANT SELECT, INSERT, DELETE ON ${INTERNAL_SCHEMA}.used_tokens TO ${server}`,
  ]
}
