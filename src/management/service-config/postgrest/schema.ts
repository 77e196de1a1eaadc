import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { DATA_API_DEFAULTS } from '../../../services/gateway/data-api-config.ts'

const LIST_LENGTH_MAX = 4_096
const NAME_BYTES_MAX = 63

const isName = (name: string) => name !== '' && new TextEncoder().encode(name).length <= NAME_BYTES_MAX

/** Comma-separated schema names in the format of PostgREST. An empty text disables the API. */
const SchemaNames = Text.max(LIST_LENGTH_MAX).refine(
  (text) => text === '' || text.split(',').every((name) => isName(name.trim())),
  'must be comma-separated schema names',
)
const count = (max: number) => z.int().min(0).max(max)

export const PostgrestConfig = z
  .object({
    db_schema: SchemaNames.meta({ description: 'Comma-separated schemas of the Data API; empty if it is disabled' }),
    max_rows: count(1_000_000),
    db_extra_search_path: SchemaNames,
    db_pool: count(1_000).nullable(),
    db_pool_acquisition_timeout: count(60).nullable(),
    db_pool_max_lifetime: count(3_600).nullable(),
    db_pool_max_idletime: count(60).nullable(),
  })
  .meta({ id: 'PostgrestConfig' })

export const PostgrestConfigWithSecret = PostgrestConfig.extend({
  jwt_secret: z.string().optional().meta({ description: 'Only returned to callers who may read secrets' }),
}).meta({ id: 'PostgrestConfigWithSecret' })

export const UpdatePostgrestConfig = z
  .object({
    db_schema: SchemaNames,
    max_rows: count(1_000_000),
    db_extra_search_path: SchemaNames,
    db_pool: count(1_000),
    db_pool_acquisition_timeout: count(60),
    db_pool_max_lifetime: count(3_600),
    db_pool_max_idletime: count(60),
  })
  .partial()
  .meta({ id: 'UpdatePostgrestConfig' })

export const POSTGREST_DEFAULTS: z.output<typeof PostgrestConfig> = {
  ...DATA_API_DEFAULTS,
  db_pool: null,
  db_pool_acquisition_timeout: null,
  db_pool_max_lifetime: null,
  db_pool_max_idletime: null,
}
