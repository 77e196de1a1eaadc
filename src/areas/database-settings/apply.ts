import type { SystemCtx } from '../../env.ts'
import { changeSettings } from '../settings/change.ts'
import { restrictionOf } from './networks.ts'
import { configure } from './postgres.ts'

/**
 * Makes the project's database be as its rows say: after it was made anew or copied, or its rows were inherited. While the rows
 * are locked, so that a change at the same time is told either before or after.
 */
export async function applySettings(ctx: SystemCtx, { ref }: { ref: string }): Promise<void> {
  await changeSettings(ctx, {
    ref,
    area: 'postgres',
    async work(config) {
      await configure(ctx, ref, config, {})
      return undefined
    },
  })
  await changeSettings(ctx, {
    ref,
    area: 'ssl',
    async work({ database }) {
      await ctx.engine.settings.requireSsl(ref, database)
      return undefined
    },
  })
  await changeSettings(ctx, {
    ref,
    area: 'network',
    async work(networks) {
      await ctx.engine.settings.restrictNetworks(ref, restrictionOf(networks))
      return undefined
    },
  })
}
