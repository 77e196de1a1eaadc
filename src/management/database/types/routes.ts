import { get } from '../../kernel/route.ts'
import { DatabaseContext, DatabaseOpenApi, DatabaseOpenApiQuery, GeneratedTypes, GenerateTypes } from './schema.ts'
import { generateTypescriptTypes, getDatabaseContext, getDatabaseOpenApi } from './service.ts'

const ERRORS = [
  'bad_request.sql',
  'bad_request.sql_timeout',
  'bad_request.sql_result_too_large',
  'conflict.project_status',
  'service_unavailable.project_database',
] as const

export const typeRoutes = [
  get('/v1/projects/{ref}/types/typescript', {
    id: 'v1-generate-typescript-types',
    summary: 'Generate TypeScript types of a database',
    scope: 'database:read',
    query: GenerateTypes,
    returns: GeneratedTypes,
    errors: ERRORS,
    handle: ({ ctx, project, query }) => generateTypescriptTypes(ctx, project, query.included_schemas),
  }),

  get('/v1/projects/{ref}/database/openapi', {
    id: 'v1-get-database-openapi',
    summary: "Get an OpenAPI description of a schema's tables, views and functions",
    description: 'Returns the format of PostgREST, without a host.',
    scope: 'database:read',
    query: DatabaseOpenApiQuery,
    returns: DatabaseOpenApi,
    errors: ERRORS,
    handle: ({ ctx, project, query }) => getDatabaseOpenApi(ctx, project, query.schema),
  }),

  get('/v1/projects/{ref}/database/context', {
    id: 'v1-get-database-metadata',
    stability: 'Experimental',
    summary: 'List the schemas of a database',
    deprecated: true,
    scope: 'projects:read',
    limit: 'databaseContext',
    returns: DatabaseContext,
    errors: ERRORS,
    handle: ({ ctx, project }) => getDatabaseContext(ctx, project),
  }),
]
