import { EngineUnavailable } from './engine-errors.ts'
import { repairRunners } from './roles.ts'
import { type Cluster, openSession, type SessionSource, userOf, withAdmin } from './session.ts'

const END_WAIT_MS = 2_000

/** Opens sessions directly to a cluster. */
export function sessionsOf(cluster: Cluster): SessionSource {
  const { names } = cluster
  return {
    names,
    userOf: (role) => userOf(cluster, role),
    async open(login) {
      try {
        return await openSession(cluster, login)
      } catch (error) {
        // A query can change the password of the role that it runs as: set a refused password again, once.
        if (!(error instanceof EngineUnavailable) || error.code !== '28P01' || cluster.key !== undefined) throw error
        await repairRunners(cluster, login.password)
        return openSession(cluster, login)
      }
    },
    async endBackend(processId) {
      const end = withAdmin(cluster, (admin) =>
        admin.rows(
          `SELECT pg_terminate_backend(pid, ${END_WAIT_MS}) FROM pg_stat_activity WHERE pid = $1 AND usename IN ($2, $3)`,
          [processId, names.runner, names.reader],
        ),
      )
      await end.catch(() => {})
    },
  }
}
