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

/** Accepts only the current value of a feature that this installation lacks. */
const Unavailable = (feature: string) => z.literal(false, `this installation has no ${feature}: must be false`)
const UnavailableCount = z.literal(0, 'must be 0: this installation does not have the feature')

export const UpdateStorageConfig = z
  .object({
    fileSizeLimit: z
      .int()
      .min(0)
      .max(FILE_SIZE_LIMIT_MAX)
      .optional()
      .meta({ description: 'Maximum size of an object in bytes' }),
    features: z
      .object({
        imageTransformation: z.object({ enabled: Unavailable('image transformation') }).optional(),
        s3Protocol: z.object({ enabled: Unavailable('S3 protocol for clients') }).optional(),
        purgeCache: z.object({ enabled: Unavailable('cache to purge') }).optional(),
        icebergCatalog: z
          .object({
            enabled: Unavailable('Iceberg catalog'),
            maxNamespaces: UnavailableCount,
            maxTables: UnavailableCount,
            maxCatalogs: UnavailableCount,
          })
          .optional(),
        vectorBuckets: z
          .object({
            enabled: Unavailable('vector buckets'),
            maxBuckets: UnavailableCount,
            maxIndexes: UnavailableCount,
          })
          .optional(),
      })
      .optional()
      .meta({
        description: 'This installation has none of these features: only `false` and 0 are accepted',
      }),
    external: z
      .object({ upstreamTarget: z.literal('main', 'must be main: this installation has no other upstream') })
      .optional(),
  })
  .meta({ id: 'UpdateStorageConfig' })

const TIME_FORMAT = 'ISO 8601, `infinity` or `-infinity`; empty if the row has no time'

export const Bucket = z
  .object({
    id: z.string(),
    name: z.string(),
    owner: z.string(),
    created_at: z.string().meta({ description: TIME_FORMAT }),
    updated_at: z.string().meta({ description: TIME_FORMAT }),
    public: z.boolean(),
  })
  .meta({ id: 'Bucket' })
