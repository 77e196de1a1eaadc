import { and, eq, inArray, type SQL } from 'drizzle-orm'
import { callerOf } from '../../../actor.ts'
import type { SystemCtx } from '../../../ctx.ts'
import type { Fence } from '../../../engine/engine.ts'
import { type projects, projectTasks, type TaskInput, type TaskKind } from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { requireRow } from '../../../platform/db/require-row.ts'
import { ApiError } from '../../../platform/http/error.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { createLeases } from '../../kernel/task-leases.ts'

export type Task = typeof projectTasks.$inferSelect
type Project = typeof projects.$inferSelect
export type Changes = Partial<typeof projects.$inferInsert>

export interface Work {
  project: Project
  task: Task
}

export interface Step {
  name: string
  /** Must bear being run again from its start; what it returns becomes the project's columns with its record. */
  run(ctx: SystemCtx, work: Work, fence: Fence): Promise<Changes | undefined>
}

interface End extends Work {
  state: 'done' | 'failed'
  reason?: string
  at: Date
  organization: { id: string; slug: string }
}

export interface Job {
  steps: readonly Step[]
  /** The project's columns once it is done; without a status among them it keeps its own. */
  done: Changes
  /** What is told when it is done, beside the new status. */
  event?: 'v1.project.paused' | 'v1.project.restored' | 'v1.project.restarted' | 'v1.project.removed'
  /** The project's columns after the last attempt; absent where the job is tried until it succeeds. */
  failed?(task: Task): Changes
  /** Commits with the end of the task; `reason` says why it failed. */
  ended?(mutation: Mutation, end: End): Promise<void>
}
export type Jobs = Record<TaskKind, Job>

/** The work can never succeed as it was asked for: it fails without another attempt. */
export class PermanentError extends Error {
  override name = 'PermanentError'
}

export const projectLeases = createLeases({ table: projectTasks, type: 'project-task' })

const ONE_OPEN = 'project_tasks_one_open'

/** What changes of tasks need of a context. */
export type TaskCtx = Pick<SystemCtx, 'now' | 'actor'>

/** Hands work on a project to the queue; refused while other work on it is open. */
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

/** Ends work that is open: who is at it can no longer record anything. Returns how many tasks there were. */
export async function cancelTasks(
  { now }: TaskCtx,
  { tx }: Pick<Mutation, 'tx'>,
  which: SQL | undefined,
): Promise<number> {
  const canceled = await tx
    .update(projectTasks)
    .set({ state: 'canceled', finishedAt: now(), leaseUntil: null, claim: null })
    .where(and(which, inArray(projectTasks.state, ['pending', 'running'])))
    .returning({ id: projectTasks.id })
  return canceled.length
}
