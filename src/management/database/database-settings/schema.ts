import * as z from 'zod'
import { REGION_CODES } from '../../../model/tables/index.ts'
import { Text } from '../../../platform/http/common-values.ts'

const count = (min: number, max: number) => z.int().min(min).max(max)
const WORKERS_MAX = 262_143
const PARALLEL_MAX = 1_024

/** Postgres validates the rest of the value. */
const Size = Text.max(64)
const Duration = z
  .string()
  .max(64)
  .regex(/^(-?[0-9]+(?:\.[0-9]+)?)(us|ms|s|min|h|d)?$/, 'must be a number with us, ms, s, min, h, d or no unit')

export const PostgresConfig = z
  .object({
    effective_cache_size: Size,
    logical_decoding_work_mem: Size,
    'pg_stat_statements.max': count(100, 45_000),
    'pg_net.batch_size': count(0, 32_767),
    autovacuum_max_workers: count(1, WORKERS_MAX),
    autovacuum_work_mem: Size,
    'cron.log_statement': z.boolean(),
    log_autovacuum_min_duration: Duration,
    log_checkpoints: z.boolean(),
    log_connections: z.boolean(),
    log_disconnections: z.boolean(),
    log_duration: z.boolean(),
    log_lock_waits: z.boolean(),
    log_recovery_conflict_waits: z.boolean(),
    log_replication_commands: z.boolean(),
    log_startup_progress_interval: Duration,
    log_temp_files: Size,
    maintenance_work_mem: Size,
    track_activity_query_size: Size,
    max_connections: count(1, WORKERS_MAX).meta({
      description: 'Maximum number of concurrent sessions; 13 are reserved for the services',
    }),
    max_locks_per_transaction: count(10, 2_147_483_640),
    max_logical_replication_workers: count(0, WORKERS_MAX),
    max_parallel_maintenance_workers: count(0, PARALLEL_MAX),
    max_parallel_workers: count(0, PARALLEL_MAX),
    max_parallel_workers_per_gather: count(0, PARALLEL_MAX),
    max_replication_slots: z.int(),
    max_slot_wal_keep_size: Size,
    max_standby_archive_delay: Size,
    max_standby_streaming_delay: Size,
    max_sync_workers_per_subscription: count(0, WORKERS_MAX),
    max_wal_size: Size,
    max_wal_senders: z.int(),
    max_worker_processes: count(0, WORKERS_MAX),
    session_replication_role: z.enum(['origin', 'replica', 'local']),
    shared_buffers: Size,
    statement_timeout: Duration,
    track_commit_timestamp: z.boolean(),
    wal_keep_size: Size,
    wal_sender_timeout: Duration,
    work_mem: Size,
    checkpoint_timeout: Duration,
    hot_standby_feedback: z.boolean(),
  })
  .partial()
  .meta({ id: 'PostgresConfig' })
export type PostgresConfig = z.output<typeof PostgresConfig>

export const UpdatePostgresConfig = z
  .strictObject({
    ...PostgresConfig.shape,
    restart_database: z
      .boolean()
      .optional()
      .meta({
        description:
          'True always restarts the database, so that every session has the new values. False leaves values that require a ' +
          'restart until the next one. If omitted, the database restarts if a value requires it',
      }),
  })
  .meta({ id: 'UpdatePostgresConfig' })

const PoolMode = z.enum(['transaction', 'session'])

export const PoolerSettings = z
  .object({ default_pool_size: z.int().nullable(), pool_mode: PoolMode })
  .meta({ id: 'PoolerSettings' })

export const UpdatePoolerSettings = z
  .object({ default_pool_size: count(0, 3_000).nullable(), pool_mode: PoolMode })
  .partial()
  .meta({ id: 'UpdatePoolerSettings' })

/** The reply for clients from before the list of poolers. */
export const LegacyPooler = z
  .object({
    default_pool_size: z.int(),
    ignore_startup_parameters: z.string(),
    max_client_conn: z.int(),
    pool_mode: z.enum(['transaction', 'session', 'statement']),
    connection_string: z.string(),
    server_idle_timeout: z.int(),
    server_lifetime: z.int(),
    query_wait_timeout: z.int(),
    reserve_pool_size: z.int(),
  })
  .meta({ id: 'LegacyPooler' })

export const ReadOnlyStatus = z
  .object({
    enabled: z.boolean().meta({ description: 'Stays true while the mode is overridden' }),
    override_enabled: z.boolean(),
    override_active_until: z.string().meta({ description: 'Empty if the mode is not overridden' }),
  })
  .meta({ id: 'ReadOnlyStatus' })

const SslConfig = z.object({ database: z.boolean() })

export const SslEnforcement = z
  .object({ currentConfig: SslConfig, appliedSuccessfully: z.boolean() })
  .meta({ id: 'SslEnforcement' })

export const UpdateSslEnforcement = z.object({ requestedConfig: SslConfig }).meta({ id: 'UpdateSslEnforcement' })

const Positive = z.int().min(1)
const SIZE_GB_MAX = 65_536
const size = { iops: Positive, size_gb: count(1, SIZE_GB_MAX) }

const DiskAttributes = z.discriminatedUnion('type', [
  z.object({ ...size, throughput_mibps: Positive.optional(), type: z.literal('gp3') }),
  z.object({ ...size, type: z.literal('io2') }),
])
export type DiskAttributes = z.output<typeof DiskAttributes>

export const Disk = z
  .object({ attributes: DiskAttributes, last_modified_at: z.iso.datetime().optional() })
  .meta({ id: 'Disk' })

export const UpdateDisk = z.object({ attributes: DiskAttributes }).meta({ id: 'UpdateDisk' })

export const DiskUse = z
  .object({
    timestamp: z.iso.datetime(),
    metrics: z.object({ fs_size_bytes: z.int(), fs_avail_bytes: z.int(), fs_used_bytes: z.int() }),
  })
  .meta({ id: 'DiskUse' })

const Growth = Positive.nullable()
export const DiskAutoscale = z
  .object({ growth_percent: Growth, min_increment_gb: Growth, max_size_gb: Growth })
  .meta({ id: 'DiskAutoscale' })

export const SetUpReadReplica = z.object({ read_replica_region: z.enum(REGION_CODES) }).meta({ id: 'SetUpReadReplica' })

export const RemoveReadReplica = z
  .object({ database_identifier: Text.min(1).max(256) })
  .meta({ id: 'RemoveReadReplica' })

const LISTED_MAX = 200

const Networks = z.object({
  dbAllowedCidrs: z.array(z.cidrv4()).max(LISTED_MAX).optional(),
  dbAllowedCidrsV6: z.array(z.cidrv6()).max(LISTED_MAX).optional(),
})

const RestrictionState = z.object({
  entitlement: z
    .enum(['allowed', 'disallowed'])
    .meta({ description: 'Whether the driver supports network restrictions' }),
  status: z.enum(['stored', 'applied']),
  updated_at: z.iso.datetime().optional(),
  applied_at: z.iso.datetime().optional(),
})

export const NetworkRestrictions = RestrictionState.extend({ config: Networks, old_config: Networks.optional() }).meta({
  id: 'NetworkRestrictions',
})

export const ApplyRestrictions = Networks.meta({ id: 'ApplyNetworkRestrictions' })

export const PatchRestrictions = z
  .object({ add: Networks.optional(), remove: Networks.optional() })
  .meta({ id: 'PatchNetworkRestrictions' })

const TypedNetworks = z.object({
  dbAllowedCidrs: z.array(z.object({ address: z.string(), type: z.enum(['v4', 'v6']) })),
})

export const PatchedRestrictions = RestrictionState.extend({
  config: TypedNetworks,
  old_config: TypedNetworks.optional(),
}).meta({ id: 'PatchedNetworkRestrictions' })

export const NetworkBans = z.object({ banned_ipv4_addresses: z.array(z.string()) }).meta({ id: 'NetworkBans' })

export const EnrichedNetworkBans = z
  .object({
    banned_ipv4_addresses: z.array(z.object({ banned_address: z.string(), identifier: z.string(), type: z.string() })),
  })
  .meta({ id: 'EnrichedNetworkBans' })

export const LiftNetworkBans = z
  .object({
    // IPv6 bans are listed and lifted as whole networks.
    ipv4_addresses: z.array(z.union([z.ipv4(), z.ipv6(), z.cidrv6()])).max(LISTED_MAX),
    requester_ip: z.boolean().optional(),
    identifier: Text.max(256).optional(),
  })
  .meta({ id: 'LiftNetworkBans' })
