import * as z from 'zod'
import { del, empty, get, patch, post, put } from '../../kernel/route.ts'
import { CreateMigration, Migration, MigrationItem, MigrationVersion, RollBack, UpdateMigration } from './schema.ts'
import {
  createMigration,
  getMigration,
  listMigrations,
  rollBackMigrations,
  updateMigration,
  upsertMigration,
} from './service.ts'

const SQL_BODY_BYTES_MAX = 8 * 1024 * 1024

const ERRORS = [
  'bad_request.sql',
  'bad_request.sql_timeout',
  'conflict.project_status',
  'service_unavailable.project_database',
] as const

export const migrationRoutes = [
  get('/v1/projects/{ref}/database/migrations', {
    id: 'v1-list-migration-history',
    stability: 'Beta',
    summary: 'List the migrations of a database',
    scope: 'database:read',
    returns: z.array(MigrationItem),
    errors: [...ERRORS, 'bad_request.sql_result_too_large'],
    handle: ({ ctx, project }) => listMigrations(ctx, project),
  }),

  post('/v1/projects/{ref}/database/migrations', {
    id: 'v1-apply-a-migration',
    summary: 'Run and record a migration',
    description:
      'Runs and records in one transaction. A repeated request with the same `Idempotency-Key` does not run again.',
    scope: 'database:write',
    body: CreateMigration,
    bodySizeBytesMax: SQL_BODY_BYTES_MAX,
    idempotent: true,
    returns: empty,
    errors: [...ERRORS, 'conflict.idempotency_key'],
    handle: ({ ctx, project, body, idempotencyKey }) => createMigration(ctx, project, { body, idempotencyKey }),
  }),

  put('/v1/projects/{ref}/database/migrations', {
    id: 'v1-upsert-a-migration',
    stability: 'Beta',
    summary: 'Record a migration without running it',
    description: 'Replaces a recorded migration with the same `Idempotency-Key`.',
    scope: 'database:write',
    body: CreateMigration,
    bodySizeBytesMax: SQL_BODY_BYTES_MAX,
    idempotent: true,
    returns: empty,
    errors: ERRORS,
    handle: ({ ctx, project, body, idempotencyKey }) => upsertMigration(ctx, project, { body, idempotencyKey }),
  }),

  del('/v1/projects/{ref}/database/migrations', {
    id: 'v1-rollback-migrations',
    stability: 'Beta',
    summary: 'Roll back migrations from a version on',
    description: 'Runs their rollbacks, newest first, and removes them from the history: all or none.',
    scope: 'database:write',
    query: RollBack,
    returns: empty,
    errors: [...ERRORS, 'bad_request.migration_without_rollback'],
    handle: ({ ctx, project, query: { gte } }) => rollBackMigrations(ctx, project, gte),
  }),

  get('/v1/projects/{ref}/database/migrations/{version}', {
    id: 'v1-get-a-migration',
    summary: 'Get a migration',
    scope: 'database:read',
    params: { version: MigrationVersion },
    returns: Migration,
    errors: [...ERRORS, 'bad_request.sql_result_too_large', 'not_found.migration'],
    handle: ({ ctx, project, params: { version } }) => getMigration(ctx, project, version),
  }),

  patch('/v1/projects/{ref}/database/migrations/{version}', {
    id: 'v1-patch-a-migration',
    stability: 'Beta',
    summary: 'Update the name or the rollback of a migration',
    scope: 'database:write',
    params: { version: MigrationVersion },
    body: UpdateMigration,
    bodySizeBytesMax: SQL_BODY_BYTES_MAX,
    returns: empty,
    errors: [...ERRORS, 'not_found.migration'],
    handle: ({ ctx, project, params: { version }, body }) => updateMigration(ctx, project, { version, ...body }),
  }),
]
