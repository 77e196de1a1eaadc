import type { ProjectAccess } from '../auth/access.ts'
import type { workers } from '../db/schema/index.ts'
import type { SystemCtx } from '../env.ts'
import { describeError } from '../http/log.ts'
import type { WorkerInstances } from '../objects/worker-instances.ts'
import { askPrograms } from '../programs/ask.ts'
import { hasEnded } from '../programs/process.ts'
import { keyOf } from '../programs/protocol.ts'
import { noteCall } from '../programs/suspects.ts'
import { BuildFailed } from '../runtime/build.ts'
import { environmentOf, type Plan } from './plan.ts'

type WorkerRow = typeof workers.$inferSelect

type Instances = Pick<WorkerInstances, 'start' | 'drop' | 'stop' | 'tally'>
type Remote = {
  [Name in keyof Instances]: (...given: Parameters<Instances[Name]>) => Promise<Awaited<ReturnType<Instances[Name]>>>
}

/** Where programs run. */
function objectOf({ bindings }: Pick<SystemCtx, 'bindings'>, workerId: string): Remote {
  const { WORKER_INSTANCES: objects, PROGRAMS } = bindings
  if (!PROGRAMS) return objects.get(objects.idFromName(workerId))
  return {
    start: (plan) => askPrograms(bindings, 'start', { workerId, plan }),
    drop: (plan) => askPrograms(bindings, 'drop', { workerId, plan }),
    stop: () => askPrograms(bindings, 'stop', { workerId }),
    tally: (plan) => askPrograms(bindings, 'tally', { workerId, plan }),
  }
}

/** All that the plan declares have started when this resolves. Rejects with BuildFailed. */
export async function startInstances(ctx: SystemCtx, plan: Plan, name: string): Promise<void> {
  const problem = await noted(ctx, keyOf({ kind: 'worker', ref: plan.ref, name }), () =>
    objectOf(ctx, plan.workerId).start(plan),
  )
  if (problem !== undefined) throw new BuildFailed([{ message: problem }])
}

/** Over a start the process may end as over a call. */
async function noted<T>({ bindings }: SystemCtx, program: string, start: () => Promise<T>): Promise<T> {
  const at = Date.now()
  const end = noteCall(program)
  try {
    return await start()
  } catch (error) {
    if (bindings.PROGRAMS) await hasEnded(bindings, at)
    throw error
  } finally {
    end()
  }
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
