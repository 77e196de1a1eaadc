import { sql } from 'drizzle-orm'
import { projectSettings } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { lockProject } from './find.ts'

export const readOnlyCommands: Record<string, Command> = {
  'readonly on': {
    summary: 'Make a database read-only.',
    args: ['ref'],
    run: async (db, [ref = '']) => {
      await setMode(db, ref, { enabled: true, by: 'operator' })
      return `${ref} becomes read-only within a minute`
    },
  },
  'readonly off': {
    summary: 'Make a database writable again.',
    args: ['ref'],
    run: async (db, [ref = '']) => {
      await setMode(db, ref, { enabled: false, by: 'size' })
      return `${ref} becomes writable within a minute, unless its disk is full`
    },
  },
}

/** Stores the mode. The Worker's cron applies it to the database and records that in the same row. */
function setMode(db: ControlDb, ref: string, mode: { enabled: boolean; by: 'operator' | 'size' }): Promise<void> {
  return change(db, async ({ tx, trace }) => {
    const { organizationId } = await lockProject(tx, ref)
    await tx
      .insert(projectSettings)
      .values({ projectRef: ref, area: 'readonly', value: { ...mode, applied: false }, updatedAt: new Date() })
      .onConflictDoUpdate({
        target: [projectSettings.projectRef, projectSettings.area],
        set: { value: sql`${projectSettings.value} || ${JSON.stringify(mode)}::jsonb`, updatedAt: new Date() },
      })
    await trace({ action: 'project.readonly.update', organizationId, projectRef: ref, detail: { ...mode } })
  })
}
