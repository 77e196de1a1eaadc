import { eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { SourceFile } from '../../../services/runtime/build-client.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import { type DeploymentRow, type FunctionRow, toFunction } from './convert.ts'
import { isFunctionDeletedSince } from './deletions.ts'
import { makeDeployment } from './deployment.ts'
import { bySlug, type Deployed, findFunctionOrQuota, requireFunctionQuota, selectDeployed } from './function-rows.ts'
import { type Deploy, type DeployOptions, Slug } from './schema.ts'

export async function deployFunction(
  ctx: Ctx,
  project: ProjectAccess,
  { slug: requestedSlug, bundleOnly }: DeployOptions,
  { file: parts, metadata }: Deploy,
) {
  const slug = requestedSlug ?? slugIn(metadata.name)
  const before = await findFunctionOrQuota(ctx, project, slug)
  const files = await filesOf(parts)
  const deployment = await makeDeployment(ctx, project, {
    slug,
    files,
    entrypoint: metadata.entrypoint_path ?? '',
    importMap: metadata.import_map_path,
    staticPatterns: metadata.static_patterns,
    requestedAt: bundleOnly ? undefined : ctx.now(),
  })
  const { name, verify_jwt: verifyJwt } = metadata
  if (bundleOnly) return toFunction(previewRow(deployment, { name, verifyJwt }, before?.row), deployment)
  return toDeployed(await deploy(ctx, project, deployment, { name, verifyJwt }))
}

/** Collects the files. Clients send a file twice if it is imported and matches a static pattern. */
async function filesOf(parts: Deploy['file']): Promise<SourceFile[]> {
  const files = new Map<string, SourceFile>()
  for (const [n, { path, file }] of parts.entries()) {
    const bytes = await file.bytes()
    const before = files.get(path)?.bytes
    if (before && Buffer.compare(before, bytes) !== 0)
      throw invalidField(`body.file.${n}`, `${path} was sent twice with different content`)
    files.set(path, { path, bytes })
  }
  return [...files.values()]
}

function slugIn(name: string | undefined): string {
  const { data } = Slug.safeParse(name)
  if (data !== undefined) return data
  throw invalidField('query.slug', 'is required unless metadata.name is a valid slug', 'required')
}

/** Omitted settings stay unchanged. */
export interface Settings {
  name?: string | undefined
  verifyJwt?: boolean | undefined
}

/** Returns the row that a bulk update with this bundle will create. */
function previewRow(deployment: DeploymentRow, settings: Settings, before: FunctionRow | undefined): FunctionRow {
  const next = nextRow(deployment, settings, before, deployment.createdAt)
  return before ? { ...next, status: before.status } : next
}

/** Returns the row of a function after an activation. A new function gets the id of its first deployment. */
const nextRow = (
  { id, projectRef, slug }: DeploymentRow,
  { name, verifyJwt }: Settings,
  before: FunctionRow | undefined,
  at: Date,
): FunctionRow => ({
  ...(before ?? { id, projectRef, slug, createdAt: at }),
  name: name ?? before?.name ?? slug,
  verifyJwt: verifyJwt ?? before?.verifyJwt ?? true,
  status: 'ACTIVE',
  version: (before?.version ?? 0) + 1,
  deploymentId: id,
  updatedAt: at,
})

interface Rules {
  /** Whether the function must exist already; undefined for either. */
  exists?: boolean
  /** The time of the change in the source project. A later change in this project wins. */
  changedAt?: Date
  evenIfOlder?: boolean
}

export const toDeployed = ({ row, deployment }: Deployed) => toFunction(row, deployment)

/**
 * Activates a deployment if the rules allow it and no later request has deployed or deleted the function. Returns the active
 * deployment, or this one if the function was deleted. A rejected deployment stays unused and is removed later.
 */
export const deploy = (
  ctx: SystemCtx,
  project: Pick<ProjectAccess, 'ref' | 'organizationId'>,
  deployment: DeploymentRow,
  settings: Settings,
  { exists, changedAt, evenIfOlder = false }: Rules = {},
): Promise<Deployed & { isActive: boolean }> =>
  changeProject(ctx, project, async ({ tx, record }) => {
    const { id, slug, createdAt } = deployment
    const now = ctx.now()
    const [found] = await selectDeployed(tx).where(bySlug(project.ref, slug)).for('update', { of: functions })
    if (found && exists === false) throw new ApiError('conflict.function_slug', { detail: slug })
    if (!found && exists) throw new ApiError('not_found.function')
    if (found && !evenIfOlder && (changedAt ? found.row.updatedAt >= changedAt : isLater(found, deployment)))
      return { ...found, isActive: false }
    const next = { ...nextRow(deployment, settings, found?.row, now), updatedAt: changedAt ?? now }
    const isDeleted =
      !found && !evenIfOlder && (await isFunctionDeletedSince(tx, project.ref, slug, changedAt ?? createdAt))
    if (isDeleted) return { row: next, deployment, isActive: false }
    if (!found) await requireFunctionQuota(tx, project, 1)
    const row = requireRow(
      await tx
        .insert(functions)
        .values(next)
        .onConflictDoUpdate({ target: [functions.projectRef, functions.slug], set: next })
        .returning(),
    )
    const setUnused = (deploymentId: string, unusedSince: Date | null) =>
      tx.update(functionDeployments).set({ unusedSince }).where(eq(functionDeployments.id, deploymentId))
    if (found) await setUnused(found.deployment.id, now)
    await setUnused(id, null)
    await record('function.deploy', { slug, version: row.version, deployment: id })
    return { row, deployment, isActive: true }
  })

/**
 * Whether a later request has deployed the function. Both times are compared, because a copied deployment is created later than the
 * change that it copies.
 */
const isLater = ({ row, deployment }: Deployed, { createdAt }: DeploymentRow): boolean =>
  deployment.createdAt > createdAt && row.updatedAt > createdAt
