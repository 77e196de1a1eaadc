import { randomBytes } from 'node:crypto'
import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { errorCode, errorMessage } from '../../dev/start-error.ts'
import { withAdminAt } from '../instances/admin.ts'
import { type Instance, Refused } from '../instances/types.ts'
import { SLOTS_DEFAULT } from '../settings/configuration.ts'

/** Replication lag of a replica. */
interface Stream {
  slot: string
  bytes: number
  seconds: number
}

export interface PrimaryFacts {
  bounds: Readonly<Record<string, string>>
  /** Names of slots whose WAL has been removed. */
  lost: string[] | null
}

/** Settings that must not be lower on a standby than they were on its primary when the primary wrote the WAL to replay. */
export const BOUNDS = [
  'max_connections',
  'max_worker_processes',
  'max_wal_senders',
  'max_prepared_transactions',
  'max_locks_per_transaction',
]

export const readStreams = (primary: Instance): Promise<Stream[]> =>
  queryIfRunning(
    primary,
    `SELECT s.slot_name::text AS slot, pg_wal_lsn_diff(pg_current_wal_lsn(), r.replay_lsn)::float8 AS bytes,
       extract(epoch FROM coalesce(r.replay_lag, '0'))::float8 AS seconds
     FROM pg_replication_slots AS s JOIN pg_stat_replication AS r ON r.pid = s.active_pid WHERE r.state = 'streaming'`,
  )

export async function readPrimaryFacts(primary: Instance): Promise<PrimaryFacts> {
  const [facts] = await queryIfRunning<PrimaryFacts>(
    primary,
    `SELECT (SELECT jsonb_object_agg(name, setting) FROM pg_settings WHERE name = ANY ($1)) AS bounds,
       (SELECT array_agg(slot_name::text) FROM pg_replication_slots WHERE wal_status = 'lost') AS lost`,
    [BOUNDS],
  )
  return facts ?? { bounds: {}, lost: null }
}

/** A new slot name for each copy, so that outdated data is recognized by its slot. */
export const newSlotName = (id: string): string => `${id.replaceAll('-', '_')}_${randomBytes(3).toString('hex')}`

/** Lists all slots, also of a stopped server. */
export const listAllSlots = ({ paths }: Instance): Promise<string[]> => readdir(join(paths.data, 'pg_replslot'))

/** Lists the slots of present and former replicas. */
export const listSlots = async (primary: Instance): Promise<string[]> =>
  (await listAllSlots(primary)).filter((slot) => slot.startsWith(`${primary.name}_rr_`))

/** Creates a slot, which must exist before the copy starts: it keeps the WAL that the replica needs. */
export async function createSlot(primary: Instance, slot: string): Promise<void> {
  await primary
    .withAdmin('postgres', (admin) => admin.rows('SELECT pg_create_physical_replication_slot($1, true)', [slot]))
    .catch((error) => {
      if (!isWithoutSlot(error)) throw error
      throw new Refused([{ setting: 'max_replication_slots', reason: 'all replication slots are in use' }])
    })
}

/** Whether Postgres has refused to create a slot because all are in use, or because it allows none. */
export const isWithoutSlot = (error: unknown): boolean =>
  errorCode(error) === '53400' || (errorCode(error) === '55000' && /max_replication_slots/.test(errorMessage(error)))

/** Refuses another replica for which the primary has no WAL sender, now or after its next restart. It would never follow. */
export async function requireSender(primary: Instance, replicas: number): Promise<void> {
  const [row] = await primary.withAdmin('postgres', (admin) =>
    admin.rows<{ max: number }>(`SELECT current_setting('max_wal_senders')::int AS max`),
  )
  const senders = Math.min(row?.max ?? 0, Number(primary.record.settings.max_wal_senders ?? SLOTS_DEFAULT))
  if (senders > replicas) return
  const reason = `must be at least ${replicas + 1}, the number of read replicas with the new one`
  throw new Refused([{ setting: 'max_wal_senders', reason }])
}

/** Drops a slot; if the server is stopped, by removing the slot's folder. */
export async function dropSlot(primary: Instance, slot: string): Promise<void> {
  const folder = join(primary.paths.data, 'pg_replslot', slot)
  if (primary.state() !== 'running') return primary.whileStopped(() => rm(folder, { recursive: true, force: true }))
  const found = 'FROM pg_replication_slots WHERE slot_name = $1'
  // The server may not have noticed yet that the replica is gone.
  await queryIfRunning(primary, `SELECT pg_terminate_backend(active_pid, 5000) ${found} AND active`, [slot])
  await queryIfRunning(primary, `SELECT pg_drop_replication_slot(slot_name) ${found}`, [slot])
}

/** Queries the instance if it is running, without keeping it awake. */
async function queryIfRunning<Row extends object>(
  instance: Instance,
  text: string,
  values?: readonly unknown[],
): Promise<Row[]> {
  if (instance.state() !== 'running') return []
  return withAdminAt(instance.paths.socket, 'postgres', (admin) => admin.rows<Row>(text, values))
}
