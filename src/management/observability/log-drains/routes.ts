import * as z from 'zod'
import { del, empty, get, post, put } from '../../kernel/route.ts'
import { CreateLogDrain, LogDrainList, LogDrainReply, UpdateLogDrain } from './schema.ts'
import { createLogDrain, deleteLogDrain, listLogDrains, updateLogDrain } from './service.ts'

const params = { id: z.uuid().toLowerCase() }

export const logDrainRoutes = [
  get('/v2/projects/{ref}/analytics/log-drains', {
    id: 'v2-list-log-drains',
    summary: 'List the log drains of a project',
    description: 'Replies never contain the secrets of a config.',
    scope: 'analytics_config:read',
    returns: LogDrainList,
    handle: ({ ctx, project }) => listLogDrains(ctx, project),
  }),

  post('/v2/projects/{ref}/analytics/log-drains', {
    id: 'v2-create-log-drain',
    summary: 'Create a log drain',
    description:
      'Sends the logs of a project to another service from now on. Requires the plan Pro, Team or Enterprise.',
    scope: 'analytics_config:write',
    body: CreateLogDrain,
    returns: LogDrainReply,
    status: 201,
    errors: [
      'payment_required.log_drains',
      'bad_request.log_drains',
      'conflict.log_drain_name',
      'service_unavailable.name_resolution',
    ],
    handle: ({ ctx, project, body }) => createLogDrain(ctx, project, body),
  }),

  put('/v2/projects/{ref}/analytics/log-drains/{id}', {
    id: 'v2-update-log-drain',
    summary: 'Update a log drain',
    description: 'A config replaces the previous one. Omitted secrets stay unchanged if the backend stays the same.',
    scope: 'analytics_config:write',
    params,
    body: UpdateLogDrain,
    returns: LogDrainReply,
    errors: ['not_found.log_drain', 'conflict.log_drain_name', 'service_unavailable.name_resolution'],
    handle: ({ ctx, project, params, body }) => updateLogDrain(ctx, project, params.id, body),
  }),

  del('/v2/projects/{ref}/analytics/log-drains/{id}', {
    id: 'v2-delete-log-drain',
    summary: 'Delete a log drain and its unsent logs',
    scope: 'analytics_config:write',
    params,
    returns: empty,
    status: 204,
    errors: ['not_found.log_drain'],
    handle: ({ ctx, project, params }) => deleteLogDrain(ctx, project, params.id),
  }),
]
