import * as z from 'zod'
import { del, get, patch, post, put } from '../../kernel/route.ts'
import { getLegacyApiKeys, updateLegacyApiKeys } from './legacy-keys.ts'
import {
  ApiKey,
  ApiKeyId,
  ApiKeyQuery,
  CreateApiKey,
  DeleteApiKeyQuery,
  LegacyApiKeys,
  UpdateApiKey,
  UpdateLegacyApiKeysQuery,
} from './schema.ts'
import { createApiKey, deleteApiKey, getApiKey, listApiKeys, updateApiKey } from './service.ts'

const params = { id: ApiKeyId }

export const apiKeyRoutes = [
  get('/v1/projects/{ref}/api-keys', {
    id: 'v1-get-project-api-keys',
    summary: 'List API keys',
    scope: 'secrets:read',
    query: ApiKeyQuery,
    returns: z.array(ApiKey),
    handle: ({ ctx, project, query: { reveal } }) => listApiKeys(ctx, project, reveal),
  }),

  post('/v1/projects/{ref}/api-keys', {
    id: 'v1-create-project-api-key',
    summary: 'Create an API key',
    scope: 'secrets:write',
    query: ApiKeyQuery,
    body: CreateApiKey,
    returns: ApiKey,
    status: 201,
    errors: ['bad_request.api_keys', 'conflict.api_key_name'],
    handle: ({ ctx, project, body, query: { reveal } }) => createApiKey(ctx, project, body, reveal),
  }),

  get('/v1/projects/{ref}/api-keys/legacy', {
    id: 'v1-get-project-legacy-api-keys',
    summary: 'Get whether the legacy keys are enabled',
    scope: 'secrets:read',
    returns: LegacyApiKeys,
    handle: ({ ctx, project }) => getLegacyApiKeys(ctx, project),
  }),

  put('/v1/projects/{ref}/api-keys/legacy', {
    id: 'v1-update-project-legacy-api-keys',
    summary: 'Enable or disable the legacy keys',
    description: 'The legacy keys are anon and service_role. User tokens signed with the same secret are not affected.',
    scope: 'secrets:write',
    query: UpdateLegacyApiKeysQuery,
    returns: LegacyApiKeys,
    errors: ['conflict.signing_key_status'],
    handle: ({ ctx, project, query: { enabled } }) => updateLegacyApiKeys(ctx, project, enabled),
  }),

  get('/v1/projects/{ref}/api-keys/{id}', {
    id: 'v1-get-project-api-key',
    summary: 'Get an API key',
    scope: 'secrets:read',
    params,
    query: ApiKeyQuery,
    returns: ApiKey,
    errors: ['not_found.api_key'],
    handle: ({ ctx, project, params: { id }, query: { reveal } }) => getApiKey(ctx, project, id, reveal),
  }),

  patch('/v1/projects/{ref}/api-keys/{id}', {
    id: 'v1-update-project-api-key',
    summary: 'Update an API key',
    scope: 'secrets:write',
    params,
    query: ApiKeyQuery,
    body: UpdateApiKey,
    returns: ApiKey,
    errors: ['not_found.api_key', 'conflict.api_key_name'],
    handle: ({ ctx, project, params: { id }, body, query: { reveal } }) =>
      updateApiKey(ctx, project, { id, body, reveal }),
  }),

  del('/v1/projects/{ref}/api-keys/{id}', {
    id: 'v1-delete-project-api-key',
    summary: 'Delete an API key',
    description:
      'Requests with the key fail from then on. A compromised key publishes the event v1.project.secrets.leaked.',
    scope: 'secrets:write',
    params,
    query: DeleteApiKeyQuery,
    returns: ApiKey,
    errors: ['not_found.api_key'],
    handle: ({ ctx, project, params: { id }, query }) => deleteApiKey(ctx, project, id, query),
  }),
]
