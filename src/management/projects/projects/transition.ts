import type { ProjectAccess } from '../../../access/access.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { requireNoReadingRun } from '../../branching/branches/parent-project.ts'
import { removeProjectBranches } from '../../branching/branches/remove-branch.ts'
import { endAssociations, ofProjects } from '../../database/private-link/end-associations.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { endClaimTokens } from '../claims/end-claims.ts'
import { TRANSITIONS, type Transition, type TransitionKind } from './project-states.ts'
import { changeStatus, checkStatus, lockStatus } from './status.ts'
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
  const found = await lockStatus(mutation, ref)
  if (kind === 'delete' && !(found && from.includes(found)))
    throw new ApiError('bad_request.project.not_ready_for_deletion')
  const before = checkStatus(found, { allowed: from })
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
