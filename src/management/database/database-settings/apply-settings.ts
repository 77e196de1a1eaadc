import type { SystemCtx } from '../../../ctx.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { readAllSettings } from '../../projects/settings/read-settings.ts'
import { restrictionOf } from './networks.ts'
import { configure } from './postgres.ts'

/**
 * Applies the stored settings to the project's database after a restore, a move to another host or an inheritance of settings.
 * Holds the project lock, so that a concurrent change is applied either before or after.
 */
export async function applySettings(ctx: SystemCtx, { ref }: { ref: string }): Promise<void> {
  await mutate(ctx, async ({ tx }) => {
    await lockProject({ tx }, ref)
    const settings = await readAllSettings(tx, [ref])
    await configure(ctx, ref, settings(ref, 'postgres').value)
    const rules = { ssl: settings(ref, 'ssl').value.database, networks: restrictionOf(settings(ref, 'network').value) }
    await ctx.engine.settings.setLoginRules(ref, rules)
  })
}
