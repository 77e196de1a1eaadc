import { STORAGE_GROUP, STORAGE_OWNER } from './names.ts'

/** A signed upload is good for one upload: its token's id stays here until the token has expired anyway. */
export function usedTokens(): string[] {
  return [
    'CREATE TABLE IF NOT EXISTS storage.used_tokens (id uuid PRIMARY KEY, expires_at timestamptz NOT NULL)',
    `ALTER TABLE storage.used_tokens OWNER TO ${STORAGE_OWNER}`,
    `GRANT SELECT, INSERT, DELETE ON storage.used_tokens TO ${STORAGE_GROUP}`,
  ]
}
