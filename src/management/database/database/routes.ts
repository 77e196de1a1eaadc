import * as z from 'zod'
import { get, patch, post, text } from '../../kernel/route.ts'
import { Done, PoolerConfig, Rows, RunQuery, RunReadOnlyQuery, UpdatePassword } from './schema.ts'
import { getPoolerConfig, runQuery, SQL_ERRORS, updatePassword } from './service.ts'

/** SQL bodies may be larger than others because they contain migrations and seeds. */
const SQL_BODY_BYTES_MAX = 8 * 1024 * 1024

/** Rows are written as JSON text while they arrive: numbers keep every digit, and memory holds one copy. */
const rows = text('application/json', Rows)

export const databaseRoutes = [
  post('/v1/projects/{ref}/database/query', {
    id: 'v1-run-a-query',
    stability: 'Beta',
    summary: "Run SQL on a project's database",
    scope: 'database:write',
    body: RunQuery,
    bodySizeBytesMax: SQL_BODY_BYTES_MAX,
    returns: rows,
    status: 201,
    errors: SQL_ERRORS,
    handle: ({ ctx, project, body: { query, parameters, read_only = false } }) =>
      runQuery(ctx, project, { query, parameters, readOnly: read_only }),
  }),

  post('/v1/projects/{ref}/database/query/read-only', {
    id: 'v1-read-only-query',
    stability: 'Beta',
    summary: "Run read-only SQL on a project's database",
    description: 'Runs as a read-only role. Qualify table names with their schema.',
    scope: 'database:read',
    body: RunReadOnlyQuery,
    bodySizeBytesMax: SQL_BODY_BYTES_MAX,
    returns: rows,
    status: 201,
    errors: SQL_ERRORS,
    handle: ({ ctx, project, body: { query, parameters } }) =>
      runQuery(ctx, project, { query, parameters, readOnly: true }),
  }),

  patch('/v1/projects/{ref}/database/password', {
    id: 'v1-update-database-password',
    summary: "Set the password of the database's owner",
    scope: 'database:write',
    body: UpdatePassword,
    returns: Done,
    errors: ['conflict.project_status', 'service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => updatePassword(ctx, project, body.password),
  }),

  get('/v1/projects/{ref}/config/database/pooler', {
    id: 'v1-get-pooler-config',
    summary: "Get a project's pooler settings and connection strings",
    scope: 'database:read',
    returns: z.array(PoolerConfig),
    handle: ({ ctx, project }) => getPoolerConfig(ctx, project),
  }),
]
