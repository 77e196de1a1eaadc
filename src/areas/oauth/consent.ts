import { and, asc, eq } from 'drizzle-orm'
import { visibleOrganizations } from '../../auth/access.ts'
import { authenticate, type Principal } from '../../auth/principal.ts'
import { hashToken, randomHex } from '../../auth/token.ts'
import { mutate } from '../../db/mutate.ts'
import { accessTokens, oauthApps, oauthGrants, organizations } from '../../db/schema/index.ts'
import type { SystemCtx } from '../../env.ts'
import { ApiError } from '../../http/error.ts'
import type { Answer } from '../../http/route.ts'
import { consentPage, type Problem } from './page.ts'
import { type AuthorizationRequest, Refusal, readRequest, sendBack } from './request.ts'
import type { AuthorizeQuery, Consent } from './schema.ts'

/** A code is exchanged at once, by a program (RFC 6749, 4.1.2: at most ten minutes). */
const CODE_MS = 5 * 60_000
const CHOICES_MAX = 100

/** Asks the user. */
export async function showConsent(ctx: SystemCtx, query: AuthorizeQuery): Promise<Answer> {
  const request = await readRequest(ctx, query)
  return request instanceof Refusal ? sendBack(query, request) : consentPage(request)
}

interface Decision {
  query: AuthorizeQuery
  body: Consent
  headers: Headers
}

/** The user's answer. Who he is only the token in the form says, so nobody else's page can answer for him. */
export async function decide(ctx: SystemCtx, { query, body, headers }: Decision): Promise<Answer> {
  const request = await readRequest(ctx, query)
  if (request instanceof Refusal) return sendBack(query, request)
  if (!isFromOwnPage(ctx, headers))
    throw new ApiError('forbidden.permission_denied', { detail: 'the form was sent by a page of another site' })
  if (body.decision === 'deny') return sendBack(query, new Refusal('access_denied', 'the user said no'))
  const approval = await readApproval(ctx, request, body)
  if ('text' in approval) return consentPage(request, approval)
  const code = await approve(ctx, request, approval)
  return code ? sendBack(query, { code }) : consentPage(request, NO_TOKEN)
}

/** Programs say nothing of where a form came from, and browsers everything. */
function isFromOwnPage({ config }: SystemCtx, headers: Headers): boolean {
  const site = headers.get('sec-fetch-site')
  if (site !== null) return site === 'same-origin'
  const origin = headers.get('origin')
  const own = [new URL(config.BASE_URL).host, headers.get('host')]
  return origin === null || (URL.canParse(origin) && own.includes(new URL(origin).host))
}

interface Approval {
  principal: Principal
  organizationId: string
}

const NO_TOKEN: Problem = { text: 'This is no valid personal access token.' }

async function readApproval(ctx: SystemCtx, request: AuthorizationRequest, body: Consent): Promise<Approval | Problem> {
  const principal = await authenticate(ctx, `Bearer ${body.token?.trim()}`, () => true)
  // What one application may do must not let in another one.
  if (!principal || principal.appId) return NO_TOKEN
  const lacking = request.scopes.filter((scope) => !principal.scopes.includes(scope))
  if (lacking.length > 0) return { text: `Your token itself lacks what is asked for: ${lacking.join(', ')}.` }
  const slug = request.organizationSlug ?? body.organization
  const found = await organizationsOf(ctx, principal, slug)
  const [first, second] = found
  if (!first)
    return { text: slug === undefined ? 'You are in no organization.' : `You are in no organization ${slug}.` }
  if (second) return { text: 'Choose an organization, and enter your token again.', organizations: found }
  return { principal, organizationId: first.id }
}

const organizationsOf = ({ db }: SystemCtx, principal: Principal, slug: string | undefined) =>
  db
    .select({ id: organizations.id, slug: organizations.slug, name: organizations.name })
    .from(organizations)
    .where(and(visibleOrganizations(principal), slug === undefined ? undefined : eq(organizations.slug, slug)))
    .orderBy(asc(organizations.slug))
    .limit(CHOICES_MAX)

/** The code; undefined where the token or the application ended in this very moment. */
function approve(ctx: SystemCtx, request: AuthorizationRequest, approval: Approval): Promise<string | undefined> {
  const { app, redirectUri, scopes, challenge } = request
  const { principal, organizationId } = approval
  return mutate({ ...ctx, principal }, async ({ tx, trace }) => {
    const [held] = await tx
      .select({ revokedAt: accessTokens.revokedAt })
      .from(accessTokens)
      .innerJoin(oauthApps, eq(oauthApps.id, app.id))
      .where(eq(accessTokens.id, principal.tokenId))
      .for('share')
    if (!held || held.revokedAt) return undefined
    const code = randomHex()
    const now = ctx.now()
    await tx.insert(oauthGrants).values({
      appId: app.id,
      userId: principal.userId,
      organizationId,
      approvedBy: principal.tokenId,
      scopes,
      redirectUri,
      codeHash: await hashToken(code),
      codeChallenge: challenge?.value ?? null,
      codeChallengeMethod: challenge?.method ?? null,
      createdAt: now,
      expiresAt: new Date(now.getTime() + CODE_MS),
    })
    await trace({ action: 'oauth_app.approve', organizationId, detail: { app: app.id, scopes } })
    return code
  })
}
