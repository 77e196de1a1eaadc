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
/** What claiming a project needs, of the token and of the role. */
const CLAIM_SCOPE: Scope = 'organizations:write'

/** Who approves, and in which organization of his. */
export interface Approval {
  actor: Caller
  organization: Choices[number]
}

export const NO_TOKEN: Problem = { text: 'This is no valid personal access token.' }

export async function readApproval(
  ctx: SystemCtx,
  request: AuthorizationRequest,
  body: Consent,
): Promise<Approval | Problem> {
  const actor = await authenticate(ctx, `Bearer ${body.token?.trim()}`, () => true)
  // What one application may do must not let in another one.
  if (actor?.kind !== 'user') return NO_TOKEN
  if (actor.isDisabled) return { text: 'Your account is disabled.' }
  const needed = new Set([...request.scopes, ...(request.claim ? [CLAIM_SCOPE] : [])])
  const lacking = [...needed].filter((scope) => !actor.scopes.includes(scope))
  if (lacking.length > 0) return { text: `Your token itself lacks what is asked for: ${lacking.join(', ')}.` }
  const slug = request.organizationSlug ?? body.organization
  const found = await choicesOf(ctx, request, actor, slug)
  const [organization, second] = found
  if (!organization) return noneOf(request, slug)
  if (second) return { text: 'Choose an organization, and enter your token again.', organizations: found }
  return { actor, organization }
}

function noneOf({ claim }: AuthorizationRequest, slug: string | undefined): Problem {
  const role = claim ? 'owner or administrator of' : 'in'
  return { text: slug === undefined ? `You are ${role} no organization.` : `You are ${role} no organization ${slug}.` }
}

type Choices = Awaited<ReturnType<typeof choicesOf>>

export const choicesOf = (
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
