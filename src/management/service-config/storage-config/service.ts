import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { parseRows } from '../../../engine/engine.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { storageConfigOf } from '../../../services/gateway/open-project.ts'
import { runQuery } from '../../database/database/service.ts'
import { changeSettings } from '../../projects/settings/change-settings.ts'
import type { Bucket, StorageConfigReply, UpdateStorageConfig } from './schema.ts'

const UNAVAILABLE = { enabled: false }

export const getStorageConfig = (project: ProjectAccess): z.input<typeof StorageConfigReply> => ({
  ...storageConfigOf(project),
  features: {
    imageTransformation: UNAVAILABLE,
    s3Protocol: UNAVAILABLE,
    purgeCache: UNAVAILABLE,
    icebergCatalog: { ...UNAVAILABLE, maxNamespaces: 0, maxTables: 0, maxCatalogs: 0 },
    vectorBuckets: { ...UNAVAILABLE, maxBuckets: 0, maxIndexes: 0 },
  },
  capabilities: { list_v2: true, iceberg_catalog: false, object_versioning: false },
  external: { upstreamTarget: 'main' },
  // The CLI pins its local storage server to this migration, which would not know migrations of this installation.
  migrationVersion: null,
  // Connections are pooled and reused by one request after another.
  databasePoolMode: 'recycled',
})

export async function updateStorageConfig(
  ctx: Ctx,
  project: ProjectAccess,
  { fileSizeLimit }: z.output<typeof UpdateStorageConfig>,
) {
  if (fileSizeLimit === undefined) return {}
  await changeSettings(ctx, { project, area: 'storage', work: async (before) => ({ ...before, fileSizeLimit }) })
  return {}
}

/** Formats a time that the owner may set to anything: `infinity` is kept, and null becomes an empty text. */
const timeIn = (column: string) => `
  coalesce(
    case when isfinite(${column}) then to_char(${column} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
      else ${column}::text end,
    ''
  ) as ${column}`

const BUCKETS = `
  select id, name, coalesce(owner::text, '') as owner, public,
    ${timeIn('created_at')}, ${timeIn('updated_at')}
  from storage.buckets
  order by id`

const UNDEFINED_TABLE = '42P01'

/** Lists buckets. A database without the table has none. */
export async function listBuckets(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof Bucket>[]> {
  try {
    return (await parseRows(await runQuery(ctx, project, { query: BUCKETS, readOnly: true }))) as z.input<
      typeof Bucket
    >[]
  } catch (error) {
    if (error instanceof ApiError && error.extra.code === UNDEFINED_TABLE) return []
    throw error
  }
}
