import { get } from '../../kernel/route.ts'
import { SQL_ERRORS } from '../database/service.ts'
import { DatabaseContext, DatabaseOpenApi, DatabaseOpenApiQuery, GeneratedTypes, GenerateTypes } from './schema.ts'
import { generateTypescriptTypes, getDatabaseContext, getDatabaseOpenApi } from './service.ts'

export const typeRoutes = [
  get('/v1/projects/{ref}/types/typescript', {
    id: 'v1-generate-typescript-types',
    summary: 'Generate TypeScript types of a database',
    scope: 'database:read',
    query: GenerateTypes,
    returns: GeneratedTypes,
    errors: SQL_ERRORS,
    handle: ({ ctx, project, query }) => generateTypescriptTypes(ctx, project, query.included_schemas),
  }),

  get('/v1/projects/{ref}/database/openapi', {
    id: 'v1-get-database-openapi',
    summary: "Get an OpenAPI description of a schema's tables, views and functions",
    description: 'Returns the format of PostgREST, without a host.',
    scope: 'database:read',
    query: DatabaseOpenApiQuery,
    returns: DatabaseOpenApi,
    errors: SQL_ERRORS,
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
    errors: SQL_ERRORS,
    handle: ({ ctx, project }) => getDatabaseContext(ctx, project),
  }),
]
