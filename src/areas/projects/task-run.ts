import { Superseded } from '../../engine/engine.ts'
import type { SystemCtx } from '../../env.ts'
import { ATTEMPTS_MAX, fail, finish } from './task-end.ts'
import { claim, recordStep } from './task-step.ts'
import { Hopeless, type Jobs, projectLeases } from './tasks.ts'

/** Runs what is left of a task. A second message for the same task finds it leased or finished and does nothing. */
export async function runProjectTask(ctx: SystemCtx, jobs: Jobs, id: string): Promise<void> {
  const claimed = await claim(ctx, id)
  if (!claimed) return
  const { task, project } = claimed
  const job = jobs[task.kind]
  if (job.failed && task.attempts > (job.attemptsMax ?? ATTEMPTS_MAX))
    return fail(ctx, job, claimed, new Hopeless('its consumers died', { cause: task.lastError ?? undefined }))
  const fence = () => projectLeases.isHeld(ctx, task)
  const lease = projectLeases.keep(ctx, task)
  try {
    for (const { name, run } of job.steps.filter(({ name }) => !task.stepsDone.includes(name))) {
      const changes = await run(ctx, { project, task }, fence)
      if (!(await recordStep(ctx, task, name, changes))) return
      // What the work comes to, should a later step fail, goes by what has been done.
      task.stepsDone.push(name)
    }
  } catch (error) {
    if (error instanceof Superseded) return
    return fail(ctx, job, claimed, error)
  } finally {
    lease.release()
  }
  await finish(ctx, job, claimed, { state: 'done', changes: job.done })
}
