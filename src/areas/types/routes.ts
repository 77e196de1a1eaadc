import { get } from '../../http/route.ts'
import { DatabaseContext, GeneratedTypes, GenerateTypes } from './schema.ts'
import { generateTypescriptTypes, getDatabaseContext } from './service.ts'

const ERRORS = ['conflict.project_status', 'service_unavailable.project_database'] as const

export const typeRoutes = [
  get('/v1/projects/{ref}/types/typescript', {
    id: 'v1-generate-typescript-types', summary: 'Generate TypeScript types of a database',
    scope: 'database:read', query: GenerateTypes, returns: GeneratedTypes,
    errors: [...ERRORS, 'bad_request.sql_timeout', 'bad_request.sql_result_too_large'],
  }, ({ ctx, project, query }) => generateTypescriptTypes(ctx, project, query.included_schemas)),

  get('/v1/projects/{ref}/database/context', {
    id: 'v1-get-database-metadata', summary: 'List the schemas of a database',
    description: 'Deprecated and experimental.',
    scope: 'projects:read', limit: 'databaseContext', returns: DatabaseContext, errors: ERRORS,
  }, ({ ctx, project }) => getDatabaseContext(ctx, project)),
]
