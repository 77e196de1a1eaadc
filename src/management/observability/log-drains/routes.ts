import * as z from 'zod'
import { del, empty, get, post, put } from '../../kernel/route.ts'
import { CreateLogDrain, LogDrainList, LogDrainReply, UpdateLogDrain } from './schema.ts'
import { createLogDrain, deleteLogDrain, listLogDrains, updateLogDrain } from './service.ts'

const params = { id: z.uuid().toLowerCase() }

export const logDrainRoutes = [
  get(
    '/v2/projects/{ref}/analytics/log-drains',
    {
      id: 'v2-list-log-drains',
      summary: 'List the log drains of a project',
      description: 'What is secret of a config is in no reply.',
      scope: 'analytics_config:read',
      returns: LogDrainList,
    },
    ({ ctx, project }) => listLogDrains(ctx, project),
  ),

  post(
    '/v2/projects/{ref}/analytics/log-drains',
    {
      id: 'v2-create-log-drain',
      summary: 'Send the logs of a project somewhere else, from now on',
      description: 'Plans Pro, Team and Enterprise.',
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
    },
    ({ ctx, project, body }) => createLogDrain(ctx, project, body),
  ),

  put(
    '/v2/projects/{ref}/analytics/log-drains/{id}',
    {
      id: 'v2-update-log-drain',
      summary: 'Change a log drain',
      description:
        'A config takes the place of the one before it; of secrets that it leaves out, those of the same backend stay.',
      scope: 'analytics_config:write',
      params,
      body: UpdateLogDrain,
      returns: LogDrainReply,
      errors: ['not_found.log_drain', 'conflict.log_drain_name', 'service_unavailable.name_resolution'],
    },
    ({ ctx, project, params, body }) => updateLogDrain(ctx, project, params.id, body),
  ),

  del(
    '/v2/projects/{ref}/analytics/log-drains/{id}',
    {
      id: 'v2-delete-log-drain',
      summary: 'Delete a log drain, with what it has not sent yet',
      scope: 'analytics_config:write',
      params,
      returns: empty,
      status: 204,
      errors: ['not_found.log_drain'],
    },
    ({ ctx, project, params }) => deleteLogDrain(ctx, project, params.id),
  ),
]
