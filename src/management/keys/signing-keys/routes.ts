import * as z from 'zod'
import { del, get, patch, post } from '../../kernel/route.ts'
import { CreateSigningKey, SigningKey, SigningKeyList, UpdateSigningKey } from './schema.ts'
import {
  createLegacySigningKey,
  createSigningKey,
  getLegacySigningKey,
  getSigningKey,
  listSigningKeys,
} from './service.ts'
import { deleteSigningKey, updateSigningKey } from './transitions.ts'

const params = { id: z.uuid().toLowerCase() }

export const signingKeyRoutes = [
  post(
    '/v1/projects/{ref}/config/auth/signing-keys/legacy',
    {
      id: 'v1-create-legacy-signing-key',
      summary: 'Make the JWT secret a signing key, in use',
      scope: 'secrets:write',
      returns: SigningKey,
      status: 201,
      errors: ['conflict.legacy_signing_key'],
    },
    ({ ctx, project }) => createLegacySigningKey(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/config/auth/signing-keys/legacy',
    {
      id: 'v1-get-legacy-signing-key',
      summary: 'Get the signing key that the JWT secret is',
      scope: 'secrets:read',
      returns: SigningKey,
      errors: ['not_found.signing_key'],
    },
    ({ ctx, project }) => getLegacySigningKey(ctx, project),
  ),

  post(
    '/v1/projects/{ref}/config/auth/signing-keys',
    {
      id: 'v1-create-project-signing-key',
      summary: 'Make or import a signing key',
      description:
        'On standby, tokens that it signs are taken already; in use, it takes the place of the key that was.',
      scope: 'secrets:write',
      body: CreateSigningKey,
      returns: SigningKey,
      status: 201,
      errors: ['conflict.signing_key_id', 'conflict.standby_key', 'conflict.signing_keys'],
    },
    ({ ctx, project, body }) => createSigningKey(ctx, project, body),
  ),

  get(
    '/v1/projects/{ref}/config/auth/signing-keys',
    {
      id: 'v1-get-project-signing-keys',
      summary: 'List the signing keys',
      scope: 'secrets:read',
      returns: SigningKeyList,
    },
    ({ ctx, project }) => listSigningKeys(ctx, project),
  ),

  get(
    '/v1/projects/{ref}/config/auth/signing-keys/{id}',
    {
      id: 'v1-get-project-signing-key',
      summary: 'Get a signing key',
      scope: 'any caller',
      permission: 'secrets:read',
      params,
      returns: SigningKey,
      errors: ['not_found.signing_key'],
    },
    ({ ctx, project, params }) => getSigningKey(ctx, project, params.id),
  ),

  patch(
    '/v1/projects/{ref}/config/auth/signing-keys/{id}',
    {
      id: 'v1-update-project-signing-key',
      summary: 'Rotate to a signing key, revoke it or take it back',
      description: 'To put the key on standby in use is to rotate: the one that was in use becomes previously_used.',
      scope: 'secrets:write',
      params,
      body: UpdateSigningKey,
      returns: SigningKey,
      errors: ['not_found.signing_key', 'conflict.signing_key_status', 'conflict.standby_key'],
    },
    ({ ctx, project, params, body }) => updateSigningKey(ctx, project, params.id, body.status),
  ),

  del(
    '/v1/projects/{ref}/config/auth/signing-keys/{id}',
    {
      id: 'v1-remove-project-signing-key',
      summary: 'Delete a signing key that was revoked long enough ago',
      scope: 'secrets:write',
      params,
      returns: SigningKey,
      errors: ['not_found.signing_key', 'conflict.signing_key_status'],
    },
    ({ ctx, project, params }) => deleteSigningKey(ctx, project, params.id),
  ),
]
