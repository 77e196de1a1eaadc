import * as z from 'zod'

export const FILE_SIZE_LIMIT_MAX = 500 * 1024 ** 3

const Count = z.int().min(0)
const Feature = z.object({ enabled: z.boolean() })

export const StorageConfigReply = z
  .object({
    fileSizeLimit: z.int(),
    features: z.object({
      imageTransformation: Feature,
      s3Protocol: Feature,
      purgeCache: Feature,
      icebergCatalog: Feature.extend({ maxNamespaces: Count, maxTables: Count, maxCatalogs: Count }),
      vectorBuckets: Feature.extend({ maxBuckets: Count, maxIndexes: Count }),
    }),
    capabilities: z.object({ list_v2: z.boolean(), iceberg_catalog: z.boolean(), object_versioning: z.boolean() }),
    external: z.object({ upstreamTarget: z.enum(['main', 'canary']) }),
    migrationVersion: z.string().nullable(),
    databasePoolMode: z.string(),
  })
  .meta({ id: 'StorageConfig' })

/** Only what holds already is accepted: a feature that is absent stays absent. */
const Absent = (feature: string) => z.literal(false, `this installation has no ${feature}: must be false`)
const None = z.literal(0, 'must be 0, as the feature is absent')

export const UpdateStorageConfig = z
  .object({
    fileSizeLimit: z.int().min(0).max(FILE_SIZE_LIMIT_MAX).optional().meta({ description: 'Bytes of one object' }),
    features: z
      .object({
        imageTransformation: z.object({ enabled: Absent('image transformation') }).optional(),
        s3Protocol: z.object({ enabled: Absent('S3 protocol for clients') }).optional(),
        purgeCache: z.object({ enabled: Absent('cache to purge') }).optional(),
        icebergCatalog: z
          .object({ enabled: Absent('Iceberg catalog'), maxNamespaces: None, maxTables: None, maxCatalogs: None })
          .optional(),
        vectorBuckets: z.object({ enabled: Absent('vector buckets'), maxBuckets: None, maxIndexes: None }).optional(),
      })
      .optional()
      .meta({
        description: 'This installation has none of them: `false` and 0 are accepted, everything else is refused',
      }),
    external: z.object({ upstreamTarget: z.literal('main', 'this installation has no other upstream') }).optional(),
  })
  .meta({ id: 'UpdateStorageConfig' })

const TOLD = 'ISO 8601; `infinity`, `-infinity` or nothing where the row says so'

export const Bucket = z
  .object({
    id: z.string(),
    name: z.string(),
    owner: z.string(),
    created_at: z.string().meta({ description: TOLD }),
    updated_at: z.string().meta({ description: TOLD }),
    public: z.boolean(),
  })
  .meta({ id: 'Bucket' })
