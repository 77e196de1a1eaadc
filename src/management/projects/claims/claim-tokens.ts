import { eq } from 'drizzle-orm'
import type * as z from 'zod'
import { findOrganization, type ProjectAccess, requirePermission, requireTokenScope } from '../../../access/access.ts'
import { hashToken, randomHex } from '../../../access/token.ts'
import type { Ctx } from '../../../ctx.ts'
import { accessTokens, projectClaimTokens } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { changeProject } from '../../kernel/change-project.ts'
import { type Claim, claimOf, readClaim } from './claim.ts'
import { endClaimTokens } from './end-claims.ts'
import type { ClaimToken, NewClaimToken } from './schema.ts'

const LIFE_MS = 24 * 60 * 60_000

export async function getClaimToken(ctx: Ctx, { ref }: ProjectAccess): Promise<z.input<typeof ClaimToken>> {
  const claim = await readClaim(ctx.db, claimOf(ref), ctx.now())
  if (!claim) throw new ApiError('not_found.claim_token')
  return toClaimToken(claim.token)
}

/** Creates a claim token in place of the previous one. Only this reply contains the token. */
export async function createClaimToken(ctx: Ctx, project: ProjectAccess): Promise<z.input<typeof NewClaimToken>> {
  const { ref, parentRef } = project
  await requireOrganizationWrite(ctx, project)
  if (parentRef !== null) {
    const detail = `a branch moves with its project: create a claim token for ${parentRef}`
    throw new ApiError('unprocessable.branch', { detail })
  }
  const { userId, tokenId } = ctx.actor
  const token = `sbc_${randomHex(32)}`
  const createdAt = ctx.now()
  const stored = {
    hash: await hashToken(token),
    alias: `${token.slice(0, 8)}...${token.slice(-4)}`,
    createdBy: userId,
    createdAt,
    expiresAt: new Date(createdAt.getTime() + LIFE_MS),
  }
  await changeProject(ctx, project, async ({ tx, record }) => {
    const [usedToken] = await tx
      .select({ grantId: accessTokens.oauthGrantId })
      .from(accessTokens)
      .where(eq(accessTokens.id, tokenId))
    const oauthGrantId = usedToken?.grantId ?? null
    const row = { ...stored, oauthGrantId, accessTokenId: oauthGrantId ? null : tokenId }
    await tx
      .insert(projectClaimTokens)
      .values({ ...row, projectRef: ref })
      .onConflictDoUpdate({ target: projectClaimTokens.projectRef, set: row })
    await record('claim_token.create', { alias: stored.alias })
  })
  return { ...toClaimToken(stored), token }
}

export async function deleteClaimToken(ctx: Ctx, project: ProjectAccess): Promise<void> {
  await requireOrganizationWrite(ctx, project)
  await changeProject(ctx, project, async ({ tx, record }) => {
    if (await endClaimTokens({ tx }, [project.ref])) await record('claim_token.delete')
  })
}

/** Requires organizations:write, as the project leaves the organization: access to the project alone is not enough. */
async function requireOrganizationWrite(ctx: Ctx, { organizationSlug }: ProjectAccess): Promise<void> {
  requireTokenScope(ctx.actor, 'organizations:write')
  const { role } = await findOrganization(ctx, organizationSlug)
  requirePermission(role, 'organizations:write')
}

const toClaimToken = ({
  alias,
  createdBy,
  createdAt,
  expiresAt,
}: Pick<Claim['token'], 'alias' | 'createdBy' | 'createdAt' | 'expiresAt'>) => ({
  token_alias: alias,
  expires_at: expiresAt.toISOString(),
  created_at: createdAt.toISOString(),
  created_by: createdBy,
})
