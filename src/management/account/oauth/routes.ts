import * as z from 'zod'
import { answer, del, empty, get, patch, post, put } from '../../kernel/route.ts'
import { Token } from '../../projects/claims/schema.ts'
import { createApp, deleteApp, getApp, listApps, registerApp, rotateAppSecret, updateApp } from './apps.ts'
import { handleDecision, showConsent } from './consent.ts'
import { deleteIssuer, getIssuer, setIssuer } from './issuer.ts'
import { authenticateBySecret } from './oauth-client.ts'
import { beginClaim } from './project-claim.ts'
import {
  AssertionIssuer,
  AuthorizeQuery,
  ClaimQuery,
  ConsentBody,
  CreateApp,
  ExchangeTokenBody,
  FORM_BYTES_MAX,
  IssuedToken,
  OAuthApp,
  OAuthAppWithSecret,
  RegisterApp,
  RevokeToken,
  SetAssertionIssuer,
  UpdateApp,
} from './schema.ts'
import { exchangeToken, revokeToken } from './token.ts'

const NO_STORE = { 'cache-control': 'no-store', pragma: 'no-cache' }

/** Headers of the pages. A page replaces the policy with one for its style or script. The URL contains the state, so it must not leak. */
const PAGE = {
  ...NO_STORE,
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

const params = { id: z.uuid().toLowerCase() }

const BACK = 'Redirect to `redirect_uri` with `code`, or `error` and `error_description`, and with `state`'
const FORM_POST = 'With `response_mode=form_post`, a page that posts the same parameters to `redirect_uri`'
const CONSENT_PAGE = `The consent page. ${FORM_POST} if the request is refused`

export const oauthRoutes = [
  get('/v1/oauth/authorize', {
    id: 'v1-authorize-user',
    stability: 'Beta',
    summary: 'Show the consent page of an application',
    description:
      'For browsers. An unknown application or `redirect_uri` is an error for the user; every other error is sent to the application.',
    scope: 'public',
    query: AuthorizeQuery,
    headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 200: CONSENT_PAGE, 303: BACK }),
    handle: ({ ctx, query }) => showConsent(ctx, query),
  }),

  post('/v1/oauth/authorize', {
    id: 'v1-approve-application',
    summary: 'Approve or deny the access of an application',
    description:
      "The form of the page of `GET /v1/oauth/authorize`. The user's token must have all requested scopes, and the approval ends with the token.",
    scope: 'public',
    query: AuthorizeQuery,
    body: ConsentBody,
    headers: PAGE,
    returns: answer('text/html; charset=UTF-8', {
      200: FORM_POST,
      303: BACK,
      422: 'The page with an error message',
    }),
    errors: ['forbidden.permission_denied'],
    handle: ({ ctx, query, body, headers }) => handleDecision(ctx, { query, body, headers }),
  }),

  get('/v1/oauth/authorize/project-claim', {
    id: 'v1-oauth-authorize-project-claim',
    summary: 'Start a project claim with the consent of a user',
    description:
      'For the server of the party that gives the project away. The caller must be an owner or administrator of the organization, and the access token needs the scope organizations:write. Creates a claim token in place of the previous one, and redirects to the page for the user.',
    scope: 'any caller',
    permission: 'projects:write',
    query: ClaimQuery,
    headers: PAGE,
    returns: answer('text/html; charset=UTF-8', {
      200: FORM_POST,
      303: 'Redirect to the consent page, or to `redirect_uri` with `error`, `error_description` and `state`',
    }),
    errors: ['not_found.project', 'conflict.project_status', 'unprocessable.branch'],
    handle: ({ ctx, query }) => beginClaim(ctx, query),
  }),

  get('/v1/oauth/authorize/project-claim/{token}', {
    id: 'v1-show-project-claim',
    summary: 'Show the consent page of an application with a project claim',
    description:
      'Takes the parameters of `GET /v1/oauth/authorize`. Shows an error page if the claim token is invalid, used or expired.',
    scope: 'public',
    params: { token: Token },
    query: AuthorizeQuery,
    headers: PAGE,
    returns: answer('text/html; charset=UTF-8', { 200: CONSENT_PAGE, 303: BACK }),
    errors: ['not_found.project_claim'],
    handle: ({ ctx, query, params }) => showConsent(ctx, query, params.token),
  }),

  post('/v1/oauth/authorize/project-claim/{token}', {
    id: 'v1-approve-project-claim',
    summary: 'Approve or deny a project claim and the access of an application',
    description:
      "The form of the page of `GET /v1/oauth/authorize/project-claim/{token}`. The user's token must have all requested scopes and organizations:write. The project is claimed and the access approved together, or neither.",
    scope: 'public',
    params: { token: Token },
    query: AuthorizeQuery,
    body: ConsentBody,
    headers: PAGE,
    returns: answer('text/html; charset=UTF-8', {
      200: FORM_POST,
      303: BACK,
      422: 'The page with an error message',
    }),
    errors: ['forbidden.permission_denied', 'not_found.project_claim'],
    handle: ({ ctx, query, params, body, headers }) =>
      handleDecision(ctx, { query, body, headers, claimToken: params.token }),
  }),

  post('/v1/oauth/token', {
    id: 'v1-exchange-oauth-token',
    stability: 'Beta',
    summary: 'Exchange a code, a refresh token or an assertion for tokens',
    description:
      'Each code and each refresh token can be used once; a second use revokes the whole authorization. A refresh can be repeated for 10 seconds with the token that it replaced, and returns the same new one. An assertion can be used once, for a user who approved the application in an organization that trusts its issuer.',
    scope: 'public',
    body: ExchangeTokenBody,
    clientOf: (ctx, { body, headers }, mayGuess) =>
      authenticateBySecret(ctx, body, headers.get('authorization'), mayGuess),
    headers: NO_STORE,
    returns: IssuedToken,
    errors: [
      'oauth.invalid_client',
      'oauth.invalid_grant',
      'oauth.invalid_scope',
      'oauth.invalid_target',
      'oauth.unauthorized_client',
      'oauth.unsupported_grant_type',
      'payment_required.assertions',
    ],
    handle: ({ ctx, body, headers }) => exchangeToken(ctx, body, headers),
  }),

  post('/v1/oauth/revoke', {
    id: 'v1-revoke-token',
    stability: 'Beta',
    summary: 'Revoke the approval of an application by a user, with all its tokens',
    scope: 'public',
    body: RevokeToken,
    bodySizeBytesMax: FORM_BYTES_MAX,
    clientOf: (ctx, { body }, mayGuess) => authenticateBySecret(ctx, body, null, mayGuess),
    headers: NO_STORE,
    returns: empty,
    status: 204,
    errors: ['oauth.invalid_client'],
    handle: ({ ctx, body }) => revokeToken(ctx, body),
  }),

  post('/v1/oauth/register', {
    id: 'v1-register-oauth-client',
    summary: 'Register an application (RFC 7591)',
    description:
      'The access token is the initial access token of RFC 7591. Its user must administer the organization that publishes the application.',
    scope: 'organizations:write',
    body: RegisterApp,
    headers: NO_STORE,
    returns: OAuthAppWithSecret,
    status: 201,
    errors: ['not_found.organization', 'unprocessable.too_many_oauth_apps'],
    handle: ({ ctx, body }) => registerApp(ctx, body),
  }),

  get('/v1/organizations/{slug}/oauth/apps', {
    id: 'v1-list-oauth-apps',
    summary: 'List the OAuth applications of an organization',
    scope: 'organizations:read',
    returns: z.array(OAuthApp),
    handle: ({ ctx, organization }) => listApps(ctx, organization),
  }),

  post('/v1/organizations/{slug}/oauth/apps', {
    id: 'v1-create-oauth-app',
    summary: 'Create an OAuth application of an organization',
    scope: 'organizations:write',
    body: CreateApp,
    headers: NO_STORE,
    returns: OAuthAppWithSecret,
    status: 201,
    errors: ['unprocessable.too_many_oauth_apps'],
    handle: ({ ctx, organization, body }) => createApp(ctx, organization, body),
  }),

  get('/v1/organizations/{slug}/oauth/apps/{id}', {
    id: 'v1-get-oauth-app',
    summary: 'Get an OAuth application of an organization',
    scope: 'organizations:read',
    params,
    returns: OAuthApp,
    errors: ['not_found.oauth_app'],
    handle: ({ ctx, organization, params }) => getApp(ctx, organization, params.id),
  }),

  patch('/v1/organizations/{slug}/oauth/apps/{id}', {
    id: 'v1-update-oauth-app',
    summary: 'Update an OAuth application of an organization',
    description: 'Existing approvals do not change.',
    scope: 'organizations:write',
    params,
    body: UpdateApp,
    returns: OAuthApp,
    errors: ['not_found.oauth_app'],
    handle: ({ ctx, organization, params, body }) => updateApp(ctx, organization, params.id, body),
  }),

  post('/v1/organizations/{slug}/oauth/apps/{id}/rotate-secret', {
    id: 'v1-rotate-oauth-app-secret',
    summary: 'Rotate the secret of an OAuth application',
    description: 'The old secret ends at once; existing tokens stay valid.',
    scope: 'organizations:write',
    params,
    headers: NO_STORE,
    returns: OAuthAppWithSecret,
    status: 201,
    errors: ['not_found.oauth_app', 'conflict.public_oauth_app'],
    handle: ({ ctx, organization, params }) => rotateAppSecret(ctx, organization, params.id),
  }),

  del('/v1/organizations/{slug}/oauth/apps/{id}', {
    id: 'v1-delete-oauth-app',
    summary: 'Delete an OAuth application of an organization',
    description: 'Its tokens end within ten seconds.',
    scope: 'organizations:write',
    params,
    returns: empty,
    status: 204,
    errors: ['not_found.oauth_app'],
    handle: ({ ctx, organization, params }) => deleteApp(ctx, organization, params.id),
  }),

  get('/v1/organizations/{slug}/oauth/issuer', {
    id: 'v1-get-assertion-issuer',
    stability: 'Beta',
    summary: 'Get the assertion issuer of an organization',
    scope: 'organizations:read',
    returns: AssertionIssuer,
    errors: ['not_found.assertion_issuer'],
    handle: ({ ctx, organization }) => getIssuer(ctx, organization),
  }),

  put('/v1/organizations/{slug}/oauth/issuer', {
    id: 'v1-set-assertion-issuer',
    stability: 'Beta',
    summary: 'Set the assertion issuer of an organization',
    description:
      'Replaces the previous issuer. Its keys are fetched from its discovery document, unless `jwks_url` or `jwks` is given. Requires an owner with a personal access token and the plan Team or Enterprise.',
    scope: 'organizations:write',
    body: SetAssertionIssuer,
    returns: AssertionIssuer,
    errors: ['payment_required.assertions', 'service_unavailable.name_resolution'],
    handle: ({ ctx, organization, body }) => setIssuer(ctx, organization, body),
  }),

  del('/v1/organizations/{slug}/oauth/issuer', {
    id: 'v1-delete-assertion-issuer',
    stability: 'Beta',
    summary: 'Delete the assertion issuer of an organization',
    description:
      'Access tokens already issued stay valid for up to an hour. Requires an owner with a personal access token.',
    scope: 'organizations:write',
    returns: empty,
    status: 204,
    errors: ['not_found.assertion_issuer'],
    handle: ({ ctx, organization }) => deleteIssuer(ctx, organization),
  }),
]
