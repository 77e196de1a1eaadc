import { disableLogins, powerOf, type TemporaryLogins, temporaryLogins } from '../logins.ts'
import { withAdmin } from '../session.ts'
import { Instance, isMissing } from './client.ts'
import { HOST_NAMES } from './names.ts'
import type { HostAccess } from './project-host.ts'

/** Temporary logins under the host's lock: a lock in the database could be held by the owner. */
export function hostLogins(access: HostAccess): TemporaryLogins {
  const { clusterOf, api } = access
  return {
    powerOf: (_, name) => powerOf(HOST_NAMES, name),
    ...temporaryLogins({
      clusterOf,
      exists: (ref) => exists(access, ref),
      withProjectLock: async (cluster, { ref, fence }, work) =>
        (await api(ref)).withLock(ref, fence, () => withAdmin(cluster, work)),
    }),
  }
}

async function exists({ api }: HostAccess, ref: string): Promise<boolean> {
  try {
    await (await api(ref)).ask(Instance, { method: 'GET', path: `/instances/${ref}` })
    return true
  } catch (error) {
    if (isMissing(error)) return false
    throw error
  }
}

/** Ends the temporary logins that came back with a restore. */
export async function endRestoredLogins(access: HostAccess, ref: string, password: string): Promise<void> {
  const roles = await withAdmin(await access.clusterOf(ref), disableLogins)
  await hostLogins(access).end(ref, roles, async () => password)
}
