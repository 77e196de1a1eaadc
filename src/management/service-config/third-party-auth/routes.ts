import * as z from 'zod'
import { del, get, post } from '../../kernel/route.ts'
import { CreateIntegration, Integration } from './schema.ts'
import { createIntegration, deleteIntegration, getIntegration, listIntegrations } from './service.ts'

const params = { tpa_id: z.uuid().toLowerCase() }
const errors = ['not_found.third_party_auth'] as const

export const thirdPartyAuthRoutes = [
  post(
    '/v1/projects/{ref}/config/auth/third-party-auth',
    {
      id: 'v1-create-project-tpa-integration',
      summary: "Take another issuer's tokens beside the project's own",
      description: 'Takes exactly one of oidc_issuer_url, jwks_url and custom_jwks.',
      scope: 'auth:write',
      body: CreateIntegration,
      returns: Integration,
      status: 201,
      errors: ['bad_request.third_party_auths', 'service_unavailable.name_resolution'],
    },
    ({ ctx, project, body }) => createIntegration(ctx, project, body),
  ),

  get(
    '/v1/projects/{ref}/config/auth/third-party-auth',
    {
      id: 'v1-list-project-tpa-integrations',
      summary: 'List the issuers whose tokens are taken',
      scope: 'auth:read',
      returns: z.array(Integration),
    },
    ({ ctx, project }) => listIntegrations(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/config/auth/third-party-auth/{tpa_id}',
    {
      id: 'v1-get-project-tpa-integration',
      summary: 'Get an issuer and its keys',
      scope: 'auth:read',
      params,
      returns: Integration,
      errors,
    },
    ({ ctx, project, params }) => getIntegration(ctx, project, params.tpa_id),
  ),

  del(
    '/v1/projects/{ref}/config/auth/third-party-auth/{tpa_id}',
    {
      id: 'v1-delete-project-tpa-integration',
      summary: "Take an issuer's tokens no more",
      scope: 'auth:write',
      params,
      returns: Integration,
      errors,
    },
    ({ ctx, project, params }) => deleteIntegration(ctx, project, params.tpa_id),
  ),
]
