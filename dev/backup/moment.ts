import { setTimeout as delay } from 'node:timers/promises'
import * as z from 'zod'
import { EngineBusy } from '../../src/engine/engine-errors.ts'
import { type Call, type HostApi, NoContent } from '../../src/engine/host/client.ts'
import { SettingsRefused } from '../../src/engine/settings.ts'
import { errorMessage, StartError } from '../start-error.ts'
import { eachOf } from './copy.ts'
import type { StoredInstance } from './manifest.ts'

const Instances = z.array(z.object({ name: z.string(), state: z.string() }))
const Backups = z.array(z.object({ name: z.string(), id: z.string() }))
const Moment = z.object({ backup: z.string(), keys: z.array(z.string()), spec: z.record(z.string(), z.unknown()) })

export interface InstallationMoment {
  at: Date
  instances: StoredInstance[]
  /** Keys of the archived objects that recovery to that moment needs. */
  keys: string[]
  /** Projects that could not be archived, such as one whose server does not start, and why. */
  leftOut: ReadonlyMap<string, string>
}

/** The instance of the control database, without which there is no backup. */
export const CONTROL = 'control'

/** Limit for rounds. Each makes the base backups that the round before lacked, because projects may be created meanwhile. */
const ROUNDS_MAX = 10
/** Time limit for a moment: the WAL of a server is archived within a minute, or not at all. */
const MOMENT_MS_MAX = 120_000
const BACKUP_MS_MAX = 24 * 3_600_000
const BUSY_MS_MAX = 600_000
const BUSY_PAUSE_MS = 1_000

/** Temporary backups, which only a backup of the installation needs, have times in milliseconds as ids; other ids are far smaller. */
const TEMPORARY_FROM = 1e12
const newTemporaryId = () => String(Date.now())
export const isTemporary = (id: string): boolean => Number(id) >= TEMPORARY_FROM

const instance = (name: string, path: string) => `/instances/${name}${path}`

/** Archives one moment of the control database and all projects. */
export async function takeMoment(api: HostApi): Promise<InstallationMoment> {
  const leftOut = new Map<string, string>()
  /** Instances that have a base backup of this run. */
  const renewed = new Set<string>()
  const leaveOut = (name: string, error: unknown) => {
    if (name === CONTROL) throw new StartError(`The control database was not backed up: ${errorMessage(error)}.`)
    leftOut.set(name, errorMessage(error))
  }
  for (let round = 1; round <= ROUNDS_MAX; round++) {
    const at = new Date()
    const found = await api.ask(Instances, { method: 'GET', path: '/instances' })
    const taken: InstallationMoment = { at, instances: [], keys: [], leftOut }
    const withoutBackup: string[] = []
    const wanted = found.filter(({ name }) => !leftOut.has(name))
    await eachOf(each(wanted), async ({ name, state }) => {
      const moment = await momentOf(api, name, at).catch((error) => leaveOut(name, error))
      if (leftOut.has(name)) return
      // After a fresh base backup, a second refusal has another reason.
      if (!moment && renewed.has(name)) return leaveOut(name, new Error('its WAL cannot be archived'))
      if (!moment) return void withoutBackup.push(name)
      const { backup, keys, spec } = moment
      taken.instances.push({ name, backup, spec, isPaused: state === 'paused' })
      taken.keys.push(...keys)
    })
    if (withoutBackup.length === 0) return taken
    for (const name of withoutBackup) renewed.add(name)
    const id = newTemporaryId()
    const call = { method: 'PUT', waitMs: BACKUP_MS_MAX } as const
    await eachOf(each(withoutBackup), (name) =>
      change(api, { ...call, path: instance(name, `/backups/${id}`) }).catch((error) => leaveOut(name, error)),
    )
  }
  throw new StartError('Projects changed too often to take a moment of all of them: try again later.')
}

/** Removes the temporary base backups of this backup and of interrupted ones. */
export async function removeTemporaryBackups(api: HostApi): Promise<void> {
  const backups = await api.ask(Backups, { method: 'GET', path: '/backups' })
  for (const { name, id } of backups.filter((backup) => isTemporary(backup.id))) await removeBackup(api, name, id)
}

export const removeBackup = (api: HostApi, name: string, id: string): Promise<void> =>
  change(api, { method: 'DELETE', path: instance(name, `/backups/${id}`) })

/** The archived moment of an instance; undefined if a new base backup is needed. */
async function momentOf(api: HostApi, name: string, at: Date): Promise<z.output<typeof Moment> | undefined> {
  const call = { method: 'POST', path: instance(name, '/moment'), body: { at }, timeoutMs: MOMENT_MS_MAX } as const
  try {
    return await api.ask(Moment, call)
  } catch (error) {
    if (error instanceof SettingsRefused) return undefined
    throw error
  }
}

/** Calls the host, and retries while another task works on the project. */
async function change(api: HostApi, call: Call): Promise<void> {
  for (const until = Date.now() + BUSY_MS_MAX; ; await delay(BUSY_PAUSE_MS)) {
    try {
      return await api.ask(NoContent, call)
    } catch (error) {
      if (!(error instanceof EngineBusy) || Date.now() > until) throw error
    }
  }
}

async function* each<Item>(items: readonly Item[]): AsyncGenerator<Item> {
  yield* items
}
