import { eq } from 'drizzle-orm'
import { driverState } from '../../src/engine/driver-states.ts'
import { Instance, NoContent } from '../../src/engine/host/client.ts'
import type { HostState } from '../../src/engine/host/project-host.ts'
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

const undoUpgrade = (db: ControlDb, ref: string): Promise<string> =>
  change(db, async ({ tx, trace }) => {
    const { organizationId, status, engineState, sealedPassword } = await lockProject(tx, ref)
    if (status !== 'ACTIVE_HEALTHY') throw new StartError(`the status of ${ref} is ${status}, not ACTIVE_HEALTHY`)
    const { host = '' } = driverState<HostState>(engineState) ?? {}
    const api = requireHost(await hostApis(db), host)
    const encryptionKey = await targetEncryptionKey(process.env)
    const opened = unseal(encryptionKey, sealedPassword, projectAssociatedData(ref, 'password'))
    const password = await opened.catch(refuseEncryptionKey)
    await api.ask(NoContent, { method: 'POST', path: `/instances/${ref}/undo-upgrade`, body: { password } })
    const { version } = await api.ask(Instance, { method: 'GET', path: `/instances/${ref}` })
    const changes = { postgresVersion: version, preparation: '', preparationDueAt: new Date() }
    await tx.update(projects).set(changes).where(eq(projects.ref, ref))
    await trace({ action: 'project.upgrade.undo', organizationId, projectRef: ref, detail: { to: version } })
    return `${ref} runs Postgres ${version} again`
  })
