import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

export const GenerateTypes = z.object({
  included_schemas: Text.max(10_000)
    .default('public')
    .meta({ description: 'Comma-separated schema names; unknown names are ignored' }),
})

export const GeneratedTypes = z.object({ types: z.string() }).meta({ id: 'GeneratedTypes' })

/** A single schema, which must exist. */
export const DatabaseOpenApiQuery = z.object({ schema: Text.min(1).max(256).default('public') })

export const DatabaseOpenApi = z
  .record(z.string(), z.unknown())
  .meta({ id: 'DatabaseOpenApi', description: 'A Swagger 2.0 document' })

const Named = z.object({ name: z.string() })

export const DatabaseContext = z
  .object({ databases: z.array(Named.extend({ schemas: z.array(Named) })) })
  .meta({ id: 'DatabaseContext' })
