import { type EngineStates, stateIn } from '../driver-states.ts'
import type { Fence, ReadReplicas } from '../engine.ts'
import { Nothing } from './client.ts'
import { HOST_NAMES } from './names.ts'
import type { HostState, Reach } from './project-host.ts'

/** Standbys that follow an instance, each with its own address. */
export function hostReplicas(reach: Reach, states: EngineStates<HostState>): ReadReplicas {
  const pathOf = (ref: string, identifier: string) => `/instances/${ref}/replicas/${identifier}`

  async function locked(ref: string, fence: Fence | undefined, call: { method: 'PUT' | 'DELETE'; identifier: string }) {
    const { method, identifier } = call
    const api = await reach.api(ref)
    const note = async (replicas: HostState['replicas']) => {
      const state = (await states.read(ref)) ?? { host: api.host.id }
      const others = (state.replicas ?? []).filter((replica) => replica.identifier !== identifier)
      await states.write(ref, { ...state, replicas: [...others, ...(replicas ?? [])] })
    }
    await api.locked(ref, fence, async (ask) => {
      if (method === 'PUT') await note([{ identifier, isReady: false }])
      await ask(Nothing, { method, path: pathOf(ref, identifier) })
      await note(method === 'PUT' ? [{ identifier, isReady: true }] : [])
    })
  }

  return {
    of({ engineState }) {
      const state = stateIn<HostState>(engineState)
      const { databaseHost, databaseDomain } = reach.addressOf(engineState)
      return (state?.replicas ?? []).map(({ identifier, isReady }) => {
        const named = { identifier, isReady }
        if (databaseDomain === undefined) {
          return { ...named, host: databaseHost, poolerHost: databaseHost, user: `${HOST_NAMES.owner}.${identifier}` }
        }
        const host = `db.${identifier}.${databaseDomain}`
        return { ...named, host, poolerHost: host }
      })
    },
    add: (ref, identifier, fence) => locked(ref, fence, { method: 'PUT', identifier }),
    remove: (ref, identifier, fence) => locked(ref, fence, { method: 'DELETE', identifier }),
  }
}
