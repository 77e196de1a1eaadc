import type * as z from 'zod'
import type { SystemCtx } from '../../../ctx.ts'
import { hashApiKey, openApiKey } from '../../../model/secrets/api-key.ts'
import type { apiKeys } from '../../../model/tables/index.ts'
import type { ApiKey } from './schema.ts'

const LEGACY_PREFIX_LENGTH = 5
const HIDDEN = '·'.repeat(26)

type Reply = z.input<typeof ApiKey>

export async function toApiKey(
  { config }: SystemCtx,
  row: typeof apiKeys.$inferSelect,
  reveal: boolean,
): Promise<Reply> {
  const { type, name, id, prefix, hash, description, insertedAt, updatedAt } = row
  // The publishable key is made to be public.
  const isShown = reveal || type === 'publishable'
  return {
    name,
    api_key: isShown ? await openApiKey(config.ENCRYPTION_KEY, row) : prefix + HIDDEN,
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

export async function toLegacyKey(role: string, key: string, isShown: boolean): Promise<Reply> {
  // Tokens all begin alike: what tells one from another is its signature.
  const signature = key.slice(key.lastIndexOf('.') + 1)
  const prefix = signature.slice(0, LEGACY_PREFIX_LENGTH)
  return {
    name: role,
    api_key: isShown ? key : prefix + HIDDEN,
    id: role,
    type: 'legacy',
    prefix,
    hash: await hashApiKey(key),
    description: `Legacy ${role} API key`,
  }
}
