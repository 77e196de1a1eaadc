import { setTimeout as delay } from 'node:timers/promises'
import { openAdmin } from '../instances/admin.ts'
import type { PostgresInstance } from '../instances/instance.ts'
import { Semaphore } from '../instances/mutex.ts'
import type { InstanceState } from '../instances/types.ts'
import { type ProcessUse, processUse } from './processes.ts'

const READS_AT_ONCE = 4
const QUERY_MS_MAX = 2_000

type Counts = 'transactions_committed' | 'transactions_rolled_back' | 'deadlocks' | 'blocks_hit' | 'blocks_read'
type DatabaseUse = Record<Counts | 'connections' | 'max_connections' | 'wal_bytes', number>

type Follower = { name: string; lag_bytes: number; lag_seconds: number }

/** Metrics of an instance; only its name and state if it is not running. */
export interface Metrics {
  name: string
  state: InstanceState
  size_bytes?: number
  use?: ProcessUse
  database?: DatabaseUse
  followers?: Follower[]
}

const DATABASE_USE = `SELECT
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()) AS connections,
  current_setting('max_connections')::int AS max_connections,
  sum(xact_commit)::float8 AS transactions_committed, sum(xact_rollback)::float8 AS transactions_rolled_back,
  sum(deadlocks)::float8 AS deadlocks, sum(blks_hit)::float8 AS blocks_hit, sum(blks_read)::float8 AS blocks_read,
  pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, '0/0')::float8
    AS wal_bytes
  FROM pg_stat_database`

const FOLLOWERS = `SELECT application_name AS name, coalesce(extract(epoch FROM replay_lag), 0)::float8 AS lag_seconds,
  coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn), 0)::float8 AS lag_bytes
  FROM pg_stat_replication WHERE NOT pg_is_in_recovery() AND state = 'streaming'`

const reads = new Semaphore(READS_AT_ONCE)

/** Reads the metrics of an instance; this neither wakes it nor keeps it awake. */
export async function readMetrics(instance: PostgresInstance): Promise<Metrics> {
  const { name, pid } = instance
  const state = instance.state()
  if (pid === undefined || state !== 'running') return { name, state }
  return reads.run(async () => {
    const [size_bytes, use, inside] = await Promise.all([
      instance.sizeBytes(),
      processUse(pid),
      readDatabase(instance).catch(() => undefined),
    ])
    return { name, state, size_bytes, use, ...inside }
  })
}

/** Uses a session of its own, which does not keep the instance awake. */
async function readDatabase({ paths }: PostgresInstance): Promise<Pick<Metrics, 'database' | 'followers'>> {
  const opening = openAdmin(paths.socket, 'postgres')
  const read = async () => {
    const admin = await opening
    const [database] = await admin.rows<DatabaseUse>(DATABASE_USE)
    return { database, followers: await admin.rows<Follower>(FOLLOWERS) }
  }
  try {
    return await Promise.race([read(), delay(QUERY_MS_MAX, {}, { ref: false })])
  } finally {
    opening.then((admin) => admin.end()).catch(() => {})
  }
}
