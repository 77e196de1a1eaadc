import * as z from 'zod'
import { MOVE_BACKUP } from '../backup.ts'
import type { EngineStates } from '../driver-states.ts'
import type { MoveRequest, ProjectMoves } from '../engine.ts'
import { EngineRefusal } from '../engine-errors.ts'
import type { Fence } from '../fence.ts'
import { type HostApi, Instance, LONG_OPERATION_MS_MAX, throwRefusal } from './client.ts'
import { type HostAccess, type HostState, hostState } from './project-host.ts'
import { settingsOf } from './settings.ts'

const Sealed = z.array(z.object({ name: z.string(), sealed: z.enum(['leaving', 'arriving']) }))
const Backups = z.array(z.object({ at: z.string() }))
const End = z.object({ lsn: z.string() })

/** Above the limits of the hosts for stopping a server and for finishing an arrival: a move that gave up earlier would be repeated for ever. */
const SWITCH_MS_MAX = 15 * 60_000

/** Moves projects between hosts through the archive, which both hosts must share. */
export function hostMoves(access: HostAccess, states: EngineStates<HostState>): ProjectMoves {
  const { hosts, apiAt } = access
  const hostNamed = async (name: string) => apiAt(await hosts.get(name))

  return {
    async begin({ spec, from, to, isPaused, configuration, isSourceLost }, fence) {
      const { ref } = spec
      const state = await states.read(ref)
      const target = await hostNamed(to)
      const { region } = await access.descriptions.refresh(target)
      const result = { region, engineState: hostState(access, target) }
      if (state?.host === to) return result
      if (state?.host !== from) throw new EngineRefusal(`the project is not on the host ${from}`)
      if (isSourceLost) await requireLost(access, from)
      const source = isSourceLost ? undefined : await hostNamed(from)
      // The replicas of a lost host are lost with it.
      if (source && state.replicas?.length) throw new EngineRefusal('the project has read replicas: remove them first')
      for (const api of [target, ...(source ? [source] : [])]) {
        if (!(await access.hasFeature(api, 'backups')))
          throw new EngineRefusal(`the host ${api.host.id} has no archive: both hosts need one`)
      }
      if (source) await unseal(source, ref, fence)
      const gapAt = source && (await ensureBackup(source, ref, fence))
      await restoreOnTarget(target, { spec, isPaused, configuration, gapAt }, fence)
      await switchHosts({ ref, source, target }, fence)
      return result
    },
    async open(ref, host, fence) {
      const api = await hostNamed(host)
      await unseal(api, ref, fence)
      await api.change(ref, fence, { method: 'DELETE', path: `/backups/${MOVE_BACKUP}` })
    },
    async removeFrom(ref, host, fence) {
      await (await hostNamed(host)).change(ref, fence, { method: 'DELETE', path: '?archive=keep' })
    },
    updateHost: (ref, host) => hosts.cacheHost(ref, host),
    async listSealed() {
      const sealedAt = async (api: HostApi) => {
        if (!(await access.hasFeature(api, 'backups'))) return []
        const list = await api.ask(Sealed, { method: 'GET', path: '/sealed' })
        return list.map(({ name, sealed }) => ({ ref: name, host: api.host.id, hasArrived: sealed === 'arriving' }))
      }
      // Hosts that do not answer are skipped; the caller polls again.
      return (await Promise.all((await access.apis()).map((api) => sealedAt(api).catch(() => [])))).flat()
    },
  }
}

/** Refuses to leave a host behind that still serves its projects: what is committed there would be lost. */
async function requireLost(access: HostAccess, name: string): Promise<void> {
  const host = (await access.apis()).find(({ host }) => host.id === name)
  if (await host?.answers())
    throw new EngineRefusal(`the host ${name} answers: move without --source-lost, so that nothing is lost`)
}

const unseal = (api: HostApi, ref: string, fence: Fence | undefined) =>
  api.change(ref, fence, { method: 'POST', path: '/unseal' })

/** Makes a backup unless one reaches the end of the archive. Returns the time of the last gap of the archive, if there is one. */
async function ensureBackup(api: HostApi, ref: string, fence: Fence | undefined): Promise<string | undefined> {
  const path = `/instances/${ref}`
  const readGap = async () => (await api.ask(Instance, { method: 'GET', path })).wal_discarded_at
  const gapAt = await readGap()
  const found = await api.ask(Backups, { method: 'GET', path: `${path}/backups` })
  if (found.some(({ at }) => gapAt === undefined || at > gapAt)) return gapAt
  const own = `/backups/${MOVE_BACKUP}`
  // An earlier move may have left one from before the gap.
  if (found.length > 0) await api.change(ref, fence, { method: 'DELETE', path: own })
  await api.change(ref, fence, { method: 'PUT', path: `${own}?temporary=true`, waitMs: LONG_OPERATION_MS_MAX })
  return readGap()
}

type Arrival = Pick<MoveRequest, 'spec' | 'isPaused' | 'configuration'> & { gapAt: string | undefined }

async function restoreOnTarget(
  target: HostApi,
  { spec, isPaused, configuration, gapAt }: Arrival,
  fence: Fence | undefined,
): Promise<void> {
  const { ref, version, size, sleepAfterSeconds } = spec
  const body = {
    ...{ version, size, sleep_after_seconds: sleepAfterSeconds, is_paused: isPaused },
    settings: settingsOf(configuration),
    wal_discarded_at: gapAt,
  }
  const call = { method: 'PUT', path: '/arrival', body, waitMs: LONG_OPERATION_MS_MAX } as const
  await target.change(ref, fence, call).catch(throwRefusal)
}

interface Switch {
  ref: string
  source: HostApi | undefined
  target: HostApi
}

/** Stops the source and finishes the target; on failure the source serves the project again. */
async function switchHosts({ ref, source, target }: Switch, fence: Fence | undefined): Promise<void> {
  const finish = (body: object) =>
    target
      .change(ref, fence, { method: 'POST', path: '/arrival/finish', body, waitMs: SWITCH_MS_MAX })
      .catch(throwRefusal)
  if (!source) return finish({})
  try {
    const seal = { method: 'POST', path: `/instances/${ref}/seal`, waitMs: SWITCH_MS_MAX } as const
    await finish(await source.withLock(ref, fence, (ask) => ask(End, seal).catch(throwRefusal)))
  } catch (error) {
    // The fence prevents undoing the work of a caller that has taken over.
    await target.change(ref, fence, { method: 'DELETE', path: '/arrival' }).catch(() => {})
    await unseal(source, ref, fence).catch(() => {})
    throw error
  }
}
