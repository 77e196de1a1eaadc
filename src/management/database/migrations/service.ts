import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { splitStatements } from '../../../engine/split-statements.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { mutate } from '../../kernel/mutate.ts'
import { checkStatus } from '../../projects/projects/status.ts'
import { throwApiError } from '../database/service.ts'
import {
  findMigration,
  listVersions,
  type NewMigration,
  recordMigration,
  rollBack,
  runMigration,
  updateRecord,
} from './history.ts'
import {
  type CreateMigration,
  IdempotencyKey,
  type Migration,
  type MigrationItem,
  type UpdateMigration,
} from './schema.ts'

interface Request {
  body: z.output<typeof CreateMigration>
  idempotencyKey?: string | undefined
}

export async function listMigrations(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof MigrationItem>[]> {
  const versions = await withDatabase(project, () => listVersions(ctx, project))
  return versions.map(withoutNulls)
}

export async function getMigration(ctx: Ctx, project: ProjectAccess, version: string) {
  const found = await withDatabase(project, () => findMigration(ctx, project, version))
  if (!found) throw new ApiError('not_found.migration')
  return withoutNulls(found) as z.input<typeof Migration>
}

export async function createMigration(ctx: Ctx, project: ProjectAccess, request: Request): Promise<void> {
  const migration = toMigration(ctx, request)
  const version = await withDatabase(project, () => runMigration(ctx, project, migration))
  if (version === undefined) throw new ApiError('conflict.idempotency_key')
  if (version !== null) await traceChange(ctx, project, 'apply', { version })
}

export async function upsertMigration(ctx: Ctx, project: ProjectAccess, request: Request): Promise<void> {
  const migration = toMigration(ctx, request)
  const version = await withDatabase(project, () => recordMigration(ctx, project, migration))
  await traceChange(ctx, project, 'record', { version })
}

export async function updateMigration(
  ctx: Ctx,
  project: ProjectAccess,
  change: { version: string } & z.output<typeof UpdateMigration>,
): Promise<void> {
  const found = await withDatabase(project, () => updateRecord(ctx, project, change))
  if (!found) throw new ApiError('not_found.migration')
  await traceChange(ctx, project, 'update', { version: change.version })
}

const LISTED_MAX = 10

export async function rollBackMigrations(ctx: Ctx, project: ProjectAccess, from: string): Promise<void> {
  const { count, irreversible } = await withDatabase(project, () => rollBack(ctx, project, from))
  if (count > 0) await traceChange(ctx, project, 'rollback', { from, count })
  if (irreversible.length === 0) return
  const more = irreversible.length > LISTED_MAX ? ` and ${irreversible.length - LISTED_MAX} more` : ''
  throw new ApiError('bad_request.migration_without_rollback', {
    detail: `${irreversible.slice(0, LISTED_MAX).join(', ')}${more}; nothing was rolled back`,
  })
}

/** Writes the audit entry of a committed change. The change is in the database of the project, so no transaction has both. */
const traceChange = (
  ctx: Ctx,
  project: ProjectAccess,
  verb: 'apply' | 'record' | 'update' | 'rollback',
  detail: Record<string, unknown>,
): Promise<void> => mutate(ctx, ({ trace }) => trace({ project, action: `migration.${verb}`, detail }))

async function withDatabase<Value>(project: ProjectAccess, work: () => Promise<Value>): Promise<Value> {
  checkStatus(project.status)
  return work().catch(throwApiError)
}

function toMigration({ actor }: Ctx, { body, idempotencyKey: header }: Request): NewMigration {
  const { query, name, rollback, 'Idempotency-Key': key = header } = body
  const parsed = IdempotencyKey.optional().safeParse(header)
  if (!parsed.success || (header !== undefined && header !== key)) {
    const message = parsed.success ? 'must equal the Idempotency-Key in the body' : 'must have 1 to 255 characters'
    throw invalidField('header.idempotency-key', message)
  }
  const statements = splitStatements(query)
  return { statements, name, rollback, createdBy: actor.primaryEmail, idempotencyKey: key }
}

/** Drops null values: clients reject null and treat an absent key as unknown. */
const withoutNulls = <Row extends object>(row: Row) =>
  Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null)) as {
    [Key in keyof Row]: Exclude<Row[Key], null>
  }
