import type * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { hashApiKey, openApiKey } from '../../../model/secrets/api-key.ts'
import type { apiKeys } from '../../../model/tables/index.ts'
import type { ApiKey } from './schema.ts'

const LEGACY_PREFIX_LENGTH = 5
const MASK = '·'.repeat(26)

type Reply = z.input<typeof ApiKey>

export async function toApiKey(
  { config }: SystemCtx,
  row: typeof apiKeys.$inferSelect,
  reveal: boolean,
): Promise<Reply> {
  const { type, name, id, prefix, hash, description, insertedAt, updatedAt } = row
  // A publishable key is public.
  const isRevealed = reveal || type === 'publishable'
  return {
    name,
    api_key: isRevealed ? await openApiKey(config.ENCRYPTION_KEY, row) : prefix + MASK,
    id,
    type,
    prefix,
    hash,
    description,
    secret_jwt_template: row.secretJwtTemplate as Reply['secret_jwt_template'],
    inserted_at: insertedAt.toISOString(),
    updated_at: updatedAt.toISOString(),
  }
}

export async function toLegacyKey(role: string, key: string, isRevealed: boolean): Promise<Reply> {
  // JWTs start with the same header, so the prefix is taken from the signature.
  const signature = key.slice(key.lastIndexOf('.') + 1)
  const prefix = signature.slice(0, LEGACY_PREFIX_LENGTH)
  return {
    name: role,
    api_key: isRevealed ? key : prefix + MASK,
    id: role,
    type: 'legacy',
    prefix,
    hash: await hashApiKey(key),
    description: `Legacy ${role} API key`,
  }
}
