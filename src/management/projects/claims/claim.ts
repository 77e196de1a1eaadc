import { and, eq, gt, isNull, or, type SQL, sql } from 'drizzle-orm'
import { hashToken } from '../../../access/token.ts'
import type { SystemCtx } from '../../../ctx.ts'
import { rolesAllowing } from '../../../model/roles.ts'
import {
  accessTokens,
  memberRoles,
  oauthGrants,
  organizations,
  projectClaimTokens,
  projects,
  users,
} from '../../../model/tables/index.ts'
import type { Writer } from '../../../platform/db/client.ts'
import { ApiError } from '../../../platform/http/error.ts'

/** Roles that may give projects of an organization away and claim others for it. */
export const CLAIM_ROLES = rolesAllowing('organizations:write')

/** A valid claim token with its project and organization. */
export type Claim = NonNullable<Awaited<ReturnType<typeof readClaim>>>

/** Selects the claim token of a project. */
export const claimOf = (ref: string): SQL => eq(projectClaimTokens.projectRef, ref)

/**
 * Reads a claim token. Undefined if it has expired, or if its creator's role has ended, or the access token or approval with which
 * it was created.
 */
export async function readClaim(reader: Pick<Writer, 'select'>, which: SQL, now: Date) {
  const [claim] = await reader
    .select({
      token: projectClaimTokens,
      project: { ref: projects.ref, name: projects.name, parentRef: projects.parentRef },
      source: {
        id: organizations.id,
        slug: organizations.slug,
        name: organizations.name,
        plan: organizations.plan,
      },
    })
    .from(projectClaimTokens)
    .innerJoin(projects, eq(projects.ref, projectClaimTokens.projectRef))
    .innerJoin(organizations, eq(organizations.id, projects.organizationId))
    .leftJoin(accessTokens, eq(accessTokens.id, projectClaimTokens.accessTokenId))
    .leftJoin(oauthGrants, eq(oauthGrants.id, projectClaimTokens.oauthGrantId))
    .where(
      and(
        which,
        gt(projectClaimTokens.expiresAt, now),
        isNull(projects.removedAt),
        isNull(accessTokens.revokedAt),
        or(isNull(accessTokens.expiresAt), gt(accessTokens.expiresAt, now)),
        or(isNull(oauthGrants.expiresAt), gt(oauthGrants.expiresAt, now)),
        isNull(organizations.disabledAt),
        sql`exists (select from ${memberRoles} m join ${users} u on u.id = m.user_id and u.disabled_at is null where m.organization_id = ${projects.organizationId}
          and m.user_id = ${projectClaimTokens.createdBy} and m.project_ref is null
          and m.role = any(${sql.param(CLAIM_ROLES)}::text[]))`,
      ),
    )
  return claim
}

/** Finds the claim of a token. Unknown, used and expired tokens get the same 404. */
export async function findClaim(ctx: SystemCtx, token: string): Promise<Claim> {
  const claim = await readClaim(ctx.db, eq(projectClaimTokens.hash, await hashToken(token)), ctx.now())
  if (!claim) throw new ApiError('not_found.project_claim')
  return claim
}
