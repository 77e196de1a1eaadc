import { mutation, type Route } from '../api/api.ts'
import type { Replicas } from './replicas.ts'

const PATH = '/instances/{name}/replicas/{id}'

export const replicaRoutes = (replicas: Replicas): Route[] => [
  mutation('PUT', PATH, ({ name, params: { id = '' } }) => replicas.add(name, id)),
  mutation('DELETE', PATH, ({ name, params: { id = '' } }) => replicas.remove(name, id)),
]

/** Updates an instance's replicas after each mutation, before the caller gets its reply. */
export const withReplicaUpdates = (routes: readonly Route[], replicas: Replicas): Route[] =>
  routes.map((route) =>
    route.isMutation
      ? { ...route, handle: (call) => route.handle(call).finally(() => replicas.follow(call.name)) }
      : route,
  )
