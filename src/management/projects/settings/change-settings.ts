import type { SystemCtx } from '../../../ctx.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { readSettings, type StoredSettings, saveSettings } from './read-settings.ts'
import { type Area, changedFields, isInherited, type Settings } from './setting-areas.ts'

interface Change<A extends Area> {
  project: Parameters<typeof changeProject>[1]
  area: A
  /** Applies a new value to the cluster and returns it; an equal value or undefined changes nothing. */
  work(value: Settings<A>): Promise<NonNullable<Settings<A>> | undefined>
}

export async function changeSettings<A extends Area>(ctx: SystemCtx, change: Change<A>): Promise<Settings<A>> {
  return (await changeStored(ctx, change)).value
}

/**
 * Changes settings of a project; a value that the cluster refuses is not stored. Fields changed on a branch no longer follow its parent.
 * Returns the stored value and its time.
 */
export function changeStored<A extends Area>(
  ctx: SystemCtx,
  { project, area, work }: Change<A>,
): Promise<Pick<StoredSettings<A>, 'value' | 'updatedAt'>> {
  const { ref } = project
  return changeProject(ctx, project, async ({ tx, record, parentRef }) => {
    const stored = await readSettings(tx, ref, area)
    const value = await work(stored.value)
    const fields = value === undefined ? [] : changedFields(area, stored.value, value)
    if (value === undefined || fields.length === 0) return stored
    const own = parentRef !== null && isInherited(area) ? [...new Set([...stored.own, ...fields])] : undefined
    const updatedAt = ctx.now()
    await saveSettings(tx, { ref, area, value, own, updatedAt })
    await record(`project.${area}.update`, { fields })
    return { value, updatedAt }
  })
}
