import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { INSTALLATION_VARIABLES } from '../../../services/runtime/environment.ts'

const BATCH_MAX = 100

const PREFIX = 'SUPABASE_'
/** Names without the prefix that the platform sets; the last one for functions alone. */
const TAKEN = [...INSTALLATION_VARIABLES.filter((name) => !name.startsWith(PREFIX)), 'DENO_DEPLOYMENT_ID']

/** A name of an environment variable. Names that the platform sets are refused: programs would see the platform's value. */
export const SecretName = Text.min(1)
  .max(256)
  .regex(new RegExp(`^(?!${PREFIX}).*`), `must not begin with ${PREFIX}`)
  .regex(new RegExp(`^(?!(${TAKEN.join('|')})$).*`), `must not be ${TAKEN.join(' or ')}, which the platform sets`)
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
