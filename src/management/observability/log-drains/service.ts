import { and, asc, eq, isNull } from 'drizzle-orm'
import type * as z from 'zod'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { logDrains } from '../../../model/tables/index.ts'
import type { Target } from '../../../outbound/drains/backend.ts'
import { openSecrets, sealSecrets } from '../../../outbound/drains/secrets.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireOrganizationPlan } from '../../account/organizations/plan-features.ts'
import { changeProject, type ProjectChange } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { backendOf, checkConfig } from './drain-config.ts'
import type { CreateLogDrain, LogDrainReply, UpdateLogDrain } from './schema.ts'

type Row = typeof logDrains.$inferSelect

/** The maximum number of drains per project: every log record is queued for each drain. */
const LOG_DRAINS_MAX = 20

const ofProject = (ref: string) => and(eq(logDrains.projectRef, ref), isNull(logDrains.deletedAt))
const isLogDrain = (ref: string, id: string) => and(ofProject(ref), eq(logDrains.id, id))

export async function listLogDrains({ db }: Ctx, { ref }: ProjectAccess) {
  const rows = await db.select().from(logDrains).where(ofProject(ref)).orderBy(asc(logDrains.id))
  return { data: rows.map(toLogDrain) }
}

export async function createLogDrain(ctx: Ctx, project: ProjectAccess, { data }: z.output<typeof CreateLogDrain>) {
  const { name, description = null, backend_type: backendType } = data.attributes
  const { ref } = project
  await requireOrganizationPlan(ctx.db, project.organizationId, 'log_drains')
  const { config, secrets } = await checkConfig(ctx, backendType, data.attributes.config)
  const id = newTimedId(ctx.now())
  const sealedSecrets = await sealSecrets(ctx.config.ENCRYPTION_KEY, id, secrets)
  const row = await changeUniqueName(ctx, project, async ({ tx, record }) => {
    await requireDrainQuota(tx, ref)
    const at = ctx.now()
    const times = { nextAt: at, createdAt: at, updatedAt: at }
    const inserted = requireRow(
      await tx
        .insert(logDrains)
        .values({ id, projectRef: ref, name, description, backendType, config, sealedSecrets, ...times })
        .returning(),
    )
    await record('log_drain.create', { log_drain: id, backend_type: backendType })
    return inserted
  })
  return { data: toLogDrain(row) }
}

export async function updateLogDrain(
  ctx: Ctx,
  project: ProjectAccess,
  id: string,
  { data }: z.output<typeof UpdateLogDrain>,
): Promise<z.input<typeof LogDrainReply>> {
  const { name, description } = data.attributes
  const before = await findLogDrain(ctx, project, id)
  const changed = await changesOfConfig(ctx, before, data.attributes)
  const row = await changeUniqueName(ctx, project, async ({ tx, record }) => {
    const [current] = await tx
      .select({ sealedSecrets: logDrains.sealedSecrets })
      .from(logDrains)
      .where(isLogDrain(project.ref, id))
      .for('no key update')
    if (!current) throw new ApiError('not_found.log_drain')
    // A concurrent change has replaced the secrets, so this change starts again with them.
    if (changed.sealedSecrets && current.sealedSecrets !== before.sealedSecrets) return undefined
    const [after] = await tx
      .update(logDrains)
      .set({
        ...(name !== undefined && { name }),
        ...(description !== undefined && { description }),
        ...changed,
        updatedAt: ctx.now(),
      })
      .where(eq(logDrains.id, id))
      .returning()
    if (!after) throw new Error('the log drain was not updated')
    const fields = Object.keys(data.attributes)
    await record('log_drain.update', { log_drain: id, fields })
    return after
  })
  return row ? { data: toLogDrain(row) } : updateLogDrain(ctx, project, id, { data })
}

/** Returns the changes of a config. Queued logs go to the new destination at once, even if a sender is active. */
async function changesOfConfig(
  ctx: Ctx,
  { id, backendType, sealedSecrets, config: previous }: Row,
  { config: input, backend_type: type }: z.output<typeof UpdateLogDrain>['data']['attributes'],
): Promise<Partial<Row>> {
  const backend = backendOf(type)
  if (input === undefined) {
    if (type === backendType) return {}
    throw invalidField('body.data.attributes.config', 'is required when backend_type changes', 'missing')
  }
  const key = ctx.config.ENCRYPTION_KEY
  const omitsSecret = backend.secrets.some((name) => !(name in input))
  // Secrets that cannot be decrypted must be given again.
  const keptSecrets =
    type === backendType && omitsSecret ? await openSecrets(key, id, sealedSecrets).catch(() => ({})) : {}
  const { config, secrets } = await checkConfig(ctx, type, { ...keptSecrets, ...input })
  const origin = (one: object) => originOf(backend.target(one))
  if (
    Object.keys(keptSecrets).length > 0 &&
    origin({ ...previous, ...keptSecrets }) !== origin({ ...config, ...secrets })
  ) {
    requireAllSecrets(keptSecrets, input)
  }
  return {
    ...{ backendType: type, config, sealedSecrets: await sealSecrets(key, id, secrets) },
    ...{ failures: 0, failingSince: null, nextAt: ctx.now(), leaseUntil: null, claim: null },
  }
}

const originOf = (target: Target): string =>
  'url' in target ? new URL(target.url).origin : `${target.host}:${target.port}`

/** Requires the secrets again: otherwise a caller could send secrets that they cannot read to their own host. */
function requireAllSecrets(keptSecrets: object, input: object): void {
  const missing = Object.keys(keptSecrets).filter((name) => !(name in input))
  if (missing.length === 0) return
  throw new ApiError('bad_request.validation_failed', {
    issues: missing.map((name) => ({
      field: `body.data.attributes.config.${name}`,
      code: 'missing',
      message: 'must be given again when the destination changes',
    })),
  })
}

/** Soft-deletes a drain. A sweep removes its queued logs, which may be many. */
export async function deleteLogDrain(ctx: Ctx, project: ProjectAccess, id: string): Promise<void> {
  await changeProject(ctx, project, async ({ tx, record }) => {
    const [deleted] = await tx
      .update(logDrains)
      .set({ deletedAt: ctx.now(), claim: null })
      .where(isLogDrain(project.ref, id))
      .returning({ id: logDrains.id })
    if (!deleted) throw new ApiError('not_found.log_drain')
    await record('log_drain.delete', { log_drain: id })
  })
}

async function findLogDrain({ db }: Ctx, { ref }: ProjectAccess, id: string): Promise<Row> {
  const [row] = await db.select().from(logDrains).where(isLogDrain(ref, id))
  if (!row) throw new ApiError('not_found.log_drain')
  return row
}

/** Requires the project lock, so that concurrent requests cannot exceed the limit. */
async function requireDrainQuota(tx: Writer, ref: string): Promise<void> {
  if ((await tx.$count(logDrains, ofProject(ref))) < LOG_DRAINS_MAX) return
  throw new ApiError('bad_request.log_drains', { detail: `a project can have at most ${LOG_DRAINS_MAX}` })
}

async function changeUniqueName<T>(
  ctx: Ctx,
  project: ProjectAccess,
  work: (change: ProjectChange) => Promise<T>,
): Promise<T> {
  try {
    return await changeProject(ctx, project, work)
  } catch (error) {
    throw uniqueViolation(error) === 'log_drains_name_once' ? new ApiError('conflict.log_drain_name') : error
  }
}

const toLogDrain = ({ id, name, description, config, backendType }: Row): z.input<typeof LogDrainReply>['data'] => ({
  type: 'log_drain',
  id,
  attributes: { name, ...(description !== null && { description }), config, backend_type: backendType },
})
