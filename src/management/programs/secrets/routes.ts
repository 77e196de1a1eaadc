import * as z from 'zod'
import { del, empty, get, post } from '../../kernel/route.ts'
import { CreateSecrets, DeleteSecrets, Secret } from './schema.ts'
import { createSecrets, deleteSecrets, listSecrets } from './service.ts'

const BODY_SIZE_BYTES_MAX = 8 * 1024 ** 2

export const secretRoutes = [
  get('/v1/projects/{ref}/secrets', {
    id: 'v1-list-all-secrets',
    summary: 'List the secrets of a project',
    scope: 'secrets:read',
    returns: z.array(Secret),
    handle: ({ ctx, project }) => listSecrets(ctx, project),
  }),

  post('/v1/projects/{ref}/secrets', {
    id: 'v1-bulk-create-secrets',
    summary: 'Create or replace secrets',
    description:
      'Functions read secrets from their environment. Functions that start later see the new values. Other secrets stay unchanged.',
    scope: 'secrets:write',
    body: CreateSecrets,
    bodySizeBytesMax: BODY_SIZE_BYTES_MAX,
    returns: empty,
    status: 201,
    errors: ['bad_request.secrets'],
    handle: ({ ctx, project, body }) => createSecrets(ctx, project, body),
  }),

  del('/v1/projects/{ref}/secrets', {
    id: 'v1-bulk-delete-secrets',
    summary: 'Delete secrets by name',
    description: 'Unknown names are ignored.',
    scope: 'secrets:write',
    body: DeleteSecrets,
    returns: empty,
    handle: ({ ctx, project, body }) => deleteSecrets(ctx, project, body),
  }),
]
