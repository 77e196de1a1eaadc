import * as z from 'zod'
import type { DatabaseBackups } from '../backup.ts'
import type { PointInTime } from '../engine.ts'
import type { Fence } from '../fence.ts'
import { type Call, LONG_OPERATION_MS_MAX, NoContent, throwRefusal } from './client.ts'
import { endRestoredLogins } from './logins.ts'
import type { HostAccess } from './project-host.ts'

const Backup = z.object({ name: z.string(), id: z.string() })
const Window = z.object({ earliest: z.coerce.date(), latest: z.coerce.date() })

/** Backups that the host makes of an instance's files. */
export function hostBackups(access: HostAccess): DatabaseBackups {
  return {
    make: ({ ref, id }, fence) =>
      change(access, fence, { ref, method: 'PUT', path: `/backups/${id}`, waitMs: LONG_OPERATION_MS_MAX }),
    async find({ ref, id }) {
      const { ask } = await access.requireFeature(ref, 'backups')
      await ask(NoContent, { method: 'GET', path: `/instances/${ref}/backups/${id}` }).catch(throwRefusal)
    },
    async restore({ ref, id, restoreId, password }, fence) {
      const body = { backup: String(id), id: restoreId }
      await restore(access, fence, { ref, body })
      await reopen(access, { ref, password }, fence)
    },
    remove: ({ ref, id }, fence) =>
      access.withRemovalLock(() => change(access, fence, { ref, method: 'DELETE', path: `/backups/${id}` })),
    async list() {
      const lists = await access.askAllHosts(async (api) =>
        (await access.hasFeature(api, 'backups')) ? api.ask(z.array(Backup), { method: 'GET', path: '/backups' }) : [],
      )
      return lists.flat().map(({ name, id }) => ({ ref: name, id: Number(id) }))
    },
  }
}

export const hostHistory = (access: HostAccess): PointInTime => ({
  async window(ref) {
    const { ask } = await access.requireFeature(ref, 'backups')
    return ask(Window, { method: 'GET', path: `/instances/${ref}/recovery-window` }).catch(throwRefusal)
  },
  async begin({ ref, id, at }, fence) {
    const body = { at: at.toISOString(), id }
    await restore(access, fence, { ref, body })
  },
  finish: ({ ref, password }, fence) => reopen(access, { ref, password }, fence),
})

async function change(access: HostAccess, fence: Fence | undefined, { ref, ...call }: Call & { ref: string }) {
  await access.requireFeature(ref, 'backups')
  await access.changeInstance(ref, fence, call).catch(throwRefusal)
}

const restore = (access: HostAccess, fence: Fence | undefined, request: { ref: string; body: object }) =>
  change(access, fence, { ...request, method: 'POST', path: '/restore', waitMs: LONG_OPERATION_MS_MAX })

interface ReopenRequest {
  ref: string
  password: string
}

/** Sets the owner's password and ends temporary logins: the restore brought back old roles and passwords. */
async function reopen(access: HostAccess, { ref, password }: ReopenRequest, fence: Fence | undefined): Promise<void> {
  await access.changeInstance(ref, fence, { method: 'PUT', path: '', body: { password } })
  await endRestoredLogins(access, ref, password)
}
