import type { SystemCtx } from '../ctx.ts'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../platform/bindings.ts'
import { describeError } from '../platform/http/log.ts'
import { RemovalsPaused } from '../platform/removals.ts'

/** Periodic work, by name. `minute` is the scheduled time of the run. */
export type Duties = Record<string, (ctx: SystemCtx, minute: Date) => Promise<unknown>>

/** Runs duties concurrently. A duty that fails does not stop the others. */
export async function runDuties(ctx: SystemCtx, duties: Duties, minute: Date): Promise<void> {
  await Promise.all(
    Object.entries(duties).map(([duty, run]) =>
      run(ctx, minute).catch((error) => {
        if (error instanceof RemovalsPaused) ctx.log.info('sweep_postponed', { duty })
        else ctx.log.error('sweep_failed', { duty, error: describeError(error) })
      }),
    ),
  )
}

/** Creates the handler of the cron, which runs the duties every minute. */
export const createCronHandler =
  (duties: Duties) =>
  ({ scheduledTime }: ScheduledController, bindings: Bindings, execution: ExecutionContext): Promise<void> => {
    const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
    return runDuties(ctx, duties, new Date(scheduledTime))
  }
