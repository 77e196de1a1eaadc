import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../dev/start-error.ts'
import { settingText } from '../../src/engine/settings.ts'
import { type Instance, type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'
import { listAllSlots, listSlots } from '../replicas/slots.ts'
import { configurationOf, SLOTS_DEFAULT } from './configuration.ts'
import { factsOf, type Subject, type Trial, tryConfiguration } from './configuration-trial.ts'
import { refusalReason } from './owner-settings.ts'
import { requireOffered } from './sizes.ts'

export interface SettingsChange {
  /** All settings of the owner: any other is that of the instance's size. */
  set: Readonly<Record<string, string | number | boolean>>
  restart?: Restart
}

/** True restarts a running server if a changed value needs it; false postpones such values to the next restart. */
type Restart = boolean | 'always'

/** Replaces the owner's settings, or changes nothing. Throws `Refused` if Postgres would not start. */
export async function applySettings(instance: Instance, requested: SettingsChange, trial: Trial): Promise<void> {
  const { set, restart = true } = requested
  requireAllowed(Object.keys(set), instance)
  const settings = Object.fromEntries(Object.entries(set).map(([name, value]) => [name, settingText(value)]))
  await change(instance, { settings }, { trial, restart })
}

/** Throws `Refused` if this host could not run an instance with the size and the settings of the record. */
export async function requireSupported({ record, ...rest }: Subject, trial: Trial): Promise<void> {
  requireOffered(record.size, trial.facts.memoryBytes)
  const changed = Object.keys(record.settings)
  if (changed.length === 0) return
  requireAllowed(changed, rest)
  await tryConfiguration({ ...rest, record: { ...record, settings: {} } }, { record, changed }, trial)
}

function requireAllowed(
  settings: readonly string[],
  { programs: { libraries = [] } }: Pick<Subject, 'programs'>,
): void {
  const refusals = settings.flatMap((setting) => {
    const reason = refusalReason(setting, libraries)
    return reason ? [{ setting, reason }] : []
  })
  if (refusals.length > 0) throw new Refused(refusals)
}

/** Changes the size like `applySettings`. The owner's settings still override those of the size. */
export async function setSize(instance: Instance, size: string, trial: Trial): Promise<void> {
  requireOffered(size, trial.facts.memoryBytes)
  await change(instance, { size }, { trial, restart: true })
}

interface ChangeOptions {
  trial: Trial
  restart: Restart
}

type Change = Pick<InstanceRecord, 'settings'> | Pick<InstanceRecord, 'size'>

async function change(instance: Instance, changes: Change, { trial, restart }: ChangeOptions): Promise<void> {
  const { settings, size } = instance.record
  const record = { ...instance.record, ...changes }
  const changed = changedBetween(instance.record, record, instance, trial)
  if (changed.length > 0) {
    await tryConfiguration(instance, { record, changed }, trial)
    await requireRoomForSlots(instance, configurationOf(record, factsOf(instance, trial)), changed)
  }
  await instance.update(changes)
  // A daemon that was killed, or a request that failed, may have recorded these values without applying them.
  if (changed.length === 0) return instance.state() === 'running' ? activate(instance, { restart }) : undefined
  try {
    await activate(instance, { restart, changed })
  } catch (error) {
    await instance.update({ settings, size })
    // If the settings are not the cause, this fails too, and the caller gets that error.
    await restartWithConfiguration(instance)
    const reason = errorMessage(error)
    throw new Refused([{ setting: changed.find((name) => reason.includes(name)) ?? changed[0] ?? 'size', reason }])
  }
}

/** Refuses values below the number of replication slots or read replicas. The trial accepts them, because its folder has no slots. */
async function requireRoomForSlots(
  instance: Instance,
  values: Readonly<Record<string, string>>,
  changed: readonly string[],
): Promise<void> {
  const [slots, replicas] = await Promise.all([listAllSlots(instance), listSlots(instance)])
  const needs = [
    { setting: 'max_wal_senders', count: replicas.length, users: 'read replicas' },
    { setting: 'max_replication_slots', count: slots.length, users: 'replication slots' },
  ]
  const refusals = needs
    .filter(({ setting, count }) => changed.includes(setting) && Number(values[setting] ?? SLOTS_DEFAULT) < count)
    .map(({ setting, count, users }) => ({ setting, reason: `must be at least ${count}, the number of ${users}` }))
  if (refusals.length > 0) throw new Refused(refusals)
}

function changedBetween(before: InstanceRecord, after: InstanceRecord, instance: Instance, trial: Trial): string[] {
  const [old, now] = [before, after].map((record) => configurationOf(record, factsOf(instance, trial)))
  const names = new Set([...Object.keys(old ?? {}), ...Object.keys(now ?? {})])
  // Settings of the owner come first, because others are derived from them.
  const ofOwner = (name: string) => (name in after.settings || name in before.settings ? 0 : 1)
  return [...names].filter((name) => old?.[name] !== now?.[name]).sort((a, b) => ofOwner(a) - ofOwner(b))
}

interface Activation {
  restart: Restart
  /** Settings that need a restart even if an earlier change has postponed one for them. */
  changed?: readonly string[]
}

/** Writes the configuration and makes the server use it, by a reload or a restart. */
export async function activate(instance: Instance, { restart, changed = [] }: Activation): Promise<void> {
  await instance.writeConfiguration()
  if (instance.record.isPaused || instance.record.sealed) return
  if (instance.state() !== 'running') return instance.wake()
  if (restart === 'always') return instance.restart()
  const { admin } = instance
  const loadedAt = await readLoadTime(instance)
  await admin.rows('SELECT pg_reload_conf()')
  // This session reads the files even before the signal arrives, and marks settings that need a restart.
  const problems = await admin.rows<{ name: string | null; error: string }>(
    `SELECT name, coalesce(name || ': ', '') || error AS error FROM pg_file_settings WHERE error IS NOT NULL`,
  )
  const pending = await listPending(instance)
  const { postponed = [] } = instance.record
  const waiting = restart ? pending.filter((name) => postponed.includes(name) && !changed.includes(name)) : pending
  // Recorded before the restart: if the daemon is killed now, a repeated request restarts.
  if (waiting.join() !== postponed.join()) await instance.update({ postponed: waiting })
  if (waiting.length < pending.length) return instance.restart()
  const problem = problems.find(({ name }) => name === null || !pending.includes(name))
  if (problem) throw new InstanceUnavailable(problem.error)
  await waitForReload(instance, loadedAt)
}

/** Lists the settings whose new values wait for a restart. */
async function listPending({ admin }: Instance): Promise<string[]> {
  const rows = await admin.rows<{ name: string }>('SELECT name FROM pg_settings WHERE pending_restart')
  return rows.map(({ name }) => name)
}

const RELOAD_MS_MAX = 10_000
const RELOAD_POLL_MS = 10

/** The time when the postmaster, whose settings new sessions inherit, last read its configuration. */
async function readLoadTime(instance: Instance): Promise<string> {
  const [row] = await instance.withAdmin('postgres', (admin) =>
    admin.rows<{ at: string }>('SELECT pg_conf_load_time()::text AS at'),
  )
  return row?.at ?? ''
}

/** Waits for the reload, which is only a signal: until then, new sessions could still have the old values. */
async function waitForReload(instance: Instance, before: string): Promise<void> {
  for (const until = Date.now() + RELOAD_MS_MAX; Date.now() < until; await delay(RELOAD_POLL_MS)) {
    if ((await readLoadTime(instance)) !== before) return
  }
  throw new InstanceUnavailable('Postgres has not read its configuration in time')
}

async function restartWithConfiguration(instance: Instance): Promise<void> {
  await instance.writeConfiguration()
  await instance.restart()
}
