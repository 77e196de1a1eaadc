import * as z from 'zod'
import { UPGRADE_PHASES } from '../../model/upgrade-phases.ts'
import { EngineRefusal } from '../engine-errors.ts'
import { SettingsRefused } from '../settings.ts'
import { type PostgresUpgrades, UpgradeFailed } from '../upgrades.ts'
import type { HostAccess } from './project-host.ts'

const Outlook = z.object({
  targets: z.array(z.string()),
  size_bytes: z.number(),
  obstacles: z.array(z.object({ type: z.string(), reason: z.string() }).catchall(z.string())),
})
const Progress = z.object({ upgrade: z.enum(UPGRADE_PHASES).optional() })

/** Upgrades on the host, which copies the instance to the newer version and keeps the old data for a day. */
export const hostUpgrades = (access: HostAccess): PostgresUpgrades => ({
  async check(ref) {
    const { ask } = await access.api(ref)
    const found = await ask(Outlook, { method: 'GET', path: `/instances/${ref}/upgrade` })
    return { targets: found.targets, sizeBytes: found.size_bytes, obstacles: found.obstacles }
  },
  async run({ ref, id, version }, fence) {
    const call = { method: 'POST', path: '/upgrade', body: { id, version } } as const
    await access.changeInstance(ref, fence, call).catch(throwUpgradeFailure)
  },
  async phase(ref) {
    const { ask } = await access.api(ref)
    return (await ask(Progress, { method: 'GET', path: `/instances/${ref}` })).upgrade
  },
})

function throwUpgradeFailure(error: unknown): never {
  if (!(error instanceof SettingsRefused)) throw error
  const [refusal] = error.refusals
  const phase = UPGRADE_PHASES.find((each) => refusal?.setting === `upgrade.${each}`)
  if (phase && refusal) throw new UpgradeFailed(phase, refusal.reason, { cause: error })
  throw new EngineRefusal(error.message, { cause: error })
}
