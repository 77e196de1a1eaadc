import { and, asc, count, eq, isNull, sql } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { newApiKey, sealApiKey } from '../../../model/secrets/api-key.ts'
import { apiKeys } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { incrementSecretsGeneration } from '../../programs/secrets/service.ts'
import { toApiKey } from './convert.ts'
import { listLegacyKeys } from './legacy-keys.ts'
import type { CreateApiKey, DeleteApiKeyQuery, UpdateApiKey } from './schema.ts'

/** The maximum number of keys per project: each server and each program of the project loads all of them. */
export const KEYS_MAX = 100
/** The maximum length of the claims of all keys of a project, as Postgres formats them. */
export const CLAIMS_CHARACTERS_MAX = 64 * 1024
const NAME_TAKEN = 'api_keys_name_once'
const SECRET_KEYS_ONLY = 'must be absent: only secret keys have claims'
const SECRET_TEMPLATE = { role: 'service_role' }

type Row = typeof apiKeys.$inferSelect

const isActive = (ref: string) => and(eq(apiKeys.projectRef, ref), isNull(apiKeys.deletedAt))
const isActiveKey = (ref: string, id: string) => and(eq(apiKeys.id, id), isActive(ref))

export async function listApiKeys(ctx: Ctx, project: ProjectAccess, reveal: boolean) {
  const [legacy, rows] = await Promise.all([
    listLegacyKeys(ctx, project, reveal),
    ctx.db
      .select()
      .from(apiKeys)
      .where(isActive(project.ref))
      .orderBy(asc(apiKeys.type), asc(apiKeys.insertedAt), asc(apiKeys.id)),
  ])
  return [...legacy, ...(await Promise.all(rows.map((row) => toApiKey(ctx, row, reveal))))]
}

export async function getApiKey(ctx: Ctx, { ref }: ProjectAccess, id: string, reveal: boolean) {
  const [row] = await ctx.db.select().from(apiKeys).where(isActiveKey(ref, id))
  if (!row) throw new ApiError('not_found.api_key')
  return toApiKey(ctx, row, reveal)
}

type NewKey = Pick<Row, 'type' | 'name'> & Partial<Pick<Row, 'description' | 'secretJwtTemplate'>>

async function newRow(ctx: SystemCtx, ref: string, { type, name, description, secretJwtTemplate }: NewKey) {
  const apiKey = await newApiKey(ref, type)
  const at = ctx.now()
  return {
    projectRef: ref,
    type,
    name,
    description: description ?? null,
    prefix: apiKey.prefix,
    hash: apiKey.hash,
    sealedKey: await sealApiKey(ctx.config.ENCRYPTION_KEY, apiKey),
    secretJwtTemplate: type === 'secret' ? (secretJwtTemplate ?? SECRET_TEMPLATE) : null,
    insertedAt: at,
    updatedAt: at,
  }
}

/** Creates the keys of a new project. `insertKeys` stores them. */
export const newDefaultKeys = (ctx: SystemCtx, ref: string) =>
  Promise.all((['publishable', 'secret'] as const).map((type) => newRow(ctx, ref, { type, name: 'default' })))

export async function insertKeys(tx: Writer, keys: Awaited<ReturnType<typeof newDefaultKeys>>): Promise<void> {
  await tx.insert(apiKeys).values(keys)
}

export async function createApiKey(
  ctx: Ctx,
  project: ProjectAccess,
  { type, name, description, secret_jwt_template: template }: z.output<typeof CreateApiKey>,
  reveal: boolean,
) {
  if (type === 'publishable' && template) throw invalidTemplate(SECRET_KEYS_ONLY)
  const row = await newRow(ctx, project.ref, {
    type,
    name,
    description: description ?? null,
    secretJwtTemplate: template ?? null,
  })
  const created = await changeProject(ctx, project, async (mutation) => {
    const inserted = requireRow(
      await mutation.tx
        .insert(apiKeys)
        .values(row)
        .returning()
        .catch((error) => rejectTakenName(error, name)),
    )
    await requireKeyQuota(mutation, project.ref)
    await incrementSecretsGeneration(mutation, project.ref)
    await mutation.record('api_key.create', { id: inserted.id, type, name })
    return inserted
  })
  return toApiKey(ctx, created, reveal)
}

/** Checks the limits after the write, which is safe because changes of a project's keys are serialized. */
async function requireKeyQuota({ tx }: Mutation, ref: string): Promise<void> {
  const claims = sql<number>`coalesce(sum(length(${apiKeys.secretJwtTemplate}::text)), 0)::int`
  const [totals] = await tx.select({ keys: count(), claims }).from(apiKeys).where(isActive(ref))
  if (!totals) throw new Error('count() returned no row')
  if (totals.keys > KEYS_MAX)
    throw new ApiError('bad_request.api_keys', { detail: `a project can have at most ${KEYS_MAX}` })
  if (totals.claims <= CLAIMS_CHARACTERS_MAX) return
  throw invalidTemplate(
    `is too long: the claims of all keys together have ${totals.claims} characters, at most ${CLAIMS_CHARACTERS_MAX} are allowed`,
  )
}

interface Update {
  id: string
  body: z.output<typeof UpdateApiKey>
  reveal: boolean
}

export async function updateApiKey(ctx: Ctx, project: ProjectAccess, { id, body, reveal }: Update) {
  const { name, description, secret_jwt_template: template } = body
  const updated = await changeProject(ctx, project, async (mutation) => {
    const [before] = await mutation.tx.select().from(apiKeys).where(isActiveKey(project.ref, id))
    if (!before) throw new ApiError('not_found.api_key')
    if (before.type === 'publishable' && template) throw invalidTemplate(SECRET_KEYS_ONLY)
    const changes = {
      ...(name !== undefined && { name }),
      ...(description !== undefined && { description }),
      ...(template !== undefined && before.type === 'secret' && { secretJwtTemplate: template ?? SECRET_TEMPLATE }),
    }
    const fields = Object.keys(changes)
    if (fields.length === 0) return before
    const [row] = await mutation.tx
      .update(apiKeys)
      .set({ ...changes, updatedAt: ctx.now() })
      .where(eq(apiKeys.id, id))
      .returning()
      .catch((error) => rejectTakenName(error, name ?? before.name))
    if (!row) throw new Error('the API key was deleted despite the project lock')
    if (template !== undefined) await requireKeyQuota(mutation, project.ref)
    if (name !== undefined) await incrementSecretsGeneration(mutation, project.ref)
    await mutation.record('api_key.update', { id, fields })
    return row
  })
  return toApiKey(ctx, updated, reveal)
}

/** Soft-deletes a key: the row keeps the sealed key and the time and reason of the deletion. */
export async function deleteApiKey(
  ctx: Ctx,
  project: ProjectAccess,
  id: string,
  { reveal, was_compromised: wasCompromised, reason }: z.output<typeof DeleteApiKeyQuery>,
) {
  const deleted = await changeProject(ctx, project, async (mutation) => {
    const [row] = await mutation.tx
      .update(apiKeys)
      .set({ deletedAt: ctx.now(), wasCompromised: wasCompromised ?? null, deletionReason: reason ?? null })
      .where(isActiveKey(project.ref, id))
      .returning()
    if (!row) throw new ApiError('not_found.api_key')
    await incrementSecretsGeneration(mutation, project.ref)
    const { type, name } = row
    const detail = { id, type, name, ...(wasCompromised !== undefined && { was_compromised: wasCompromised }) }
    await mutation.record('api_key.delete', detail)
    if (wasCompromised) await publishLeak(mutation, project, name)
    return row
  })
  return toApiKey(ctx, deleted, reveal)
}

const publishLeak = ({ publish }: Mutation, project: ProjectAccess, name: string) =>
  publish({
    type: 'v1.project.secrets.leaked',
    organization: { id: project.organizationId, slug: project.organizationSlug },
    projectRef: project.ref,
    fields: { secrets: [{ name, url: null }] },
  })

const invalidTemplate = (message: string) => invalidField('body.secret_jwt_template', message, 'refused')

function rejectTakenName(error: unknown, name: string): never {
  if (uniqueViolation(error) === NAME_TAKEN) throw new ApiError('conflict.api_key_name', { detail: name, cause: error })
  throw error
}
