/** The Postgres settings that owners may change: those of the Management API. */
export const SETTINGS: ReadonlySet<string> = new Set(
  `autovacuum_max_workers autovacuum_work_mem checkpoint_timeout cron.log_statement effective_cache_size
  hot_standby_feedback log_autovacuum_min_duration log_checkpoints log_connections log_disconnections log_duration
  log_lock_waits log_recovery_conflict_waits log_replication_commands log_startup_progress_interval log_temp_files
  logical_decoding_work_mem maintenance_work_mem max_connections max_locks_per_transaction
  max_logical_replication_workers max_parallel_maintenance_workers max_parallel_workers
  max_parallel_workers_per_gather max_replication_slots max_slot_wal_keep_size max_standby_archive_delay
  max_standby_streaming_delay max_sync_workers_per_subscription max_wal_senders max_wal_size max_worker_processes
  pg_net.batch_size pg_stat_statements.max session_replication_role shared_buffers statement_timeout
  track_activity_query_size track_commit_timestamp wal_keep_size wal_sender_timeout work_mem`.split(/\s+/),
)

/** Libraries that define a setting. Postgres accepts any name with a dot, so the library decides whether it has an effect. */
const LIBRARIES: ReadonlyMap<string, string> = new Map([
  ['cron.log_statement', 'pg_cron'],
  ['pg_net.batch_size', 'pg_net'],
])

/** The reason why the owner cannot change the setting; undefined if they can. */
export function refusalReason(setting: string, libraries: readonly string[]): string | undefined {
  if (!SETTINGS.has(setting)) return 'cannot be set here'
  const library = LIBRARIES.get(setting)
  if (library && !libraries.includes(library)) return `belongs to ${library}, which this host does not have`
}
