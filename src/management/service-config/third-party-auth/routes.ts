import * as z from 'zod'
import { del, get, post } from '../../kernel/route.ts'
import { CreateIntegration, Integration } from './schema.ts'
import { createIntegration, deleteIntegration, getIntegration, listIntegrations } from './service.ts'

const params = { tpa_id: z.uuid().toLowerCase() }
const errors = ['not_found.third_party_auth'] as const

export const thirdPartyAuthRoutes = [
  post('/v1/projects/{ref}/config/auth/third-party-auth', {
    id: 'v1-create-project-tpa-integration',
    summary: 'Create a third-party auth integration',
    description:
      "Accepts another issuer's tokens in addition to the project's own. Requires exactly one of `oidc_issuer_url`, `jwks_url` and `custom_jwks`.",
    scope: 'auth:write',
    body: CreateIntegration,
    returns: Integration,
    status: 201,
    errors: ['bad_request.third_party_auths', 'service_unavailable.name_resolution'],
    handle: ({ ctx, project, body }) => createIntegration(ctx, project, body),
  }),

  get('/v1/projects/{ref}/config/auth/third-party-auth', {
    id: 'v1-list-project-tpa-integrations',
    summary: 'List third-party auth integrations',
    scope: 'auth:read',
    returns: z.array(Integration),
    handle: ({ ctx, project }) => listIntegrations(ctx, project),
  }),

  get('/v1/projects/{ref}/config/auth/third-party-auth/{tpa_id}', {
    id: 'v1-get-project-tpa-integration',
    summary: 'Get a third-party auth integration',
    scope: 'auth:read',
    params,
    returns: Integration,
    errors,
    handle: ({ ctx, project, params }) => getIntegration(ctx, project, params.tpa_id),
  }),

  del('/v1/projects/{ref}/config/auth/third-party-auth/{tpa_id}', {
    id: 'v1-delete-project-tpa-integration',
    summary: 'Delete a third-party auth integration',
    scope: 'auth:write',
    params,
    returns: Integration,
    errors,
    handle: ({ ctx, project, params }) => deleteIntegration(ctx, project, params.tpa_id),
  }),
]
