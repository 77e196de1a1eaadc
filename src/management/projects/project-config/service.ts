import type * as z from 'zod'
import { type ProjectAccess, requireTokenScope } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { projectSettings } from '../../../model/tables/index.ts'
import { effectiveConfig } from '../../database/database-settings/effective-config.ts'
import { stateOf, toAddresses } from '../../database/database-settings/networks.ts'
import { toPooler } from '../../database/database-settings/pooler.ts'
import { FIELDS, type FieldName } from '../../service-config/auth-config/fields.ts'
import { toAuthConfig } from '../../service-config/auth-config/stored-config.ts'
import { getStorageConfig } from '../../service-config/storage-config/service.ts'
import { knownMajorOf } from '../projects/convert.ts'
import { isSettingsRow } from '../settings/read-settings.ts'
import { parseSettings, type Settings } from '../settings/setting-areas.ts'
import type { ProjectConfig, Realtime } from './schema.ts'

type Attributes = z.input<typeof ProjectConfig>['data']['attributes']

/** Defaults of PostgREST. */
const DATA_API_DEFAULTS = { db_pool_acquisition_timeout: 10, db_pool_max_lifetime: 1_800, db_pool_max_idletime: 30 }

const REALTIME_DEFAULTS: z.input<typeof Realtime> = {
  private_only: false,
  max_concurrent_users: 200,
  max_events_per_second: 100,
  max_bytes_per_second: 100_000,
  max_channels_per_client: 100,
  max_joins_per_second: 100,
  max_presence_events_per_second: 1_000,
  max_payload_size_in_kb: 3_000,
  presence_enabled: false,
  suspend: false,
  connection_pool: 2,
  postgres_changes_pool: null,
}

const AREAS = ['postgres', 'pooler', 'ssl', 'network', 'auth', 'postgrest', 'realtime'] as const

/** Scopes for the settings of the database, its networks and storage; that for Auth is the permission of the route. */
const OTHER_SCOPES = ['database:read', 'projects:read', 'storage:read'] as const

/** Returns the configuration. One statement reads all rows of settings; the storage settings are in the row of the project. */
export async function getProjectConfig(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof ProjectConfig>> {
  for (const scope of OTHER_SCOPES) requireTokenScope(ctx.actor, scope)
  const rows = await ctx.db
    .select({ area: projectSettings.area, value: projectSettings.value, updatedAt: projectSettings.updatedAt })
    .from(projectSettings)
    .where(isSettingsRow(project.ref, ...AREAS))
  const stored: Partial<Record<string, unknown>> = Object.fromEntries(rows.map(({ area, value }) => [area, value]))
  const restrictedAt = rows.find(({ area }) => area === 'network')?.updatedAt
  return {
    data: {
      type: 'project_config',
      id: project.ref,
      attributes: {
        database: {
          major_version: project.postgresVersion ? Number(knownMajorOf(project.postgresVersion)) : 0,
          ssl_enforced: !ctx.engine.capabilities.plainConnections || parseSettings('ssl', stored.ssl).database,
          network_restrictions: {
            ...stateOf(ctx, restrictedAt),
            allowed_cidrs: toAddresses(parseSettings('network', stored.network)),
          },
          postgres_settings: toPostgresSettings(
            await effectiveConfig(ctx, project, parseSettings('postgres', stored.postgres)),
          ),
        },
        pooler: toPooler(parseSettings('pooler', stored.pooler)),
        auth: toAuth(parseSettings('auth', stored.auth)),
        api: toDataApi(parseSettings('postgrest', stored.postgrest)),
        realtime: { ...REALTIME_DEFAULTS, ...parseSettings('realtime', stored.realtime) },
        storage: toStorage(getStorageConfig(project)),
      },
    },
  }
}

const toPostgresSettings = (settings: Settings<'postgres'>): Attributes['database']['postgres_settings'] =>
  Object.fromEntries(Object.entries(settings).map(([name, value]) => [name.replaceAll('.', '_'), value]))

/** Converts the Auth settings. Unset fields become an empty string or false; only texts and flags have no default. */
function toAuth(stored: Settings<'auth'>): Attributes['auth'] {
  const isFlag = (name: string) => FIELDS[name as FieldName].replySchema.type === 'boolean'
  return Object.fromEntries(
    Object.entries(toAuthConfig(stored)).map(([name, value]) => [name, value ?? (isFlag(name) ? false : '')]),
  )
}

const toDataApi = (settings: Settings<'postgrest'>): Attributes['api'] => ({
  ...settings,
  db_pool_acquisition_timeout: settings.db_pool_acquisition_timeout ?? DATA_API_DEFAULTS.db_pool_acquisition_timeout,
  db_pool_max_lifetime: settings.db_pool_max_lifetime ?? DATA_API_DEFAULTS.db_pool_max_lifetime,
  db_pool_max_idletime: settings.db_pool_max_idletime ?? DATA_API_DEFAULTS.db_pool_max_idletime,
})

function toStorage(config: ReturnType<typeof getStorageConfig>): Attributes['storage'] {
  const { imageTransformation, s3Protocol, purgeCache, icebergCatalog, vectorBuckets } = config.features
  return {
    file_size_limit: config.fileSizeLimit,
    features: {
      image_transformation: imageTransformation,
      s3_protocol: s3Protocol,
      purge_cache: purgeCache,
      iceberg_catalog: {
        enabled: icebergCatalog.enabled,
        max_namespaces: icebergCatalog.maxNamespaces,
        max_tables: icebergCatalog.maxTables,
        max_catalogs: icebergCatalog.maxCatalogs,
      },
      vector_buckets: {
        enabled: vectorBuckets.enabled,
        max_buckets: vectorBuckets.maxBuckets,
        max_indexes: vectorBuckets.maxIndexes,
      },
    },
    capabilities: config.capabilities,
    upstream_target: config.external.upstreamTarget,
    migration_version: config.migrationVersion,
    database_pool_mode: config.databasePoolMode,
  }
}
