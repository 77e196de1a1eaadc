import { and, eq, inArray, type SQL } from 'drizzle-orm'
import { callerOf } from '../../../actor.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { EngineRefusal } from '../../../engine/engine-errors.ts'
import type { Fence } from '../../../engine/fence.ts'
import { SettingsRefused } from '../../../engine/settings.ts'
import { type projects, projectTasks, type TaskInput, type TaskKind } from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { createLeases } from '../../kernel/task-leases.ts'

export type Task = typeof projectTasks.$inferSelect
type Project = typeof projects.$inferSelect
export type Changes = Partial<Omit<typeof projects.$inferInsert, 'secretsGeneration'>> & { secretsGeneration?: SQL }

export interface Work {
  project: Project
  task: Task
}

export interface Step {
  name: string
  /** Runs the step; it must be idempotent. The returned columns of the project are stored with the record of the step. */
  // biome-ignore lint/suspicious/noConfusingVoidType: most steps change no columns and return nothing
  run(ctx: SystemCtx, work: Work, fence: Fence): Promise<Changes | void>
}

interface End extends Work {
  state: 'done' | 'failed'
  /** Reason of a failure, for members. */
  reason?: string
  at: Date
  organization: { id: string; slug: string }
}

export interface Job {
  steps: readonly Step[]
  /** Columns of the project after success; without a status the project keeps its own. */
  done: Changes
  /** Event to publish after success, in addition to the new status. */
  event?: 'v1.project.paused' | 'v1.project.restored' | 'v1.project.restarted' | 'v1.project.removed'
  /** Columns of the project after the last attempt; absent if the job is retried until it succeeds. */
  failed?(task: Task, error: unknown): Changes
  /** Called in the transaction that ends the task. */
  ended?(mutation: Mutation, end: End): Promise<void>
}
export type Jobs = Record<TaskKind, Job>

/** A task that can never succeed: it fails without another attempt. */
export class PermanentError extends Error {
  override name = 'PermanentError'
}

/** Errors of which a retry would fail the same way. Their messages are written for members. */
export const PERMANENT_ERRORS = [PermanentError, EngineRefusal, SettingsRefused]

/** Condition: the task waits or is under way. */
export const isOpenTask = inArray(projectTasks.state, ['pending', 'running'])

export const projectLeases = createLeases({
  ...{ table: projectTasks, type: 'project-task' },
  ...{ project: projectTasks.projectRef, runningMax: 1 },
})

const ONE_OPEN = 'project_tasks_one_open'

/** The part of the context that starting and canceling tasks needs. */
export type TaskCtx = Pick<SystemCtx, 'now' | 'actor'>

/** Starts a task of a project. Fails while another task of the project is open. */
export async function startTask(
  ctx: TaskCtx,
  { tx, enqueue }: Pick<Mutation, 'tx' | 'enqueue'>,
  { ref, kind, input = {} }: { ref: string; kind: TaskKind; input?: TaskInput },
): Promise<string> {
  const actorUserId = callerOf(ctx.actor)?.userId
  const task = requireRow(
    await tx
      .insert(projectTasks)
      .values({ projectRef: ref, kind, input, actorUserId, dueAt: ctx.now(), createdAt: ctx.now() })
      .returning({ id: projectTasks.id })
      .catch((error) => {
        if (uniqueViolation(error) !== ONE_OPEN) throw error
        throw new ApiError('conflict.project_status', {
          detail: 'another operation on it is still running',
          cause: error,
        })
      }),
  )
  enqueue({ type: 'project-task', id: task.id })
  return task.id
}

export const ofProject = (ref: string, kinds: readonly TaskKind[]) =>
  and(eq(projectTasks.projectRef, ref), inArray(projectTasks.kind, kinds))

/** Cancels open tasks, so that their consumers can no longer record anything. Returns the number of tasks. */
export async function cancelTasks(
  { now }: TaskCtx,
  { tx }: Pick<Mutation, 'tx'>,
  which: SQL | undefined,
): Promise<number> {
  const canceled = await tx
    .update(projectTasks)
    .set({ state: 'canceled', finishedAt: now(), leaseUntil: null, claim: null })
    .where(and(which, isOpenTask))
    .returning({ id: projectTasks.id })
  return canceled.length
}

/** Adds to the input of a task. False if its lease is lost. */
export async function updateTaskInput(db: Writer, task: Task, more: Partial<TaskInput>): Promise<boolean> {
  const input = { ...task.input, ...more }
  const updated = await db.update(projectTasks).set({ input }).where(projectLeases.isLeasedBy(task)).returning()
  if (updated.length === 0) return false
  task.input = input
  return true
}
