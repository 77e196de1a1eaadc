import { eq } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import type { ProjectSpec } from '../../../engine/engine.ts'
import { passwordOf, runnerPasswordOf } from '../../../model/secrets/project.ts'
import { organizations, type projects } from '../../../model/tables/index.ts'
import { majorOf } from './convert.ts'

type Project = typeof projects.$inferSelect

/** Describes the database that the engine creates for the project. */
export async function specOf(ctx: SystemCtx, project: Project): Promise<ProjectSpec> {
  const { ref, region, instanceSize: size, postgresVersion } = project
  const [password, runnerPassword, sleepAfterSeconds] = await Promise.all([
    passwordOf(ctx, project),
    runnerPasswordOf(ctx, project),
    sleepAfterSecondsOf(ctx, project),
  ])
  const version = majorOf(postgresVersion)
  return { ref, password, runnerPassword, region, size, sleepAfterSeconds, ...(version && { version }) }
}

/** Seconds without a session after which the database sleeps; null for never. They depend on the plan. */
export async function sleepAfterSecondsOf(
  { db, config: { SLEEP_AFTER_MINUTES, PAID_SLEEP_AFTER_MINUTES } }: SystemCtx,
  { organizationId }: Pick<Project, 'organizationId'>,
): Promise<number | null> {
  const [row] = await db
    .select({ plan: organizations.plan })
    .from(organizations)
    .where(eq(organizations.id, organizationId))
  const minutes = row?.plan === 'free' ? SLEEP_AFTER_MINUTES : PAID_SLEEP_AFTER_MINUTES
  return minutes === 0 ? null : Math.ceil(minutes * 60)
}
