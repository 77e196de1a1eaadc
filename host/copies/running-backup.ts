import { randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type AdminSession, type Instance, InstanceUnavailable } from '../instances/types.ts'
import { nameOf, numberOf, segmentAt } from './wal-segments.ts'

/** A copy of the data folder's files becomes consistent by these. */
export interface StoppedBackup {
  /** The content of the file `backup_label`. */
  label: string
  startLsn: string
  stopLsn: string
  stoppedAt: Date
  timeline: number
  segmentBytes: number
  /** Names of files in `pg_wal`: the segments from start to stop, and the histories of timelines. */
  wal: string[]
}

/**
 * Holds the server in backup mode while `copy` reads the data folder, in which nobody is blocked. `finish` runs while the
 * server still keeps the WAL that the copy needs.
 */
export function withRunningBackup<Value>(
  instance: Instance,
  copy: () => Promise<void>,
  finish: (backup: StoppedBackup) => Promise<Value>,
): Promise<Value> {
  return instance.withAdmin('postgres', async (admin) => {
    await holdWal(admin)
    const label = `pilothouse ${new Date().toISOString()}`
    const [started] = await admin.rows<{ lsn: string }>('SELECT pg_backup_start($1, true)::text AS lsn', [label])
    await copy()
    const [stopped] = await admin.rows<Stopped>(STOP)
    if (!started || !stopped) throw new InstanceUnavailable('Postgres did not say where the backup begins and ends')
    const wal = await neededWal(instance, started.lsn, stopped)
    return finish({ ...stopped, startLsn: started.lsn, stopLsn: stopped.lsn, wal })
  })
}

interface Stopped {
  label: string
  lsn: string
  stoppedAt: Date
  last: string
  timeline: number
  segmentBytes: number
}

const STOP = `SELECT labelfile AS label, lsn::text, clock_timestamp() AS "stoppedAt", pg_walfile_name(lsn) AS last,
    ('x' || left(pg_walfile_name(lsn), 8))::bit(32)::int AS timeline,
    (SELECT setting::int FROM pg_settings WHERE name = 'wal_segment_size') AS "segmentBytes"
  FROM pg_backup_stop(false)`

/**
 * Until the session ends. A server whose slots are all in use does without: its WAL is then there for as long as no second
 * checkpoint has passed, and a copy that lacks a segment fails.
 */
async function holdWal(admin: AdminSession): Promise<void> {
  const name = `copy_${randomBytes(8).toString('hex')}`
  await admin.rows('SELECT pg_create_physical_replication_slot($1, true, true)', [name]).catch((error) => {
    if (error?.code !== '53400') throw error
  })
}

/** Fails if a segment is gone, as the copy would not start without it. */
async function neededWal(instance: Instance, startLsn: string, stopped: Stopped): Promise<string[]> {
  const { last, timeline, segmentBytes } = stopped
  const first = segmentAt(startLsn, segmentBytes)
  const names = await readdir(join(instance.paths.data, 'pg_wal'))
  const from = nameOf(timeline, first, segmentBytes)
  const segments = names.filter((name) => /^[0-9A-F]{24}$/.test(name) && name >= from && name <= last)
  if (segments.length !== numberOf(last, segmentBytes) - first + 1) {
    throw new InstanceUnavailable('The server removed WAL that the copy needs: try again while it is less busy')
  }
  return [...names.filter((name) => name.endsWith('.history')), ...segments.sort()]
}
