import { mutate } from '../../db/mutate.ts'
import { projectSettings } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import type { Area } from '../settings/areas.ts'
import { readSettings, settingsOf } from '../settings/rows.ts'
import { configure } from './postgres.ts'

/** Read-only mode says how a database is and not how it was set up, so a branch does not take it over. */
const INHERITED: Area[] = ['postgres', 'pooler', 'ssl', 'disk', 'postgrest', 'realtime']

/** What the parent is set to becomes what its branch is set to, unless that has its own; `applySettings` tells its database. */
export async function inheritSettings(ctx: SystemCtx, fromRef: string, toRef: string): Promise<void> {
  await mutate(ctx, async ({ tx }) => {
    const rows = await tx
      .select()
      .from(projectSettings)
      .where(settingsOf(fromRef, ...INHERITED))
    if (rows.length === 0) return
    const own = rows.map((row) => ({ ...row, projectRef: toRef }))
    await tx.insert(projectSettings).values(own).onConflictDoNothing()
  })
}

/** Makes the project's database be as its rows say: after it was made anew or copied, or its rows were inherited. */
export async function applySettings(ctx: SystemCtx, { ref }: { ref: string }): Promise<void> {
  const [postgres, ssl] = await Promise.all([readSettings(ctx.db, ref, 'postgres'), readSettings(ctx.db, ref, 'ssl')])
  await configure(ctx, ref, postgres.value, {})
  await ctx.engine.settings.requireSsl(ref, ssl.value.database)
}
