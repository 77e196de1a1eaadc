import type { SystemCtx } from '../../../ctx.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { mutate } from '../../kernel/mutate.ts'
import { readSettings, type StoredSettings, saveSettings } from './read-settings.ts'
import { type Area, changedFields, isInherited, type Settings } from './setting-areas.ts'

interface Change<A extends Area> {
  /** The organization in which the caller's role was checked; absent for a change by the installation. */
  project: { ref: string; organizationId?: string }
  area: A
  /** Applies a new value to the cluster and returns it; an equal value or undefined changes nothing. */
  work(value: Settings<A>): Promise<NonNullable<Settings<A>> | undefined>
}

export async function changeSettings<A extends Area>(ctx: SystemCtx, change: Change<A>): Promise<Settings<A>> {
  return (await changeStored(ctx, change)).value
}

/**
 * Changes settings of a project, one change at a time; a value that the cluster refuses is not stored. Fails before it changes anything
 * if the project was transferred meanwhile. Fields changed on a branch no longer follow its parent. Returns the stored value and its time.
 */
export async function changeStored<A extends Area>(ctx: SystemCtx, { project, area, work }: Change<A>) {
  const { ref } = project
  return mutate(ctx, async ({ tx, trace }): Promise<Pick<StoredSettings<A>, 'value' | 'updatedAt'>> => {
    const { organizationId, parentRef } = await lockProject({ tx }, ref)
    if (organizationId !== (project.organizationId ?? organizationId)) throw new ApiError('not_found.project')
    const stored = await readSettings(tx, ref, area)
    const value = await work(stored.value)
    const fields = value === undefined ? [] : changedFields(area, stored.value, value)
    if (value === undefined || fields.length === 0) return stored
    const own = parentRef !== null && isInherited(area) ? [...new Set([...stored.own, ...fields])] : undefined
    const updatedAt = ctx.now()
    await saveSettings(tx, { ref, area, value, own, updatedAt })
    await trace({ action: `project.${area}.update`, organizationId, projectRef: ref, detail: { fields } })
    return { value, updatedAt }
  })
}
