import { randomBytes } from 'node:crypto'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { type AdminSession, type Instance, InstanceUnavailable } from '../instances/types.ts'
import { isWithoutSlot } from '../replicas/slots.ts'
import { nameOf, numberOf, segmentAt } from './wal-segments.ts'

/** Facts that make a copy of the data folder's files consistent. */
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
 * Keeps the server in backup mode, which blocks no session, while `copy` reads the data folder. `finish` runs while the server
 * still keeps the WAL that the copy needs.
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
    const [stopped] = await admin.rows<StopRow>(STOP)
    if (!started || !stopped)
      throw new InstanceUnavailable('Postgres did not return the start and the end of the backup')
    const wal = await listNeededWal(instance, started.lsn, stopped)
    return finish({ ...stopped, startLsn: started.lsn, stopLsn: stopped.lsn, wal })
  })
}

interface StopRow {
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
 * Keeps the WAL until the session ends. If all slots are in use or none is allowed, this does nothing: the WAL then remains until the second
 * checkpoint, and a copy that lacks a segment fails.
 */
async function holdWal(admin: AdminSession): Promise<void> {
  const name = `copy_${randomBytes(8).toString('hex')}`
  await admin.rows('SELECT pg_create_physical_replication_slot($1, true, true)', [name]).catch((error) => {
    if (!isWithoutSlot(error)) throw error
  })
}

/** Lists the WAL files of the backup. Fails if a segment is missing, because the copy would not start without it. */
async function listNeededWal(instance: Instance, startLsn: string, stopped: StopRow): Promise<string[]> {
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
