import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

export const GenerateTypes = z.object({
  included_schemas: Text.max(10_000)
    .default('public')
    .meta({ description: 'Names of schemas, separated by commas; what is no schema is passed over' }),
})

export const GeneratedTypes = z.object({ types: z.string() }).meta({ id: 'GeneratedTypes' })

/** One schema, which has to be there. */
export const DatabaseOpenApiQuery = z.object({ schema: Text.min(1).max(256).default('public') })

export const DatabaseOpenApi = z
  .record(z.string(), z.unknown())
  .meta({ id: 'DatabaseOpenApi', description: 'A document in the form of Swagger 2.0' })

const Named = z.object({ name: z.string() })

export const DatabaseContext = z
  .object({ databases: z.array(Named.extend({ schemas: z.array(Named) })) })
  .meta({ id: 'DatabaseContext' })
