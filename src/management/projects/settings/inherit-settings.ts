import type { SystemCtx } from '../../../ctx.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { inheritAuthConfig } from '../../service-config/auth-config/inherit-auth-config.ts'
import { resealFor } from '../../service-config/auth-config/stored-config.ts'
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
  return changeProject(ctx, { ref: to }, async ({ tx, record }) => {
    const storedOf = await readAllSettings(tx, [from, to])
    const allLeftOut: string[] = []
    for (const area of INHERITED) {
      const { value: mine, own } = storedOf(to, area)
      const { value: theirs } = storedOf(from, area)
      // Secrets are sealed for the row that contains them; only Auth has any.
      const copy = area === 'auth' ? await resealFor(ctx, from, to, theirs as Settings<'auth'>) : theirs
      const { value, leftOut } = mergeSettings(area, mine, copy, own)
      allLeftOut.push(...leftOut)
      const fields = changedFields(area, mine, value)
      if (fields.length === 0) continue
      await saveSettings(tx, { ref: to, area, value, own, updatedAt: ctx.now() })
      await record(`project.${area}.inherit`, { from, fields })
    }
    return allLeftOut
  })
}

type Inherited = Settings<InheritedArea>

function mergeSettings(area: InheritedArea, mine: Inherited, theirs: Inherited, own: readonly string[]) {
  if (area === 'auth') return inheritAuthConfig(mine as Settings<'auth'>, theirs as Settings<'auth'>, own)
  return { value: parseSettings(area, mergeFields(mine, theirs, own)), leftOut: [] }
}
