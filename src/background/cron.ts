import type { SystemCtx } from '../ctx.ts'
import { createCtx } from '../ctx.ts'
import type { Bindings } from '../platform/bindings.ts'
import { describeError } from '../platform/http/log.ts'
import { RemovalsHeld } from '../platform/removals.ts'

/** What the cron does every minute, by name; `minute` is the time that the tick is for. */
export type Duties = Record<string, (ctx: SystemCtx, minute: Date) => Promise<unknown>>

export const createSweeper = (duties: Duties) =>
  async function sweep({ scheduledTime }: ScheduledController, bindings: Bindings, execution: ExecutionContext) {
    const ctx = createCtx({ bindings, waitUntil: (work) => execution.waitUntil(work) })
    // One duty that fails must not keep the others from being done.
    await Promise.all(
      Object.entries(duties).map(([duty, run]) =>
        run(ctx, new Date(scheduledTime)).catch((error) => {
          if (error instanceof RemovalsHeld) ctx.log.info('sweep_postponed', { duty })
          else ctx.log.error('sweep_failed', { duty, error: describeError(error) })
        }),
      ),
    )
  }
