import { STORAGE_GROUP, STORAGE_OWNER } from './names.ts'

/**
 * SQL for the table of used upload tokens: a signed URL allows one upload. A token's id is kept for two days after the token
 * expires, because an upload that began before may end later.
 */
export function usedTokens(): string[] {
  return [
    'CREATE TABLE IF NOT EXISTS storage.used_tokens (id uuid PRIMARY KEY, expires_at timestamptz NOT NULL)',
    `ALTER TABLE storage.used_tokens OWNER TO ${STORAGE_OWNER}`,
    `GRANT SELECT, INSERT, DELETE ON storage.used_tokens TO ${STORAGE_GROUP}`,
  ]
}
