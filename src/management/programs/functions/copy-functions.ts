import { eq, inArray } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { imageKey, sourceKey } from '../../../services/runtime/program-keys.ts'
import { changeProject } from '../../kernel/change-project.ts'
import type { DeploymentRow } from './convert.ts'
import { clearDeletions, deletedAtByName, selectDeletions } from './deletions.ts'
import { deploy } from './deploy-function.ts'
import { addDeployment } from './deployment.ts'
import { type Deployed, selectDeployed } from './function-rows.ts'

interface Project {
  ref: string
  organizationId: string
}

interface CopyOptions {
  from: Project
  to: Project
  /** Whether the target gets exactly these functions, even if its own are newer. */
  exactly: boolean
  fence: Fence
  log(line: string): Promise<void>
}

/** The files of a function are missing in the bucket. */
export class FunctionFilesMissing extends Error {
  override name = 'FunctionFilesMissing'
}

/**
 * Copies functions to another project. The latest change of a function wins, including deletions, so that copying can be
 * repeated and done in both directions.
 */
export async function copyFunctions(ctx: SystemCtx, { from, to, exactly, fence, log }: CopyOptions): Promise<void> {
  const [sources, targets, deletions] = await ctx.db.batch([
    selectDeployed(ctx.db).where(eq(functions.projectRef, from.ref)).orderBy(functions.slug),
    selectDeployed(ctx.db).where(eq(functions.projectRef, to.ref)),
    selectDeletions(ctx.db, to.ref, 'function'),
  ])
  if (sources.length === 0 && targets.length === 0) return log('no functions to deploy')
  const targetsBySlug = new Map(targets.map((target) => [target.row.slug, target]))
  const deleted = deletedAtByName(deletions)
  let copied = 0
  for (const source of sources) {
    const { slug } = source.row
    const target = targetsBySlug.get(slug)
    if (target && !differs(source, target)) continue
    if (!exactly && isOlder(source, target?.row.updatedAt ?? deleted.get(slug))) continue
    if (!(await fence())) throw new Superseded(`another process has taken over ${to.ref}`)
    await log(`deploying ${slug}`)
    if (await copyOne(ctx, { source, to, exactly })) copied += 1
  }
  if (exactly) await removeOthers(ctx, to, { sources, targets })
  await log(`${copied} of ${sources.length} functions deployed to ${to.ref}`)
}

const isOlder = ({ row }: Deployed, changedInTarget: Date | undefined): boolean =>
  changedInTarget !== undefined && row.updatedAt <= changedInTarget

const differs = (a: Deployed, b: Deployed): boolean =>
  a.row.name !== b.row.name ||
  a.row.verifyJwt !== b.row.verifyJwt ||
  a.deployment.sha256 !== b.deployment.sha256 ||
  a.deployment.entrypoint !== b.deployment.entrypoint ||
  a.deployment.importMap !== b.deployment.importMap

/** Copies a function; returns false if the target's function has just been changed or deleted. */
async function copyOne(
  ctx: SystemCtx,
  { source: { row, deployment }, to, exactly }: { source: Deployed; to: Project; exactly: boolean },
): Promise<boolean> {
  const copy = await copyDeployment(ctx, deployment, to.ref)
  const { name, verifyJwt, updatedAt: changedAt } = row
  return (await deploy(ctx, to, copy, { name, verifyJwt }, { changedAt, evenIfOlder: exactly })).isActive
}

async function copyDeployment(ctx: SystemCtx, from: DeploymentRow, ref: string): Promise<DeploymentRow> {
  const { slug, sha256, entrypoint, importMap } = from
  const row = await addDeployment(ctx, { projectRef: ref, slug, sha256, entrypoint, importMap })
  const store = openStore(ctx)
  const copied = await Promise.all(
    [sourceKey, imageKey].map((key) => store.copy(key(from.projectRef, from.id), key(ref, row.id), { size: 0 })),
  )
  if (copied.includes(undefined))
    throw new FunctionFilesMissing(`the files of the function ${slug} are missing in the bucket`)
  return row
}

interface FunctionSets {
  sources: readonly Deployed[]
  targets: readonly Deployed[]
}

async function removeOthers(ctx: SystemCtx, project: Project, { sources, targets }: FunctionSets) {
  await clearDeletions(ctx.db, project.ref, 'function')
  const kept = new Set(sources.map(({ row }) => row.slug))
  const others = targets.filter(({ row }) => !kept.has(row.slug))
  if (others.length === 0) return
  const ids = others.map(({ row }) => row.id)
  await changeProject(ctx, project, async ({ tx, record }) => {
    const removed = await tx.delete(functions).where(inArray(functions.id, ids)).returning()
    const unused = removed.map(({ deploymentId }) => deploymentId)
    await tx.update(functionDeployments).set({ unusedSince: ctx.now() }).where(inArray(functionDeployments.id, unused))
    await record('function.delete', { slugs: removed.map(({ slug }) => slug) })
  })
}
