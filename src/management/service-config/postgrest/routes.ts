import { get, patch } from '../../kernel/route.ts'
import { PostgrestConfig, PostgrestConfigWithSecret, UpdatePostgrestConfig } from './schema.ts'
import { getPostgrestConfig, updatePostgrestConfig } from './service.ts'

export const postgrestRoutes = [
  get('/v1/projects/{ref}/postgrest', {
    id: 'v1-get-postgrest-service-config',
    summary: "Get a project's Data API settings",
    scope: 'any caller',
    permission: 'database:read',
    returns: PostgrestConfigWithSecret,
    handle: ({ ctx, project }) => getPostgrestConfig(ctx, project),
  }),

  patch('/v1/projects/{ref}/postgrest', {
    id: 'v1-update-postgrest-service-config',
    summary: "Update a project's Data API settings",
    description:
      'Omitted settings stay unchanged. The Data API uses `db_schema`, `db_extra_search_path` and `max_rows` within a few seconds. `db_pool…` settings are only stored: the database host manages its sessions itself.',
    scope: 'any caller',
    permission: 'database:write',
    body: UpdatePostgrestConfig,
    returns: PostgrestConfig,
    handle: ({ ctx, project, body }) => updatePostgrestConfig(ctx, project, body),
  }),
]
