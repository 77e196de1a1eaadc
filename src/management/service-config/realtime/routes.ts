import { ApiError } from '../../../platform/http/error.ts'
import { empty, get, patch, post } from '../../kernel/route.ts'
import { RealtimeConfig, UpdateRealtimeConfig } from './schema.ts'
import { getRealtimeConfig, updateRealtimeConfig } from './service.ts'

export const realtimeRoutes = [
  get(
    '/v1/projects/{ref}/config/realtime',
    {
      id: 'v1-get-realtime-config',
      summary: "Get a project's Realtime settings",
      scope: 'any caller',
      permission: 'database:read',
      returns: RealtimeConfig,
    },
    ({ ctx, project }) => getRealtimeConfig(ctx, project),
  ),

  patch(
    '/v1/projects/{ref}/config/realtime',
    {
      id: 'v1-update-realtime-config',
      summary: "Change a project's Realtime settings",
      description: 'What is left out stays as it is. They are kept for a Realtime server of your own: none runs here.',
      scope: 'any caller',
      permission: 'database:write',
      body: UpdateRealtimeConfig,
      returns: empty,
      status: 204,
    },
    ({ ctx, project, body }) => updateRealtimeConfig(ctx, project, body),
  ),

  post(
    '/v1/projects/{ref}/config/realtime/shutdown',
    {
      id: 'v1-shutdown-realtime',
      summary: "End all connections to a project's Realtime server",
      description: 'Refused, as none runs here.',
      scope: 'any caller',
      permission: 'database:write',
      returns: empty,
      status: 204,
      errors: ['not_found.realtime'],
    },
    async () => {
      throw new ApiError('not_found.realtime')
    },
  ),
]
