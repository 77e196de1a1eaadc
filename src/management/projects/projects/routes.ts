import * as z from 'zod'
import { del, empty, get, patch, post } from '../../kernel/route.ts'
import { toProject, toRestoreVersions } from './convert.ts'
import { getServicesHealth } from './health.ts'
import { listOrganizationProjects, listOrganizationProjectsV2 } from './list-projects.ts'
import { getAvailableRegions } from './regions.ts'
import {
  CreatedProject,
  CreateProject,
  Health,
  HealthQuery,
  Project,
  ProjectHandle,
  ProjectListQueryV2,
  ProjectListV2,
  ProjectPage,
  ProjectPageQuery,
  Regions,
  RegionsQuery,
  RestoreVersions,
  UpdateProject,
} from './schema.ts'
import { cancelRestore, createProject, listProjects, removeProject, startTransition, updateProject } from './service.ts'

/** Error if the driver cannot list the options for new projects. */
const OPTIONS_UNAVAILABLE = 'service_unavailable.project_database'

export const projectRoutes = [
  get('/v1/projects', {
    id: 'v1-list-all-projects',
    summary: 'List all projects of the caller',
    scope: 'projects:read',
    returns: z.array(Project),
    handle: ({ ctx }) => listProjects(ctx),
  }),

  post('/v1/projects', {
    id: 'v1-create-a-project',
    summary: 'Create a project',
    description:
      'Returns at once with the status COMING_UP; the project is ready when its status is ACTIVE_HEALTHY. ' +
      'A region, size or version that this installation does not offer is refused with those available.',
    scope: 'projects:write',
    body: CreateProject,
    returns: CreatedProject,
    status: 201,
    errors: ['not_found.organization', 'forbidden.permission_denied', 'conflict.project_name', OPTIONS_UNAVAILABLE],
    handle: ({ ctx, body }) => createProject(ctx, body),
  }),

  get('/v1/projects/available-regions', {
    id: 'v1-get-available-regions',
    stability: 'Beta',
    summary: 'List the regions for a new project',
    scope: 'organizations:read',
    query: RegionsQuery,
    returns: Regions,
    errors: ['not_found.organization', OPTIONS_UNAVAILABLE],
    handle: ({ ctx, query }) => getAvailableRegions(ctx, query),
  }),

  get('/v1/projects/{ref}', {
    id: 'v1-get-project',
    summary: 'Get a project',
    scope: 'projects:read',
    returns: Project,
    handle: async ({ ctx, project }) => toProject(project, ctx.engine),
  }),

  patch('/v1/projects/{ref}', {
    id: 'v1-update-a-project',
    summary: 'Rename a project',
    scope: 'projects:write',
    body: UpdateProject,
    returns: ProjectHandle,
    errors: ['conflict.project_name', 'unprocessable.branch'],
    handle: ({ ctx, project, body }) => updateProject(ctx, project, body),
  }),

  del('/v1/projects/{ref}', {
    id: 'v1-delete-a-project',
    summary: 'Delete a project with its database',
    scope: 'projects:write',
    returns: ProjectHandle,
    errors: ['bad_request.project.not_ready_for_deletion', 'unprocessable.branch'],
    handle: ({ ctx, project }) => removeProject(ctx, project),
  }),

  post('/v1/projects/{ref}/pause', {
    id: 'v1-pause-a-project',
    summary: 'Pause a project',
    description: 'The database stays but accepts no connections.',
    scope: 'projects:write',
    returns: empty,
    errors: ['conflict.project_status'],
    handle: ({ ctx, project }) => startTransition(ctx, project, 'pause'),
  }),

  get('/v1/projects/{ref}/restore', {
    id: 'v1-list-available-restore-versions',
    summary: 'List the Postgres versions that a paused project can be restored with',
    scope: 'projects:read',
    returns: RestoreVersions,
    handle: async ({ project }) => toRestoreVersions(project),
  }),

  post('/v1/projects/{ref}/restore', {
    id: 'v1-restore-a-project',
    summary: 'Restore a paused project',
    scope: 'projects:write',
    returns: empty,
    errors: ['conflict.project_status'],
    handle: ({ ctx, project }) => startTransition(ctx, project, 'restore'),
  }),

  post('/v1/projects/{ref}/restore/cancel', {
    id: 'v1-cancel-a-project-restoration',
    summary: 'Cancel the restore of a project',
    description: 'The project stays paused.',
    scope: 'projects:write',
    returns: empty,
    errors: ['conflict.project_status'],
    handle: ({ ctx, project }) => cancelRestore(ctx, project),
  }),

  post('/v1/projects/{ref}/restart', {
    id: 'v1-restart-a-project',
    summary: 'Restart a project',
    description: 'All sessions of the database end.',
    scope: 'projects:write',
    returns: empty,
    errors: ['conflict.project_status'],
    handle: ({ ctx, project }) => startTransition(ctx, project, 'restart'),
  }),

  get('/v1/projects/{ref}/health', {
    id: 'v1-get-services-health',
    summary: "Get the health of a project's services",
    description: 'Services that this installation does not run are left out of the reply.',
    scope: 'projects:read',
    query: HealthQuery,
    returns: Health,
    handle: ({ ctx, project, query }) => getServicesHealth(ctx, project, query),
  }),

  get('/v1/organizations/{slug}/projects', {
    id: 'v1-get-all-projects-for-organization',
    summary: 'List the projects of an organization by page number',
    scope: 'any caller',
    permission: 'projects:read',
    query: ProjectPageQuery,
    returns: ProjectPage,
    handle: ({ ctx, organization, query }) => listOrganizationProjects(ctx, organization, query),
  }),

  get('/v2/organizations/{slug}/projects', {
    id: 'v2-list-organization-projects',
    summary: 'List the projects of an organization by cursor',
    scope: 'projects:read',
    query: ProjectListQueryV2,
    returns: ProjectListV2,
    handle: ({ ctx, organization, query }) => listOrganizationProjectsV2(ctx, organization, query),
  }),
]
