import { and, eq, inArray } from 'drizzle-orm'
import * as z from 'zod'
import { projectSettings, projects, type SettingArea } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { type Area, type Settings, settingsIn } from './setting-areas.ts'

export type Reader = Pick<Writer, 'select'>

/** Of one project and its areas. */
export const settingsOf = (ref: string, ...areas: SettingArea[]) =>
  and(eq(projectSettings.projectRef, ref), inArray(projectSettings.area, areas))

export interface Kept<A extends Area> {
  value: Settings<A>
  /** The fields of a branch that do not follow its parent's; undefined where no note was taken of them. */
  own: readonly string[] | undefined
  /** Undefined where nothing was ever set, and for storage. */
  updatedAt: Date | undefined
}

export async function readSettings<A extends Area>(db: Reader, ref: string, area: A): Promise<Kept<A>> {
  return settingsFrom(area, area === 'storage' ? await selectStorage(db, ref) : await selectSettings(db, ref, area))
}

/** The statement of a read, for who reads other rows in the same round trip; `settingsFrom` takes what comes of it. */
export const selectSettings = (db: Reader, ref: string, area: SettingArea) =>
  db
    .select({ value: projectSettings.value, updatedAt: projectSettings.updatedAt })
    .from(projectSettings)
    .where(settingsOf(ref, area))

const selectStorage = (db: Reader, ref: string) =>
  db.select({ value: projects.storageConfig }).from(projects).where(eq(projects.ref, ref))

/** All areas of several projects. */
export async function readAllSettings(db: Reader, refs: readonly string[]) {
  const rows = await db
    .select()
    .from(projectSettings)
    .where(inArray(projectSettings.projectRef, [...refs]))
  const storage = await db
    .select({ projectRef: projects.ref, value: projects.storageConfig })
    .from(projects)
    .where(inArray(projects.ref, [...refs]))
  return <A extends Area>(ref: string, area: A): Kept<A> => {
    const found = area === 'storage' ? storage : rows.filter((row) => row.area === area)
    return settingsFrom(
      area,
      found.filter(({ projectRef }) => projectRef === ref),
    )
  }
}

interface Row {
  value: object
  updatedAt?: Date
}

/** Stored beside the fields of an area. */
const Note = z.object({ own: z.array(z.string()).optional() })
const noteIn = (value: object): readonly string[] | undefined =>
  Object.keys(value).length === 0 ? [] : Note.parse(value).own

export const settingsFrom = <A extends Area>(area: A, [row]: readonly Row[]): Kept<A> => ({
  value: settingsIn(area, row?.value),
  own: noteIn(row?.value ?? {}),
  updatedAt: row?.updatedAt,
})

interface NewSettings<A extends Area> extends Partial<Pick<Kept<A>, 'own'>> {
  ref: string
  area: A
  value: NonNullable<Settings<A>>
  updatedAt: Date
}

/** In the place of what is there; without a word to the audit log. */
export async function saveSettings<A extends Area>(
  tx: Writer,
  { ref, area, value: settings, own, updatedAt }: NewSettings<A>,
): Promise<void> {
  const note = { ...(own && { own: [...own] }) }
  if (area === 'storage') {
    const storageConfig = { ...settingsIn('storage', settings), ...note }
    await tx.update(projects).set({ storageConfig }).where(eq(projects.ref, ref))
    return
  }
  const row = { value: joined(settings, note), updatedAt }
  await tx
    .insert(projectSettings)
    .values({ projectRef: ref, area, ...row })
    .onConflictDoUpdate({ target: [projectSettings.projectRef, projectSettings.area], set: row })
}

const joined = (settings: object, note: object): Record<string, unknown> => ({ ...settings, ...note })

/** What holds without any holds again. Returns whether there was something. */
export async function removeSettings(tx: Writer, ref: string, area: SettingArea): Promise<boolean> {
  const removed = await tx
    .delete(projectSettings)
    .where(settingsOf(ref, area))
    .returning({ ref: projectSettings.projectRef })
  return removed.length > 0
}
