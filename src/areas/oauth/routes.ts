import { answer, empty, get, post } from '../../http/route.ts'
import { decide, showConsent } from './consent.ts'
import { AuthorizeQuery, ConsentBody, ExchangeTokenBody, IssuedToken, RevokeToken } from './schema.ts'
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
    id: 'v1-authorize-user', summary: 'Ask a user whether an application may act for him',
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

  post('/v1/oauth/token', {
    id: 'v1-exchange-oauth-token', summary: 'Exchange a code or a refresh token for tokens',
    description: 'Each code and each refresh token is taken once: one that comes again ends the whole authorization.',
    scope: 'public', body: ExchangeTokenBody, headers: NO_STORE, returns: IssuedToken,
    errors: ['oauth.invalid_client', 'oauth.invalid_grant', 'oauth.invalid_scope', 'oauth.invalid_target', 'oauth.unsupported_grant_type'],
  }, ({ ctx, body, headers }) => exchangeToken(ctx, body, headers)),

  post('/v1/oauth/revoke', {
    id: 'v1-revoke-token', summary: 'Revoke what a user approved for an application in an organization, with all its tokens',
    scope: 'public', body: RevokeToken, headers: NO_STORE, returns: empty, status: 204, errors: ['oauth.invalid_client'],
  }, ({ ctx, body }) => revokeToken(ctx, body)),
]
