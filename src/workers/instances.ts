import type { ProjectAccess } from '../auth/access.ts'
import type { workers } from '../db/schema/index.ts'
import type { SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'
import { BuildFailed } from '../runtime/build.ts'
import { environmentOf, type Plan } from './plan.ts'

type WorkerRow = typeof workers.$inferSelect

const objectOf = ({ bindings: { WORKER_INSTANCES: objects } }: Pick<SystemCtx, 'bindings'>, workerId: string) =>
  objects.get(objects.idFromName(workerId))

/** All that the plan declares have started when this resolves. Rejects with BuildFailed. */
export async function startInstances(ctx: SystemCtx, plan: Plan): Promise<void> {
  const problem = await objectOf(ctx, plan.workerId).start(plan)
  if (problem !== undefined) throw new BuildFailed([{ message: problem }])
}

/** Of what has been started and is not to be served. */
export async function dropInstances(ctx: SystemCtx, plan: Plan): Promise<void> {
  await objectOf(ctx, plan.workerId).drop(plan)
}

export async function stopInstances(ctx: SystemCtx, workerId: string): Promise<void> {
  await objectOf(ctx, workerId).stop()
}

const ASKED_MS = 5_000

/** Counted, or why they cannot be. */
export async function tallyOf(ctx: SystemCtx, { id, served, spec }: WorkerRow, project: ProjectAccess) {
  if (!served) return { instances: { declared: spec.instances, live: 0, ready: 0, stale: 0 } }
  try {
    const asked = objectOf(ctx, id).tally({ ...served, environment: environmentOf(project) })
    const tally = await Promise.race([asked, scheduler.wait(ASKED_MS)])
    if (!tally) throw new Error(`no answer in ${ASKED_MS} ms`)
    return { instances: { declared: served.spec.instances, ...tally } }
  } catch (error) {
    ctx.log.error('worker_instances_unknown', { worker: id, error: describeError(error) })
    return { instances_error: 'The instances cannot be counted at the moment' }
  }
}
