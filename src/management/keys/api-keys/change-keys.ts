import type { Ctx } from '../../../ctx.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { clearProjectCaches } from '../../projects/projects/clear-project-caches.ts'
import { lockProject } from '../../projects/projects/lock-project.ts'

/** Changes of a project's keys come one after another, and none once its removal has begun. This isolate goes by them at once. */
export async function changeKeys<T>(
  ctx: Ctx,
  { ref }: { ref: string },
  work: (mutation: Mutation) => Promise<T>,
): Promise<T> {
  try {
    return await mutate(ctx, async (mutation) => {
      await lockProject(mutation, ref)
      return work(mutation)
    })
  } finally {
    clearProjectCaches(ref)
  }
}
