import { get } from '../../kernel/route.ts'
import { ProjectConfig } from './schema.ts'
import { getProjectConfig } from './service.ts'

export const projectConfigRoutes = [
  get('/v2/projects/{ref}/config', {
    id: 'v2-get-project-config',
    stability: 'Alpha',
    summary: 'Get the configuration of a project',
    description:
      'A new branch starts with this configuration. Fields that were never set have their defaults; Auth secrets are digests. The access token also needs the scopes database:read, projects:read and storage:read.',
    scope: 'any caller',
    permission: 'auth:read',
    returns: ProjectConfig,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => getProjectConfig(ctx, project),
  }),
]
