import { eq, inArray, type SQL, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { projects, projectTasks } from '../../../model/tables/index.ts'
import { type Changes, projectLeases, type Task, type Work } from './tasks.ts'

export async function findWork({ db }: SystemCtx, leasedRow: SQL): Promise<Work | undefined> {
  const [work] = await db
    .select({ task: projectTasks, project: projects })
    .from(projectTasks)
    .innerJoin(projects, eq(projects.ref, projectTasks.projectRef))
    .where(leasedRow)
  return work
}

/** Records a step and changes the project's columns in one statement, if the lease is still held. */
export async function recordStep(ctx: SystemCtx, task: Task, name: string, changes: Changes): Promise<boolean> {
  const record = ctx.db
    .update(projectTasks)
    .set({
      stepsDone: sql`array_append(${projectTasks.stepsDone}, ${name})`,
      leaseUntil: projectLeases.leaseEnd(ctx),
    })
    .where(projectLeases.isLeasedBy(task))
    .returning({ ref: projectTasks.projectRef })
  if (Object.keys(changes).length === 0) return (await record).length > 0
  const recorded = ctx.db.$with('recorded').as(record)
  const changed = await ctx.db
    .with(recorded)
    .update(projects)
    .set(changes)
    .where(inArray(projects.ref, ctx.db.select({ ref: recorded.ref }).from(recorded)))
    .returning({ ref: projects.ref })
  return changed.length > 0
}
