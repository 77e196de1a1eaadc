import { and, eq, inArray } from 'drizzle-orm'
import * as z from 'zod'
import { projectSettings, projects, type SettingArea } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { type Area, parseSettings, type Settings } from './setting-areas.ts'

export type Reader = Pick<Writer, 'select'>

/** Matches the rows of some areas of a project's settings. */
export const isSettingsRow = (ref: string, ...areas: SettingArea[]) =>
  and(eq(projectSettings.projectRef, ref), inArray(projectSettings.area, areas))

export interface StoredSettings<A extends Area> {
  value: Settings<A>
  /** The fields of a branch that do not follow its parent. */
  own: readonly string[]
  /** Undefined if nothing was ever set. The area `storage` has no time. */
  updatedAt: Date | undefined
}

export async function readSettings<A extends Area>(db: Reader, ref: string, area: A): Promise<StoredSettings<A>> {
  return parseSettingsRow(area, area === 'storage' ? await selectStorage(db, ref) : await selectSettings(db, ref, area))
}

/** Builds the query of an area, for callers that batch it with others. Pass its rows to `parseSettingsRow`. */
export const selectSettings = (db: Reader, ref: string, area: SettingArea) =>
  db
    .select({ value: projectSettings.value, updatedAt: projectSettings.updatedAt })
    .from(projectSettings)
    .where(isSettingsRow(ref, area))

const selectStorage = (db: Reader, ref: string) =>
  db.select({ value: projects.storageConfig }).from(projects).where(eq(projects.ref, ref))

/** Reads all areas of several projects. */
export async function readAllSettings(db: Reader, refs: readonly string[]) {
  const rows = await db
    .select()
    .from(projectSettings)
    .where(inArray(projectSettings.projectRef, [...refs]))
  const storage = await db
    .select({ projectRef: projects.ref, value: projects.storageConfig })
    .from(projects)
    .where(inArray(projects.ref, [...refs]))
  return <A extends Area>(ref: string, area: A): StoredSettings<A> => {
    const found = area === 'storage' ? storage : rows.filter((row) => row.area === area)
    return parseSettingsRow(
      area,
      found.filter(({ projectRef }) => projectRef === ref),
    )
  }
}

interface Row {
  value: object
  updatedAt?: Date
}

/** Metadata stored with the fields of an area. */
const Metadata = z.object({ own: z.array(z.string()).default([]) })

export const parseSettingsRow = <A extends Area>(area: A, [row]: readonly Row[]): StoredSettings<A> => ({
  value: parseSettings(area, row?.value),
  own: Metadata.parse(row?.value ?? {}).own,
  updatedAt: row?.updatedAt,
})

interface NewSettings<A extends Area> {
  ref: string
  area: A
  value: NonNullable<Settings<A>>
  own?: readonly string[] | undefined
  updatedAt: Date
}

/** Stores the settings of an area, without an audit entry. */
export async function saveSettings<A extends Area>(
  tx: Writer,
  { ref, area, value: settings, own, updatedAt }: NewSettings<A>,
): Promise<void> {
  const metadata = { ...(own && { own: [...own] }) }
  if (area === 'storage') {
    const storageConfig = { ...parseSettings('storage', settings), ...metadata }
    await tx.update(projects).set({ storageConfig }).where(eq(projects.ref, ref))
    return
  }
  const row = { value: { ...settings, ...metadata } as Record<string, unknown>, updatedAt }
  await tx
    .insert(projectSettings)
    .values({ projectRef: ref, area, ...row })
    .onConflictDoUpdate({ target: [projectSettings.projectRef, projectSettings.area], set: row })
}

/** Removes the settings of an area, so that the defaults apply. Returns whether there were any. */
export async function removeSettings(tx: Writer, ref: string, area: SettingArea): Promise<boolean> {
  const removed = await tx
    .delete(projectSettings)
    .where(isSettingsRow(ref, area))
    .returning({ ref: projectSettings.projectRef })
  return removed.length > 0
}
