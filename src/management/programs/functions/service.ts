import { asc, eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { functionDeployments, functions } from '../../../model/tables/index.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { sourceKey } from '../../../services/runtime/program-keys.ts'
import { changeProject } from '../../kernel/change-project.ts'
import type { Streamed } from '../../kernel/route.ts'
import { toFunction } from './convert.ts'
import { recordDeletion } from './deletions.ts'
import { rethrowBucketFailure } from './deployment.ts'
import { bySlug, type Deployed, selectDeployed } from './function-rows.ts'

export async function listFunctions({ db }: Ctx, { ref }: ProjectAccess) {
  const found = await selectDeployed(db)
    .where(eq(functions.projectRef, ref))
    .orderBy(asc(functions.createdAt), asc(functions.id))
  return found.map(({ row, deployment }) => toFunction(row, deployment))
}

export async function getFunction(ctx: Ctx, project: ProjectAccess, slug: string) {
  const { row, deployment } = await findFunction(ctx, project.ref, slug)
  return toFunction(row, deployment)
}

export async function findFunction({ db }: Ctx, ref: string, slug: string): Promise<Deployed> {
  const [found] = await selectDeployed(db).where(bySlug(ref, slug))
  if (!found) throw new ApiError('not_found.function')
  return found
}

/** Streams the original files from the bucket. */
export async function getFunctionBody(ctx: Ctx, project: ProjectAccess, slug: string): Promise<Streamed> {
  const { deployment } = await findFunction(ctx, project.ref, slug)
  const open = () => openSource(ctx, sourceKey(project.ref, deployment.id))
  return open()
    .catch((error) => (error instanceof ApiError ? Promise.reject(error) : open()))
    .catch(rethrowAsUnavailable)
}

/** Waits for the first byte, so that a failing bucket still leads to an error response: a started reply could only break off. */
async function openSource(ctx: Ctx, key: string): Promise<Streamed> {
  const source = await openStore(ctx).get(key).catch(rethrowBucketFailure)
  if (!source?.body) throw new ApiError('not_found.function_source')
  const [first, body] = source.body.tee()
  const reader = first.getReader()
  await reader.read()
  void reader.cancel()
  return { contentType: source.contentType, body }
}

function rethrowAsUnavailable(cause: unknown): never {
  throw cause instanceof ApiError ? cause : new ApiError('service_unavailable.bucket', { cause })
}

export async function deleteFunction(ctx: Ctx, project: ProjectAccess, slug: string): Promise<void> {
  const { ref } = project
  await changeProject(ctx, project, async ({ tx, record }) => {
    const [removed] = await tx.delete(functions).where(bySlug(ref, slug)).returning()
    if (!removed) throw new ApiError('not_found.function')
    await tx
      .update(functionDeployments)
      .set({ unusedSince: ctx.now() })
      .where(eq(functionDeployments.id, removed.deploymentId))
    await recordDeletion(tx, { ref, kind: 'function', names: [slug], at: ctx.now() })
    await record('function.delete', { slug })
  })
}
