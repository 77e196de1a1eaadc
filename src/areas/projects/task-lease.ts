import { and, eq, lte, or, sql } from 'drizzle-orm'
import { projects, projectTasks } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { describeError } from '../../http/log.ts'
import type { Changes, Task, Work } from './tasks.ts'

const LEASE_MS = 120_000
const LEASE_RENEWAL_MS = 30_000

/** A step may take longer than a lease: it is renewed for as long as this isolate lives. */
export function keepLease(ctx: SystemCtx, task: Task) {
  const renew = () =>
    ctx.db
      .update(projectTasks)
      .set({ leaseUntil: new Date(ctx.now().getTime() + LEASE_MS) })
      .where(held(task))
      .catch((error) => ctx.log.error('lease_not_renewed', { task: task.id, error: describeError(error) }))
  const timer = setInterval(renew, LEASE_RENEWAL_MS)
  return { release: () => clearInterval(timer) }
}

export async function claim({ db, now }: SystemCtx, id: string): Promise<Work | undefined> {
  const at = now()
  const [task] = await db
    .update(projectTasks)
    .set({
      state: 'running',
      claim: crypto.randomUUID(),
      leaseUntil: new Date(at.getTime() + LEASE_MS),
      attempts: sql`${projectTasks.attempts} + 1`,
    })
    .where(
      and(
        eq(projectTasks.id, id),
        or(
          and(eq(projectTasks.state, 'pending'), lte(projectTasks.dueAt, at)),
          and(eq(projectTasks.state, 'running'), lte(projectTasks.leaseUntil, at)),
        ),
      ),
    )
    .returning()
  if (!task) return undefined
  const [project] = await db.select().from(projects).where(eq(projects.ref, task.projectRef))
  return project && { task, project }
}

/** False when the lease went to somebody else or the task was canceled: then nothing may be done any more. */
export async function isHeld({ db }: SystemCtx, task: Task): Promise<boolean> {
  return (await db.select({ id: projectTasks.id }).from(projectTasks).where(held(task))).length > 0
}

/** The project's columns first: a crash in between repeats the step, where the other order would lose them. */
export async function recordStep(
  { db, now }: SystemCtx,
  task: Task,
  name: string,
  changes: Changes = {},
): Promise<boolean> {
  if (Object.keys(changes).length > 0) await db.update(projects).set(changes).where(eq(projects.ref, task.projectRef))
  const recorded = await db
    .update(projectTasks)
    .set({
      stepsDone: sql`array_append(${projectTasks.stepsDone}, ${name})`,
      leaseUntil: new Date(now().getTime() + LEASE_MS),
    })
    .where(held(task))
    .returning({ id: projectTasks.id })
  return recorded.length > 0
}

export const held = (task: Task) =>
  and(eq(projectTasks.id, task.id), eq(projectTasks.state, 'running'), eq(projectTasks.claim, task.claim ?? ''))
