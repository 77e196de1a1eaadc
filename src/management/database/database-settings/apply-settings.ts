import type { SystemCtx } from '../../../ctx.ts'
import { mutate } from '../../kernel/mutate.ts'
import { lockProject } from '../../projects/projects/lock-project.ts'
import { readAllSettings } from '../../projects/settings/read-settings.ts'
import { restrictionOf } from './networks.ts'
import { configure } from './postgres.ts'

/**
 * Makes the project's database be as its rows say: after it was made anew or copied, or its rows were inherited. While the rows
 * are locked, so that a change at the same time is told either before or after.
 */
export async function applySettings(ctx: SystemCtx, { ref }: { ref: string }): Promise<void> {
  await mutate(ctx, async ({ tx }) => {
    await lockProject({ tx }, ref)
    const kept = await readAllSettings(tx, [ref])
    await configure(ctx, ref, kept(ref, 'postgres').value)
    const rules = { ssl: kept(ref, 'ssl').value.database, networks: restrictionOf(kept(ref, 'network').value) }
    await ctx.engine.settings.setLoginRules(ref, rules)
  })
}
