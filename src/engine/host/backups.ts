import * as z from 'zod'
import { BackupGone, type DatabaseBackups } from '../backup.ts'
import { EngineRefusal, type Fence, type PointInTime } from '../engine.ts'
import { SettingsRefused } from '../settings.ts'
import { Nothing, UnknownBackup } from './client.ts'
import { endRestoredLogins } from './logins.ts'
import type { Reach } from './project-host.ts'

const Backup = z.object({ name: z.string(), id: z.string() })
const Window = z.object({ earliest: z.coerce.date(), latest: z.coerce.date() })

/** Backups that the host makes of an instance's files. */
export function hostBackups(reach: Reach): DatabaseBackups {
  return {
    async make({ ref, id }, fence) {
      await reach.require(ref, 'backups')
      await reach.change(ref, fence, { method: 'PUT', path: `/backups/${id}` })
    },
    async find({ ref, id }) {
      const { ask } = await reach.require(ref, 'backups')
      await ask(Nothing, { method: 'GET', path: `/instances/${ref}/backups/${id}` })
        .catch(refused)
        .catch(backupGone)
    },
    async restore({ ref, id, password }, fence) {
      await reach.require(ref, 'backups')
      const call = { method: 'POST', path: '/restore', body: { backup: String(id) } } as const
      await reach.change(ref, fence, call).catch(refused).catch(backupGone)
      await reopen(reach, { ref, password }, fence)
    },
    async remove({ ref, id }, fence) {
      await reach.require(ref, 'backups')
      await reach.removing(() => reach.change(ref, fence, { method: 'DELETE', path: `/backups/${id}` }))
    },
    async list() {
      const lists = await reach.fromAll(async (api) =>
        (await reach.has(api, 'backups')) ? api.ask(z.array(Backup), { method: 'GET', path: '/backups' }) : [],
      )
      return lists.flat().map(({ name, id }) => ({ ref: name, id: Number(id) }))
    },
  }
}

export const hostHistory = (reach: Reach): PointInTime => ({
  async window(ref) {
    const { ask } = await reach.require(ref, 'backups')
    return ask(Window, { method: 'GET', path: `/instances/${ref}/recovery-window` }).catch(refused)
  },
  async begin({ ref, id, at }, fence) {
    await reach.require(ref, 'backups')
    const body = { at: at.toISOString(), id }
    await reach.change(ref, fence, { method: 'POST', path: '/restore', body }).catch(refused)
  },
  finish: ({ ref, password }, fence) => reopen(reach, { ref, password }, fence),
})

interface Reopening {
  ref: string
  password: string
}

/** Sets the owner's password and ends temporary logins: the restore brought back old roles and passwords. */
async function reopen(reach: Reach, { ref, password }: Reopening, fence: Fence | undefined): Promise<void> {
  await reach.change(ref, fence, { method: 'PUT', path: '', body: { password } })
  await endRestoredLogins(reach, ref, password)
}

/** A moment outside the archive would be refused again. */
function refused(error: unknown): never {
  throw error instanceof SettingsRefused ? new EngineRefusal(error.message, { cause: error }) : error
}

function backupGone(error: unknown): never {
  throw error instanceof UnknownBackup ? new BackupGone(error.message, { cause: error }) : error
}
