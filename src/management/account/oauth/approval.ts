import { and, asc, eq } from 'drizzle-orm'
import { organizationsAllowing, visibleOrganizations } from '../../../access/access.ts'
import { authenticate } from '../../../access/authenticate.ts'
import type { Caller } from '../../../actor.ts'
import type { SystemCtx } from '../../../ctx.ts'
import type { Scope } from '../../../model/scopes.ts'
import { organizations } from '../../../model/tables/index.ts'
import type { AuthorizationRequest } from './authorization-request.ts'
import type { Problem } from './consent-page.ts'
import type { Consent } from './schema.ts'

const CHOICES_MAX = 100
/** Scope that the token and the role need to claim a project. */
const CLAIM_SCOPE: Scope = 'organizations:write'

/** The approving user and the organization they chose. */
export interface Approval {
  actor: Caller
  organization: Choices[number]
}

export const NO_TOKEN: Problem = { text: 'This is not a valid personal access token.' }

export async function readApproval(
  ctx: SystemCtx,
  request: AuthorizationRequest,
  body: Consent,
): Promise<Approval | Problem> {
  const actor = await authenticate(ctx, `Bearer ${body.token?.trim()}`, () => true)
  // A token of one application must not approve another one.
  if (actor?.kind !== 'user') return NO_TOKEN
  if (actor.isDisabled) return { text: 'Your account is disabled.' }
  const needed = new Set([...request.scopes, ...(request.claim ? [CLAIM_SCOPE] : [])])
  const missing = [...needed].filter((scope) => !actor.scopes.includes(scope))
  if (missing.length > 0)
    return { text: `Your token lacks scopes that the application requests: ${missing.join(', ')}.` }
  const slug = request.organizationSlug ?? body.organization
  const found = await listChoices(ctx, request, actor, slug)
  const [organization, second] = found
  if (!organization) return noOrganization(request, slug)
  if (second) return { text: 'Choose an organization, and enter your token again.', organizations: found }
  return { actor, organization }
}

function noOrganization({ claim }: AuthorizationRequest, slug: string | undefined): Problem {
  const role = claim ? 'owner or administrator of' : 'in'
  return {
    text:
      slug === undefined ? `You are not ${role} any organization.` : `You are not ${role} the organization ${slug}.`,
  }
}

type Choices = Awaited<ReturnType<typeof listChoices>>

export const listChoices = (
  { db }: SystemCtx,
  { claim }: AuthorizationRequest,
  actor: Caller,
  slug: string | undefined,
) =>
  db
    .select({ id: organizations.id, slug: organizations.slug, name: organizations.name, plan: organizations.plan })
    .from(organizations)
    .where(
      and(
        claim ? organizationsAllowing(actor, CLAIM_SCOPE) : visibleOrganizations(actor),
        slug === undefined ? undefined : eq(organizations.slug, slug),
      ),
    )
    .orderBy(asc(organizations.slug))
    .limit(CHOICES_MAX)
