import { disableLogins, powerOf, type TemporaryLogins, temporaryLogins } from '../logins.ts'
import { withAdmin } from '../session.ts'
import { ignoreMissing, NoContent } from './client.ts'
import { HOST_NAMES } from './names.ts'
import type { HostAccess } from './project-host.ts'

/**
 * Temporary logins under a lock of the host: a lock in the database could be held by the owner. It is not the lock of the instance,
 * which a backup may hold for hours. Moves and upgrades end all sessions before they read the last changes, and
 * `endRestoredLogins` ends what a restore brings back.
 */
export function hostLogins(access: HostAccess): TemporaryLogins {
  const { api, hosts } = access
  return {
    powerOf: (_, name) => powerOf(HOST_NAMES, name),
    ...temporaryLogins({
      // The host is looked up again: a project that has moved since it was cached still has its logins, on its new host.
      clusterOf(ref) {
        hosts.cacheHost(ref, undefined)
        return access.clusterOf(ref)
      },
      async exists(ref) {
        hosts.cacheHost(ref, undefined)
        return (await access.getInstance(ref).catch(ignoreMissing)) !== undefined
      },
      async endReplicaSessions(ref, roles) {
        const path = `/instances/${ref}/replica-sessions/end`
        await (await api(ref)).ask(NoContent, { method: 'POST', path, body: { roles } })
      },
      withProjectLock: async (cluster, { ref, fence }, work) =>
        (await api(ref)).withLock(`${ref}-logins`, fence, () => withAdmin(cluster, work)),
    }),
  }
}

/** Ends the temporary logins that came back with a restore. */
export async function endRestoredLogins(access: HostAccess, ref: string, password: string): Promise<void> {
  const roles = await withAdmin(await access.clusterOf(ref), disableLogins)
  await hostLogins(access).end(ref, roles, async () => password)
}
