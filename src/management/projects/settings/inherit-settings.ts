import type { SystemCtx } from '../../../ctx.ts'
import { mutate } from '../../kernel/mutate.ts'
import { inheritAuthConfig } from '../../service-config/auth-config/inherit-auth-config.ts'
import { lockProject } from '../projects/lock-project.ts'
import { boundTo, supposedlyOwn } from './own-fields.ts'
import { readAllSettings, saveSettings } from './read-settings.ts'
import {
  changedFields,
  INHERITED,
  type InheritedArea,
  mergeFields,
  type Settings,
  settingsIn,
} from './setting-areas.ts'

/**
 * A branch takes over, field by field, what its parent is set to now and what that is set to no more, but for what is the
 * branch's own; `applySettings` tells its database. Returns the fields that stay as they were, as the parent's would contradict
 * the branch's own.
 */
export async function inheritSettings(ctx: SystemCtx, { from, to }: { from: string; to: string }): Promise<string[]> {
  return mutate(ctx, async ({ tx, trace }) => {
    const { organizationId } = await lockProject({ tx }, to)
    const kept = await readAllSettings(tx, [from, to])
    const allLeftOut: string[] = []
    for (const area of INHERITED) {
      const mine = kept(to, area)
      const theirs = await boundTo(ctx, { from, to, area, value: kept(from, area).value })
      const own = mine.own ?? supposedlyOwn(area, mine.value, theirs)
      const { value, leftOut } = heirOf(area, mine.value, theirs, own)
      allLeftOut.push(...leftOut)
      const fields = changedFields(area, mine.value, value)
      if (fields.length > 0 || !mine.own) await saveSettings(tx, { ref: to, area, value, own, updatedAt: ctx.now() })
      if (fields.length === 0) continue
      await trace({ action: `project.${area}.inherit`, organizationId, projectRef: to, detail: { from, fields } })
    }
    return allLeftOut
  })
}

type Inherited = Settings<InheritedArea>

function heirOf(area: InheritedArea, mine: Inherited, theirs: Inherited, own: readonly string[]) {
  if (area === 'auth') return inheritAuthConfig(mine as Settings<'auth'>, theirs as Settings<'auth'>, own)
  return { value: settingsIn(area, mergeFields(mine, theirs, own)), leftOut: [] }
}
