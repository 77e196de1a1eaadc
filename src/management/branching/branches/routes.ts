import * as z from 'zod'
import { del, empty, get, patch, post, text } from '../../kernel/route.ts'
import { createBranch, createBranchV2 } from './create-branch.ts'
import { diffBranch } from './diff-branch.ts'
import { disableBranching, removeBranch, restoreBranch } from './remove-branch.ts'
import {
  Branch,
  BranchAction,
  BranchConfig,
  BranchName,
  BranchV2,
  CreateBranch,
  CreateBranchV2,
  DeleteBranchQuery,
  DiffQuery,
  Message,
  StartedRun,
  UpdateBranch,
} from './schema.ts'
import { getBranch, getBranchConfig, listBranches, startAction, updateBranch } from './service.ts'

const CREATE_ERRORS = [
  'bad_request.validation_failed',
  'bad_request.driver',
  'payment_required.branching',
  'conflict.branch_name',
  'conflict.project_status',
  'service_unavailable.name_resolution',
  'service_unavailable.project_database',
] as const
const ACTION_ERRORS = ['conflict.project_status', 'unprocessable.branch'] as const

export const branchRoutes = [
  get('/v1/branches/{branch_id_or_ref}', {
    id: 'v1-get-a-branch-config',
    summary: 'Get the database connection of a branch',
    scope: 'environment:read',
    returns: BranchConfig,
    handle: ({ ctx, branch }) => getBranchConfig(ctx, branch),
  }),

  patch('/v1/branches/{branch_id_or_ref}', {
    id: 'v1-update-a-branch-config',
    summary: 'Update a branch',
    scope: 'environment:write',
    body: UpdateBranch,
    returns: Branch,
    errors: ['conflict.branch_name', 'unprocessable.branch', 'service_unavailable.name_resolution'],
    handle: ({ ctx, branch, body }) => updateBranch(ctx, branch, body),
  }),

  del('/v1/branches/{branch_id_or_ref}', {
    id: 'v1-delete-a-branch',
    summary: 'Delete a branch',
    description: 'Deletes the branch at once, or in an hour with `force=false`.',
    scope: 'environment:write',
    query: DeleteBranchQuery,
    returns: Message,
    errors: ['conflict.project_status', 'unprocessable.branch'],
    handle: ({ ctx, branch, query: { force = true } }) => removeBranch(ctx, branch, force),
  }),

  post('/v1/branches/{branch_id_or_ref}/push', {
    id: 'v1-push-a-branch',
    summary: 'Apply the newer migrations of the parent to a branch',
    scope: 'environment:write',
    body: BranchAction.optional(),
    returns: StartedRun,
    status: 201,
    errors: ACTION_ERRORS,
    handle: ({ ctx, branch, body }) => startAction(ctx, branch, 'push', body?.migration_version),
  }),

  post('/v1/branches/{branch_id_or_ref}/merge', {
    id: 'v1-merge-a-branch',
    summary: 'Apply the migrations of a branch to its parent',
    scope: 'environment:write',
    body: BranchAction.optional(),
    returns: StartedRun,
    status: 201,
    errors: [...ACTION_ERRORS, 'not_found.project'],
    handle: ({ ctx, branch, body }) => startAction(ctx, branch, 'merge', body?.migration_version),
  }),

  post('/v1/branches/{branch_id_or_ref}/reset', {
    id: 'v1-reset-a-branch',
    summary: 'Reset the database of a branch',
    description:
      'Creates the database again and applies its migrations, up to a version. Everything not created by a migration of the branch or its parent is lost.',
    scope: 'environment:write',
    body: BranchAction.optional(),
    returns: StartedRun,
    status: 201,
    errors: ACTION_ERRORS,
    handle: ({ ctx, branch, body }) => startAction(ctx, branch, 'reset', body?.migration_version),
  }),

  post('/v1/branches/{branch_id_or_ref}/restore', {
    id: 'v1-restore-a-branch',
    summary: 'Cancel the scheduled deletion of a branch',
    scope: 'environment:write',
    returns: Message,
    status: 201,
    errors: ['unprocessable.branch'],
    handle: ({ ctx, branch }) => restoreBranch(ctx, branch),
  }),

  get('/v1/branches/{branch_id_or_ref}/diff', {
    id: 'v1-diff-a-branch',
    stability: 'Beta',
    summary: 'Get the schema difference between a branch and its parent',
    description: 'Returns the SQL that changes the schema of the parent into that of the branch.',
    scope: 'environment:write',
    query: DiffQuery,
    returns: text('text/plain; charset=utf-8', z.string()),
    errors: [
      'bad_request.sql',
      'bad_request.sql_timeout',
      'bad_request.sql_result_too_large',
      'conflict.project_status',
      'unprocessable.branch',
      'service_unavailable.project_database',
    ],
    handle: ({ ctx, branch, query }) => diffBranch(ctx, branch, query),
  }),

  get('/v1/projects/{ref}/branches', {
    id: 'v1-list-all-branches',
    summary: 'List the branches of a project',
    scope: 'environment:read',
    returns: z.array(Branch),
    errors: ['unprocessable.branching_disabled'],
    handle: ({ ctx, project }) => listBranches(ctx, project),
  }),

  post('/v1/projects/{ref}/branches', {
    id: 'v1-create-a-branch',
    summary: 'Create a branch',
    description:
      'A branch is a project of its own, copied from this one. Returns at once with the status CREATING_PROJECT; the branch is ready when its status is FUNCTIONS_DEPLOYED.',
    scope: 'environment:write',
    body: CreateBranch,
    returns: Branch,
    status: 201,
    errors: ['unprocessable.branch', ...CREATE_ERRORS],
    handle: ({ ctx, project, body }) => createBranch(ctx, project, body),
  }),

  del('/v1/projects/{ref}/branches', {
    id: 'v1-disable-preview-branching',
    summary: 'Disable branching',
    description: 'Deletes all branches of the project.',
    scope: 'environment:write',
    returns: empty,
    errors: ['conflict.project_status', 'unprocessable.branch'],
    handle: ({ ctx, project }) => disableBranching(ctx, project),
  }),

  get('/v1/projects/{ref}/branches/{name}', {
    id: 'v1-get-a-branch',
    summary: 'Get a branch by its name',
    scope: 'environment:read',
    params: { name: BranchName },
    returns: Branch,
    errors: ['not_found.branch'],
    handle: ({ ctx, project, params }) => getBranch(ctx, project, params.name),
  }),

  post('/v2/projects/{ref}/branches', {
    id: 'v2-create-a-branch',
    summary: 'Create a branch with an instance and disk size',
    scope: 'environment:write',
    body: CreateBranchV2,
    returns: BranchV2,
    status: 201,
    errors: ['bad_request.branch', ...CREATE_ERRORS],
    handle: ({ ctx, project, body }) => createBranchV2(ctx, project, body),
  }),
]
