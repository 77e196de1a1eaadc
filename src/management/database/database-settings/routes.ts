import { ApiError } from '../../../platform/http/error.ts'
import { empty, get, patch, post, put } from '../../kernel/route.ts'
import { getDisk, getDiskUse, updateDisk } from './disk.ts'
import { CLUSTER_ERRORS, networkRoutes } from './network-routes.ts'
import { getLegacyPooler, updatePoolerSettings } from './pooler.ts'
import { getPostgresConfig, updatePostgresConfig } from './postgres.ts'
import { disableReadOnly, getReadOnlyStatus } from './read-only.ts'
import { removeReplica, setUpReplica } from './replicas.ts'
import {
  Disk,
  DiskAutoscale,
  DiskUse,
  LegacyPooler,
  PoolerSettings,
  PostgresConfig,
  ReadOnlyStatus,
  RemoveReadReplica,
  SetUpReadReplica,
  UpdateDisk,
  UpdatePoolerSettings,
  UpdatePostgresConfig,
} from './schema.ts'

const VALIDATION =
  'Postgres validates the values first: if it rejects one, the error names the field and nothing changes. ' +
  'The database restarts if a value requires it. The driver `host` also changes the settings of a project that is `INACTIVE` or ' +
  '`RESTORE_FAILED`. Settings that only the operator of the server can change are rejected by name.'

const driverUnsupported = (driver: string, what: string) =>
  new ApiError('bad_request.driver', { detail: `the driver ${driver} ${what}` })

export const databaseSettingsRoutes = [
  get('/v1/projects/{ref}/config/database/postgres', {
    id: 'v1-get-postgres-config',
    summary: "Get a project's Postgres settings",
    description: 'Returns the effective values, defaults included. For an inactive project, returns the stored values.',
    scope: 'database:read',
    returns: PostgresConfig,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => getPostgresConfig(ctx, project),
  }),

  put('/v1/projects/{ref}/config/database/postgres', {
    id: 'v1-update-postgres-config',
    summary: "Replace a project's Postgres settings",
    description: `Omitted settings are reset to their defaults; values already in effect by default are not stored. ${VALIDATION}`,
    scope: 'database:write',
    body: UpdatePostgresConfig,
    returns: PostgresConfig,
    errors: CLUSTER_ERRORS,
    handle: ({ ctx, project, body }) => updatePostgresConfig(ctx, project, body, { replace: true }),
  }),

  patch('/v1/projects/{ref}/config/database/postgres', {
    id: 'v1-patch-postgres-config',
    summary: "Update a project's Postgres settings",
    description: `Omitted settings stay unchanged. ${VALIDATION}`,
    scope: 'database:write',
    body: UpdatePostgresConfig,
    returns: PostgresConfig,
    errors: CLUSTER_ERRORS,
    handle: ({ ctx, project, body }) => updatePostgresConfig(ctx, project, body, { replace: false }),
  }),

  patch('/v1/projects/{ref}/config/database/pooler', {
    id: 'v1-update-pooler-config',
    summary: "Update a project's pooler settings",
    description:
      'If the driver has a pooler, the mode selects between it and a direct connection. The other settings are only stored and returned.',
    scope: 'database:write',
    body: UpdatePoolerSettings,
    returns: PoolerSettings,
    handle: ({ ctx, project, body }) => updatePoolerSettings(ctx, project, body),
  }),

  get('/v1/projects/{ref}/config/database/pgbouncer', {
    id: 'v1-get-project-pgbouncer-config',
    summary: "Get a project's PgBouncer settings",
    scope: 'database:read',
    returns: LegacyPooler,
    handle: ({ ctx, project }) => getLegacyPooler(ctx, project),
  }),

  get('/v1/projects/{ref}/readonly', {
    id: 'v1-get-readonly-mode-status',
    summary: "Get a project's read-only mode",
    scope: 'database:read',
    returns: ReadOnlyStatus,
    handle: ({ ctx, project }) => getReadOnlyStatus(ctx, project),
  }),

  post('/v1/projects/{ref}/readonly/temporary-disable', {
    id: 'v1-disable-readonly-mode-temporarily',
    summary: "Disable a project's read-only mode for 15 minutes",
    scope: 'database:write',
    returns: empty,
    status: 201,
    errors: CLUSTER_ERRORS,
    handle: ({ ctx, project }) => disableReadOnly(ctx, project),
  }),

  ...networkRoutes,

  get('/v1/projects/{ref}/config/disk', {
    id: 'v1-get-database-disk',
    summary: "Get a project's disk settings",
    scope: 'any caller',
    permission: 'database:read',
    returns: Disk,
    handle: ({ ctx, project }) => getDisk(ctx, project),
  }),

  post('/v1/projects/{ref}/config/disk', {
    id: 'v1-modify-database-disk',
    summary: "Update a project's disk settings",
    description:
      'The database becomes read-only at 95 % of the disk size; with the driver `neon` the size is only stored and shown. Attributes that the driver cannot change are rejected by name.',
    scope: 'any caller',
    permission: 'projects:write',
    body: UpdateDisk,
    returns: empty,
    status: 201,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => updateDisk(ctx, project, body.attributes),
  }),

  get('/v1/projects/{ref}/config/disk/util', {
    id: 'v1-get-disk-utilization',
    summary: "Get a project's disk usage",
    scope: 'any caller',
    permission: 'database:read',
    returns: DiskUse,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => getDiskUse(ctx, project),
  }),

  get('/v1/projects/{ref}/config/disk/autoscale', {
    id: 'v1-get-project-disk-autoscale-config',
    summary: "Get a project's disk autoscaling settings",
    description: 'Disks do not grow automatically: each value is null.',
    scope: 'any caller',
    permission: 'database:read',
    returns: DiskAutoscale,
    handle: async () => ({ growth_percent: null, min_increment_gb: null, max_size_gb: null }),
  }),

  post('/v1/projects/{ref}/database/webhooks/enable', {
    id: 'v1-enable-database-webhook',
    summary: 'Enable database webhooks',
    description:
      'Not available: the triggers that send database webhooks by the extension pg_net are not installed here.',
    scope: 'database:write',
    returns: empty,
    status: 201,
    errors: ['bad_request.driver'],
    handle: async ({ ctx: { engine } }) => {
      throw driverUnsupported(
        engine.name,
        'does not install the triggers that send database webhooks by the extension pg_net',
      )
    },
  }),

  post('/v1/projects/{ref}/read-replicas/setup', {
    id: 'v1-setup-a-read-replica',
    stability: 'Beta',
    summary: 'Set up a read replica',
    description: "The replica is created in the background. The project's databases and pooler settings list it.",
    scope: 'any caller',
    permission: 'projects:write',
    body: SetUpReadReplica,
    returns: empty,
    status: 201,
    errors: ['bad_request.driver', 'conflict.project_status'],
    handle: ({ ctx, project, body }) => setUpReplica(ctx, project, body.read_replica_region),
  }),

  post('/v1/projects/{ref}/read-replicas/remove', {
    id: 'v1-remove-a-read-replica',
    stability: 'Beta',
    summary: 'Remove a read replica',
    scope: 'any caller',
    permission: 'projects:write',
    body: RemoveReadReplica,
    returns: empty,
    status: 201,
    errors: ['bad_request.driver', 'not_found.read_replica', 'conflict.project_status'],
    handle: ({ ctx, project, body }) => removeReplica(ctx, project, body.database_identifier),
  }),
]
