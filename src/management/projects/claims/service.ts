import { eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { projectClaimTokens } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { type Mutation, mutate } from '../../kernel/mutate.ts'
import { findTransferFindings, type Move } from '../transfers/transfer-findings.ts'
import { finishMove, lockMove, moveLockedProject } from '../transfers/transfer-move.ts'
import { CLAIM_ROLES, type Claim, findClaim, readClaim } from './claim.ts'
import type { ProjectClaim } from './schema.ts'

type Target = Pick<OrganizationAccess, 'id' | 'slug' | 'plan'>

const moveOf = (ctx: Ctx, { project, source, token }: Claim, target: Target): Move => ({
  project,
  source,
  target,
  giverId: token.createdBy,
  takerId: ctx.actor.userId,
  roles: CLAIM_ROLES,
})

export async function getClaim(ctx: Ctx, target: Target, token: string): Promise<z.input<typeof ProjectClaim>> {
  const claim = await findClaim(ctx, token)
  const findings = await findTransferFindings(ctx.db, moveOf(ctx, claim, target))
  const { project, source } = claim
  const { createdAt, createdBy, expiresAt } = claim.token
  return {
    project: { ref: project.ref, name: project.name },
    preview: {
      valid: findings.errors.length === 0,
      ...findings,
      // No plan of this installation limits the projects of a member.
      members_exceeding_free_project_limit: [],
      source_subscription_plan: source.plan,
      target_subscription_plan: target.plan,
    },
    expires_at: expiresAt.toISOString(),
    created_at: createdAt.toISOString(),
    created_by: createdBy,
  }
}

export async function claimProject(ctx: Ctx, target: Target, token: string): Promise<void> {
  const claim = await findClaim(ctx, token)
  finishMove(ctx, await mutate(ctx, (mutation) => moveClaimedProject(ctx, mutation, claim, target)))
}

/** Transfers the claimed project and ends the token, so only one concurrent claim succeeds. Call `finishMove` after the commit. */
export async function moveClaimedProject(ctx: Ctx, mutation: Mutation, claim: Claim, target: Target) {
  const move = moveOf(ctx, claim, target)
  const locked = await lockMove(mutation, move)
  // Changes of a token lock its project, so the token stays valid until the commit.
  const open = locked && (await readClaim(mutation.tx, eq(projectClaimTokens.hash, claim.token.hash), ctx.now()))
  if (!open) throw new ApiError('not_found.project_claim')
  return moveLockedProject(ctx, mutation, locked, { action: 'project.claim', field: 'path.slug' })
}
