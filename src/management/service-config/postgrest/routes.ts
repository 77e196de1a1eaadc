import { get, patch } from '../../kernel/route.ts'
import { PostgrestConfig, PostgrestConfigWithSecret, UpdatePostgrestConfig } from './schema.ts'
import { getPostgrestConfig, updatePostgrestConfig } from './service.ts'

export const postgrestRoutes = [
  get(
    '/v1/projects/{ref}/postgrest',
    {
      id: 'v1-get-postgrest-service-config',
      summary: "Get what a project's Data API is set to",
      scope: 'any caller',
      permission: 'database:read',
      returns: PostgrestConfigWithSecret,
    },
    ({ ctx, project }) => getPostgrestConfig(ctx, project),
  ),

  patch(
    '/v1/projects/{ref}/postgrest',
    {
      id: 'v1-update-postgrest-service-config',
      summary: "Change what a project's Data API is set to",
      description:
        'What is left out stays as it is. The settings are kept for a PostgREST of your own: none runs here.',
      scope: 'any caller',
      permission: 'database:write',
      body: UpdatePostgrestConfig,
      returns: PostgrestConfig,
    },
    ({ ctx, project, body }) => updatePostgrestConfig(ctx, project, body),
  ),
]
