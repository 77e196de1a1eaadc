import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

const BATCH_MAX = 100

/** A name of an environment variable. Programs would not see a secret with the name of a value set by the platform. */
export const SecretName = Text.min(1)
  .max(256)
  .regex(/^(?!SUPABASE_).*/, 'must not begin with SUPABASE_')
  .regex(
    /^(?!(SB_REGION|SB_EXECUTION_ID|DENO_DEPLOYMENT_ID)$).*/,
    'must not be SB_REGION, SB_EXECUTION_ID or DENO_DEPLOYMENT_ID, which the platform sets',
  )
  .regex(/^[^=]+$/, 'must not contain =')

export const CreateSecrets = z
  .array(z.object({ name: SecretName, value: Text.max(24_576) }).meta({ id: 'CreateSecret' }))
  .max(BATCH_MAX)
export type NewSecrets = z.output<typeof CreateSecrets>

export const DeleteSecrets = z.array(Text.max(256)).max(BATCH_MAX)

export const Secret = z
  .object({
    name: z.string(),
    value: z.string().meta({ description: 'SHA-256 of the value, in hex' }),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'Secret' })
