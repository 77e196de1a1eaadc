import type { SystemCtx } from '../../../ctx.ts'
import { Superseded } from '../../../engine/engine-errors.ts'
import { describeError } from '../../../platform/http/log.ts'
import { ATTEMPTS_MAX, failTask, finishTask, isPostponed } from './task-end.ts'
import { findWork, recordStep } from './task-step.ts'
import { type Jobs, PermanentError, projectLeases, type Work } from './tasks.ts'

/** Runs the remaining steps of a task. A second message for the same task finds it leased or finished and does nothing. */
export const runProjectTask = (ctx: SystemCtx, jobs: Jobs, id: string): Promise<void> =>
  projectLeases.run(ctx, id, async (leasedRow) => {
    const work = await findWork(ctx, leasedRow)
    if (work) await runSteps(ctx, jobs, work)
  })

async function runSteps(ctx: SystemCtx, jobs: Jobs, work: Work): Promise<void> {
  const { task, project } = work
  const job = jobs[task.kind]
  if (job.failed && task.attempts > ATTEMPTS_MAX)
    return failTask(ctx, job, work, new PermanentError('its consumers died', { cause: task.lastError ?? undefined }))
  const fence = () => projectLeases.hasLease(ctx, task)
  try {
    for (const { name, run } of job.steps.filter(({ name }) => !task.stepsDone.includes(name))) {
      const changes = await run(ctx, { project, task }, fence)
      if (!(await recordStep(ctx, task, name, changes ?? {}))) return
      // If a later step fails, the outcome depends on the steps done.
      task.stepsDone.push(name)
    }
  } catch (error) {
    if (error instanceof Superseded) return
    if (isPostponed(error)) return projectLeases.postponeUncounted(ctx, task, describeError(error))
    return failTask(ctx, job, work, error)
  }
  await finishTask(ctx, job, work, { state: 'done', changes: job.done })
}
