import { eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { ApiError, type Issue } from '../../../platform/http/error.ts'
import type { SourceFile } from '../../../services/runtime/build-client.ts'
import { changeProject } from '../../kernel/change-project.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { type DeploymentRow, type FunctionRow, toFunction } from './convert.ts'
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
  const deployment = await makeDeployment(ctx, project.ref, {
    slug,
    files,
    entrypoint: metadata.entrypoint_path ?? '',
    importMap: metadata.import_map_path,
    staticPatterns: metadata.static_patterns,
    requestedAt: bundleOnly ? undefined : ctx.now(),
  })
  const { name, verify_jwt: verifyJwt } = metadata
  if (bundleOnly) return toFunction(previewRow(deployment, { name, verifyJwt }, before), deployment)
  return toDeployed(await deploy(ctx, project, deployment, { name, verifyJwt }))
}

/** Collects the files. Clients send a file twice if it is imported and matches a static pattern. */
async function filesOf(parts: Deploy['file']): Promise<SourceFile[]> {
  const files = new Map<string, SourceFile>()
  for (const [n, { path, file }] of parts.entries()) {
    const bytes = await file.bytes()
    const before = files.get(path)?.bytes
    if (before && Buffer.compare(before, bytes) !== 0)
      throw invalid({
        field: `body.file.${n}`,
        code: 'invalid',
        message: `${path} was sent twice with different content`,
      })
    files.set(path, { path, bytes })
  }
  return [...files.values()]
}

function slugIn(name: string | undefined): string {
  const { data } = Slug.safeParse(name)
  if (data !== undefined) return data
  throw invalid({
    field: 'query.slug',
    code: 'required',
    message: 'is required unless metadata.name is a valid slug',
  })
}

/** Omitted settings stay unchanged. */
export interface Settings {
  name?: string | undefined
  verifyJwt?: boolean | undefined
}

/** Returns the row that a bulk update with this bundle will create. A new function gets the id of its first deployment. */
function previewRow(deployment: DeploymentRow, settings: Settings, before: Deployed | undefined): FunctionRow {
  const { id, createdAt: at } = deployment
  const fresh = newRow(deployment, settings, at)
  if (!before) return { ...fresh, id }
  const { row } = before
  return { ...row, ...changesOf(row, settings), version: row.version + 1, updatedAt: at }
}

const newRow = ({ id, projectRef, slug }: DeploymentRow, { name = slug, verifyJwt = true }: Settings, at: Date) => ({
  projectRef,
  slug,
  name,
  verifyJwt,
  status: 'ACTIVE' as const,
  version: 1,
  deploymentId: id,
  createdAt: at,
  updatedAt: at,
})

const changesOf = (row: FunctionRow, { name = row.name, verifyJwt = row.verifyJwt }: Settings) => ({ name, verifyJwt })

interface Rules {
  /** Whether the function must exist already; undefined for either. */
  exists?: boolean
  /** The time of the change in the source project. A later change in this project wins. */
  changedAt?: Date
  evenIfOlder?: boolean
}

export const toDeployed = ({ row, deployment }: Deployed) => toFunction(row, deployment)

/**
 * Activates a deployment if the rules allow it and no later request has deployed the function. Returns the active deployment. A
 * rejected deployment stays unused and is removed later.
 */
export async function deploy(
  ctx: Ctx | SystemCtx,
  project: Pick<ProjectAccess, 'ref' | 'organizationId'>,
  deployment: DeploymentRow,
  settings: Settings,
  rules: Rules = {},
): Promise<Deployed> {
  return changeProject(ctx, project, async (mutation) => {
    const deployed = await activate(ctx, mutation, project, { deployment, settings, rules })
    if (deployed.deployment.id !== deployment.id) return deployed
    const { slug, version } = deployed.row
    await mutation.record('function.deploy', { slug, version, deployment: deployment.id })
    return deployed
  })
}

interface Activation {
  deployment: DeploymentRow
  settings: Settings
  rules: Rules
}

async function activate(
  ctx: SystemCtx,
  mutation: Mutation,
  project: Pick<ProjectAccess, 'ref' | 'organizationId'>,
  { deployment, settings, rules: { exists, changedAt, evenIfOlder } }: Activation,
): Promise<Deployed> {
  const { tx } = mutation
  const now = ctx.now()
  const [found] = await selectDeployed(tx).where(bySlug(project.ref, deployment.slug)).for('update', { of: functions })
  const before = found?.row
  if (before && exists === false) throw new ApiError('conflict.function_slug', { detail: before.slug })
  if (!before && exists) throw new ApiError('not_found.function')
  if (found && !evenIfOlder && (changedAt ? found.row.updatedAt >= changedAt : isLater(found, deployment))) return found
  if (!before) await requireFunctionQuota(tx, project, 1)
  await tx.update(functionDeployments).set({ unusedSince: null }).where(eq(functionDeployments.id, deployment.id))
  const times = { now, updatedAt: changedAt ?? now }
  if (before) return { row: await replace(mutation, before, { deployment, settings, times }), deployment }
  const values = { ...newRow(deployment, settings, now), updatedAt: times.updatedAt }
  const [row] = await tx.insert(functions).values(values).returning()
  if (!row) throw new Error('the function was not written')
  return { row, deployment }
}

/**
 * Whether a later request has deployed the function. Both times are compared, because a copied deployment is created later than the
 * change that it copies.
 */
const isLater = ({ row, deployment }: Deployed, { createdAt }: DeploymentRow): boolean =>
  deployment.createdAt > createdAt && row.updatedAt > createdAt

interface Replacement {
  deployment: DeploymentRow
  settings: Settings
  times: { now: Date; updatedAt: Date }
}

async function replace(
  { tx }: Mutation,
  before: FunctionRow,
  { deployment, settings, times: { now, updatedAt } }: Replacement,
): Promise<FunctionRow> {
  const changes = { ...changesOf(before, settings), status: 'ACTIVE' as const, version: before.version + 1, updatedAt }
  const [row] = await tx
    .update(functions)
    .set({ ...changes, deploymentId: deployment.id })
    .where(eq(functions.id, before.id))
    .returning()
  if (!row) throw new Error('the function was not written')
  await tx.update(functionDeployments).set({ unusedSince: now }).where(eq(functionDeployments.id, before.deploymentId))
  return row
}

export const invalid = (issue: Issue) => new ApiError('bad_request.validation_failed', { issues: [issue] })
