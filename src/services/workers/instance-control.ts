import type { SystemCtx } from '../../ctx.ts'
import type { projects, workers } from '../../model/tables/index.ts'
import { describeError } from '../../platform/http/log.ts'
import { withTimeout } from '../../platform/timeout.ts'
import { BuildFailed } from '../runtime/build-client.ts'
import { keyOf, type ProcessCommand, type ProgramName } from '../runtime/processes/process-protocol.ts'
import { sendCommand } from '../runtime/processes/process-requests.ts'
import { acquireProcess, beginCall, findEndReason } from '../runtime/processes/process-table.ts'
import { instancesOf } from './instance-stub.ts'
import type { WorkerInstances } from './worker-instances.ts'
import { environmentVersion, type Plan } from './worker-plan.ts'

type WorkerRow = typeof workers.$inferSelect
type ProjectRow = typeof projects.$inferSelect

type Instances = Pick<WorkerInstances, 'start' | 'drop' | 'stop' | 'tally'>
type Planned = Parameters<Instances['tally']>[0]
type Remote = {
  [Name in keyof Instances]: (...args: Parameters<Instances[Name]>) => Promise<Awaited<ReturnType<Instances[Name]>>>
}

type WorkerName = Pick<WorkerRow, 'id' | 'projectRef' | 'name'>

const programOf = ({ projectRef: ref, name }: WorkerName): ProgramName => ({ kind: 'worker', ref, name })

/** Access to the instances of a worker; undefined if no process runs them and `mayStart` is false. */
async function objectOf({ bindings }: SystemCtx, worker: WorkerName, mayStart = false): Promise<Remote | undefined> {
  if (!bindings.PROGRAMS) return instancesOf(bindings, worker.id)
  const process = await acquireProcess(bindings, programOf(worker), mayStart)
  if (!process) return undefined
  const send = <T>(command: ProcessCommand, plan?: Plan | Planned) =>
    sendCommand<T>(bindings, process, command, { workerId: worker.id, plan })
  return {
    async start(plan) {
      const end = beginCall(process, keyOf(programOf(worker)))
      try {
        return await send('start', plan)
      } catch (error) {
        await findEndReason(bindings, process)
        throw error
      } finally {
        end()
      }
    },
    drop: (plan) => send('drop', plan),
    stop: () => send('stop'),
    tally: (plan) => send('tally', plan),
  }
}

/** Resolves when all instances of the plan have started. Rejects with BuildFailed if one cannot. */
export async function startInstances(ctx: SystemCtx, plan: Plan, worker: WorkerName): Promise<void> {
  const object = await objectOf(ctx, worker, true)
  if (!object) throw new Error('no free process to run the worker in')
  const problem = await object.start(plan)
  if (problem !== undefined) throw new BuildFailed([{ message: problem }])
}

/** Ends the instances of a plan that will not be served. */
export async function dropInstances(ctx: SystemCtx, plan: Plan, worker: WorkerName): Promise<void> {
  await (await objectOf(ctx, worker))?.drop(plan)
}

export async function stopInstances(ctx: SystemCtx, worker: WorkerName): Promise<void> {
  await (await objectOf(ctx, worker))?.stop()
}

const COUNT_TIMEOUT_MS = 5_000
const NONE = { live: 0, ready: 0, stale: 0 }

/** Returns the counts of a worker's instances, or an error text. */
export async function countInstances(ctx: SystemCtx, worker: WorkerRow, project: ProjectRow) {
  const { id, served, spec } = worker
  if (!served) return { instances: { declared: spec.instances, live: 0, ready: 0, stale: 0 } }
  try {
    const object = objectOf(ctx, worker)
    const counting = object.then((one) => one?.tally({ ...served, environment: environmentVersion(project) }) ?? NONE)
    const tally = await withTimeout(COUNT_TIMEOUT_MS, counting, () => new Error(`no answer in ${COUNT_TIMEOUT_MS} ms`))
    return { instances: { declared: served.spec.instances, ...tally } }
  } catch (error) {
    ctx.log.error('worker_instances_unknown', { worker: id, error: describeError(error) })
    return { instances_error: 'The instances could not be counted: try again later' }
  }
}
