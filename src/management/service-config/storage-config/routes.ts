import * as z from 'zod'
import { get, patch } from '../../kernel/route.ts'
import { Bucket, StorageConfigReply, UpdateStorageConfig } from './schema.ts'
import { getStorageConfig, listBuckets, updateStorageConfig } from './service.ts'

export const storageConfigRoutes = [
  get('/v1/projects/{ref}/config/storage', {
    id: 'v1-get-storage-config',
    summary: "Get a project's storage settings",
    scope: 'any caller',
    permission: 'storage:read',
    returns: StorageConfigReply,
    handle: async ({ project }) => getStorageConfig(project),
  }),

  patch('/v1/projects/{ref}/config/storage', {
    id: 'v1-update-storage-config',
    summary: "Update a project's storage settings",
    description: 'Omitted settings stay unchanged. Changes take effect within a second.',
    scope: 'any caller',
    permission: 'projects:write',
    body: UpdateStorageConfig,
    returns: z.object({}),
    handle: ({ ctx, project, body }) => updateStorageConfig(ctx, project, body),
  }),

  get('/v1/projects/{ref}/storage/buckets', {
    id: 'v1-list-all-buckets',
    summary: 'List storage buckets',
    scope: 'storage:read',
    returns: z.array(Bucket),
    errors: [
      'bad_request.sql',
      'bad_request.sql_timeout',
      'bad_request.sql_result_too_large',
      'conflict.project_status',
      'service_unavailable.project_database',
    ],
    handle: ({ ctx, project }) => listBuckets(ctx, project),
  }),
]
