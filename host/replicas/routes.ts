import * as z from 'zod'
import { mutation, type Route, route } from '../api/api.ts'
import type { Gateway } from '../gateway/gateway.ts'
import type { InstancePool } from '../instances/instances.ts'
import type { Replicas } from './replicas.ts'

const PATH = '/instances/{name}/replicas/{id}'

const Roles = z.strictObject({ roles: z.array(z.string()) })

/** Operators are qualified because the owner may set the search path of the database. */
const END_SESSIONS = `
  select pg_catalog.pg_terminate_backend(pid) from pg_catalog.pg_stat_activity
   where usename operator(pg_catalog.=) any ($1::pg_catalog.name[])`

interface Parts {
  replicas: Replicas
  pool: InstancePool
  gateway: Gateway
}

export const replicaRoutes = ({ replicas, pool, gateway }: Parts): Route[] => [
  mutation('PUT', PATH, ({ name, params: { id = '' } }) => replicas.add(name, id)),
  mutation('DELETE', PATH, ({ name, params: { id = '' } }) => replicas.remove(name, id)),
  // A session on a standby goes on after its role has been dropped.
  route('POST', '/instances/{name}/replica-sessions/end', async ({ name, body }) => {
    const { roles } = await body(Roles)
    const all = pool.replicasOf(name)
    // The gateway also knows clients whose session is still being opened.
    for (const replica of all) gateway.endSessions(replica.name, ({ role }) => roles.includes(role))
    const running = all.filter((replica) => replica.state() === 'running')
    const ended = await Promise.allSettled(running.map((replica) => replica.admin.rows(END_SESSIONS, [roles])))
    const failed = ended.find((result) => result.status === 'rejected')
    if (failed) throw failed.reason
  }),
]

/** Updates an instance's replicas after each mutation, before the caller gets its reply. */
export const withReplicaUpdates = (routes: readonly Route[], replicas: Replicas): Route[] =>
  routes.map((route) =>
    route.isMutation
      ? { ...route, handle: (call) => route.handle(call).finally(() => replicas.follow(call.name)) }
      : route,
  )
