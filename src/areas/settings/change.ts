import { mutate } from '../../db/mutate.ts'
import type { SystemCtx } from '../../env.ts'
import { lockProject } from '../projects/lock.ts'
import type { Area, Settings } from './areas.ts'
import { readSettings, saveSettings } from './rows.ts'

interface Change<A extends Area> {
  ref: string
  area: A
  /** What becomes of the value; what it does to the cluster is done when it returns. Undefined leaves all as it is. */
  work(value: Settings<A>): Promise<NonNullable<Settings<A>> | undefined>
  /** What the audit log calls changed. */
  fieldsOf?: (before: Settings<A>, after: Settings<A>) => string[]
}

/** One change of a project's settings after the other; what the cluster refuses is not stored. */
export async function changeSettings<A extends Area>(
  ctx: SystemCtx,
  { ref, area, work, fieldsOf = changedFields }: Change<A>,
): Promise<Settings<A>> {
  return mutate(ctx, async ({ tx, trace }) => {
    const { organizationId } = await lockProject({ tx }, ref)
    const { value: before } = await readSettings(tx, ref, area)
    const value = await work(before)
    if (value === undefined) return before
    await saveSettings(tx, { ref, area, value, updatedAt: ctx.now() })
    const fields = fieldsOf(before, value)
    await trace({ action: `project.${area}.update`, organizationId, projectRef: ref, detail: { fields } })
    return value
  })
}

function changedFields(before: Record<string, unknown> = {}, after: Record<string, unknown> = {}): string[] {
  const names = new Set([...Object.keys(before), ...Object.keys(after)])
  return Array.from(names).filter((name) => before[name] !== after[name])
}
