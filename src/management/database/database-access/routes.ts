import { del, empty, get, post, put } from '../../kernel/route.ts'
import { authorizeJit } from './jit-access.ts'
import { createLoginRole, deleteLoginRoles } from './login-roles.ts'
import {
  AuthorizedJit,
  AuthorizeJit,
  CreateLoginRole,
  Ended,
  JitAccess,
  JitMapping,
  JitMappingList,
  LoginRole,
  UpdateJitAccess,
  UpdateJitMapping,
  UserId,
} from './schema.ts'
import {
  deleteJitMapping,
  getJitAccess,
  getJitMapping,
  listJitMappings,
  updateJitAccess,
  updateJitMapping,
} from './service.ts'

export const databaseAccessRoutes = [
  post('/v1/projects/{ref}/cli/login-role', {
    id: 'v1-create-login-role',
    summary: 'Create a temporary login role for the CLI',
    scope: 'database:write',
    body: CreateLoginRole,
    returns: LoginRole,
    status: 201,
    errors: ['conflict.project_status', 'conflict.login_roles', 'service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => createLoginRole(ctx, project, body),
  }),

  del('/v1/projects/{ref}/cli/login-role', {
    id: 'v1-delete-login-roles',
    summary: 'Delete the temporary login roles of the CLI and end their sessions',
    scope: 'database:write',
    returns: Ended,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project }) => deleteLoginRoles(ctx, project),
  }),

  get('/v1/projects/{ref}/jit-access', {
    id: 'v1-get-jit-access-config',
    summary: 'Get whether just-in-time database access is enabled',
    scope: 'database:read',
    returns: JitAccess,
    handle: ({ ctx, project }) => getJitAccess(ctx, project),
  }),

  put('/v1/projects/{ref}/jit-access', {
    id: 'v1-update-jit-access-config',
    summary: 'Enable or disable just-in-time database access',
    description: 'Members then log in to the database with their access tokens. Disabling it ends their sessions.',
    scope: 'database:write',
    body: UpdateJitAccess,
    returns: JitAccess,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => updateJitAccess(ctx, project, body),
  }),

  get('/v1/projects/{ref}/database/jit', {
    id: 'v1-get-jit-access',
    summary: 'Get the database roles granted to the caller',
    scope: 'database:read',
    returns: JitMapping,
    handle: ({ ctx, project }) => getJitMapping(ctx, project),
  }),

  put('/v1/projects/{ref}/database/jit', {
    id: 'v1-update-jit-access',
    summary: 'Set the database roles granted to a member',
    description: 'Requires an administrator. Sessions of roles that are revoked or restricted differently end.',
    scope: 'any caller',
    permission: 'database:write',
    body: UpdateJitMapping,
    returns: JitMapping,
    errors: ['service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => updateJitMapping(ctx, project, body),
  }),

  post('/v1/projects/{ref}/database/jit', {
    id: 'v1-authorize-jit-access',
    summary: 'Open a login for a role granted to the caller',
    scope: 'database:read',
    body: AuthorizeJit,
    returns: AuthorizedJit,
    errors: ['conflict.project_status', 'conflict.login_roles', 'service_unavailable.project_database'],
    handle: ({ ctx, project, body }) => authorizeJit(ctx, project, body),
  }),

  get('/v1/projects/{ref}/database/jit/list', {
    id: 'v1-list-jit-access',
    summary: 'List the database roles granted to each member',
    description: 'Requires an administrator.',
    scope: 'any caller',
    permission: 'database:read',
    returns: JitMappingList,
    handle: ({ ctx, project }) => listJitMappings(ctx, project),
  }),

  del('/v1/projects/{ref}/database/jit/{user_id}', {
    id: 'v1-delete-jit-access',
    summary: "Revoke a member's database roles and end their sessions",
    description: "Members may revoke their own roles; administrators may revoke anyone's.",
    scope: 'any caller',
    permission: 'database:read',
    params: { user_id: UserId },
    returns: empty,
    errors: ['not_found.jit_access', 'service_unavailable.project_database'],
    handle: ({ ctx, project, params }) => deleteJitMapping(ctx, project, params.user_id),
  }),
]
