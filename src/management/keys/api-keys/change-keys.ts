import type { Ctx } from '../../../ctx.ts'
import { clearProjectCaches } from '../../kernel/clear-project-caches.ts'
import { lockProject } from '../../kernel/lock-project.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'

/** Serializes changes of a project's keys, rejects them during its removal, and applies them to this isolate at once. */
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
