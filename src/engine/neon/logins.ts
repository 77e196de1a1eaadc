import { EngineUnavailable, NotByDriver, Superseded } from '../engine.ts'
import { powerOf, type TemporaryLogins, temporaryLogins } from '../logins.ts'
import { projectNames, quoteLiteral } from '../names.ts'
import { type Cluster, withAdmin } from '../session.ts'

interface Reach {
  clusterOf(ref: string): Promise<Cluster>
  /** Whether there is a database, be it open or not. */
  exists(ref: string): Promise<boolean>
}

/** Each project's are in a cluster of its own. */
export function neonLogins({ clusterOf, exists }: Reach): TemporaryLogins {
  const logins = temporaryLogins({
    clusterOf,
    inProject: (cluster, { ref, fence }, work) =>
      withAdmin(cluster, async (admin) => {
        // Until the session ends, in whichever process the others run.
        await admin.rows(`SELECT pg_advisory_lock(hashtextextended(${quoteLiteral(cluster.names.database)}, 0))`)
        if (fence && !(await fence())) throw new Superseded(`somebody else has taken over ${ref}`)
        return work(admin)
      }),
  })
  return {
    powerOf: (ref, name) => powerOf(projectNames(ref), name),
    async put(login, fence) {
      if (login.networks) throw new NotByDriver('at Neon, Postgres is not told from where a connection comes')
      await logins.put(login, fence)
    },
    async end(ref, roles, ownerPassword) {
      try {
        await logins.end(ref, roles, ownerPassword)
      } catch (error) {
        // They went with their cluster.
        if (error instanceof EngineUnavailable && !(await exists(ref))) return
        throw error
      }
    },
  }
}
