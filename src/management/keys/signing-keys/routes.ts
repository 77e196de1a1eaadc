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
  post('/v1/projects/{ref}/config/auth/signing-keys/legacy', {
    id: 'v1-create-legacy-signing-key',
    summary: 'Create a signing key from the JWT secret',
    scope: 'secrets:write',
    returns: SigningKey,
    status: 201,
    errors: ['conflict.legacy_signing_key'],
    handle: ({ ctx, project }) => createLegacySigningKey(ctx, project),
  }),

  get('/v1/projects/{ref}/config/auth/signing-keys/legacy', {
    id: 'v1-get-legacy-signing-key',
    summary: 'Get the signing key of the JWT secret',
    scope: 'secrets:read',
    returns: SigningKey,
    errors: ['not_found.signing_key'],
    handle: ({ ctx, project }) => getLegacySigningKey(ctx, project),
  }),

  post('/v1/projects/{ref}/config/auth/signing-keys', {
    id: 'v1-create-project-signing-key',
    summary: 'Create or import a signing key',
    description:
      'Tokens signed by a standby key are already accepted. A key created in use replaces the current key. This installation signs nothing with these keys, so only the holder of an imported private key can sign.',
    scope: 'secrets:write',
    body: CreateSigningKey,
    returns: SigningKey,
    status: 201,
    errors: ['conflict.signing_key_id', 'conflict.standby_key', 'conflict.signing_keys'],
    handle: ({ ctx, project, body }) => createSigningKey(ctx, project, body),
  }),

  get('/v1/projects/{ref}/config/auth/signing-keys', {
    id: 'v1-get-project-signing-keys',
    summary: 'List signing keys',
    scope: 'secrets:read',
    returns: SigningKeyList,
    handle: ({ ctx, project }) => listSigningKeys(ctx, project),
  }),

  get('/v1/projects/{ref}/config/auth/signing-keys/{id}', {
    id: 'v1-get-project-signing-key',
    summary: 'Get a signing key',
    scope: 'any caller',
    permission: 'secrets:read',
    params,
    returns: SigningKey,
    errors: ['not_found.signing_key'],
    handle: ({ ctx, project, params }) => getSigningKey(ctx, project, params.id),
  }),

  patch('/v1/projects/{ref}/config/auth/signing-keys/{id}', {
    id: 'v1-update-project-signing-key',
    summary: 'Update the status of a signing key',
    description:
      'Rotates to, revokes or restores a key. Setting the standby key to in_use rotates: the current key becomes previously_used.',
    scope: 'secrets:write',
    params,
    body: UpdateSigningKey,
    returns: SigningKey,
    errors: ['not_found.signing_key', 'conflict.signing_key_status', 'conflict.standby_key'],
    handle: ({ ctx, project, params, body }) => updateSigningKey(ctx, project, params.id, body.status),
  }),

  del('/v1/projects/{ref}/config/auth/signing-keys/{id}', {
    id: 'v1-remove-project-signing-key',
    summary: 'Delete a revoked signing key',
    scope: 'secrets:write',
    params,
    returns: SigningKey,
    errors: ['not_found.signing_key', 'conflict.signing_key_status'],
    handle: ({ ctx, project, params }) => deleteSigningKey(ctx, project, params.id),
  }),
]
