import { ApiError } from '../../../platform/http/error.ts'
import { del, empty, get, patch, post, put } from '../../kernel/route.ts'
import { getBans, getEnrichedBans, liftBans } from './bans.ts'
import { getDisk, getDiskUse, updateDisk } from './disk.ts'
import { applyRestrictions, getRestrictions, patchRestrictions } from './networks.ts'
import { getLegacyPooler, updatePoolerSettings } from './pooler.ts'
import { getPostgresConfig, updatePostgresConfig } from './postgres.ts'
import { disableReadOnly, getReadOnlyStatus } from './read-only.ts'
import { removeReplica, setUpReplica } from './replicas.ts'
import {
  ApplyRestrictions,
  Disk,
  DiskAutoscale,
  DiskUse,
  EnrichedNetworkBans,
  LegacyPooler,
  LiftNetworkBans,
  NetworkBans,
  NetworkRestrictions,
  PatchedRestrictions,
  PatchRestrictions,
  PoolerSettings,
  PostgresConfig,
  ReadOnlyStatus,
  RemoveReadReplica,
  SetUpReadReplica,
  SslEnforcement,
  UpdateDisk,
  UpdatePoolerSettings,
  UpdatePostgresConfig,
  UpdateSslEnforcement,
} from './schema.ts'
import { getSslEnforcement, updateSslEnforcement } from './ssl.ts'

const CLUSTER_ERRORS = ['conflict.project_status', 'service_unavailable.project_database'] as const

const NETWORKS_OF =
  'For the owner and temporary logins, who come to the database itself; those of them that are connected from elsewhere end.'
const BANS =
  'An address that fails to log in to the database again and again is refused there for a while. ' +
  'The driver `neon` bans nobody: the list is empty. An address that is not banned can be lifted without effect.'
const BAN_ERRORS = ['service_unavailable.project_database'] as const

const WHERE_SET =
  'Postgres checks the values first: what it does not take is refused by name and in its words, and nothing changes. ' +
  'The database restarts if a value needs it. What the driver leaves to the operator of the server is refused by name.'

const notHere = (driver: string, what: string) =>
  new ApiError('bad_request.driver', { detail: `the driver ${driver} ${what}` })

export const databaseSettingsRoutes = [
  get(
    '/v1/projects/{ref}/config/database/postgres',
    {
      id: 'v1-get-postgres-config',
      summary: "Get what a project's Postgres is set to",
      description:
        'The values that hold now, defaults included; for a project that is not active, those that were set.',
      scope: 'database:read',
      returns: PostgresConfig,
      errors: ['service_unavailable.project_database'],
    },
    ({ ctx, project }) => getPostgresConfig(ctx, project),
  ),

  put(
    '/v1/projects/{ref}/config/database/postgres',
    {
      id: 'v1-update-postgres-config',
      summary: "Set a project's Postgres to this and nothing else",
      description: `What is left out goes back to the default, and a value that holds already stays one. ${WHERE_SET}`,
      scope: 'database:write',
      body: UpdatePostgresConfig,
      returns: PostgresConfig,
      errors: CLUSTER_ERRORS,
    },
    ({ ctx, project, body }) => updatePostgresConfig(ctx, project, body, { replace: true }),
  ),

  patch(
    '/v1/projects/{ref}/config/database/postgres',
    {
      id: 'v1-patch-postgres-config',
      summary: "Change some settings of a project's Postgres",
      description: `What is left out stays as it is. ${WHERE_SET}`,
      scope: 'database:write',
      body: UpdatePostgresConfig,
      returns: PostgresConfig,
      errors: CLUSTER_ERRORS,
    },
    ({ ctx, project, body }) => updatePostgresConfig(ctx, project, body, { replace: false }),
  ),

  patch(
    '/v1/projects/{ref}/config/database/pooler',
    {
      id: 'v1-update-pooler-config',
      summary: "Change the settings of a project's pooler",
      description:
        'They are kept and shown. Where the driver has a pooler, the mode chooses between it and a direct connection.',
      scope: 'database:write',
      body: UpdatePoolerSettings,
      returns: PoolerSettings,
    },
    ({ ctx, project, body }) => updatePoolerSettings(ctx, project, body),
  ),

  get(
    '/v1/projects/{ref}/config/database/pgbouncer',
    {
      id: 'v1-get-project-pgbouncer-config',
      summary: "Get the settings of a project's pooler in their older form",
      scope: 'database:read',
      returns: LegacyPooler,
    },
    ({ ctx, project }) => getLegacyPooler(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/readonly',
    {
      id: 'v1-get-readonly-mode-status',
      summary: "Tell whether a project's database takes no writes",
      scope: 'database:read',
      returns: ReadOnlyStatus,
    },
    ({ ctx, project }) => getReadOnlyStatus(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/readonly/temporary-disable',
    {
      id: 'v1-disable-readonly-mode-temporarily',
      summary: "Let a project's database take writes for 15 minutes",
      scope: 'database:write',
      returns: empty,
      status: 201,
      errors: CLUSTER_ERRORS,
    },
    ({ ctx, project }) => disableReadOnly(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/ssl-enforcement',
    {
      id: 'v1-get-ssl-enforcement-config',
      stability: 'Beta',
      summary: "Tell whether a project's database takes encrypted connections alone",
      scope: 'database:read',
      returns: SslEnforcement,
    },
    ({ ctx, project }) => getSslEnforcement(ctx, project),
  ),

  put(
    '/v1/projects/{ref}/ssl-enforcement',
    {
      id: 'v1-update-ssl-enforcement-config',
      stability: 'Beta',
      summary: "Let a project's database take encrypted connections alone, or all",
      description: 'Holds for connections that start from then on.',
      scope: 'database:write',
      body: UpdateSslEnforcement,
      returns: SslEnforcement,
      errors: ['bad_request.driver', ...CLUSTER_ERRORS],
    },
    ({ ctx, project, body }) => updateSslEnforcement(ctx, project, body.requestedConfig),
  ),

  get(
    '/v1/projects/{ref}/network-restrictions',
    {
      id: 'v1-get-network-restrictions',
      stability: 'Beta',
      summary: "Tell from where a project's database lets anybody in",
      scope: 'projects:read',
      returns: NetworkRestrictions,
    },
    ({ ctx, project }) => getRestrictions(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/network-restrictions/apply',
    {
      id: 'v1-update-network-restrictions',
      summary: "Say from where a project's database lets anybody in",
      description: `A list that is left out stays as it is; of an empty one nobody is let in. ${NETWORKS_OF}`,
      scope: 'projects:write',
      body: ApplyRestrictions,
      returns: NetworkRestrictions,
      status: 201,
      errors: ['bad_request.driver', ...CLUSTER_ERRORS],
    },
    ({ ctx, project, body }) => applyRestrictions(ctx, project, body),
  ),

  patch(
    '/v1/projects/{ref}/network-restrictions',
    {
      id: 'v1-patch-network-restrictions',
      summary: "Add and remove networks that a project's database lets in",
      description: NETWORKS_OF,
      scope: 'projects:write',
      body: PatchRestrictions,
      returns: PatchedRestrictions,
      errors: ['bad_request.driver', ...CLUSTER_ERRORS],
    },
    ({ ctx, project, body }) => patchRestrictions(ctx, project, body),
  ),

  post(
    '/v1/projects/{ref}/network-bans/retrieve',
    {
      id: 'v1-list-all-network-bans',
      summary: 'List the addresses that are banned',
      description: BANS,
      scope: 'projects:read',
      returns: NetworkBans,
      status: 201,
      errors: BAN_ERRORS,
    },
    ({ ctx, project }) => getBans(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/network-bans/retrieve/enriched',
    {
      id: 'v1-list-all-network-bans-enriched',
      summary: 'List the addresses that are banned, with what they are banned from',
      description: BANS,
      scope: 'projects:read',
      returns: EnrichedNetworkBans,
      status: 201,
      errors: BAN_ERRORS,
    },
    ({ ctx, project }) => getEnrichedBans(ctx, project),
  ),

  del(
    '/v1/projects/{ref}/network-bans',
    {
      id: 'v1-delete-network-bans',
      stability: 'Beta',
      summary: 'Lift bans of addresses',
      description: BANS,
      scope: 'projects:write',
      body: LiftNetworkBans,
      returns: empty,
      errors: BAN_ERRORS,
    },
    ({ ctx, project, body, headers }) => liftBans(ctx, project, { body, headers }),
  ),

  get(
    '/v1/projects/{ref}/config/disk',
    {
      id: 'v1-get-database-disk',
      summary: "Get the disk of a project's database",
      scope: 'any caller',
      permission: 'database:read',
      returns: Disk,
    },
    ({ ctx, project }) => getDisk(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/config/disk',
    {
      id: 'v1-modify-database-disk',
      summary: "Set how large a project's database may become",
      description:
        'At 95 % of its size the database becomes read-only. What the driver cannot change is refused by name.',
      scope: 'any caller',
      permission: 'projects:write',
      body: UpdateDisk,
      returns: empty,
      status: 201,
      errors: ['service_unavailable.project_database'],
    },
    ({ ctx, project, body }) => updateDisk(ctx, project, body.attributes),
  ),

  get(
    '/v1/projects/{ref}/config/disk/util',
    {
      id: 'v1-get-disk-utilization',
      summary: "Get how much of its disk a project's database takes now",
      scope: 'any caller',
      permission: 'database:read',
      returns: DiskUse,
      errors: ['service_unavailable.project_database'],
    },
    ({ ctx, project }) => getDiskUse(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/config/disk/autoscale',
    {
      id: 'v1-get-project-disk-autoscale-config',
      summary: 'Get how the disk grows by itself',
      description: 'It does not: each value is null.',
      scope: 'any caller',
      permission: 'database:read',
      returns: DiskAutoscale,
    },
    async () => ({ growth_percent: null, min_increment_gb: null, max_size_gb: null }),
  ),

  post(
    '/v1/projects/{ref}/database/webhooks/enable',
    {
      id: 'v1-enable-database-webhook',
      summary: 'Let triggers of a database send requests',
      description: 'Refused: they send them by pg_net, an extension that the databases here do not have.',
      scope: 'database:write',
      returns: empty,
      status: 201,
      errors: ['bad_request.driver'],
    },
    async ({ ctx: { engine } }) => {
      throw notHere(engine.name, 'offers no pg_net, by which triggers send requests')
    },
  ),

  post(
    '/v1/projects/{ref}/read-replicas/setup',
    {
      id: 'v1-setup-a-read-replica',
      stability: 'Beta',
      summary: 'Set up a read replica',
      description: 'Made in the background; the databases of the project and its pooler configuration tell of it.',
      scope: 'any caller',
      permission: 'projects:write',
      body: SetUpReadReplica,
      returns: empty,
      status: 201,
      errors: ['bad_request.driver', 'conflict.project_status'],
    },
    ({ ctx, project, body }) => setUpReplica(ctx, project, body.read_replica_region),
  ),

  post(
    '/v1/projects/{ref}/read-replicas/remove',
    {
      id: 'v1-remove-a-read-replica',
      stability: 'Beta',
      summary: 'Remove a read replica',
      scope: 'any caller',
      permission: 'projects:write',
      body: RemoveReadReplica,
      returns: empty,
      status: 201,
      errors: ['bad_request.driver', 'not_found.read_replica', 'conflict.project_status'],
    },
    ({ ctx, project, body }) => removeReplica(ctx, project, body.database_identifier),
  ),
]
