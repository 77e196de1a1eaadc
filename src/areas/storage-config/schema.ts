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

export const UpdateStorageConfig = z
  .object({
    fileSizeLimit: z.int().min(0).max(FILE_SIZE_LIMIT_MAX).optional().meta({ description: 'Bytes of one object' }),
    features: z
      .object({
        imageTransformation: Feature.optional(),
        s3Protocol: Feature.optional(),
        purgeCache: Feature.optional(),
        icebergCatalog: Feature.extend({ maxNamespaces: Count, maxTables: Count, maxCatalogs: Count }).optional(),
        vectorBuckets: Feature.extend({ maxBuckets: Count, maxIndexes: Count }).optional(),
      })
      .optional()
      .meta({ description: 'Taken without effect: this installation has none of them, and says so' }),
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
