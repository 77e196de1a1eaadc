import { openStore } from '../../blobs/store.ts'
import type { ServedWorker, WorkerSpec } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { BuildFailed, buildWorker, probe } from '../../runtime/build.ts'
import { uploadKey } from '../../runtime/store.ts'
import { storeImage } from '../../workers/images.ts'
import { variablesFor } from '../../workers/instance.ts'
import { startInstances } from '../../workers/instances.ts'
import { environmentOf } from '../../workers/plan.ts'
import type { Work } from './tasks.ts'
import { CONTEXT_BYTES_MAX } from './uploads.ts'

/** From the bytes that were PUT to instances that have started, ready for the switch. */
export async function build(ctx: SystemCtx, work: Work): Promise<ServedWorker> {
  const { task, project } = work
  const image = task.uploadId
    ? await imageOf(ctx, project.ref, { uploadId: task.uploadId, spec: task.spec })
    : work.worker.served?.image
  if (!image) throw new BuildFailed([{ message: 'Nothing was built yet that could be deployed again' }])
  const served = { deploymentId: task.id, image, spec: task.spec }
  const { id: workerId } = work.worker
  await startInstances(ctx, { ...served, workerId, ref: project.ref, environment: environmentOf(project) })
  return served
}

interface Uploaded {
  uploadId: string
  spec: WorkerSpec
}

async function imageOf(ctx: SystemCtx, ref: string, { uploadId, spec }: Uploaded): Promise<string> {
  const context = await openStore(ctx).get(uploadKey(ref, uploadId))
  if (!context?.body) throw new BuildFailed([{ message: 'The build context is no longer there: upload it again' }])
  // The URL that it was PUT to holds for longer than what was looked at when it was deployed.
  if (context.size > CONTEXT_BYTES_MAX) {
    await context.body.cancel()
    throw new BuildFailed([
      { message: `The build context has ${context.size} bytes; at most ${CONTEXT_BYTES_MAX} are built` },
    ])
  }
  const image = await buildWorker(ctx, context.body)
  const env = await variablesFor(ctx, ref, spec.secrets_scope)
  const handlers = await probe(ctx, { image, env })
  if (!handlers.includes('fetch')) {
    throw new BuildFailed([{ message: 'The program neither exports a fetch handler nor calls Deno.serve' }])
  }
  return storeImage(ctx, ref, image)
}
