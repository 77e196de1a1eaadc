import { ApiError } from '../../../platform/http/error.ts'
import { empty, get, patch, post } from '../../kernel/route.ts'
import { RealtimeConfig, UpdateRealtimeConfig } from './schema.ts'
import { getRealtimeConfig, updateRealtimeConfig } from './service.ts'

export const realtimeRoutes = [
  get('/v1/projects/{ref}/config/realtime', {
    id: 'v1-get-realtime-config',
    summary: "Get a project's Realtime settings",
    scope: 'any caller',
    permission: 'database:read',
    returns: RealtimeConfig,
    handle: ({ ctx, project }) => getRealtimeConfig(ctx, project),
  }),

  patch('/v1/projects/{ref}/config/realtime', {
    id: 'v1-update-realtime-config',
    summary: "Update a project's Realtime settings",
    description:
      'Omitted settings stay unchanged. They are only stored, for a Realtime server of your own: this installation runs none.',
    scope: 'any caller',
    permission: 'database:write',
    body: UpdateRealtimeConfig,
    returns: empty,
    status: 204,
    handle: ({ ctx, project, body }) => updateRealtimeConfig(ctx, project, body),
  }),

  post('/v1/projects/{ref}/config/realtime/shutdown', {
    id: 'v1-shutdown-realtime',
    summary: "Shut down all connections to a project's Realtime server",
    description: 'Not available: this installation runs no Realtime server.',
    scope: 'any caller',
    permission: 'database:write',
    returns: empty,
    status: 204,
    errors: ['not_found.realtime'],
    handle: async () => {
      throw new ApiError('not_found.realtime')
    },
  }),
]
