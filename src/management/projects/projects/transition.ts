import type { ProjectAccess } from '../../../access/access.ts'
import type { ProjectStatus } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireNoReadingRun } from '../../branching/branches/parent-project.ts'
import { removeProjectBranches } from '../../branching/branches/remove-branch.ts'
import { endAssociations, ofProjects } from '../../database/private-link/end-associations.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { endClaimTokens } from '../claims/end-claims.ts'
import { TRANSITIONS, type Transition, type TransitionKind } from './project-states.ts'
import { changeStatus, lockStatus } from './status.ts'
import { cancelTasks, ofProject, startTask, type TaskCtx } from './tasks.ts'

type Project = Pick<ProjectAccess, 'ref' | 'organizationId' | 'organizationSlug' | 'parentRef'>

/** Begins a transition: sets the project's status and starts the task. */
export async function beginTransition(
  ctx: TaskCtx,
  mutation: Mutation,
  project: Project,
  kind: TransitionKind,
): Promise<void> {
  const { ref, organizationId } = project
  const { from, during }: Transition = TRANSITIONS[kind]
  const before = await lockStatus(mutation, ref)
  if (!before || !from.includes(before)) throw refuseTransition(before, kind)
  if (kind === 'pause' || kind === 'restart') await requireNoReadingRun(mutation, ref)
  await changeStatus(mutation, project, { before, status: during })
  if (kind === 'delete') {
    await cancelTasks(ctx, mutation, ofProject(ref, ['backup']))
    await endClaimTokens(mutation, [ref])
    await removeProjectBranches(ctx, mutation, project)
    await endAssociations(mutation, ofProjects([ref]), ctx.now())
  }
  await startTask(ctx, mutation, { ref, kind })
  await mutation.trace({ organizationId, projectRef: ref, action: `project.${kind}` })
}

function refuseTransition(status: ProjectStatus | undefined, kind: TransitionKind): ApiError {
  if (kind === 'delete') return new ApiError('bad_request.project.not_ready_for_deletion')
  const allowed = TRANSITIONS[kind].from.join(' or ')
  return new ApiError('conflict.project_status', { detail: `its status is ${status}, not ${allowed}` })
}
