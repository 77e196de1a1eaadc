import { del, empty, get, patch, post, put } from '../../kernel/route.ts'
import { getBans, getEnrichedBans, liftBans } from './bans.ts'
import { applyRestrictions, getRestrictions, patchRestrictions } from './networks.ts'
import {
  ApplyRestrictions,
  EnrichedNetworkBans,
  LiftNetworkBans,
  NetworkBans,
  NetworkRestrictions,
  PatchedRestrictions,
  PatchRestrictions,
  SslEnforcement,
  UpdateSslEnforcement,
} from './schema.ts'
import { getSslEnforcement, updateSslEnforcement } from './ssl.ts'

/** Errors of routes that change the database server of a project. */
export const CLUSTER_ERRORS = ['conflict.project_status', 'service_unavailable.project_database'] as const

const NETWORK_SCOPE =
  'Applies to every role that connects to the database directly. Open sessions from other networks end.'
const BANS =
  'An address that repeatedly fails to log in to the database is banned for a while. ' +
  'With the driver `neon` the list is always empty. Lifting a ban that does not exist has no effect.'
const BAN_ERRORS = ['service_unavailable.project_database'] as const

/** Routes about who may connect to a project's database: TLS, networks and bans. */
export const networkRoutes = [
  get('/v1/projects/{ref}/ssl-enforcement', {
    id: 'v1-get-ssl-enforcement-config',
    stability: 'Beta',
    summary: "Get a project's SSL enforcement",
    scope: 'database:read',
    returns: SslEnforcement,
    handle: ({ ctx, project }) => getSslEnforcement(ctx, project),
  }),

  put('/v1/projects/{ref}/ssl-enforcement', {
    id: 'v1-update-ssl-enforcement-config',
    stability: 'Beta',
    summary: "Update a project's SSL enforcement",
    description: 'Also ends the sessions that are open without TLS.',
    scope: 'database:write',
    body: UpdateSslEnforcement,
    returns: SslEnforcement,
    errors: ['bad_request.driver', ...CLUSTER_ERRORS],
    handle: ({ ctx, project, body }) => updateSslEnforcement(ctx, project, body.requestedConfig),
  }),

  get('/v1/projects/{ref}/network-restrictions', {
    id: 'v1-get-network-restrictions',
    stability: 'Beta',
    summary: "Get a project's network restrictions",
    scope: 'projects:read',
    returns: NetworkRestrictions,
    handle: ({ ctx, project }) => getRestrictions(ctx, project),
  }),

  post('/v1/projects/{ref}/network-restrictions/apply', {
    id: 'v1-update-network-restrictions',
    summary: "Replace a project's network restrictions",
    description: `An omitted list stays unchanged; an empty list allows no addresses of its kind. ${NETWORK_SCOPE}`,
    scope: 'projects:write',
    body: ApplyRestrictions,
    returns: NetworkRestrictions,
    status: 201,
    errors: ['bad_request.driver', ...CLUSTER_ERRORS],
    handle: ({ ctx, project, body }) => applyRestrictions(ctx, project, body),
  }),

  patch('/v1/projects/{ref}/network-restrictions', {
    id: 'v1-patch-network-restrictions',
    summary: "Add and remove allowed networks of a project's database",
    description: NETWORK_SCOPE,
    scope: 'projects:write',
    body: PatchRestrictions,
    returns: PatchedRestrictions,
    errors: ['bad_request.driver', ...CLUSTER_ERRORS],
    handle: ({ ctx, project, body }) => patchRestrictions(ctx, project, body),
  }),

  post('/v1/projects/{ref}/network-bans/retrieve', {
    id: 'v1-list-all-network-bans',
    summary: 'List banned addresses',
    description: BANS,
    scope: 'projects:read',
    returns: NetworkBans,
    status: 201,
    errors: BAN_ERRORS,
    handle: ({ ctx, project }) => getBans(ctx, project),
  }),

  post('/v1/projects/{ref}/network-bans/retrieve/enriched', {
    id: 'v1-list-all-network-bans-enriched',
    summary: 'List banned addresses with details',
    description: BANS,
    scope: 'projects:read',
    returns: EnrichedNetworkBans,
    status: 201,
    errors: BAN_ERRORS,
    handle: ({ ctx, project }) => getEnrichedBans(ctx, project),
  }),

  del('/v1/projects/{ref}/network-bans', {
    id: 'v1-delete-network-bans',
    stability: 'Beta',
    summary: 'Lift network bans',
    description: BANS,
    scope: 'projects:write',
    body: LiftNetworkBans,
    returns: empty,
    errors: BAN_ERRORS,
    handle: ({ ctx, project, body, headers }) => liftBans(ctx, project, { body, headers }),
  }),
]
