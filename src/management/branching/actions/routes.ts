import * as z from 'zod'
import { get, head, patch, text, total } from '../../kernel/route.ts'
import { ActionRun, ActionRunsQuery, Done, RunId, StepStatuses } from './schema.ts'
import { countActionRuns, getActionRun, getActionRunLogs, listActionRuns, updateActionRun } from './service.ts'

export const actionRoutes = [
  head('/v1/projects/{ref}/actions', {
    id: 'v1-count-action-runs',
    summary: 'Count the action runs of a project',
    scope: 'environment:read',
    returns: total,
    handle: ({ ctx, project }) => countActionRuns(ctx, project),
  }),

  get('/v1/projects/{ref}/actions', {
    id: 'v1-list-action-runs',
    summary: 'List the action runs of a project',
    description: 'Lists the runs of a branch, or of all branches of a project, newest first.',
    scope: 'environment:read',
    query: ActionRunsQuery,
    returns: z.array(ActionRun),
    handle: ({ ctx, project, query }) => listActionRuns(ctx, project, query),
  }),

  get('/v1/projects/{ref}/actions/{run_id}', {
    id: 'v1-get-action-run',
    summary: 'Get an action run with its steps',
    scope: 'environment:read',
    params: { run_id: RunId },
    returns: ActionRun,
    errors: ['not_found.action_run'],
    handle: ({ ctx, project, params }) => getActionRun(ctx, project, params.run_id),
  }),

  patch('/v1/projects/{ref}/actions/{run_id}/status', {
    id: 'v1-update-action-run-status',
    summary: 'Update the status of the steps of an action run',
    description:
      'Sets the statuses that the run shows, for external runners that report their work. The work itself does not change: the installation runs all steps, and sets the status of each step when it begins and ends.',
    scope: 'environment:write',
    params: { run_id: RunId },
    body: StepStatuses,
    returns: Done,
    errors: ['not_found.action_run', 'conflict.run_ended'],
    handle: ({ ctx, project, params, body }) => updateActionRun(ctx, project, params.run_id, body),
  }),

  get('/v1/projects/{ref}/actions/{run_id}/logs', {
    id: 'v1-get-action-run-logs',
    summary: 'Get the log of an action run',
    description:
      'Returns the lines of the last 7 days. Of a log of more than 4 MiB it returns the last lines, after one with the number of those left out.',
    scope: 'environment:read',
    params: { run_id: RunId },
    returns: text('text/plain; charset=utf-8', z.string()),
    errors: ['not_found.action_run'],
    handle: ({ ctx, project, params }) => getActionRunLogs(ctx, project, params.run_id),
  }),
]
