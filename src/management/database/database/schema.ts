import * as z from 'zod'
import { DatabasePassword, isDepthAtMost, Text } from '../../../platform/http/common-values.ts'

const Query = Text.min(1)
const PARAMETER_DEPTH_MAX = 100
const Parameter = z
  .unknown()
  .refine((value) => typeof value !== 'string' || value.isWellFormed(), 'must not contain lone surrogates')
  .refine(
    (value) => isDepthAtMost(value, PARAMETER_DEPTH_MAX),
    `must not nest deeper than ${PARAMETER_DEPTH_MAX} levels`,
  )
const Parameters = z.array(Parameter).max(65_535).optional()

export const RunQuery = z
  .object({ query: Query, parameters: Parameters, read_only: z.boolean().optional() })
  .meta({ id: 'RunQuery' })

export const RunReadOnlyQuery = z.object({ query: Query, parameters: Parameters }).meta({ id: 'RunReadOnlyQuery' })

export const UpdatePassword = z.object({ password: DatabasePassword }).meta({ id: 'UpdatePassword' })

export const Done = z.object({ message: z.string() }).meta({ id: 'Done' })

export const Rows = z
  .array(z.record(z.string(), z.json()))
  .meta({ id: 'Rows', description: 'Rows of the last statement' })

export const PoolerConfig = z
  .object({
    identifier: z.string(),
    database_type: z.enum(['PRIMARY', 'READ_REPLICA']),
    is_using_scram_auth: z.boolean(),
    db_user: z.string(),
    db_host: z.string(),
    db_port: z.int(),
    db_name: z.string(),
    connection_string: z.string(),
    connectionString: z.string(),
    default_pool_size: z.int().nullable(),
    max_client_conn: z.int().nullable(),
    pool_mode: z.enum(['transaction', 'session']),
  })
  .meta({ id: 'PoolerConfig' })
