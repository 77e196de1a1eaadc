import type { SystemCtx } from '../../../ctx.ts'
import type { ServedWorker, WorkerSpec } from '../../../model/tables/index.ts'
import { openStore } from '../../../platform/blobs/store.ts'
import { BuildFailed, buildWorker, probe } from '../../../services/runtime/build-client.ts'
import { uploadKey } from '../../../services/runtime/program-keys.ts'
import { dropInstances, startInstances } from '../../../services/workers/instance-control.ts'
import { storeImage } from '../../../services/workers/worker-images.ts'
import { variablesFor } from '../../../services/workers/worker-isolate.ts'
import { environmentVersion, type Plan } from '../../../services/workers/worker-plan.ts'
import { CONTEXT_BYTES_MAX } from './uploads.ts'
import { type Work, workerLeases } from './worker-tasks.ts'

/** Builds an upload and starts instances, ready for the switch. Returns undefined if another task has replaced this one. */
export async function build(ctx: SystemCtx, work: Work): Promise<ServedWorker | undefined> {
  const { task, project } = work
  const built = task.uploadId
    ? await buildUpload(ctx, project, { uploadId: task.uploadId, spec: task.spec })
    : work.worker.served
  if (!built) throw new BuildFailed([{ message: 'There is no earlier build to deploy again: upload a build context' }])
  const served = { ...built, deploymentId: task.id, spec: task.spec }
  if (!(await workerLeases.hasLease(ctx, task))) return undefined
  await startInstances(ctx, planOf(work, served), work.worker)
  return served
}

/** Drops the instances of a build that was superseded before the switch. */
export const drop = (ctx: SystemCtx, work: Work, served: ServedWorker): Promise<void> =>
  dropInstances(ctx, planOf(work, served), work.worker)

const planOf = ({ worker, project }: Work, served: ServedWorker): Plan => ({
  ...{ ...served, workerId: worker.id, ref: project.ref },
  environment: environmentVersion(project),
})

interface Upload {
  uploadId: string
  spec: WorkerSpec
}

type Built = Pick<ServedWorker, 'image' | 'crons' | 'assets'>

async function buildUpload(
  ctx: SystemCtx,
  { ref, organizationId }: Work['project'],
  { uploadId, spec }: Upload,
): Promise<Built> {
  const builder = { bindings: ctx.bindings, organizationId }
  const context = await openStore(ctx).get(uploadKey(ref, uploadId))
  if (!context?.body) throw new BuildFailed([{ message: 'The build context has expired: upload it again' }])
  // The size is checked again, because the upload URL stays valid after the check at deployment.
  if (context.size > CONTEXT_BYTES_MAX) {
    await context.body.cancel()
    throw new BuildFailed([
      { message: `The build context is too large: ${context.size} bytes, at most ${CONTEXT_BYTES_MAX} are allowed` },
    ])
  }
  const { image, crons, assets } = await buildWorker(builder, context.body)
  // The image is stored before the program is known to start, because assets cannot be buffered. Unused images are removed later.
  const sha256 = await storeImage(ctx, ref, { image, assets })
  const env = await variablesFor(ctx, ref, spec.secrets_scope)
  requireHandlers(await probe(builder, { image, env }), crons)
  return {
    image: sha256,
    ...(crons.length > 0 && { crons }),
    ...(assets && { assets: { manifestBytes: assets.manifestBytes } }),
  }
}

function requireHandlers(handlers: readonly string[], crons: readonly string[]): void {
  const runsByCron = handlers.includes('scheduled')
  if (crons.length > 0 && !runsByCron) {
    throw new BuildFailed([
      { message: '`triggers.crons` requires a scheduled handler: the program does not export one' },
    ])
  }
  if (handlers.includes('fetch') || crons.length > 0) return
  throw new BuildFailed([
    {
      message:
        'The program has no server: it must export a fetch handler, call Deno.serve or listen with a Node server',
    },
  ])
}
