import type { Statement } from '../../../engine/engine.ts'
import { INTERNAL_SCHEMA } from '../../../engine/storage/names.ts'

/** *Server.* Fails with 23505 (`used_tokens_pkey`) if the token was used before. */
export function useToken({ id, expires }: { id: string; expires: Date }): Statement {
  return {
    text: `INSERT INTO ${INTERNAL_SCHEMA}.used_tokens (id, expires_at) VALUES ($1::uuid, $2::timestamptz)`,
    params: [id, expires.toISOString()],
  }
}

/** *Server.* One row, `{ used }`. */
export function isTokenUsed({ id }: { id: string }): Statement {
  return {
    text: `SELECT EXISTS (SELECT FROM ${INTERNAL_SCHEMA}.used_tokens WHERE id = $1::uuid) AS used`,
    params: [id],
  }
}

/** *Server.* Deletes tokens two days after their expiry: an upload that began before it uses its token up to a day and one request later. */
export function deleteExpiredTokens(): Statement {
  return { text: `DELETE FROM ${INTERNAL_SCHEMA}.used_tokens WHERE expires_at < now() - interval '2 days'`, params: [] }
}
