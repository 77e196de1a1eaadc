import * as z from 'zod'
import { del, empty, get, patch, post, put, stream } from '../../kernel/route.ts'
import { updateFunctions } from './bulk-update.ts'
import { deployFunction } from './deploy-function.ts'
import { createFunction, updateFunction } from './legacy-write.ts'
import {
  AnySlug,
  BulkReply,
  BulkUpdate,
  CreateBody,
  DeployBody,
  DeployQuery,
  EdgeFunction,
  FunctionBody,
  UpdateBody,
  WriteQuery,
} from './schema.ts'
import { deleteFunction, getFunction, getFunctionBody, listFunctions } from './service.ts'

const BUILD_ERRORS = ['bad_request.build', 'service_unavailable.build', 'service_unavailable.bucket'] as const
const params = { function_slug: AnySlug }

export const functionRoutes = [
  get('/v1/projects/{ref}/functions', {
    id: 'v1-list-all-functions',
    summary: 'List functions',
    scope: 'edge_functions:read',
    returns: z.array(EdgeFunction),
    handle: ({ ctx, project }) => listFunctions(ctx, project),
  }),

  put('/v1/projects/{ref}/functions', {
    id: 'v1-bulk-update-functions',
    summary: 'Create or replace functions',
    description: 'Activates bundles made with `bundleOnly`, all or none. The caller chooses the versions.',
    scope: 'edge_functions:write',
    body: BulkUpdate,
    returns: BulkReply,
    errors: ['payment_required.functions'],
    handle: ({ ctx, project, body }) => updateFunctions(ctx, project, body),
  }),

  post('/v1/projects/{ref}/functions', {
    id: 'v1-create-a-function',
    summary: 'Create a function from a single file',
    description: 'Use `/functions/deploy` instead.',
    deprecated: true,
    scope: 'edge_functions:write',
    query: WriteQuery,
    body: CreateBody,
    returns: EdgeFunction,
    status: 201,
    errors: ['bad_request.eszip', 'payment_required.functions', 'conflict.function_slug', ...BUILD_ERRORS],
    handle: ({ ctx, project, query, body }) => createFunction(ctx, project, query, body),
  }),

  post('/v1/projects/{ref}/functions/deploy', {
    id: 'v1-deploy-a-function',
    summary: 'Deploy a function, creating it if necessary',
    scope: 'edge_functions:write',
    query: DeployQuery,
    body: DeployBody,
    returns: EdgeFunction,
    status: 201,
    errors: ['payment_required.functions', ...BUILD_ERRORS],
    handle: ({ ctx, project, query, body }) => deployFunction(ctx, project, query, body),
  }),

  get('/v1/projects/{ref}/functions/{function_slug}', {
    id: 'v1-get-a-function',
    summary: 'Get a function',
    params,
    scope: 'edge_functions:read',
    returns: EdgeFunction,
    errors: ['not_found.function'],
    handle: ({ ctx, project, params }) => getFunction(ctx, project, params.function_slug),
  }),

  patch('/v1/projects/{ref}/functions/{function_slug}', {
    id: 'v1-update-a-function',
    summary: 'Update a function',
    params,
    scope: 'edge_functions:write',
    query: WriteQuery,
    body: UpdateBody,
    returns: EdgeFunction,
    errors: ['bad_request.eszip', 'not_found.function', ...BUILD_ERRORS],
    handle: ({ ctx, project, params, query, body }) =>
      updateFunction(ctx, project, { slug: params.function_slug, query, body }),
  }),

  del('/v1/projects/{ref}/functions/{function_slug}', {
    id: 'v1-delete-a-function',
    summary: 'Delete a function',
    params,
    scope: 'edge_functions:write',
    returns: empty,
    errors: ['not_found.function'],
    handle: ({ ctx, project, params }) => deleteFunction(ctx, project, params.function_slug),
  }),

  get('/v1/projects/{ref}/functions/{function_slug}/body', {
    id: 'v1-get-a-function-body',
    summary: 'Get the source of a function',
    params,
    description: 'Returns the original files as a multipart form.',
    scope: 'edge_functions:read',
    returns: stream('multipart/form-data', FunctionBody),
    errors: ['not_found.function', 'not_found.function_source', 'service_unavailable.bucket'],
    handle: ({ ctx, project, params }) => getFunctionBody(ctx, project, params.function_slug),
  }),
]
