import { and, eq, inArray, isNull, type SQL } from 'drizzle-orm'
import type { SystemCtx } from '../../../ctx.ts'
import { organizations, projects, snippets, webhookEndpoints } from '../../../model/tables/index.ts'
import { uniqueViolation } from '../../../platform/db/postgres-errors.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { endProjectRoles } from '../../account/members/end-project-roles.ts'
import { endLoginsSoon, withdrawOutsiderAccess } from '../../database/database-access/withdraw-access.ts'
import { endAssociations, ofProjects } from '../../database/private-link/end-associations.ts'
import { clearProjectCaches } from '../../kernel/clear-project-caches.ts'
import type { Mutation } from '../../kernel/mutate.ts'
import { endClaimTokens } from '../claims/end-claims.ts'
import { unpreparedColumns } from '../projects/prepare-databases.ts'
import { type Findings, findTransferFindings, type Move, OWNER_ERRORS } from './transfer-findings.ts'

/** Input of `finishMove`, the work after the commit. */
interface MoveResult {
  refs: readonly string[]
  logins: Parameters<typeof endLoginsSoon>[1]
}

/** A move with the facts read under its locks. */
interface LockedMove {
  move: Move
  /** The project and its branches. */
  refs: string[]
}

/**
 * Locks the project, its branches and both organizations: nothing is added to them, nobody joins or leaves, and no plan changes until
 * the commit. Undefined if the project has left the source.
 */
export async function lockMove({ tx }: Mutation, requested: Move): Promise<LockedMove | undefined> {
  const { project, source, target } = requested
  // Lock order: project, branches, organization, as in the code that creates branches or ends tasks.
  const lockProjects = (which: SQL | undefined) =>
    tx
      .select({ ref: projects.ref })
      .from(projects)
      .where(and(which, eq(projects.organizationId, source.id), isNull(projects.removedAt)))
      .orderBy(projects.ref)
      .for('update')
  const own = await lockProjects(eq(projects.ref, project.ref))
  if (own.length === 0) return undefined
  const branches = await lockProjects(eq(projects.parentRef, project.ref))
  const found = await tx
    .select({ id: organizations.id, plan: organizations.plan })
    .from(organizations)
    .where(inArray(organizations.id, [source.id, target.id]))
    .orderBy(organizations.id)
    .for('no key update')
  const plan = found.find(({ id }) => id === target.id)?.plan ?? target.plan
  return { refs: [...own, ...branches].map(({ ref }) => ref), move: { ...requested, target: { ...target, plan } } }
}

interface MoveOptions {
  /** Action in the audit log. */
  action: 'project.transfer' | 'project.claim'
  /** Field of the request that names the target. */
  field: string
}

/** Moves the locked project to the target, and publishes the event to both organizations. */
export async function moveLockedProject(
  ctx: SystemCtx,
  mutation: Mutation,
  { move, refs }: LockedMove,
  { action, field }: MoveOptions,
): Promise<MoveResult> {
  const { tx, trace, publish } = mutation
  const { project, source, target } = move
  await requireEligible(mutation, move, field)
  const subject = { action, projectRef: project.ref }
  const detail = { source: source.slug, target: target.slug }
  await trace({ ...subject, organizationId: source.id, detail })
  await endProjectRoles(mutation, source, refs)
  const { id: organizationId } = target
  await tx
    .update(projects)
    .set({ organizationId, ...unpreparedColumns(ctx) })
    .where(inArray(projects.ref, refs))
    .catch((error) => rejectTakenName(error, move, field))
  await tx.update(webhookEndpoints).set({ organizationId }).where(inArray(webhookEndpoints.projectRef, refs))
  await tx.update(snippets).set({ organizationId }).where(inArray(snippets.projectRef, refs))
  await endClaimTokens(mutation, refs)
  await endAssociations(mutation, ofProjects(refs), ctx.now())
  const logins = await withdrawOutsiderAccess(tx, ctx.now(), refs)
  // The project's own endpoints belong to the target by now, so each endpoint gets the event once.
  for (const organization of [source, target]) {
    await publish({
      type: 'v1.project.transferred',
      organization,
      projectRef: project.ref,
      fields: { source: { organization_slug: source.slug }, target: { organization_slug: target.slug } },
    })
  }
  await trace({ ...subject, organizationId, detail })
  return { refs, logins }
}

/** Completes a move after its commit: clears caches and ends temporary logins. */
export function finishMove(ctx: SystemCtx, { refs, logins }: MoveResult): void {
  for (const ref of refs) clearProjectCaches(ref)
  endLoginsSoon(ctx, logins)
}

async function requireEligible({ tx }: Mutation, move: Move, field: string): Promise<void> {
  const { errors } = await findTransferFindings(tx, move)
  const ownerError = errors.find(({ key }) => OWNER_ERRORS.includes(key))
  if (ownerError) throw new ApiError('forbidden.permission_denied', { detail: ownerError.message })
  if (errors.length > 0) throw refusal(errors, field)
}

const refusal = (errors: Findings['errors'], field: string, cause?: unknown): ApiError =>
  new ApiError('unprocessable.transfer', {
    detail: errors.map(({ message }) => message).join('; '),
    issues: errors.map(({ key, message }) => ({ field, code: key, message })),
    cause,
  })

/** Renaming a project does not lock the organization, so another project may take the name after the check. */
function rejectTakenName(error: unknown, { target }: Move, field: string): never {
  if (uniqueViolation(error) !== 'projects_name_once') throw error
  const taken = { key: 'project_name_taken', message: `${target.slug} has a project of this name` }
  throw refusal([taken], field, error)
}
