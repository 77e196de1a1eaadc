import { get } from '../../kernel/route.ts'
import { ProjectConfig } from './schema.ts'
import { getProjectConfig } from './service.ts'

export const projectConfigRoutes = [
  get(
    '/v2/projects/{ref}/config',
    {
      id: 'v2-get-project-config',
      stability: 'Alpha',
      summary: 'Get all that a project is set to, as a branch of it begins',
      description: 'What was never set is there with its default. Secrets of Auth are told as digests.',
      scope: 'any caller',
      permission: 'auth:read',
      returns: ProjectConfig,
      errors: ['service_unavailable.project_database'],
    },
    ({ ctx, project }) => getProjectConfig(ctx, project),
  ),
]
