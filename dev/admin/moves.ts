import { setTimeout as delay } from 'node:timers/promises'
import { and, eq, isNull, sql } from 'drizzle-orm'
import { LOCAL } from '../../src/engine/host/directory.ts'
import { changeStatus, lockStatus } from '../../src/management/projects/projects/status.ts'
import { hosts, type ProjectStatus, projects, projectTasks } from '../../src/model/tables/index.ts'
import { uniqueViolation } from '../../src/platform/db/postgres-errors.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { change } from './change.ts'
import type { Command, Report } from './command.ts'
import { errorLine } from './error-line.ts'
import { unknownProject } from './find.ts'
import { hostApis, requireHost } from './host-apis.ts'
import { findByRef } from './projects.ts'

export const moveCommands: Record<string, Command> = {
  'project move': {
    summary:
      'Move a project to another host and wait for the end; --source-lost recovers it from the archive of a lost host.',
    args: ['ref', 'host'],
    options: '[--source-lost]',
    run: (db, [ref = '', to = ''], options) =>
      moveProject(db, { ref, to, isSourceLost: options['source-lost'] === true }),
  },
}

interface Move {
  ref: string
  to: string
  isSourceLost: boolean
}

const MOVABLE: readonly ProjectStatus[] = ['ACTIVE_HEALTHY', 'ACTIVE_UNHEALTHY', 'INACTIVE']
/** Statuses of a project whose host was lost during a pause or restore. The move opens the project. */
const FAILED_WITH_HOST: readonly ProjectStatus[] = ['PAUSE_FAILED', 'RESTORE_FAILED']
const POLL_MS = 1_000
/** A task that is overdue by this time is started by the next tick of the cron. */
const OVERDUE_MS = 60_000

/** Creates the task, which the API runs, and waits for its end. */
async function moveProject(db: ControlDb, move: Move): Promise<Report> {
  const task = await startMove(db, move)
  for (;;) {
    const [row] = await db.select().from(projectTasks).where(eq(projectTasks.id, task))
    if (row?.state === 'done') return { text: `${move.ref} is on ${move.to}`, exitCode: 0 }
    if (row?.state !== 'pending' && row?.state !== 'running') {
      return { text: `${move.ref} has not moved: ${errorLine(row?.lastError ?? 'the task was ended')}`, exitCode: 1 }
    }
    await delay(POLL_MS)
  }
}

async function startMove(db: ControlDb, { ref, to, isSourceLost }: Move): Promise<string> {
  const [project] = await db
    .select({
      status: projects.status,
      from: sql<string | null>`${projects.engineState} ->> 'host'`,
    })
    .from(projects)
    .where(and(eq(projects.ref, ref), isNull(projects.removedAt)))
  if (!project) return unknownProject(ref)
  const { status, from } = project
  if (from === null) throw new StartError(`${ref} is not on a database host`)
  if (from === to) throw new StartError(`${ref} is on ${to} already`)
  const movable = isSourceLost ? [...MOVABLE, ...FAILED_WITH_HOST] : MOVABLE
  if (!movable.includes(status))
    throw new StartError(`the status of ${ref} is ${status}: it must be one of ${movable.join(', ')}`)
  const apis = await hostApis(db)
  const source = requireHost(apis, from)
  const { features } = await requireHost(apis, to).describe()
  if (!features.includes('backups')) throw new StartError(`the host ${to} has no archive, which a move needs`)
  const answers = await source.answers()
  if (isSourceLost && answers)
    throw new StartError(`${from} answers: move without --source-lost, so that nothing is lost`)
  if (!isSourceLost && !answers) throw new StartError(`${from} does not answer: is it lost? Then add --source-lost`)
  return change(db, async (mutation) => {
    const { tx, trace } = mutation
    // The lock prevents the removal of the host before the task is stored. The host of the settings has no row.
    const rows = await tx.select({ name: hosts.name }).from(hosts).where(eq(hosts.name, to)).for('key share')
    if (rows.length === 0 && to !== LOCAL) throw new StartError(`no host is called "${to}"`)
    const project = await findByRef(tx, ref)
    const before = await lockStatus(mutation, ref)
    const now = Date.now()
    const [task] = await tx
      .insert(projectTasks)
      .values({
        projectRef: ref,
        kind: 'move',
        input: { from, to, isSourceLost },
        dueAt: new Date(now - OVERDUE_MS),
        createdAt: new Date(now),
      })
      .returning({ id: projectTasks.id })
      .catch((error) => {
        if (uniqueViolation(error) !== 'project_tasks_one_open') throw error
        throw new StartError(`another operation on ${ref} is under way`)
      })
    if (before && FAILED_WITH_HOST.includes(before))
      await changeStatus(mutation, project, { before, status: 'ACTIVE_UNHEALTHY' })
    const detail = { from, to, isSourceLost }
    await trace({ action: 'project.move', organizationId: project.organizationId, projectRef: ref, detail })
    if (!task) throw new Error('the task was not inserted')
    return task.id
  })
}
