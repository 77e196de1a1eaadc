import { setTimeout as delay } from 'node:timers/promises'
import { errorMessage } from '../../dev/start-error.ts'
import { settingText } from '../../src/engine/settings.ts'
import { type Instance, type InstanceRecord, InstanceUnavailable, Refused } from '../instances/types.ts'
import { configurationOf } from './configuration.ts'
import { whyNot } from './names.ts'
import { sizeNamed } from './sizes.ts'
import { factsOf, type Trial, tryConfiguration } from './trial.ts'

export interface SettingsChange {
  set: Readonly<Record<string, string | number | boolean>>
  /** Taken back to what the instance's size gives. */
  reset: readonly string[]
  /** False leaves what needs a restart for the next one. */
  restart?: boolean
}

/** All or nothing: restarts the server if a value that changes needs it; throws `Refused` if Postgres would not start. */
export async function applySettings(instance: Instance, asked: SettingsChange, trial: Trial): Promise<void> {
  const { set, reset, restart } = asked
  const { libraries = [] } = instance.programs
  const refusals = Object.keys(set).flatMap((setting) => {
    const reason = whyNot(setting, libraries)
    return reason ? [{ setting, reason }] : []
  })
  if (refusals.length > 0) throw new Refused(refusals)
  const kept = Object.entries(instance.record.settings).filter(([name]) => !reset.includes(name))
  const chosen = Object.entries(set).map(([name, value]) => [name, settingText(value)])
  await change(
    instance,
    { settings: Object.fromEntries([...kept, ...chosen]) },
    { trial, mayRestart: restart !== false },
  )
}

/** As `applySettings`. What the owner has set stays over what the size gives. */
export async function setSize(instance: Instance, size: string, trial: Trial): Promise<void> {
  sizeNamed(size)
  await change(instance, { size }, { trial, mayRestart: true })
}

interface Circumstances {
  trial: Trial
  mayRestart: boolean
}

type Change = Pick<InstanceRecord, 'settings'> | Pick<InstanceRecord, 'size'>

async function change(instance: Instance, changes: Change, { trial, mayRestart }: Circumstances): Promise<void> {
  const { settings, size } = instance.record
  const record = { ...instance.record, ...changes }
  const changed = changedBetween(instance.record, record, instance, trial)
  if (changed.length > 0) await tryConfiguration(instance, { record, changed }, trial)
  await instance.update(changes)
  if (changed.length === 0) return
  try {
    await activate(instance, mayRestart)
  } catch (error) {
    await instance.update({ settings, size })
    // Fails as well if the reason is another one; then that is what the caller hears.
    await startAnew(instance)
    const reason = errorMessage(error)
    throw new Refused([{ setting: changed.find((name) => reason.includes(name)) ?? changed[0] ?? 'size', reason }])
  }
}

function changedBetween(before: InstanceRecord, after: InstanceRecord, instance: Instance, trial: Trial): string[] {
  const [old, now] = [before, after].map((record) => configurationOf(record, factsOf(instance, trial)))
  const names = new Set([...Object.keys(old ?? {}), ...Object.keys(now ?? {})])
  // Those of the caller first: others follow from them.
  const ofOwner = (name: string) => (name in after.settings || name in before.settings ? 0 : 1)
  return [...names].filter((name) => old?.[name] !== now?.[name]).sort((a, b) => ofOwner(a) - ofOwner(b))
}

/** Lets the server have its configuration as written. */
export async function activate(instance: Instance, mayRestart: boolean): Promise<void> {
  await instance.writeConfiguration()
  if (instance.record.isPaused || instance.record.sealed) return
  if (instance.state() !== 'running') return instance.wake()
  const { admin } = instance
  const loadedAt = await loadTime(instance)
  await admin.rows('SELECT pg_reload_conf()')
  // Reads the files in this session, whether the signal has come or not, and marks what must wait for a restart.
  const problems = await admin.rows<{ error: string }>(
    `SELECT coalesce(name || ': ', '') || error AS error FROM pg_file_settings WHERE error IS NOT NULL`,
  )
  const pending = await admin.rows('SELECT FROM pg_settings WHERE pending_restart LIMIT 1')
  if (pending.length > 0) {
    if (mayRestart) await instance.restart()
  } else if (problems[0]) throw new InstanceUnavailable(problems[0].error)
  else await untilLoadedAfter(instance, loadedAt)
}

const RELOAD_MS_MAX = 10_000
const RELOAD_POLL_MS = 10

/** When the postmaster, from which new sessions have their settings, has read its configuration. */
async function loadTime(instance: Instance): Promise<string> {
  const [row] = await instance.withAdmin('postgres', (admin) =>
    admin.rows<{ at: string }>('SELECT pg_conf_load_time()::text AS at'),
  )
  return row?.at ?? ''
}

/** A reload is a signal: without waiting, sessions that begin now could still have the old values. */
async function untilLoadedAfter(instance: Instance, before: string): Promise<void> {
  for (const until = Date.now() + RELOAD_MS_MAX; Date.now() < until; await delay(RELOAD_POLL_MS)) {
    if ((await loadTime(instance)) !== before) return
  }
  throw new InstanceUnavailable('Postgres has not read its configuration in time')
}

async function startAnew(instance: Instance): Promise<void> {
  await instance.writeConfiguration()
  await instance.restart()
}
