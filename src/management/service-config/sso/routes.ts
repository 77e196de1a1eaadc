import * as z from 'zod'
import { del, get, post, put } from '../../kernel/route.ts'
import { METADATA_BYTES_MAX } from './metadata.ts'
import { listProviders, readProvider } from './read-providers.ts'
import { CreateProvider, Provider, ProviderList, UpdateProvider } from './schema.ts'
import { createProvider, deleteProvider, updateProvider } from './service.ts'

const params = { provider_id: z.uuid().toLowerCase() }
const PROVIDER_ERRORS = ['not_found.saml_or_sso_provider', 'not_found.sso_provider'] as const
const WRITE_ERRORS = ['bad_request.sso_domain', 'service_unavailable.name_resolution'] as const
/** Fits the metadata including JSON escapes. */
const bodySizeBytesMax = 3 * METADATA_BYTES_MAX

export const ssoRoutes = [
  post('/v1/projects/{ref}/config/auth/sso/providers', {
    id: 'v1-create-a-sso-provider',
    summary: 'Create a SAML 2.0 identity provider',
    description:
      'Requires exactly one of `metadata_xml` and `metadata_url`. The provider is only stored, for an Auth server of your own: this installation runs none.',
    scope: 'auth:write',
    body: CreateProvider,
    bodySizeBytesMax,
    returns: Provider,
    status: 201,
    errors: ['not_found.saml', 'unprocessable.sso_entity', 'bad_request.sso_providers', ...WRITE_ERRORS],
    handle: ({ ctx, project, body }) => createProvider(ctx, project, body),
  }),

  get('/v1/projects/{ref}/config/auth/sso/providers', {
    id: 'v1-list-all-sso-provider',
    summary: 'List SAML 2.0 identity providers without their metadata',
    scope: 'auth:read',
    returns: ProviderList,
    errors: ['not_found.saml'],
    handle: ({ ctx, project }) => listProviders(ctx, project),
  }),

  get('/v1/projects/{ref}/config/auth/sso/providers/{provider_id}', {
    id: 'v1-get-a-sso-provider',
    summary: 'Get an identity provider with its metadata',
    scope: 'auth:read',
    params,
    returns: Provider,
    errors: PROVIDER_ERRORS,
    handle: ({ ctx, project, params }) => readProvider(ctx, project, params.provider_id),
  }),

  put('/v1/projects/{ref}/config/auth/sso/providers/{provider_id}', {
    id: 'v1-update-a-sso-provider',
    summary: 'Update an identity provider',
    description:
      'Omitted fields stay unchanged. New metadata must be of the same entity. A given `metadata_url` is fetched again.',
    scope: 'auth:write',
    params,
    body: UpdateProvider,
    bodySizeBytesMax,
    returns: Provider,
    errors: [...PROVIDER_ERRORS, ...WRITE_ERRORS],
    handle: ({ ctx, project, params, body }) => updateProvider(ctx, project, params.provider_id, body),
  }),

  del('/v1/projects/{ref}/config/auth/sso/providers/{provider_id}', {
    id: 'v1-delete-a-sso-provider',
    summary: 'Delete an identity provider',
    scope: 'auth:write',
    params,
    returns: Provider,
    errors: PROVIDER_ERRORS,
    handle: ({ ctx, project, params }) => deleteProvider(ctx, project, params.provider_id),
  }),
]
