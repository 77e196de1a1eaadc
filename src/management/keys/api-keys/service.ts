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
import type { Mutation } from '../../kernel/mutate.ts'
import { countChange } from '../../programs/secrets/service.ts'
import { changeKeys } from './change-keys.ts'
import { toApiKey } from './convert.ts'
import { listLegacyKeys } from './legacy-keys.ts'
import type { CreateApiKey, DeleteApiKeyQuery, UpdateApiKey } from './schema.ts'

/** All of a project's are held by whoever serves it, and by each of its programs. */
export const KEYS_MAX = 100
/** Of all keys of a project, as Postgres writes them. */
export const CLAIMS_CHARACTERS_MAX = 64 * 1024
const NAME_TAKEN = 'api_keys_name_once'
const FOR_SECRET_KEYS = 'is for secret keys alone'
const SECRET_TEMPLATE = { role: 'service_role' }

type Row = typeof apiKeys.$inferSelect

const liveOf = (ref: string) => and(eq(apiKeys.projectRef, ref), isNull(apiKeys.deletedAt))
const liveById = (ref: string, id: string) => and(eq(apiKeys.id, id), liveOf(ref))

export async function listApiKeys(ctx: Ctx, project: ProjectAccess, reveal: boolean) {
  const [legacy, rows] = await Promise.all([
    listLegacyKeys(ctx, project, reveal),
    ctx.db
      .select()
      .from(apiKeys)
      .where(liveOf(project.ref))
      .orderBy(asc(apiKeys.type), asc(apiKeys.insertedAt), asc(apiKeys.id)),
  ])
  return [...legacy, ...(await Promise.all(rows.map((row) => toApiKey(ctx, row, reveal))))]
}

export async function getApiKey(ctx: Ctx, { ref }: ProjectAccess, id: string, reveal: boolean) {
  const [row] = await ctx.db.select().from(apiKeys).where(liveById(ref, id))
  if (!row) throw new ApiError('not_found.api_key')
  return toApiKey(ctx, row, reveal)
}

type NewKey = Pick<Row, 'type' | 'name'> & Partial<Pick<Row, 'description' | 'secretJwtTemplate'>>

async function newRow(ctx: SystemCtx, ref: string, { type, name, description, secretJwtTemplate }: NewKey) {
  const made = await newApiKey(ref, type)
  const at = ctx.now()
  return {
    projectRef: ref,
    type,
    name,
    description: description ?? null,
    prefix: made.prefix,
    hash: made.hash,
    sealedKey: await sealApiKey(ctx.config.ENCRYPTION_KEY, made),
    secretJwtTemplate: type === 'secret' ? (secretJwtTemplate ?? SECRET_TEMPLATE) : null,
    insertedAt: at,
    updatedAt: at,
  }
}

/** What every project begins with. */
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
  if (type === 'publishable' && template) throw refuseTemplate(FOR_SECRET_KEYS)
  const row = await newRow(ctx, project.ref, {
    type,
    name,
    description: description ?? null,
    secretJwtTemplate: template ?? null,
  })
  const created = await changeKeys(ctx, project, async (mutation) => {
    const inserted = requireRow(
      await mutation.tx
        .insert(apiKeys)
        .values(row)
        .returning()
        .catch((error) => rejectTakenName(error, name)),
    )
    await requireRoom(mutation, project.ref)
    await countChange(mutation, project.ref)
    await mutation.trace({ ...subject(project), action: 'api_key.create', detail: { id: inserted.id, type, name } })
    return inserted
  })
  return toApiKey(ctx, created, reveal)
}

/** Counted with what has just been written: changes of a project's keys wait for each other. */
async function requireRoom({ tx }: Mutation, ref: string): Promise<void> {
  const claims = sql<number>`coalesce(sum(length(${apiKeys.secretJwtTemplate}::text)), 0)::int`
  const [held] = await tx.select({ keys: count(), claims }).from(apiKeys).where(liveOf(ref))
  if (!held) throw new Error('a count without a row')
  if (held.keys > KEYS_MAX) throw new ApiError('bad_request.api_keys', { detail: `at most ${KEYS_MAX}` })
  if (held.claims <= CLAIMS_CHARACTERS_MAX) return
  throw refuseTemplate(
    `is too long: the claims of all keys have ${held.claims} characters together, and may have ${CLAIMS_CHARACTERS_MAX}`,
  )
}

interface Update {
  id: string
  body: z.output<typeof UpdateApiKey>
  reveal: boolean
}

export async function updateApiKey(ctx: Ctx, project: ProjectAccess, { id, body, reveal }: Update) {
  const { name, description, secret_jwt_template: template } = body
  const updated = await changeKeys(ctx, project, async (mutation) => {
    const [before] = await mutation.tx.select().from(apiKeys).where(liveById(project.ref, id))
    if (!before) throw new ApiError('not_found.api_key')
    if (before.type === 'publishable' && template) throw refuseTemplate(FOR_SECRET_KEYS)
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
    if (!row) throw new Error('the key is locked with its project, and gone')
    if (template !== undefined) await requireRoom(mutation, project.ref)
    if (name !== undefined) await countChange(mutation, project.ref)
    await mutation.trace({ ...subject(project), action: 'api_key.update', detail: { id, fields } })
    return row
  })
  return toApiKey(ctx, updated, reveal)
}

/** The key itself stays sealed in its row, which says who did this when, and why. */
export async function deleteApiKey(
  ctx: Ctx,
  project: ProjectAccess,
  id: string,
  { reveal, was_compromised: wasCompromised, reason }: z.output<typeof DeleteApiKeyQuery>,
) {
  const deleted = await changeKeys(ctx, project, async (mutation) => {
    const [row] = await mutation.tx
      .update(apiKeys)
      .set({ deletedAt: ctx.now(), wasCompromised: wasCompromised ?? null, deletionReason: reason ?? null })
      .where(liveById(project.ref, id))
      .returning()
    if (!row) throw new ApiError('not_found.api_key')
    await countChange(mutation, project.ref)
    const { type, name } = row
    const detail = { id, type, name, ...(wasCompromised !== undefined && { was_compromised: wasCompromised }) }
    await mutation.trace({ ...subject(project), action: 'api_key.delete', detail })
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

const subject = ({ organizationId, ref }: ProjectAccess) => ({ organizationId, projectRef: ref })

const refuseTemplate = (message: string) =>
  new ApiError('bad_request.validation_failed', {
    issues: [{ field: 'body.secret_jwt_template', code: 'refused', message }],
  })

function rejectTakenName(error: unknown, name: string): never {
  if (uniqueViolation(error) === NAME_TAKEN) throw new ApiError('conflict.api_key_name', { detail: name, cause: error })
  throw error
}
