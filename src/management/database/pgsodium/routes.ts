import { get, put } from '../../kernel/route.ts'
import { PgsodiumConfig } from './schema.ts'
import { getPgsodiumConfig, updatePgsodiumConfig } from './service.ts'

export const pgsodiumRoutes = [
  get('/v1/projects/{ref}/pgsodium', {
    id: 'v1-get-pgsodium-config',
    summary: "Get a project's root encryption key",
    description: 'The first request creates the key. It is only stored: this installation encrypts nothing with it.',
    scope: 'secrets:read',
    returns: PgsodiumConfig,
    errors: ['conflict.project_status'],
    handle: ({ ctx, project }) => getPgsodiumConfig(ctx, project),
  }),

  put('/v1/projects/{ref}/pgsodium', {
    id: 'v1-update-pgsodium-config',
    stability: 'Beta',
    summary: "Replace a project's root encryption key",
    description:
      'Data encrypted with the old key cannot be decrypted with the new one. The key is only stored: this installation encrypts nothing with it.',
    scope: 'secrets:write',
    body: PgsodiumConfig,
    returns: PgsodiumConfig,
    errors: ['bad_request.root_key'],
    handle: ({ ctx, project, body }) => updatePgsodiumConfig(ctx, project, body.root_key),
  }),
]
