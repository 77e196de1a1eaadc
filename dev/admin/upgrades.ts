import { eq } from 'drizzle-orm'
import { driverState } from '../../src/engine/driver-states.ts'
import { type HostApi, Instance, NoContent } from '../../src/engine/host/client.ts'
import type { HostState } from '../../src/engine/host/project-host.ts'
import { SettingsRefused } from '../../src/engine/settings.ts'
import { projectAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { projects } from '../../src/model/tables/index.ts'
import { unseal } from '../../src/platform/secrets/seal.ts'
import type { ControlDb } from '../seed.ts'
import { StartError } from '../start-error.ts'
import { refuseEncryptionKey, targetEncryptionKey } from '../target.ts'
import { change } from './change.ts'
import type { Command } from './command.ts'
import { lockProject } from './find.ts'
import { hostApis, requireHost } from './host-apis.ts'

export const upgradeCommands: Record<string, Command> = {
  'upgrades undo': {
    summary: 'Return a project to its data and version from before a Postgres upgrade.',
    args: ['ref'],
    run: (db, [ref = '']) => undoUpgrade(db, ref),
  },
}

/** Longer than the call of the host takes, so that no preparation reads the version before it has changed. */
const PREPARATION_DELAY_MS = 10 * 60_000

/**
 * Calls the host between two transactions: no lock is held meanwhile. If the second one fails, a preparation records the version
 * later, and so does a repetition.
 */
async function undoUpgrade(db: ControlDb, ref: string): Promise<string> {
  const { host, password, before } = await change(db, async ({ tx }) => {
    const { status, engineState, sealedPassword, postgresVersion } = await lockProject(tx, ref)
    if (status !== 'ACTIVE_HEALTHY') throw new StartError(`the status of ${ref} is ${status}, not ACTIVE_HEALTHY`)
    const { host = '' } = driverState<HostState>(engineState) ?? {}
    const encryptionKey = await targetEncryptionKey(process.env)
    const opened = unseal(encryptionKey, sealedPassword, projectAssociatedData(ref, 'password'))
    const password = await opened.catch(refuseEncryptionKey)
    const preparationDueAt = new Date(Date.now() + PREPARATION_DELAY_MS)
    await tx.update(projects).set({ preparation: '', preparationDueAt }).where(eq(projects.ref, ref))
    return { host, password, before: postgresVersion }
  })
  const version = await undoOnHost(requireHost(await hostApis(db), host), { ref, password, before })
  return change(db, async ({ tx, trace }) => {
    const { organizationId } = await lockProject(tx, ref)
    const changes = { postgresVersion: version, preparation: '', preparationDueAt: new Date() }
    await tx.update(projects).set(changes).where(eq(projects.ref, ref))
    await trace({ action: 'project.upgrade.undo', organizationId, projectRef: ref, detail: { to: version } })
    return `${ref} runs Postgres ${version} again`
  })
}

/** Returns the version after the upgrade is undone. A host that refuses because it runs an older version has undone it before. */
async function undoOnHost(
  api: HostApi,
  { ref, password, before }: { ref: string; password: string; before: string },
): Promise<string> {
  const undo = { method: 'POST', path: `/instances/${ref}/undo-upgrade`, body: { password } } as const
  const refusal = await api.ask(NoContent, undo).catch((error) => {
    if (error instanceof SettingsRefused) return error
    throw error
  })
  const { version } = await api.ask(Instance, { method: 'GET', path: `/instances/${ref}` })
  const isOlder = Number.parseInt(version, 10) < Number.parseInt(before, 10)
  if (refusal && !isOlder) throw refusal
  return version
}
