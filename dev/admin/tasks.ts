import { and, desc, eq, inArray, sql } from 'drizzle-orm'
import { changeStatus, lockStatus } from '../../src/management/projects/projects/status.ts'
import { startTask } from '../../src/management/projects/projects/tasks.ts'
import {
  type ProjectStatus,
  projectTasks,
  TASK_STATES,
  type TaskKind,
  workers,
  workerTasks,
} from '../../src/model/tables/index.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { type Change, change } from './change.ts'
import type { Command } from './command.ts'
import { errorLine } from './error-line.ts'
import { findByRef } from './projects.ts'

const LISTED_MAX = 200
/** States that are listed without `--status`. */
const UNFINISHED: readonly string[] = ['pending', 'running', 'failed']

export const taskCommands: Record<string, Command> = {
  'task list': {
    summary: 'List tasks, newest first: pending, running and failed ones, or those of one status.',
    args: [],
    options: `[--project ref] [--status ${TASK_STATES.join('|')}]`,
    run: (db, _args, { project, status }) => listTasks(db, project, readStates(status)),
  },
  'task retry': {
    summary: 'Run a waiting task now, or run a failed create, pause or restore of a project again.',
    args: ['id'],
    run: (db, [id = '']) => retryTask(db, id),
  },
}

function readStates(status: string | undefined): readonly string[] {
  if (status === undefined) return UNFINISHED
  if (TASK_STATES.some((state) => state === status)) return [status]
  throw new StartError(`--status ${status} is not one of ${TASK_STATES.join(', ')}`)
}

async function listTasks(db: ControlDb, ref: string | undefined, states: readonly string[]): Promise<string> {
  if (ref !== undefined) await findByRef(db, ref)
  const columns = (table: typeof projectTasks | typeof workerTasks) => ({
    id: table.id,
    kind: sql<string>`${table.kind}`.as('kind'),
    state: sql<string>`${table.state}`.as('state'),
    attempts: table.attempts,
    createdAt: table.createdAt,
    lastError: table.lastError,
  })
  const ofProjects = db
    .select({ ...columns(projectTasks), subject: sql<string>`${projectTasks.projectRef}`.as('subject') })
    .from(projectTasks)
    .where(
      and(
        inArray(sql`${projectTasks.state}`, [...states]),
        ref === undefined ? undefined : eq(projectTasks.projectRef, ref),
      ),
    )
  const ofWorkers = db
    .select({
      ...columns(workerTasks),
      subject: sql<string>`${workers.projectRef} || '/' || ${workers.name}`.as('subject'),
    })
    .from(workerTasks)
    .innerJoin(workers, eq(workers.id, workerTasks.workerId))
    .where(
      and(inArray(sql`${workerTasks.state}`, [...states]), ref === undefined ? undefined : eq(workers.projectRef, ref)),
    )
  const rows = await ofProjects.unionAll(ofWorkers).orderBy(sql`created_at desc`).limit(LISTED_MAX)
  const lines = rows.map(
    ({ id, createdAt, state, kind, subject, attempts, lastError }) =>
      `${id}  ${createdAt.toISOString()}  ${state}  ${kind}  ${subject}  attempt ${attempts}  ${errorLine(lastError ?? '')}`,
  )
  return lines.join('\n').trimEnd() || 'no tasks'
}

const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

function retryTask(db: ControlDb, id: string): Promise<string> {
  if (!ID.test(id)) throw new StartError(`"${id}" is not the id of a task: see \`task list\``)
  return change(db, async (mutation) => {
    const { tx, trace } = mutation
    for (const table of [projectTasks, workerTasks]) {
      const [begun] = await tx
        .update(table)
        .set({ dueAt: sql`least(${table.dueAt}, now() - interval '1 minute')`, attempts: 0 })
        .where(and(eq(table.id, id), eq(table.state, 'pending')))
        .returning({ kind: table.kind })
      if (!begun) continue
      await trace({ action: 'task.retry', detail: { task: id } })
      return `${id} (${begun.kind}) runs within a minute`
    }
    return startAgain(mutation, id)
  })
}

/** Kinds of tasks that can be repeated: the project's status after a failure, and during another attempt. */
const REPEATABLE: Partial<Record<TaskKind, { failed: ProjectStatus; during: ProjectStatus }>> = {
  create: { failed: 'INIT_FAILED', during: 'COMING_UP' },
  pause: { failed: 'PAUSE_FAILED', during: 'PAUSING' },
  restore: { failed: 'RESTORE_FAILED', during: 'RESTORING' },
}

/** Starts a new task instead of the failed one, whose events have been published already. */
async function startAgain(mutation: Change, id: string): Promise<string> {
  const { tx, trace } = mutation
  const [task] = await tx.select().from(projectTasks).where(eq(projectTasks.id, id))
  if (!task) {
    const [ofWorker] = await tx.select({ state: workerTasks.state }).from(workerTasks).where(eq(workerTasks.id, id))
    if (!ofWorker) throw new StartError(`no task has the id "${id}"`)
    throw new StartError(`${id} is ${ofWorker.state}: deploy the worker again instead`)
  }
  const { kind, state, projectRef: ref } = task
  const repeatable = REPEATABLE[kind]
  if (state !== 'failed') throw new StartError(`${id} is ${state}: only a pending or failed task can be retried`)
  if (kind === 'move') throw new StartError('a failed move cannot be retried: start it again with `project move`')
  if (!repeatable) throw new StartError(`a failed ${kind} cannot be retried from here: call its endpoint again`)
  const project = await findByRef(tx, ref)
  const before = await lockStatus(mutation, ref)
  const [newest] = await tx
    .select({ id: projectTasks.id })
    .from(projectTasks)
    .where(eq(projectTasks.projectRef, ref))
    .orderBy(desc(projectTasks.createdAt))
    .limit(1)
  if (before !== repeatable.failed || newest?.id !== id) {
    throw new StartError(`${ref} has changed since: its status is ${before}`)
  }
  await changeStatus(mutation, project, { before, status: repeatable.during })
  const newId = await startTask({ now: () => new Date(), actor: { kind: 'system' } }, mutation, { ref, kind })
  await trace({ action: 'task.retry', organizationId: project.organizationId, projectRef: ref, detail: { task: id } })
  return `${newId} (${kind}) runs within a minute`
}
