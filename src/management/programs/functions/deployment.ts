import { eq } from 'drizzle-orm'
import type { ProjectAccess } from '../../../access/access.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { functionDeployments } from '../../../model/tables/index.ts'
import { isBucketUnavailable } from '../../../platform/blobs/bucket.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { sha256Of } from '../../../platform/secrets/digest.ts'
import {
  type Builder,
  BuildFailed,
  BuildUnavailable,
  buildFunction,
  type SourceFile,
} from '../../../services/runtime/build-client.ts'
import { imageKey, sourceKey } from '../../../services/runtime/program-keys.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import type { DeploymentRow } from './convert.ts'
import { openSlots } from './deploy-slots.ts'
import { deployableSince, expireExcessDeployments } from './remove-deployments.ts'
import { encodeSource } from './source-files.ts'

export interface Program {
  slug: string
  entrypoint: string
  importMap?: string | undefined
  staticPatterns?: string[] | undefined
  files: readonly SourceFile[]
  /** The time of the request, if it activates the program. Of several requests, the last one wins. */
  requestedAt?: Date | undefined
}

const BUILDS_MAX = 4

const WAIT_SECONDS = 30

/** Limits builds per project, because all projects share the builder. Builds wait, because clients do not retry rejected ones. */
const runInSlot = openSlots({ max: BUILDS_MAX, leaseMs: 60_000, waitMs: WAIT_SECONDS * 1000 })

const tooMany = () =>
  new ApiError('service_unavailable.build', {
    detail: `${BUILDS_MAX} functions of the project are being bundled, and none finished within ${WAIT_SECONDS} s`,
  })

/** Bundles a program and stores it in the bucket as an unused deployment, which is removed later unless a function uses it. */
export async function makeDeployment(
  ctx: SystemCtx,
  { ref, organizationId }: ProjectAccess,
  program: Program,
): Promise<DeploymentRow> {
  const { slug, entrypoint, importMap, requestedAt } = program
  const image = utf8(await runInSlot(ref, () => build({ bindings: ctx.bindings, organizationId }, program), tooMany))
  const sha256 = await digestOf(image, program)
  const source = await encodeSource(program)
  const row = await addDeployment(ctx, { projectRef: ref, slug, sha256, entrypoint, importMap, createdAt: requestedAt })
  const store = openStore(ctx)
  const put = (key: string, bytes: Uint8Array<ArrayBuffer>, contentType: string) =>
    store.put(key, bytes, { size: bytes.length, contentType })
  await Promise.all([
    put(imageKey(ref, row.id), image, 'application/json'),
    put(sourceKey(ref, row.id), source.bytes, source.contentType),
  ]).catch(rethrowBucketFailure)
  await ctx.db.update(functionDeployments).set({ unusedSince: row.createdAt }).where(eq(functionDeployments.id, row.id))
  return row
}

/** The digest of a deployment covers its source, because programs that differ only in comments, types or the import map have equal images. */
async function digestOf(image: Uint8Array<ArrayBuffer>, { entrypoint, importMap, files }: Program): Promise<string> {
  const digests = await Promise.all(files.map(async ({ path, bytes }) => [path, await sha256Of(bytes)]))
  return sha256Of(JSON.stringify([await sha256Of(image), entrypoint, importMap, digests.sort()]))
}

type NewDeployment = Pick<DeploymentRow, 'projectRef' | 'slug' | 'sha256' | 'entrypoint'> & {
  importMap?: string | null | undefined
  createdAt?: Date | undefined
}

/**
 * Inserts the row of an unused deployment before its files, so that no files exist without a row. Until its files are in the bucket,
 * it counts as too old for a bulk update to activate it.
 */
export const addDeployment = (ctx: SystemCtx, deployment: NewDeployment): Promise<DeploymentRow> =>
  mutate(ctx, async (mutation) => {
    const { projectRef } = deployment
    await lockProject(mutation, projectRef)
    await expireExcessDeployments(ctx, mutation, projectRef)
    const now = ctx.now()
    return requireRow(
      await mutation.tx
        .insert(functionDeployments)
        .values({ ...deployment, createdAt: deployment.createdAt ?? now, unusedSince: deployableSince(now) })
        .returning(),
    )
  })

export const utf8 = (text: string) => new Uint8Array(new TextEncoder().encode(text).buffer as ArrayBuffer)

async function build(builder: Builder, { entrypoint, importMap, staticPatterns, files }: Program) {
  const spec = { entrypoint, ...(importMap !== undefined && { importMap }), ...(staticPatterns && { staticPatterns }) }
  return buildFunction(builder, spec, files).catch((error) => {
    if (error instanceof BuildFailed) throw new ApiError('bad_request.build', { detail: error.message, cause: error })
    if (!(error instanceof BuildUnavailable)) throw error
    throw new ApiError('service_unavailable.build', { detail: error.message, cause: error })
  })
}

export function rethrowBucketFailure(cause: unknown): never {
  throw isBucketUnavailable(cause) ? new ApiError('service_unavailable.bucket', { cause }) : cause
}
