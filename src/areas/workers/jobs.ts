import { eq } from 'drizzle-orm'
import { mutate } from '../../db/mutate.ts'
import { workers } from '../../db/schema/index.ts'
import { leaveImage, removeImage } from '../../workers/images.ts'
import { stopInstances } from '../../workers/instances.ts'
import { build, drop } from './build.ts'
import type { WorkerJobs } from './tasks.ts'

export const workerJobs: WorkerJobs = {
  build,
  drop,
  async teardown(ctx, { worker, project }) {
    await stopInstances(ctx, worker)
    const image = worker.served && { ref: project.ref, sha256: worker.served.image }
    await mutate(ctx, async ({ tx, trace }) => {
      if (image) await leaveImage(ctx, tx, image)
      // Its task goes with it.
      await tx.delete(workers).where(eq(workers.id, worker.id))
      await trace({
        action: 'worker.delete.done',
        organizationId: project.organizationId,
        projectRef: project.ref,
        detail: { name: worker.name },
      })
    })
    // Should it fail, the sweep comes to it.
    if (image) await removeImage(ctx, image)
  },
}
