import * as z from 'zod'
import type { EngineStates } from '../driver-states.ts'
import { EngineRefusal, type Fence, type ProjectMoves, type ProjectSpec } from '../engine.ts'
import { SettingsRefused } from '../settings.ts'
import { type HostApi, Nothing } from './client.ts'
import { type HostState, type Reach, stateAt } from './project-host.ts'

const Sealed = z.array(z.object({ name: z.string(), sealed: z.enum(['leaving', 'arriving']) }))
const End = z.object({ lsn: z.string() })

/** Id of the backup that is made to move a project without backups; no other backup has it. */
const MOVE_BACKUP = '0'
/** Long, because all of the project's data is read from the bucket. */
const ARRIVAL_MS_MAX = 24 * 3_600_000

/** Moves projects between hosts through the archive, which both hosts must share. */
export function hostMoves(reach: Reach, states: EngineStates<HostState>): ProjectMoves {
  const { hosts, apiAt } = reach
  const hostNamed = async (name: string) => apiAt(await hosts.named(name))

  return {
    async begin({ spec, from, to, isPaused, isSourceLost }, fence) {
      const { ref } = spec
      const state = await states.read(ref)
      const target = await hostNamed(to)
      const { region } = await reach.facts.ask(target)
      const moved = { region, engineState: stateAt(reach, target) }
      if (state?.host === to) return moved
      if (state?.host !== from) throw new EngineRefusal(`the project is not on the host ${from}`)
      if (state.replicas?.length) throw new EngineRefusal('the project has read replicas: remove them first')
      const source = isSourceLost ? undefined : await hostNamed(from)
      for (const api of [target, ...(source ? [source] : [])]) {
        if (!(await reach.has(api, 'backups')))
          throw new EngineRefusal(`the host ${api.host.id} has no archive: both hosts need one`)
      }
      if (source) await unsealed(source, ref, fence)
      if (source) await backedUp(source, ref, fence)
      await fill(target, { spec, isPaused }, fence)
      await change({ ref, source, target }, fence)
      return moved
    },
    async open(ref, host, fence) {
      const api = await hostNamed(host)
      await unsealed(api, ref, fence)
      const backup = `/instances/${ref}/backups/${MOVE_BACKUP}`
      await api.locked(ref, fence, (ask) => ask(Nothing, { method: 'DELETE', path: backup }))
    },
    async leave(ref, host, fence) {
      const { locked } = await hostNamed(host)
      await locked(ref, fence, (ask) => ask(Nothing, { method: 'DELETE', path: `/instances/${ref}?archive=keep` }))
    },
    moved: (ref, host) => hosts.note(ref, host),
    async sealed() {
      const sealedAt = async (api: HostApi) => {
        if (!(await reach.has(api, 'backups'))) return []
        const list = await api.ask(Sealed, { method: 'GET', path: '/sealed' })
        return list.map(({ name, sealed }) => ({ ref: name, host: api.host.id, hasArrived: sealed === 'arriving' }))
      }
      // Hosts that do not answer are skipped; the caller polls again.
      return (await Promise.all((await reach.apis()).map((api) => sealedAt(api).catch(() => [])))).flat()
    },
  }
}

const unsealed = ({ locked }: HostApi, ref: string, fence: Fence | undefined) =>
  locked(ref, fence, (ask) => ask(Nothing, { method: 'POST', path: `/instances/${ref}/unseal` }))

async function backedUp({ ask, locked }: HostApi, ref: string, fence: Fence | undefined): Promise<void> {
  const path = `/instances/${ref}/backups`
  if ((await ask(z.array(z.unknown()), { method: 'GET', path })).length > 0) return
  const call = { method: 'PUT', path: `${path}/${MOVE_BACKUP}`, waitMs: ARRIVAL_MS_MAX } as const
  await locked(ref, fence, (inLock) => inLock(Nothing, call))
}

async function fill(
  { locked }: HostApi,
  { spec, isPaused }: { spec: ProjectSpec; isPaused: boolean },
  fence: Fence | undefined,
): Promise<void> {
  const { ref, version, size, sleepAfterSeconds } = spec
  const body = { version, size, sleep_after_seconds: sleepAfterSeconds, is_paused: isPaused }
  const call = { method: 'PUT', path: `/instances/${ref}/arrival`, body, waitMs: ARRIVAL_MS_MAX } as const
  await locked(ref, fence, (ask) => ask(Nothing, call).catch(refused))
}

interface Change {
  ref: string
  source: HostApi | undefined
  target: HostApi
}

/** Stops the source and finishes the target; on failure the source serves the project again. */
async function change({ ref, source, target }: Change, fence: Fence | undefined): Promise<void> {
  const finish = (body: object) =>
    target.locked(ref, fence, (ask) =>
      ask(Nothing, { method: 'POST', path: `/instances/${ref}/arrival/finish`, body }).catch(refused),
    )
  if (!source) return finish({})
  try {
    const seal = { method: 'POST', path: `/instances/${ref}/seal` } as const
    await finish(await source.locked(ref, fence, (ask) => ask(End, seal).catch(refused)))
  } catch (error) {
    // The fence prevents undoing the work of a caller that has taken over.
    const discard = { method: 'DELETE', path: `/instances/${ref}/arrival` } as const
    await target.locked(ref, fence, (ask) => ask(Nothing, discard)).catch(() => {})
    await unsealed(source, ref, fence).catch(() => {})
    throw error
  }
}

function refused(error: unknown): never {
  throw error instanceof SettingsRefused ? new EngineRefusal(error.message, { cause: error }) : error
}
