import { and, eq, inArray } from 'drizzle-orm'
import type { Writer } from '../../db/client.ts'
import { projectSettings } from '../../db/schema/index.ts'
import { type Area, type Settings, settingsIn } from './areas.ts'

export type Reader = Pick<Writer, 'select'>

/** Of one project and its areas. */
export const settingsOf = (ref: string, ...areas: Area[]) =>
  and(eq(projectSettings.projectRef, ref), inArray(projectSettings.area, areas))

interface Kept<A extends Area> {
  value: Settings<A>
  /** Undefined where nothing was ever set. */
  updatedAt: Date | undefined
}

export async function readSettings<A extends Area>(db: Reader, ref: string, area: A): Promise<Kept<A>> {
  return settingsFrom(area, await selectSettings(db, ref, area))
}

/** The statement of a read, for who reads other rows in the same round trip; `settingsFrom` takes what comes of it. */
export const selectSettings = (db: Reader, ref: string, area: Area) =>
  db
    .select({ value: projectSettings.value, updatedAt: projectSettings.updatedAt })
    .from(projectSettings)
    .where(settingsOf(ref, area))

type Row = Pick<typeof projectSettings.$inferSelect, 'value' | 'updatedAt'>

export const settingsFrom = <A extends Area>(area: A, [row]: readonly Row[]): Kept<A> => ({
  value: settingsIn(area, row?.value),
  updatedAt: row?.updatedAt,
})

interface NewSettings<A extends Area> {
  ref: string
  area: A
  value: NonNullable<Settings<A>>
  updatedAt: Date
}

/** In the place of what is there; without a word to the audit log. */
export async function saveSettings<A extends Area>(
  tx: Writer,
  { ref, area, value, updatedAt }: NewSettings<A>,
): Promise<void> {
  const row = { value, updatedAt }
  await tx
    .insert(projectSettings)
    .values({ projectRef: ref, area, ...row })
    .onConflictDoUpdate({ target: [projectSettings.projectRef, projectSettings.area], set: row })
}

/** What holds without any holds again. Returns whether there was something. */
export async function removeSettings(tx: Writer, ref: string, area: Area): Promise<boolean> {
  const removed = await tx
    .delete(projectSettings)
    .where(settingsOf(ref, area))
    .returning({ ref: projectSettings.projectRef })
  return removed.length > 0
}
