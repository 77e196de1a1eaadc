import type { projects } from '../../db/schema/index.ts'
import type { ProjectSpec } from '../../engine/engine.ts'
import type { SystemCtx } from '../../env.ts'
import { passwordOf, runnerPasswordOf } from '../../secrets/project.ts'
import { majorOf } from './convert.ts'

type Project = typeof projects.$inferSelect

/** What the project's database is to be. */
export async function specOf(ctx: SystemCtx, project: Project): Promise<ProjectSpec> {
  const { ref, region, instanceSize: size, postgresVersion } = project
  const [password, runnerPassword] = await Promise.all([passwordOf(ctx, project), runnerPasswordOf(ctx, project)])
  const version = majorOf(postgresVersion)
  return { ref, password, runnerPassword, region, size, ...(version && { version }) }
}
