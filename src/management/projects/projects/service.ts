import { and, eq, isNull } from 'drizzle-orm'
import type * as z from 'zod'
import { findOrganization, type ProjectAccess, requirePermission, visibleProjects } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { organizations, projects } from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { lockOrganization } from '../../kernel/lock-organization.ts'
import { mutate } from '../../kernel/mutate.ts'
import { toCreatedProject, toProject, toProjectHandle } from './convert.ts'
import { chooseOptions, listRegionOptions } from './creation-options.ts'
import { insertProject, prepareProject } from './new-project.ts'
import type { TransitionKind } from './project-states.ts'
import { renameProject } from './rename-project.ts'
import type { CreateProject, UpdateProject } from './schema.ts'
import { changeStatus, lockStatus } from './status.ts'
import { cancelTasks, ofProject, startTask } from './tasks.ts'
import { beginTransition } from './transition.ts'

const NAME_TAKEN = 'projects_name_once'

export async function listProjects(ctx: Ctx) {
  const { ref, name, region, createdAt, status, postgresVersion, engineState } = projects
  const rows = await ctx.db
    .select({
      ...{ ref, name, region, createdAt, status, postgresVersion, engineState },
      organizationSlug: organizations.slug,
    })
    .from(projects)
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .where(and(isNull(projects.parentRef), visibleProjects(ctx.actor)))
    .orderBy(projects.createdAt, projects.ref)
  return rows.map((row) => toProject(row, ctx.engine))
}

export async function createProject(ctx: Ctx, input: z.output<typeof CreateProject>) {
  const organization = await findOrganization(ctx, input.organization_slug)
  requirePermission(organization.role, 'projects:write')
  const { region, version } = chooseOptions(await listRegionOptions(ctx), input)
  const prepared = await prepareProject(ctx, input.db_pass)
  const { ref } = prepared
  const row = await mutate(ctx, async (mutation) => {
    await lockOrganization(mutation, organization.id)
    const project = await insertProject(ctx, mutation, prepared, {
      organizationId: organization.id,
      name: input.name,
      region,
      instanceSize: input.desired_instance_size ?? 'nano',
      // The database reports its full version when it is ready.
      postgresVersion: version ?? '',
    }).catch((error) => rejectTakenName(error, input.name))
    await startTask(ctx, mutation, { ref, kind: 'create' })
    await mutation.publish({ type: 'v1.project.created', organization, projectRef: ref, fields: { source: null } })
    await mutation.trace({ action: 'project.create', organizationId: organization.id, projectRef: ref })
    return project
  })
  return toCreatedProject({ ...row, organizationSlug: organization.slug })
}

export async function updateProject(ctx: Ctx, project: ProjectAccess, { name }: z.output<typeof UpdateProject>) {
  if (project.parentRef !== null) {
    const detail = 'the project has the name of its branch: use PATCH /v1/branches/{ref}'
    throw new ApiError('unprocessable.branch', { detail })
  }
  await changeProject(ctx, project, async ({ tx, record }) => {
    await renameProject(tx, project.ref, name).catch((error) => rejectTakenName(error, name))
    await record('project.update', { fields: ['name'] })
  })
  return toProjectHandle({ ...project, name })
}

export const startTransition = (ctx: Ctx, project: ProjectAccess, kind: TransitionKind): Promise<void> =>
  mutate(ctx, (mutation) => beginTransition(ctx, mutation, project, kind))

export async function removeProject(ctx: Ctx, project: ProjectAccess) {
  await startTransition(ctx, project, 'delete')
  return toProjectHandle(project)
}

/** Cancels a running restore and pauses the project again. */
export async function cancelRestore(ctx: Ctx, project: ProjectAccess): Promise<void> {
  await mutate(ctx, async (mutation) => {
    if ((await cancelTasks(ctx, mutation, ofProject(project.ref, ['restore']))) === 0) {
      throw new ApiError('conflict.project_status', {
        detail: `its status is ${await lockStatus(mutation, project.ref)}, and no restore is running`,
      })
    }
    await changeStatus(mutation, project, { before: 'RESTORING', status: 'PAUSING' })
    await startTask(ctx, mutation, { ref: project.ref, kind: 'pause' })
    await mutation.trace({
      organizationId: project.organizationId,
      projectRef: project.ref,
      action: 'project.restore.cancel',
    })
  })
}

function rejectTakenName(error: unknown, name: string): never {
  if (uniqueViolation(error) === NAME_TAKEN) throw new ApiError('conflict.project_name', { detail: name, cause: error })
  throw error
}
