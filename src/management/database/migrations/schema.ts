import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'

const Query = Text.min(1)
const MigrationName = Text.max(256)
const Version = z.string().regex(/^\d{1,255}$/, 'must consist of 1 to 255 digits')

export const IdempotencyKey = Text.min(1).max(255)

export const CreateMigration = z
  .object({
    query: Query,
    name: MigrationName.optional(),
    rollback: Text.optional().meta({ description: 'SQL that undoes the query' }),
    'Idempotency-Key': IdempotencyKey.optional(),
  })
  .meta({ id: 'CreateMigration' })

export const UpdateMigration = z
  .object({ name: MigrationName.optional(), rollback: Text.optional() })
  .meta({ id: 'UpdateMigration' })

export const RollBack = z.object({ gte: Version.meta({ description: 'The first version to roll back' }) })

export const MigrationVersion = Version

export const MigrationItem = z
  .object({ version: z.string(), name: z.string().optional() })
  .meta({ id: 'MigrationItem' })

export const Migration = MigrationItem.extend({
  statements: z.array(z.string()).optional(),
  rollback: z.array(z.string()).optional(),
  created_by: z.string().optional(),
  idempotency_key: z.string().optional(),
}).meta({ id: 'Migration' })
