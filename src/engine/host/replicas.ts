import { driverState, type EngineStates } from '../driver-states.ts'
import type { ReadReplicas } from '../engine.ts'
import { Superseded } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { LONG_OPERATION_MS_MAX } from './client.ts'
import { HOST_NAMES } from './names.ts'
import type { HostAccess, HostState } from './project-host.ts'

/** Standbys that follow an instance, each with its own address. */
export function hostReplicas(access: HostAccess, states: EngineStates<HostState>): ReadReplicas {
  async function changeReplica(
    ref: string,
    fence: Fence | undefined,
    call: { method: 'PUT' | 'DELETE'; identifier: string },
  ) {
    const { method, identifier } = call
    const api = await access.api(ref)
    // The host's lock is free here, because a change of the project's settings locks its row and then waits for that lock.
    const store = async (replicas: HostState['replicas']) => {
      if (fence && !(await fence())) throw new Superseded(`another caller has taken over ${ref}`)
      const state = (await states.read(ref)) ?? { host: api.host.id }
      const others = (state.replicas ?? []).filter((replica) => replica.identifier !== identifier)
      await states.write(ref, { ...state, replicas: [...others, ...(replicas ?? [])] })
    }
    if (method === 'PUT') await store([{ identifier, isReady: false }])
    await api.change(ref, fence, { method, path: `/replicas/${identifier}`, waitMs: LONG_OPERATION_MS_MAX })
    await store(method === 'PUT' ? [{ identifier, isReady: true }] : [])
  }

  return {
    list({ engineState }) {
      const state = driverState<HostState>(engineState)
      const { databaseHost, databaseDomain } = access.addressOf(engineState)
      return (state?.replicas ?? []).map(({ identifier, isReady, hasFailed }) => {
        const replica = { identifier, isReady, hasFailed }
        if (databaseDomain === undefined) {
          return { ...replica, host: databaseHost, poolerHost: databaseHost, user: `${HOST_NAMES.owner}.${identifier}` }
        }
        const host = `db.${identifier}.${databaseDomain}`
        return { ...replica, host, poolerHost: host }
      })
    },
    add: (ref, identifier, fence) => changeReplica(ref, fence, { method: 'PUT', identifier }),
    remove: (ref, identifier, fence) => changeReplica(ref, fence, { method: 'DELETE', identifier }),
  }
}
