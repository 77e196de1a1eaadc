import { eq, sql } from 'drizzle-orm'
import { projects, projectTasks } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { type Changes, projectLeases, type Task, type Work } from './tasks.ts'

export async function claim(ctx: SystemCtx, id: string): Promise<Work | undefined> {
  const held = await projectLeases.claim(ctx, id)
  if (!held) return undefined
  const [work] = await ctx.db
    .select({ task: projectTasks, project: projects })
    .from(projectTasks)
    .innerJoin(projects, eq(projects.ref, projectTasks.projectRef))
    .where(held)
  return work
}

/** The project's columns first: a crash in between repeats the step, where the other order would lose them. */
export async function recordStep(ctx: SystemCtx, task: Task, name: string, changes: Changes = {}): Promise<boolean> {
  if (Object.keys(changes).length > 0)
    await ctx.db.update(projects).set(changes).where(eq(projects.ref, task.projectRef))
  const recorded = await ctx.db
    .update(projectTasks)
    .set({
      stepsDone: sql`array_append(${projectTasks.stepsDone}, ${name})`,
      leaseUntil: projectLeases.until(ctx),
    })
    .where(projectLeases.held(task))
    .returning({ id: projectTasks.id })
  return recorded.length > 0
}
