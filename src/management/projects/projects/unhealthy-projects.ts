import { and, eq, isNull, sql } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { organizations, projects } from '../../../model/tables/index.ts'
import { describeError } from '../../../platform/http/log.ts'
import { mutate } from '../../kernel/mutate.ts'
import { changeStatus, lockStatus } from './status.ts'

const PROJECTS_A_TICK = 20
const HEALTH_MS = 5_000

/** Reports projects as healthy whose database works again after a failed restart, resize or upgrade. */
export async function recoverProjects(ctx: SystemCtx): Promise<void> {
  const unhealthy = await ctx.db
    .select({
      ref: projects.ref,
      organizationId: projects.organizationId,
      organizationSlug: organizations.slug,
    })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(and(eq(projects.status, 'ACTIVE_UNHEALTHY'), isNull(projects.removedAt)))
    // Those that stay unhealthy must not keep others from their turn.
    .orderBy(sql`random()`)
    .limit(PROJECTS_A_TICK)
  await Promise.all(
    unhealthy.map(async (project) => {
      try {
        if ((await ctx.engine.health(project.ref, HEALTH_MS)).healthy) await report(ctx, project)
      } catch (error) {
        ctx.log.error('project_not_recovered', { project: project.ref, error: describeError(error) })
      }
    }),
  )
}

const report = (ctx: SystemCtx, project: Parameters<typeof changeStatus>[1]) =>
  mutate(ctx, async (mutation) => {
    const before = await lockStatus(mutation, project.ref)
    if (before === 'ACTIVE_UNHEALTHY') await changeStatus(mutation, project, { before, status: 'ACTIVE_HEALTHY' })
  })
