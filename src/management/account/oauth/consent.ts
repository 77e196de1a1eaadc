import { eq } from 'drizzle-orm'
import type { Ctx, SystemCtx } from '../../../ctx.ts'
import { accessTokens, oauthApps } from '../../../model/tables/index.ts'
import { ApiError } from '../../../platform/http/error.ts'
import { mutate } from '../../kernel/mutate.ts'
import type { Answer } from '../../kernel/route.ts'
import { moveClaimedProject } from '../../projects/claims/service.ts'
import { finishMove } from '../../projects/transfers/transfer-move.ts'
import { type Approval, listChoices, NO_TOKEN, readApproval } from './approval.ts'
import { type AuthorizationRequest, Refusal, readRequest, redirectBack } from './authorization-request.ts'
import { respondWithCode, respondWithToken } from './authorization-response.ts'
import { consentPage } from './consent-page.ts'
import type { AuthorizeQuery, Consent } from './schema.ts'
import { getSigningKey } from './signing-key.ts'

/** Shows the consent page. */
export async function showConsent(ctx: SystemCtx, query: AuthorizeQuery, claimToken?: string): Promise<Answer> {
  const request = await readRequest(ctx, query, claimToken)
  return request instanceof Refusal ? redirectBack(query, request) : consentPage(request)
}

interface Decision {
  query: AuthorizeQuery
  body: Consent
  headers: Headers
  claimToken?: string
}

/** Handles the user's decision. Only the token in the form identifies the user, so another page cannot decide for them. */
export async function handleDecision(ctx: SystemCtx, { query, body, headers, claimToken }: Decision): Promise<Answer> {
  const request = await readRequest(ctx, query, claimToken)
  if (request instanceof Refusal) return redirectBack(query, request)
  if (!isFromOwnPage(ctx, headers))
    throw new ApiError('forbidden.permission_denied', { detail: 'the form was sent by a page of another site' })
  if (body.decision === 'deny') return redirectBack(query, new Refusal('access_denied', 'the user denied the request'))
  const approval = await readApproval(ctx, request, body)
  if ('text' in approval) return consentPage(request, approval)
  const { actor } = approval
  const response = await approve({ ...ctx, actor }, request, approval).catch((error) => {
    if (error instanceof ApiError && error.code === 'unprocessable.transfer') return error
    throw error
  })
  if (response instanceof ApiError) {
    const organizations = await listChoices(ctx, request, actor, request.organizationSlug)
    return consentPage(request, { text: `The project cannot be claimed: ${response.detail}.`, organizations })
  }
  return response ? redirectBack(query, response) : consentPage(request, NO_TOKEN)
}

/** Whether the form comes from this server's page. Programs send neither header; browsers send at least one. */
function isFromOwnPage({ config }: SystemCtx, headers: Headers): boolean {
  const site = headers.get('sec-fetch-site')
  if (site !== null) return site === 'same-origin'
  const origin = headers.get('origin')
  const own = [new URL(config.BASE_URL).host, headers.get('host')]
  return origin === null || (URL.canParse(origin) && own.includes(new URL(origin).host))
}

/** Stores the approval and claims the project. Undefined if the token or the application has just ended. */
async function approve(
  ctx: Ctx,
  request: AuthorizationRequest,
  approval: Approval,
): Promise<Record<string, string> | undefined> {
  const { app, redirectUri, responseType, nonce, scopes, challenge, claim } = request
  const { actor, organization } = approval
  const idToken = nonce === undefined ? undefined : { nonce, key: await getSigningKey(ctx) }
  const approved = await mutate(ctx, async (mutation) => {
    const { tx, trace } = mutation
    const [approver] = await tx
      .select({ revokedAt: accessTokens.revokedAt, endsAt: accessTokens.expiresAt })
      .from(accessTokens)
      .innerJoin(oauthApps, eq(oauthApps.id, app.id))
      .where(eq(accessTokens.id, actor.tokenId))
      .for('share')
    if (!approver || approver.revokedAt) return undefined
    const moved = claim && (await moveClaimedProject(ctx, mutation, claim, organization))
    const grant = {
      appId: app.id,
      userId: actor.userId,
      organizationId: organization.id,
      approvedBy: actor.tokenId,
      scopes,
      redirectUri,
      createdAt: ctx.now(),
    }
    const response =
      responseType === 'code'
        ? await respondWithCode(mutation, grant, challenge)
        : await respondWithToken(ctx, mutation, { app, grant, approverEndsAt: approver.endsAt, idToken })
    const detail = { app: app.id, scopes, ...(responseType !== 'code' && { responseType }) }
    await trace({ action: 'oauth_app.approve', organizationId: organization.id, detail })
    return { response, moved }
  })
  if (approved?.moved) finishMove(ctx, approved.moved)
  return approved?.response
}
