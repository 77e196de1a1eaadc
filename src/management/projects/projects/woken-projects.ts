import { and, eq, inArray, isNull } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { organizations, projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { mutate } from '../../kernel/mutate.ts'
import { beginTransition } from './transition.ts'

/** Restores paused projects whose database a client's login has resumed. Those of a disabled organization are paused again. */
export async function restoreWokenProjects(ctx: SystemCtx): Promise<void> {
  const refs = (await ctx.engine.wokenRefs?.()) ?? []
  if (refs.length === 0) return
  const woken = await ctx.db
    .select({
      ref: projects.ref,
      organizationId: projects.organizationId,
      organizationSlug: organizations.slug,
      parentRef: projects.parentRef,
      disabledAt: organizations.disabledAt,
    })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(and(inArray(projects.ref, refs), eq(projects.status, 'INACTIVE'), isNull(projects.removedAt)))
  for (const { disabledAt, ...project } of woken) {
    const settle = async () => {
      if (disabledAt) await ctx.engine.pause(project.ref)
      else await mutate(ctx, (mutation) => beginTransition(ctx, mutation, project, 'restore'))
    }
    await settle().then(
      () => ctx.log.info('project_woken', { project: project.ref, paused_again: disabledAt !== null }),
      (error) => ctx.log.error('project_not_woken', { project: project.ref, error: describeError(error) }),
    )
  }
}
