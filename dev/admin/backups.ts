import { and, eq, isNull, sql } from 'drizzle-orm'
import * as z from 'zod'
import type { HostApi } from '../../src/engine/host/client.ts'
import { projects } from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { errorMessage, StartError } from '../start-error.ts'
import type { Command, Report } from './command.ts'
import { hostApis } from './host-apis.ts'

export const backupCommands: Record<string, Command> = {
  'backups drill': {
    summary: 'Test the latest backup of each project: restore it elsewhere, and compare it with the project.',
    args: [],
    options: '[--project ref]',
    run: (db, _args, { project }) => drillBackups(db, project),
  },
}

/** Limit for a drill, which reads a whole backup and all tables of the project. */
const DRILL_MS_MAX = 24 * 3_600_000

const Drill = z.object({
  backup: z.string(),
  seconds: z.number(),
  tables: z.number(),
  rows: z.number(),
  isCompared: z.boolean(),
  indexes: z.number(),
  differences: z.array(z.object({ table: z.string(), reason: z.string() })),
  damaged: z.array(z.object({ index: z.string(), reason: z.string() })),
})

type Outcome = 'ok' | 'failed' | 'none'

/** Drills one project after the other, because a drill needs the disk space of a whole instance. */
async function drillBackups(db: ControlDb, only: string | undefined): Promise<Report> {
  const host = sql<string | null>`${projects.engineState} ->> 'host'`
  const found = await db
    .select({ ref: projects.ref, host })
    .from(projects)
    .where(and(isNull(projects.removedAt), only === undefined ? undefined : eq(projects.ref, only)))
    .orderBy(projects.ref)
  if (only !== undefined && found.length === 0) throw new StartError(`no project has the ref "${only}"`)
  const apis = await hostApis(db)
  const counts = { ok: 0, failed: 0, none: 0 }
  const lines: string[] = []
  for (const { ref, host } of found.filter((project) => project.host !== null)) {
    const { outcome, text } = await drill(ref, host === null ? undefined : apis.get(host)).catch((error) => ({
      outcome: 'failed' as const,
      text: errorMessage(error),
    }))
    counts[outcome] += 1
    lines.push(`${ref}  ${{ ok: 'ok', failed: 'FAILED', none: '-' }[outcome]}  ${text}`)
  }
  lines.push(`${counts.ok} restored, ${counts.failed} failed, ${counts.none} without a backup`)
  return { text: lines.join('\n'), exitCode: counts.failed > 0 ? 1 : 0 }
}

async function drill(ref: string, api: HostApi | undefined): Promise<{ outcome: Outcome; text: string }> {
  if (!api) return { outcome: 'failed', text: 'its host is not known here: set HOST_URL and HOST_KEY' }
  const { features } = await api.describe()
  if (!features.includes('backups')) return { outcome: 'none', text: `the host ${api.host.id} has no archive` }
  const backups = await api.ask(z.array(z.unknown()), { method: 'GET', path: `/instances/${ref}/backups` })
  if (backups.length === 0) return { outcome: 'none', text: 'no backup' }
  const report = await api.ask(Drill, { method: 'POST', path: `/instances/${ref}/drill`, waitMs: DRILL_MS_MAX })
  const { backup, tables, rows, indexes, seconds, differences, damaged } = report
  const wrong = [
    ...differences.map(({ table, reason }) => `${table}: ${reason}`),
    ...damaged.map(({ index, reason }) => `index ${index}: ${reason}`),
  ]
  if (wrong.length > 0) return { outcome: 'failed', text: `backup ${backup}: ${wrong.join('; ')}` }
  const compared = report.isCompared ? '' : ', not compared as it is paused'
  const text = `backup ${backup}, ${tables} tables, ${rows} rows, ${indexes} indexes, ${seconds.toFixed(1)} s${compared}`
  return { outcome: 'ok', text }
}
