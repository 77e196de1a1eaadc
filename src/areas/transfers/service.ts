import { and, eq, inArray, isNull, type SQL } from 'drizzle-orm'
import type * as z from 'zod'
import { findOrganization, type ProjectAccess } from '../../auth/access.ts'
import { uniqueViolation } from '../../db/failure.ts'
import { type Mutation, mutate } from '../../db/mutate.ts'
import { organizations, projects, snippets, webhookEndpoints } from '../../db/schema/index.ts'
import type { Ctx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { endLoginsSoon, withdrawFromOutsiders } from '../database-access/withdraw.ts'
import { endRolesIn } from '../members/projects-gone.ts'
import { forgetTrust } from '../projects/forget-trust.ts'
import { type Findings, findIn, type Move, NOT_OWNER } from './findings.ts'
import type { Transfer, TransferPreview } from './schema.ts'

type Input = z.output<typeof Transfer>

/** 404 for a target that the caller cannot see, as for what does not exist. */
async function moveOf(ctx: Ctx, project: ProjectAccess, { data }: Input): Promise<Move> {
  const [source, target] = await Promise.all([
    findOrganization(ctx, project.organizationSlug),
    findOrganization(ctx, data.attributes.target_organization_slug),
  ])
  return { project, source, target, userId: ctx.principal.userId }
}

export async function previewTransfer(
  ctx: Ctx,
  project: ProjectAccess,
  input: Input,
): Promise<z.input<typeof TransferPreview>> {
  const findings = await findIn(ctx.db, await moveOf(ctx, project, input))
  const valid = findings.errors.length === 0
  return { data: { type: 'project_transfer_result', attributes: { valid, ...findings } } }
}

/** One transaction, which tells both organizations: before it commits all is the source's, and after it the target's. */
export async function transferProject(ctx: Ctx, project: ProjectAccess, input: Input): Promise<void> {
  const asked = await moveOf(ctx, project, input)
  const { source, target } = asked
  const { refs, logins } = await mutate(ctx, async (mutation) => {
    const { tx, trace, publish } = mutation
    const { refs, move } = await lock(mutation, asked)
    await requireEligible(mutation, move)
    const subject = { action: 'project.transfer', projectRef: project.ref }
    const detail = { source: source.slug, target: target.slug }
    await trace({ ...subject, organizationId: source.id, detail })
    await endRolesIn(mutation, source, refs)
    const { id: organizationId } = target
    await tx
      .update(projects)
      .set({ organizationId })
      .where(inArray(projects.ref, refs))
      .catch((error) => rejectTakenName(error, move))
    await tx.update(webhookEndpoints).set({ organizationId }).where(inArray(webhookEndpoints.projectRef, refs))
    await tx.update(snippets).set({ organizationId }).where(inArray(snippets.projectRef, refs))
    const logins = await withdrawFromOutsiders(tx, ctx.now(), refs)
    // The project's own endpoints are the target's by now, so that each endpoint is told once.
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
  })
  for (const ref of refs) forgetTrust(ref)
  endLoginsSoon(ctx, logins)
}

/** Nothing is added to the project or its branches meanwhile, nobody joins or leaves either organization, and no plan changes. */
async function lock({ tx }: Mutation, asked: Move): Promise<{ refs: string[]; move: Move }> {
  const { project, source, target } = asked
  // The project before its branches and before its organization, as whoever makes branches of it or ends its work holds them.
  const held = (which: SQL | undefined) =>
    tx
      .select({ ref: projects.ref })
      .from(projects)
      .where(and(which, eq(projects.organizationId, source.id), isNull(projects.removedAt)))
      .orderBy(projects.ref)
      .for('update')
  const own = await held(eq(projects.ref, project.ref))
  if (own.length === 0) throw new ApiError('not_found.project')
  const branches = await held(eq(projects.parentRef, project.ref))
  const found = await tx
    .select({ id: organizations.id, plan: organizations.plan })
    .from(organizations)
    .where(inArray(organizations.id, [source.id, target.id]))
    .orderBy(organizations.id)
    .for('no key update')
  const plan = found.find(({ id }) => id === target.id)?.plan ?? target.plan
  return { refs: [...own, ...branches].map(({ ref }) => ref), move: { ...asked, target: { ...target, plan } } }
}

async function requireEligible({ tx }: Mutation, move: Move): Promise<void> {
  const { errors } = await findIn(tx, move)
  const foreign = errors.find(({ key }) => NOT_OWNER.includes(key))
  if (foreign) throw new ApiError('forbidden.permission_denied', { detail: foreign.message })
  if (errors.length > 0) throw refusal(errors)
}

function refusal(errors: Findings['errors'], cause?: unknown): ApiError {
  const field = 'body.data.attributes.target_organization_slug'
  return new ApiError('unprocessable.transfer', {
    detail: errors.map(({ message }) => message).join('; '),
    issues: errors.map(({ key, message }) => ({ field, code: key, message })),
    cause,
  })
}

/** Another project was given the name after it was looked for: that locks no organization. */
function rejectTakenName(error: unknown, { target }: Move): never {
  if (uniqueViolation(error) !== 'projects_name_once') throw error
  throw refusal([{ key: 'project_name_taken', message: `${target.slug} has a project of this name` }], error)
}
