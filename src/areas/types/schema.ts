import * as z from 'zod'
import { Text } from '../../http/values.ts'

export const GenerateTypes = z.object({
  included_schemas: Text.max(10_000)
    .default('public')
    .meta({ description: 'Names of schemas, separated by commas; what is no schema is passed over' }),
})

export const GeneratedTypes = z.object({ types: z.string() }).meta({ id: 'GeneratedTypes' })

const Named = z.object({ name: z.string() })

export const DatabaseContext = z
  .object({ databases: z.array(Named.extend({ schemas: z.array(Named) })) })
  .meta({ id: 'DatabaseContext' })
