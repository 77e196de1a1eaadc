import type { SystemCtx } from '../../ctx.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'
import { describeError } from '../../platform/http/log.ts'
import type { OpenedProject } from './open-project.ts'

/** A schema that its owner broke stays outdated, and must not cause an upgrade at each request. */
const UPGRADE_EVERY_MS = 60_000
const PROJECTS_MAX = 1_000
const upgradedAt = new BoundedMap<string, number>(PROJECTS_MAX)

interface Target {
  ctx: SystemCtx
  project: OpenedProject
}

/**
 * Upgrades the schemas of the services in the project's database. Returns whether an upgrade ended after the statement was sent, so that a
 * retry may succeed. A failed upgrade counts too: it may have repaired the part that the statement needs.
 */
export async function prepareIfDue({ ctx, project }: Target, sentAt: number): Promise<boolean> {
  const { ref, runnerPassword } = project
  const last = upgradedAt.get(ref) ?? 0
  if (last >= sentAt) return true
  if (sentAt - last < UPGRADE_EVERY_MS) return false
  await ctx.engine.prepare({ ref, runnerPassword }).catch((error) => {
    ctx.log.error('services_upgrade_failed', { project: ref, error: describeError(error) })
  })
  upgradedAt.set(ref, ctx.now().getTime())
  return true
}
