import { del, empty, get, post } from '../../kernel/route.ts'
import {
  activateHostname,
  deleteHostname,
  getHostname,
  initializeHostname,
  reverifyHostname,
} from './custom-hostname.ts'
import {
  ActiveSubdomain,
  Availability,
  CustomHostnameConfig,
  NewCustomHostname,
  NewVanitySubdomain,
  RemoveHostnameQuery,
  VanitySubdomainConfig,
} from './schema.ts'
import { activateVanity, checkVanity, deleteVanity, getVanity } from './vanity-subdomain.ts'

export const domainRoutes = [
  get('/v1/projects/{ref}/custom-hostname', {
    id: 'v1-get-hostname-config',
    stability: 'Beta',
    summary: "Get a project's custom hostname",
    scope: 'domains:read',
    returns: CustomHostnameConfig,
    errors: ['bad_request.custom_hostname.none'],
    handle: ({ ctx, project }) => getHostname(ctx, project),
  }),

  del('/v1/projects/{ref}/custom-hostname', {
    id: 'v1-delete-hostname-config',
    stability: 'Beta',
    summary: "Delete a project's custom hostname",
    scope: 'domains:write',
    query: RemoveHostnameQuery,
    returns: empty,
    limit: 'customHostnameDelete',
    errors: ['bad_request.custom_hostname.not_configured'],
    handle: ({ ctx, project }) => deleteHostname(ctx, project),
  }),

  post('/v1/projects/{ref}/custom-hostname/initialize', {
    id: 'v1-update-hostname-config',
    summary: 'Initialize a custom hostname',
    description:
      'The reply contains the required DNS records: a TXT record that proves ownership, and an alias of `custom_origin_server`.',
    scope: 'domains:write',
    body: NewCustomHostname,
    returns: CustomHostnameConfig,
    status: 201,
    limit: 'customHostnameInitialize',
    errors: ['bad_request.custom_hostname', 'conflict.custom_hostname'],
    handle: ({ ctx, project, body }) => initializeHostname(ctx, project, body.custom_hostname),
  }),

  post('/v1/projects/{ref}/custom-hostname/reverify', {
    id: 'v1-verify-dns-config',
    summary: 'Verify the DNS records of a custom hostname',
    scope: 'domains:write',
    returns: CustomHostnameConfig,
    status: 201,
    limit: 'customHostnameReverify',
    errors: [
      'bad_request.custom_hostname',
      'bad_request.custom_hostname.not_pending',
      'bad_request.custom_hostname.verified',
      'service_unavailable.name_resolution',
    ],
    handle: ({ ctx, project }) => reverifyHostname(ctx, project),
  }),

  post('/v1/projects/{ref}/custom-hostname/activate', {
    id: 'v1-activate-custom-hostname',
    summary: 'Activate a verified custom hostname',
    scope: 'domains:write',
    returns: CustomHostnameConfig,
    status: 201,
    errors: ['bad_request.custom_hostname.active', 'bad_request.custom_hostname.unverified'],
    handle: ({ ctx, project }) => activateHostname(ctx, project),
  }),

  get('/v1/projects/{ref}/vanity-subdomain', {
    id: 'v1-get-vanity-subdomain-config',
    summary: "Get a project's vanity subdomain",
    scope: 'domains:read',
    returns: VanitySubdomainConfig,
    limit: 'vanitySubdomainGet',
    handle: ({ ctx, project }) => getVanity(ctx, project),
  }),

  del('/v1/projects/{ref}/vanity-subdomain', {
    id: 'v1-deactivate-vanity-subdomain-config',
    summary: "Delete a project's vanity subdomain",
    description: 'Succeeds if the project has none.',
    scope: 'domains:write',
    returns: empty,
    limit: 'vanitySubdomainDelete',
    handle: ({ ctx, project }) => deleteVanity(ctx, project),
  }),

  post('/v1/projects/{ref}/vanity-subdomain/check-availability', {
    id: 'v1-check-vanity-subdomain-availability',
    summary: 'Check whether a vanity subdomain is available',
    scope: 'domains:write',
    body: NewVanitySubdomain,
    returns: Availability,
    status: 201,
    limit: 'vanitySubdomainCheck',
    handle: ({ ctx, project, body }) => checkVanity(ctx, project, body.vanity_subdomain),
  }),

  post('/v1/projects/{ref}/vanity-subdomain/activate', {
    id: 'v1-activate-vanity-subdomain-config',
    summary: 'Activate a vanity subdomain',
    description: "Replaces the project's current vanity subdomain.",
    scope: 'domains:write',
    body: NewVanitySubdomain,
    returns: ActiveSubdomain,
    status: 201,
    limit: 'vanitySubdomainActivate',
    errors: ['bad_request.vanity_subdomain'],
    handle: ({ ctx, project, body }) => activateVanity(ctx, project, body.vanity_subdomain),
  }),
]
