import type { SystemCtx } from '../../../ctx.ts'
import { keptFor } from '../../service-config/auth-config/stored-config.ts'
import { type Kept, type Reader, readSettings } from './read-settings.ts'
import { type Area, changedFields, type Settings, settingsIn } from './setting-areas.ts'

interface OfBranch<A extends Area> {
  ref: string
  parentRef: string
  area: A
  kept: Kept<A>
}

/** The fields of a branch that do not follow its parent's. */
export async function ownFields<A extends Area>(
  ctx: SystemCtx,
  db: Reader,
  { ref, parentRef, area, kept }: OfBranch<A>,
): Promise<readonly string[]> {
  if (kept.own) return kept.own
  const theirs = await readSettings(db, parentRef, area)
  return supposedlyOwn(area, kept.value, await boundTo(ctx, { from: parentRef, to: ref, area, value: theirs.value }))
}

/** Where no note was taken: what was set, and otherwise than on the parent. */
export function supposedlyOwn<A extends Area>(area: A, mine: Settings<A>, theirs: Settings<A>): readonly string[] {
  const set = new Set(changedFields(area, settingsIn(area, undefined), mine))
  return changedFields(area, theirs, mine).filter((name) => set.has(name))
}

interface Way<A extends Area> {
  from: string
  to: string
  area: A
  value: Settings<A>
}

/** The same for another project: secrets are sealed for the row they lie in. */
export async function boundTo<A extends Area>(ctx: SystemCtx, { from, to, area, value }: Way<A>): Promise<Settings<A>> {
  if (area !== 'auth') return value
  // The one area that holds sealed fields is that of Auth.
  return (await keptFor(ctx, from, to, value as Settings<'auth'>)) as Settings<A>
}
