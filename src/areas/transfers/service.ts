import { and, eq, inArray, isNull, type SQL } from 'drizzle-orm'
import type * as z from 'zod'
import { findOrganization, type ProjectAccess } from '../../auth/access.ts'
import { type Mutation, mutate } from '../../db/mutate.ts'
import { memberRoles, organizations, projects, snippets, users, webhookEndpoints } from '../../db/schema/index.ts'
import type { Ctx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import { endLoginsSoon, withdrawFromOutsiders } from '../database-access/withdraw.ts'
import { changeHeld, readHeld } from '../members/held.ts'
import { endAssociations, ofProjects } from '../private-link/end.ts'
import { forgetTrust } from '../projects/forget-trust.ts'
import { findIn, type Move, NOT_OWNER } from './findings.ts'
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
  const move = await moveOf(ctx, project, input)
  const { source, target } = move
  const { refs, logins } = await mutate(ctx, async (mutation) => {
    const { tx, trace, publish } = mutation
    const refs = await lock(mutation, move)
    await requireEligible(mutation, move)
    const subject = { action: 'project.transfer', projectRef: project.ref }
    const detail = { source: source.slug, target: target.slug }
    await trace({ ...subject, organizationId: source.id, detail })
    await endRolesIn(mutation, move, refs)
    const { id: organizationId } = target
    await tx.update(projects).set({ organizationId }).where(inArray(projects.ref, refs))
    await tx.update(webhookEndpoints).set({ organizationId }).where(inArray(webhookEndpoints.projectRef, refs))
    await tx.update(snippets).set({ organizationId }).where(inArray(snippets.projectRef, refs))
    await endAssociations(mutation, ofProjects(refs), ctx.now())
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

/** Nobody joins or leaves either organization meanwhile, and nothing is added to the project or its branches. */
async function lock({ tx }: Mutation, move: Move): Promise<string[]> {
  const { project, source, target } = move
  await tx
    .select({ id: organizations.id })
    .from(organizations)
    .where(inArray(organizations.id, [source.id, target.id]))
    .orderBy(organizations.id)
    .for('no key update')
  // First the project itself, as whoever makes branches of it holds it.
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
  return [...own, ...branches].map(({ ref }) => ref)
}

async function requireEligible({ tx }: Mutation, move: Move): Promise<void> {
  const { errors } = await findIn(tx, move)
  const foreign = errors.find(({ key }) => NOT_OWNER.includes(key))
  if (foreign) throw new ApiError('forbidden.permission_denied', { detail: foreign.message })
  if (errors.length === 0) return
  const field = 'body.data.attributes.target_organization_slug'
  throw new ApiError('unprocessable.transfer', {
    detail: errors.map(({ message }) => message).join('; '),
    issues: errors.map(({ key, message }) => ({ field, code: key, message })),
  })
}

/** Roles in this project alone were given by the source; who has no other leaves it. */
async function endRolesIn(mutation: Mutation, { source }: Move, refs: readonly string[]): Promise<void> {
  const members = await mutation.tx
    .selectDistinct({ id: users.id, primaryEmail: users.primaryEmail })
    .from(memberRoles)
    .innerJoin(users, eq(users.id, memberRoles.userId))
    .where(and(eq(memberRoles.organizationId, source.id), inArray(memberRoles.projectRef, [...refs])))
    .orderBy(users.id)
  for (const user of members) {
    const member = { organization: { id: source.id, slug: source.slug }, user }
    const before = await readHeld(mutation, member)
    const after = before.filter(({ projectRef }) => projectRef === null || !refs.includes(projectRef))
    await changeHeld(mutation, member, before, after)
  }
}
