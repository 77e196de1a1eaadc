import { get, patch } from '../../kernel/route.ts'
import { AuthConfigReply, UpdateAuthConfig } from './schema.ts'
import { getAuthConfig, updateAuthConfig } from './service.ts'

/** All templates of mails at once, with what JSON adds to quotes, line ends and letters beyond ASCII. */
const BODY_SIZE_BYTES_MAX = 8 * 1024 ** 2

export const authConfigRoutes = [
  get(
    '/v1/projects/{ref}/config/auth',
    {
      id: 'v1-get-auth-service-config',
      summary: "Get the settings of a project's Auth",
      description: 'What was never set is there with its default. Secrets are told as digests.',
      scope: 'auth:read',
      returns: AuthConfigReply,
    },
    ({ ctx, project }) => getAuthConfig(ctx, project.ref),
  ),

  patch(
    '/v1/projects/{ref}/config/auth',
    {
      id: 'v1-update-auth-service-config',
      summary: "Change the settings of a project's Auth",
      description:
        'What is left out stays as it is, null brings the default back. An empty smtp_host takes all of the mail server away.',
      scope: 'auth:write',
      body: UpdateAuthConfig,
      bodySizeBytesMax: BODY_SIZE_BYTES_MAX,
      returns: AuthConfigReply,
    },
    ({ ctx, project, body }) => updateAuthConfig(ctx, project, body),
  ),
]
