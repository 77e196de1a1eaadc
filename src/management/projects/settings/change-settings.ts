import type { SystemCtx } from '../../../ctx.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { readOwnFields } from './own-fields.ts'
import { readSettings, type StoredSettings, saveSettings } from './read-settings.ts'
import { type Area, changedFields, isInherited, type Settings } from './setting-areas.ts'

interface Change<A extends Area> {
  ref: string
  area: A
  /** Returns the new value, after applying it to the cluster. Undefined changes nothing. */
  work(value: Settings<A>): Promise<NonNullable<Settings<A>> | undefined>
}

export async function changeSettings<A extends Area>(ctx: SystemCtx, change: Change<A>): Promise<Settings<A>> {
  return (await changeStored(ctx, change)).value
}

/**
 * Changes settings of a project, one change at a time; a value that the cluster refuses is not stored. Fields changed on a branch no
 * longer follow its parent. Returns the stored value and its time.
 */
export async function changeStored<A extends Area>(ctx: SystemCtx, { ref, area, work }: Change<A>) {
  return mutate(ctx, async ({ tx, trace }): Promise<Pick<StoredSettings<A>, 'value' | 'updatedAt'>> => {
    const { organizationId, parentRef } = await lockProject({ tx }, ref)
    const stored = await readSettings(tx, ref, area)
    const value = await work(stored.value)
    if (value === undefined) return stored
    const fields = changedFields(area, stored.value, value)
    const own =
      parentRef !== null && isInherited(area)
        ? Array.from(new Set([...(await readOwnFields(ctx, tx, { ref, parentRef, area, stored })), ...fields]))
        : undefined
    const updatedAt = ctx.now()
    await saveSettings(tx, { ref, area, value, own, updatedAt })
    await trace({ action: `project.${area}.update`, organizationId, projectRef: ref, detail: { fields } })
    return { value, updatedAt }
  })
}
