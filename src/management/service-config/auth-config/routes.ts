import { get, patch } from '../../kernel/route.ts'
import { AuthConfigReply, UpdateAuthConfig } from './schema.ts'
import { getAuthConfig, updateAuthConfig } from './service.ts'

/** Fits all mail templates, including JSON escapes. */
const BODY_SIZE_BYTES_MAX = 8 * 1024 ** 2

export const authConfigRoutes = [
  get('/v1/projects/{ref}/config/auth', {
    id: 'v1-get-auth-service-config',
    summary: "Get a project's Auth settings",
    description: 'Returns defaults for settings that were never set, and digests instead of secrets.',
    scope: 'auth:read',
    returns: AuthConfigReply,
    handle: ({ ctx, project }) => getAuthConfig(ctx, project.ref),
  }),

  patch('/v1/projects/{ref}/config/auth', {
    id: 'v1-update-auth-service-config',
    summary: "Update a project's Auth settings",
    description:
      'Omitted settings stay unchanged; null resets a setting to its default. An empty `smtp_host` removes the mail server settings. All are stored for an Auth server of your own: this installation runs none.',
    scope: 'auth:write',
    body: UpdateAuthConfig,
    bodySizeBytesMax: BODY_SIZE_BYTES_MAX,
    returns: AuthConfigReply,
    handle: ({ ctx, project, body }) => updateAuthConfig(ctx, project, body),
  }),
]
