import * as z from 'zod'
import { Ref } from '../../../platform/http/common-values.ts'

const Enabled = z.object({ enabled: z.boolean() })

const Database = z.object({
  major_version: z.int(),
  ssl_enforced: z.boolean(),
  network_restrictions: z.object({
    entitlement: z.enum(['disallowed', 'allowed']),
    status: z.enum(['stored', 'applied']),
    allowed_cidrs: z.array(z.object({ address: z.string(), type: z.enum(['v4', 'v6']) })),
    updated_at: z.iso.datetime().optional(),
    applied_at: z.iso.datetime().optional(),
  }),
  postgres_settings: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).meta({
    description:
      'The effective values, defaults included; for an inactive project, only the stored values. A dot in a name is written as `_`',
  }),
})

const Pooler = z.object({
  pool_mode: z.enum(['transaction', 'session', 'statement']),
  ignore_startup_parameters: z.string(),
  server_idle_timeout: z.int(),
  server_lifetime: z.int(),
  query_wait_timeout: z.int(),
  reserve_pool_size: z.int(),
  default_pool_size: z.int(),
  max_client_conn: z.int(),
})

const DataApi = z.object({
  db_schema: z.string(),
  db_extra_search_path: z.string(),
  max_rows: z.int(),
  db_pool_acquisition_timeout: z.int(),
  db_pool_max_lifetime: z.int(),
  db_pool_max_idletime: z.int(),
  db_pool: z.int().nullable(),
})

export const Realtime = z.object({
  private_only: z.boolean(),
  max_concurrent_users: z.int(),
  max_events_per_second: z.int(),
  max_bytes_per_second: z.int(),
  max_channels_per_client: z.int(),
  max_joins_per_second: z.int(),
  max_presence_events_per_second: z.int(),
  max_payload_size_in_kb: z.int(),
  presence_enabled: z.boolean(),
  suspend: z.boolean(),
  connection_pool: z.int(),
  postgres_changes_pool: z.int().nullable(),
})

const Storage = z.object({
  file_size_limit: z.int(),
  features: z.object({
    image_transformation: Enabled,
    s3_protocol: Enabled,
    purge_cache: Enabled,
    iceberg_catalog: Enabled.extend({ max_namespaces: z.int(), max_tables: z.int(), max_catalogs: z.int() }),
    vector_buckets: Enabled.extend({ max_buckets: z.int(), max_indexes: z.int() }),
  }),
  capabilities: z.object({ list_v2: z.boolean(), iceberg_catalog: z.boolean(), object_versioning: z.boolean() }),
  upstream_target: z.enum(['main', 'canary']),
  migration_version: z.string().nullable(),
  database_pool_mode: z.string(),
})

const Auth = z
  .record(z.string(), z.union([z.string(), z.number(), z.boolean()]))
  .meta({ description: 'The fields of `/v1/projects/{ref}/config/auth`; an unset field is an empty string or false' })

export const ProjectConfig = z
  .object({
    data: z.object({
      type: z.literal('project_config'),
      id: Ref,
      attributes: z.object({
        database: Database,
        pooler: Pooler,
        auth: Auth,
        api: DataApi,
        realtime: Realtime,
        storage: Storage,
      }),
    }),
  })
  .meta({ id: 'ProjectConfig' })
