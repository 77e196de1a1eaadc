import { eq } from 'drizzle-orm'
import { workers } from '../../../model/tables/index.ts'
import { stopInstances } from '../../../services/workers/instance-control.ts'
import { removeImage, touchImage } from '../../../services/workers/worker-images.ts'
import { mutate } from '../../kernel/mutate.ts'
import { build, drop } from './build-task.ts'
import type { WorkerJobs } from './worker-tasks.ts'

export const workerJobs: WorkerJobs = {
  build,
  drop,
  async teardown(ctx, { worker, project }) {
    await stopInstances(ctx, worker)
    const image = worker.served && { ref: project.ref, sha256: worker.served.image }
    await mutate(ctx, async ({ tx, trace }) => {
      if (image) await touchImage(ctx, tx, image)
      // This also deletes the task of the worker.
      await tx.delete(workers).where(eq(workers.id, worker.id))
      await trace({
        action: 'worker.delete.done',
        organizationId: project.organizationId,
        projectRef: project.ref,
        detail: { name: worker.name },
      })
    })
    // If this fails, the sweep removes the image.
    if (image) await removeImage(ctx, image)
  },
}
