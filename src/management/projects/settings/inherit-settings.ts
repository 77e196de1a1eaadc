import type { SystemCtx } from '../../../ctx.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { inheritAuthConfig } from '../../service-config/auth-config/inherit-auth-config.ts'
import { inferOwnFields, resealSettings } from './own-fields.ts'
import { readAllSettings, saveSettings } from './read-settings.ts'
import {
  changedFields,
  INHERITED,
  type InheritedArea,
  mergeFields,
  parseSettings,
  type Settings,
} from './setting-areas.ts'

/**
 * Copies the parent's settings to a branch field by field, removals included, except for the branch's own fields. Call `applySettings`
 * to apply them to the database. Returns the fields left unchanged because the parent's value contradicts the branch's own.
 */
export async function inheritSettings(ctx: SystemCtx, { from, to }: { from: string; to: string }): Promise<string[]> {
  return mutate(ctx, async ({ tx, trace }) => {
    const { organizationId } = await lockProject({ tx }, to)
    const storedOf = await readAllSettings(tx, [from, to])
    const allLeftOut: string[] = []
    for (const area of INHERITED) {
      const mine = storedOf(to, area)
      const theirs = await resealSettings(ctx, { from, to, area, value: storedOf(from, area).value })
      const own = mine.own ?? inferOwnFields(area, mine.value, theirs)
      const { value, leftOut } = mergeSettings(area, mine.value, theirs, own)
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

function mergeSettings(area: InheritedArea, mine: Inherited, theirs: Inherited, own: readonly string[]) {
  if (area === 'auth') return inheritAuthConfig(mine as Settings<'auth'>, theirs as Settings<'auth'>, own)
  return { value: parseSettings(area, mergeFields(mine, theirs, own)), leftOut: [] }
}
