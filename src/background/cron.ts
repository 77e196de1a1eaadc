import type { SystemCtx } from '../ctx.ts'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../platform/bindings.ts'
import { describeError } from '../platform/http/log.ts'
import { RemovalsPaused } from '../platform/removals.ts'

/** Work that the cron runs every minute, by name. `minute` is the scheduled time of the run. */
export type Duties = Record<string, (ctx: SystemCtx, minute: Date) => Promise<unknown>>

export const createCronHandler = (duties: Duties) =>
  async function runDuties({ scheduledTime }: ScheduledController, bindings: Bindings, execution: ExecutionContext) {
    const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
    // A duty that fails must not stop the others.
    await Promise.all(
      Object.entries(duties).map(([duty, run]) =>
        run(ctx, new Date(scheduledTime)).catch((error) => {
          if (error instanceof RemovalsPaused) ctx.log.info('sweep_postponed', { duty })
          else ctx.log.error('sweep_failed', { duty, error: describeError(error) })
        }),
      ),
    )
  }
