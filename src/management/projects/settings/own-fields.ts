import type { SystemCtx } from '../../../ctx.ts'
import { resealFor } from '../../service-config/auth-config/stored-config.ts'
import { type Reader, readSettings, type StoredSettings } from './read-settings.ts'
import { type Area, changedFields, parseSettings, type Settings } from './setting-areas.ts'

interface BranchSettings<A extends Area> {
  ref: string
  parentRef: string
  area: A
  stored: StoredSettings<A>
}

/** Reads the fields of a branch that do not follow its parent. */
export async function readOwnFields<A extends Area>(
  ctx: SystemCtx,
  db: Reader,
  { ref, parentRef, area, stored }: BranchSettings<A>,
): Promise<readonly string[]> {
  if (stored.own) return stored.own
  const theirs = await readSettings(db, parentRef, area)
  return inferOwnFields(
    area,
    stored.value,
    await resealSettings(ctx, { from: parentRef, to: ref, area, value: theirs.value }),
  )
}

/** Infers the own fields of a branch for which none were recorded: those that are set and differ from the parent. */
export function inferOwnFields<A extends Area>(area: A, mine: Settings<A>, theirs: Settings<A>): readonly string[] {
  const set = new Set(changedFields(area, parseSettings(area, undefined), mine))
  return changedFields(area, theirs, mine).filter((name) => set.has(name))
}

interface SettingsCopy<A extends Area> {
  from: string
  to: string
  area: A
  value: Settings<A>
}

/** Returns the settings for another project. Secrets are sealed for the row that contains them, so they are sealed again. */
export async function resealSettings<A extends Area>(
  ctx: SystemCtx,
  { from, to, area, value }: SettingsCopy<A>,
): Promise<Settings<A>> {
  if (area !== 'auth') return value
  // Auth is the only area with sealed fields.
  return (await resealFor(ctx, from, to, value as Settings<'auth'>)) as Settings<A>
}
