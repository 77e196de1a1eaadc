import { withDatabase } from '../database.ts'
import { EngineUnavailable, NotByDriver } from '../engine.ts'
import { type TemporaryLogins, temporaryLogins } from '../logins.ts'
import { projectNames } from '../names.ts'
import type { Cluster } from '../session.ts'

interface Reach {
  clusterOf(ref: string): Promise<Cluster>
  /** Whether there is a database, be it open or not. */
  exists(ref: string): Promise<boolean>
}

export const loginsIn = (cluster: Cluster): TemporaryLogins =>
  temporaryLogins(cluster, (ref, fence, work) => withDatabase(cluster, projectNames(ref).database, fence, work))

/** Each project's are in a cluster of its own. */
export function neonLogins({ clusterOf, exists }: Reach): TemporaryLogins {
  const of = async (ref: string) => loginsIn(await clusterOf(ref))
  return {
    async put(login, fence) {
      if (login.networks) throw new NotByDriver('at Neon, Postgres is not told from where a connection comes')
      await (await of(login.ref)).put(login, fence)
    },
    async end(ref, roles, ownerPassword) {
      try {
        await (await of(ref)).end(ref, roles, ownerPassword)
      } catch (error) {
        // They went with their cluster.
        if (error instanceof EngineUnavailable && !(await exists(ref))) return
        throw error
      }
    },
    // Each cluster would have to be woken to be looked at: a role that nobody knows ends with its time.
    list: async () => [],
  }
}
