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

/** From the bytes that were PUT to instances that have started, ready for the switch; undefined where another task took its place. */
export async function build(ctx: SystemCtx, work: Work): Promise<ServedWorker | undefined> {
  const { task, project } = work
  const built = task.uploadId
    ? await builtOf(ctx, project.ref, { uploadId: task.uploadId, spec: task.spec })
    : work.worker.served
  if (!built) throw new BuildFailed([{ message: 'Nothing was built yet that could be deployed again' }])
  const served = { ...built, deploymentId: task.id, spec: task.spec }
  if (!(await workerLeases.hasLease(ctx, task))) return undefined
  await startInstances(ctx, planOf(work, served), work.worker)
  return served
}

/** What was built, and was superseded before the switch. */
export const drop = (ctx: SystemCtx, work: Work, served: ServedWorker): Promise<void> =>
  dropInstances(ctx, planOf(work, served), work.worker)

const planOf = ({ worker, project }: Work, served: ServedWorker): Plan => ({
  ...{ ...served, workerId: worker.id, ref: project.ref },
  environment: environmentVersion(project),
})

interface Uploaded {
  uploadId: string
  spec: WorkerSpec
}

type Built = Pick<ServedWorker, 'image' | 'crons' | 'assets'>

async function builtOf(ctx: SystemCtx, ref: string, { uploadId, spec }: Uploaded): Promise<Built> {
  const context = await openStore(ctx).get(uploadKey(ref, uploadId))
  if (!context?.body) throw new BuildFailed([{ message: 'The build context is no longer there: upload it again' }])
  // The URL that it was PUT to holds for longer than what was looked at when it was deployed.
  if (context.size > CONTEXT_BYTES_MAX) {
    await context.body.cancel()
    throw new BuildFailed([
      { message: `The build context has ${context.size} bytes; at most ${CONTEXT_BYTES_MAX} are built` },
    ])
  }
  const { image, crons, assets } = await buildWorker(ctx, context.body)
  // Before the program is known to start, as the bytes of assets cannot wait. What no worker serves is removed in time.
  const sha256 = await storeImage(ctx, ref, { image, assets })
  const env = await variablesFor(ctx, ref, spec.secrets_scope)
  requireHandlers(await probe(ctx, { image, env }), crons)
  return {
    image: sha256,
    ...(crons.length > 0 && { crons }),
    ...(assets && { assets: { manifestBytes: assets.manifestBytes } }),
  }
}

function requireHandlers(handlers: readonly string[], crons: readonly string[]): void {
  const runsByCron = handlers.includes('scheduled')
  if (crons.length > 0 && !runsByCron) {
    throw new BuildFailed([{ message: '`triggers.crons` needs a scheduled handler: the program exports none' }])
  }
  if (handlers.includes('fetch') || crons.length > 0) return
  throw new BuildFailed([
    { message: 'The program neither exports a fetch handler nor calls Deno.serve, and has no server of Node listen' },
  ])
}
