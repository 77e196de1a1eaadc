import { answer, empty, get, post } from '../../http/route.ts'
import { Token } from '../claims/schema.ts'
import { beginClaim } from './claim.ts'
import { decide, showConsent } from './consent.ts'
import { AuthorizeQuery, ClaimQuery, ConsentBody, ExchangeTokenBody, IssuedToken, RevokeToken } from './schema.ts'
import { exchangeToken, revokeToken } from './token.ts'

const NO_STORE = { 'cache-control': 'no-store', pragma: 'no-cache' }

/** The policy of the page itself names where its form may lead. The address is nobody else's business: it holds the state. */
const PAGE = {
  ...NO_STORE,
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

const BACK = 'To `redirect_uri` with `code`, or `error` and `error_description`, and `state`'

export const oauthRoutes = [
  get('/v1/oauth/authorize', {
    id: 'v1-authorize-user', stability: 'Beta', summary: 'Ask a user whether an application may act for him',
    description: 'For browsers. An application or a `redirect_uri` that is not known is told the user; all else that is wrong, the application.',
    scope: 'public', query: AuthorizeQuery, headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 200: 'The page that asks', 303: BACK }),
  }, ({ ctx, query }) => showConsent(ctx, query)),

  post('/v1/oauth/authorize', {
    id: 'v1-approve-application', summary: 'Answer whether an application may act for the user',
    description: "What the page of `GET /v1/oauth/authorize` sends. The user's token must carry all scopes that are asked for, and what is approved ends with it.",
    scope: 'public', query: AuthorizeQuery, body: ConsentBody, headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 303: BACK, 422: 'The page again, with what is wrong' }),
    errors: ['forbidden.permission_denied'],
  }, ({ ctx, query, body, headers }) => decide(ctx, { query, body, headers })),

  get('/v1/oauth/authorize/project-claim', {
    id: 'v1-oauth-authorize-project-claim', summary: 'Begin to ask a user to claim a project and to let an application act for him',
    description: 'For the server of who gives the project away: owners and administrators of its organization; the access token needs organizations:write too. Makes a claim token, in place of the one before, and answers where to send the browser of the user.',
    scope: 'any caller', permission: 'projects:write', query: ClaimQuery, headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 303: 'To the page that asks, or to `redirect_uri` with `error`, `error_description` and `state`' }),
    errors: ['not_found.project', 'unprocessable.branch'],
  }, ({ ctx, query }) => beginClaim(ctx, query)),

  get('/v1/oauth/authorize/project-claim/{token}', {
    id: 'v1-show-project-claim', summary: 'Ask a user to claim a project and to let an application act for him',
    description: 'As `GET /v1/oauth/authorize`, of which it has the parameters. A claim token that is none, or none any more, is told the user.',
    scope: 'public', params: { token: Token }, query: AuthorizeQuery, headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 200: 'The page that asks', 303: BACK }), errors: ['not_found.project_claim'],
  }, ({ ctx, query, params }) => showConsent(ctx, query, params.token)),

  post('/v1/oauth/authorize/project-claim/{token}', {
    id: 'v1-approve-project-claim', summary: 'Answer whether the user claims the project and an application may act for him there',
    description: "What that page sends. The user's token must carry all scopes that are asked for and organizations:write. The project and the approval come together, or neither does.",
    scope: 'public', params: { token: Token }, query: AuthorizeQuery, body: ConsentBody, headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 303: BACK, 422: 'The page again, with what is wrong' }),
    errors: ['forbidden.permission_denied', 'not_found.project_claim'],
  }, ({ ctx, query, params, body, headers }) => decide(ctx, { query, body, headers, claimToken: params.token })),

  post('/v1/oauth/token', {
    id: 'v1-exchange-oauth-token', stability: 'Beta', summary: 'Exchange a code or a refresh token for tokens',
    description: 'Each code and each refresh token is taken once: one that comes again ends the whole authorization.',
    scope: 'public', body: ExchangeTokenBody, headers: NO_STORE, returns: IssuedToken,
    errors: ['oauth.invalid_client', 'oauth.invalid_grant', 'oauth.invalid_scope', 'oauth.invalid_target', 'oauth.unsupported_grant_type'],
  }, ({ ctx, body, headers }) => exchangeToken(ctx, body, headers)),

  post('/v1/oauth/revoke', {
    id: 'v1-revoke-token', stability: 'Beta', summary: 'Revoke what a user approved for an application in an organization, with all its tokens',
    scope: 'public', body: RevokeToken, headers: NO_STORE, returns: empty, status: 204, errors: ['oauth.invalid_client'],
  }, ({ ctx, body }) => revokeToken(ctx, body)),
]
