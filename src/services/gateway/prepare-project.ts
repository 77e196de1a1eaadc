import type { SystemCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'
import type { OpenedProject } from './open-project.ts'

/** A schema that its owner broke stays outdated; upgrades must not be repeated for every request. */
const UPGRADE_EVERY_MS = 60_000
const upgradedAt = new Map<string, number>()

interface Target {
  ctx: SystemCtx
  project: OpenedProject
}

/**
 * Upgrades the schemas of the services in the project's database. Returns whether a statement sent at that time is worth a retry. A
 * failed upgrade counts too: it may have repaired the part in question.
 */
export async function prepareIfDue({ ctx, project }: Target, sentAt: number): Promise<boolean> {
  const { ref, runnerPassword } = project
  const last = upgradedAt.get(ref) ?? 0
  if (last >= sentAt) return true
  if (sentAt - last < UPGRADE_EVERY_MS) return false
  await ctx.engine.prepare({ ref, runnerPassword }).catch((error) => {
    ctx.log.error('storage_upgrade_failed', { project: ref, error: describeError(error) })
  })
  upgradedAt.set(ref, ctx.now().getTime())
  return true
}
