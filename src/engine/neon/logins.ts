import { Superseded, UnsupportedByDriver } from '../engine-errors.ts'
import { powerOf, type TemporaryLogins, temporaryLogins } from '../logins.ts'
import { projectNames, quoteLiteral } from '../names.ts'
import { type Cluster, withAdmin } from '../session.ts'

interface Reach {
  clusterOf(ref: string): Promise<Cluster>
  /** Whether the database exists, paused or not. */
  exists(ref: string): Promise<boolean>
}

/** Temporary logins, which are in the project's own cluster. */
export function neonLogins({ clusterOf, exists }: Reach): TemporaryLogins {
  const { put, ...others } = temporaryLogins({
    clusterOf,
    exists,
    withProjectLock: (cluster, { ref, fence }, work) =>
      withAdmin(cluster, async (admin) => {
        // Held until the session ends; works across processes.
        await admin.rows(`SELECT pg_advisory_lock(hashtextextended(${quoteLiteral(cluster.names.database)}, 0))`)
        if (fence && !(await fence())) throw new Superseded(`another caller has taken over ${ref}`)
        return work(admin)
      }),
  })
  return {
    powerOf: (ref, name) => powerOf(projectNames(ref), name),
    async put(login, fence) {
      if (login.networks)
        throw new UnsupportedByDriver(
          'the driver neon cannot restrict logins to networks: Postgres does not see the client address there',
        )
      await put(login, fence)
    },
    ...others,
  }
}
