import type { SystemCtx } from '../../../ctx.ts'
import { mutate } from '../../kernel/mutate.ts'
import { lockProject } from '../projects/lock-project.ts'
import { ownFields } from './own-fields.ts'
import { type Kept, readSettings, saveSettings } from './read-settings.ts'
import { type Area, changedFields, isInherited, type Settings } from './setting-areas.ts'

interface Change<A extends Area> {
  ref: string
  area: A
  /** What becomes of the value; what it does to the cluster is done when it returns. Undefined leaves all as it is. */
  work(value: Settings<A>): Promise<NonNullable<Settings<A>> | undefined>
}

export async function changeSettings<A extends Area>(ctx: SystemCtx, change: Change<A>): Promise<Settings<A>> {
  return (await changeStored(ctx, change)).value
}

/**
 * One change of a project's settings after the other; what the cluster refuses is not stored. What is changed on a branch is
 * the branch's own from then on. Returns what is stored, and since when.
 */
export async function changeStored<A extends Area>(ctx: SystemCtx, { ref, area, work }: Change<A>) {
  return mutate(ctx, async ({ tx, trace }): Promise<Pick<Kept<A>, 'value' | 'updatedAt'>> => {
    const { organizationId, parentRef } = await lockProject({ tx }, ref)
    const kept = await readSettings(tx, ref, area)
    const value = await work(kept.value)
    if (value === undefined) return kept
    const fields = changedFields(area, kept.value, value)
    const own =
      parentRef !== null && isInherited(area)
        ? Array.from(new Set([...(await ownFields(ctx, tx, { ref, parentRef, area, kept })), ...fields]))
        : undefined
    const updatedAt = ctx.now()
    await saveSettings(tx, { ref, area, value, own, updatedAt })
    await trace({ action: `project.${area}.update`, organizationId, projectRef: ref, detail: { fields } })
    return { value, updatedAt }
  })
}
