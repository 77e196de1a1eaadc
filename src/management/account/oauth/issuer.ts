import { eq } from 'drizzle-orm'
import type * as z from 'zod'
import type { OrganizationAccess } from '../../../access/access.ts'
import type { Ctx } from '../../../ctx.ts'
import { assertionIssuers } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { attributeToField } from '../../../platform/http/unusable-value.ts'
import { mutate } from '../../kernel/mutate.ts'
import { requirePlan } from '../organizations/plan-features.ts'
import { findKeys, type IssuerRow } from './issuer-keys.ts'
import type { AssertionIssuer, SetAssertionIssuer } from './schema.ts'

/** Requires an owner and no application, because the issuer decides who can act for the owners. */
function requireOwner({ actor }: Ctx, { role }: OrganizationAccess): void {
  const detail =
    actor.kind === 'oauthApp'
      ? 'applications may not change the issuer of assertions'
      : role === 'owner'
        ? undefined
        : `the role ${role} may not change the issuer of assertions`
  if (detail) throw new ApiError('forbidden.permission_denied', { detail })
}

export async function getIssuer({ db }: Ctx, { id }: OrganizationAccess) {
  const [row] = await db.select().from(assertionIssuers).where(eq(assertionIssuers.organizationId, id))
  if (!row) throw new ApiError('not_found.assertion_issuer')
  return toIssuer(row)
}

export async function setIssuer(
  ctx: Ctx,
  organization: OrganizationAccess,
  input: z.output<typeof SetAssertionIssuer>,
) {
  requireOwner(ctx, organization)
  requirePlan(organization, 'assertions')
  const { id: organizationId } = organization
  const { jwks_url: jwksUrl = null, jwks: given } = input
  const field = given !== undefined ? 'jwks' : jwksUrl === null ? 'issuer' : 'jwks_url'
  const found = await attributeToField(field, () => findKeys(ctx, { issuer: input.issuer, jwksUrl, jwks: given }))
  const now = ctx.now()
  const values = {
    issuer: found.issuer ?? input.issuer,
    jwksUrl,
    jwks: found.jwks,
    fetchedAt: given === undefined ? now : null,
    triedAt: null,
    updatedAt: now,
  }
  const row = await mutate(ctx, async ({ tx, trace }) => {
    const [set] = await tx
      .insert(assertionIssuers)
      .values({ organizationId, ...values, createdAt: now })
      .onConflictDoUpdate({ target: assertionIssuers.organizationId, set: values })
      .returning()
    if (!set) throw new Error('the issuer was not stored')
    const detail = { issuer: set.issuer, keys: set.jwks.keys.map(({ kid }) => kid) }
    await trace({ action: 'assertion_issuer.set', organizationId, detail })
    return set
  })
  return toIssuer(row)
}

export async function deleteIssuer(ctx: Ctx, organization: OrganizationAccess): Promise<void> {
  requireOwner(ctx, organization)
  const { id: organizationId } = organization
  await mutate(ctx, async ({ tx, trace }) => {
    const [row] = await tx
      .delete(assertionIssuers)
      .where(eq(assertionIssuers.organizationId, organizationId))
      .returning({ issuer: assertionIssuers.issuer })
    if (!row) throw new ApiError('not_found.assertion_issuer')
    await trace({ action: 'assertion_issuer.delete', organizationId, detail: row })
  })
}

const toIssuer = ({ issuer, jwksUrl, jwks, fetchedAt, updatedAt }: IssuerRow): z.input<typeof AssertionIssuer> => ({
  issuer,
  ...(jwksUrl !== null && { jwks_url: jwksUrl }),
  jwks,
  ...(fetchedAt && { fetched_at: fetchedAt.toISOString() }),
  updated_at: updatedAt.toISOString(),
})
