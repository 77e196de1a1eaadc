import * as z from 'zod'
import { answer, del, empty, get, patch, post, put } from '../../kernel/route.ts'
import { Token } from '../../projects/claims/schema.ts'
import { createApp, deleteApp, getApp, listApps, registerApp, rotateAppSecret, updateApp } from './apps.ts'
import { decide, showConsent } from './consent.ts'
import { deleteIssuer, getIssuer, setIssuer } from './issuer.ts'
import { beginClaim } from './project-claim.ts'
import {
  AssertionIssuer,
  AuthorizeQuery,
  ClaimQuery,
  ConsentBody,
  CreateApp,
  ExchangeTokenBody,
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

/** The policy of the page itself names where its form may lead. The address is nobody else's business: it holds the state. */
const PAGE = {
  ...NO_STORE,
  'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
  'x-frame-options': 'DENY',
}

const params = { id: z.uuid().toLowerCase() }

const BACK = 'To `redirect_uri` with `code`, or `error` and `error_description`, and `state`'
const FORM_POST = 'A page that posts the same to `redirect_uri`, with `response_mode=form_post`'
const ASKING = `The page that asks. ${FORM_POST}, where the request is refused`

export const oauthRoutes = [
  get(
    '/v1/oauth/authorize',
    {
      id: 'v1-authorize-user',
      stability: 'Beta',
      summary: 'Ask a user whether an application may act for him',
      description:
        'For browsers. An application or a `redirect_uri` that is not known is told the user; all else that is wrong, the application.',
      scope: 'public',
      query: AuthorizeQuery,
      headers: PAGE,
      returns: answer('text/html; charset=UTF-8', { 200: ASKING, 303: BACK }),
    },
    ({ ctx, query }) => showConsent(ctx, query),
  ),

  post(
    '/v1/oauth/authorize',
    {
      id: 'v1-approve-application',
      summary: 'Answer whether an application may act for the user',
      description:
        "What the page of `GET /v1/oauth/authorize` sends. The user's token must carry all scopes that are asked for, and what is approved ends with it.",
      scope: 'public',
      query: AuthorizeQuery,
      body: ConsentBody,
      headers: PAGE,
      returns: answer('text/html; charset=UTF-8', {
        200: FORM_POST,
        303: BACK,
        422: 'The page again, with what is wrong',
      }),
      errors: ['forbidden.permission_denied'],
    },
    ({ ctx, query, body, headers }) => decide(ctx, { query, body, headers }),
  ),

  get(
    '/v1/oauth/authorize/project-claim',
    {
      id: 'v1-oauth-authorize-project-claim',
      summary: 'Begin to ask a user to claim a project and to let an application act for him',
      description:
        'For the server of who gives the project away: owners and administrators of its organization; the access token needs organizations:write too. Makes a claim token, in place of the one before, and answers where to send the browser of the user.',
      scope: 'any caller',
      permission: 'projects:write',
      query: ClaimQuery,
      headers: PAGE,
      returns: answer('text/html; charset=UTF-8', {
        200: FORM_POST,
        303: 'To the page that asks, or to `redirect_uri` with `error`, `error_description` and `state`',
      }),
      errors: ['not_found.project', 'unprocessable.branch'],
    },
    ({ ctx, query }) => beginClaim(ctx, query),
  ),

  get(
    '/v1/oauth/authorize/project-claim/{token}',
    {
      id: 'v1-show-project-claim',
      summary: 'Ask a user to claim a project and to let an application act for him',
      description:
        'As `GET /v1/oauth/authorize`, of which it has the parameters. A claim token that is none, or none any more, is told the user.',
      scope: 'public',
      params: { token: Token },
      query: AuthorizeQuery,
      headers: PAGE,
      returns: answer('text/html; charset=UTF-8', { 200: ASKING, 303: BACK }),
      errors: ['not_found.project_claim'],
    },
    ({ ctx, query, params }) => showConsent(ctx, query, params.token),
  ),

  post(
    '/v1/oauth/authorize/project-claim/{token}',
    {
      id: 'v1-approve-project-claim',
      summary: 'Answer whether the user claims the project and an application may act for him there',
      description:
        "What that page sends. The user's token must carry all scopes that are asked for and organizations:write. The project and the approval come together, or neither does.",
      scope: 'public',
      params: { token: Token },
      query: AuthorizeQuery,
      body: ConsentBody,
      headers: PAGE,
      returns: answer('text/html; charset=UTF-8', {
        200: FORM_POST,
        303: BACK,
        422: 'The page again, with what is wrong',
      }),
      errors: ['forbidden.permission_denied', 'not_found.project_claim'],
    },
    ({ ctx, query, params, body, headers }) => decide(ctx, { query, body, headers, claimToken: params.token }),
  ),

  post(
    '/v1/oauth/token',
    {
      id: 'v1-exchange-oauth-token',
      stability: 'Beta',
      summary: 'Exchange a code, a refresh token or an assertion for tokens',
      description:
        'Each code and each refresh token is taken once: one that comes again ends the whole authorization. An assertion is accepted once, for a user who approved the application in an organization that trusts its issuer.',
      scope: 'public',
      body: ExchangeTokenBody,
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
    },
    ({ ctx, body, headers }) => exchangeToken(ctx, body, headers),
  ),

  post(
    '/v1/oauth/revoke',
    {
      id: 'v1-revoke-token',
      stability: 'Beta',
      summary: 'Revoke what a user approved for an application in an organization, with all its tokens',
      scope: 'public',
      body: RevokeToken,
      headers: NO_STORE,
      returns: empty,
      status: 204,
      errors: ['oauth.invalid_client'],
    },
    ({ ctx, body }) => revokeToken(ctx, body),
  ),

  post(
    '/v1/oauth/register',
    {
      id: 'v1-register-oauth-client',
      summary: 'Register an application (RFC 7591)',
      description:
        'The access token is the initial access token: its user administers the organization that publishes the application.',
      scope: 'organizations:write',
      body: RegisterApp,
      headers: NO_STORE,
      returns: OAuthAppWithSecret,
      status: 201,
      errors: ['not_found.organization', 'unprocessable.too_many_oauth_apps'],
    },
    ({ ctx, body }) => registerApp(ctx, body),
  ),

  get(
    '/v1/organizations/{slug}/oauth/apps',
    {
      id: 'v1-list-oauth-apps',
      summary: 'List the applications that an organization publishes',
      scope: 'organizations:read',
      returns: z.array(OAuthApp),
    },
    ({ ctx, organization }) => listApps(ctx, organization),
  ),

  post(
    '/v1/organizations/{slug}/oauth/apps',
    {
      id: 'v1-create-oauth-app',
      summary: 'Register an application of an organization',
      scope: 'organizations:write',
      body: CreateApp,
      headers: NO_STORE,
      returns: OAuthAppWithSecret,
      status: 201,
      errors: ['unprocessable.too_many_oauth_apps'],
    },
    ({ ctx, organization, body }) => createApp(ctx, organization, body),
  ),

  get(
    '/v1/organizations/{slug}/oauth/apps/{id}',
    {
      id: 'v1-get-oauth-app',
      summary: 'Get an application of an organization',
      scope: 'organizations:read',
      params,
      returns: OAuthApp,
      errors: ['not_found.oauth_app'],
    },
    ({ ctx, organization, params }) => getApp(ctx, organization, params.id),
  ),

  patch(
    '/v1/organizations/{slug}/oauth/apps/{id}',
    {
      id: 'v1-update-oauth-app',
      summary: 'Change an application of an organization',
      description: 'What users have approved stays as it is.',
      scope: 'organizations:write',
      params,
      body: UpdateApp,
      returns: OAuthApp,
      errors: ['not_found.oauth_app'],
    },
    ({ ctx, organization, params, body }) => updateApp(ctx, organization, params.id, body),
  ),

  post(
    '/v1/organizations/{slug}/oauth/apps/{id}/rotate-secret',
    {
      id: 'v1-rotate-oauth-app-secret',
      summary: 'Give an application another secret',
      description: 'The old one ends at once; tokens stay.',
      scope: 'organizations:write',
      params,
      headers: NO_STORE,
      returns: OAuthAppWithSecret,
      status: 201,
      errors: ['not_found.oauth_app', 'conflict.public_oauth_app'],
    },
    ({ ctx, organization, params }) => rotateAppSecret(ctx, organization, params.id),
  ),

  del(
    '/v1/organizations/{slug}/oauth/apps/{id}',
    {
      id: 'v1-delete-oauth-app',
      summary: 'Delete an application of an organization',
      description: 'Its tokens end within ten seconds.',
      scope: 'organizations:write',
      params,
      returns: empty,
      status: 204,
      errors: ['not_found.oauth_app'],
    },
    ({ ctx, organization, params }) => deleteApp(ctx, organization, params.id),
  ),

  get(
    '/v1/organizations/{slug}/oauth/issuer',
    {
      id: 'v1-get-assertion-issuer',
      stability: 'Beta',
      summary: 'Get the issuer whose assertions an organization trusts',
      scope: 'organizations:read',
      returns: AssertionIssuer,
      errors: ['not_found.assertion_issuer'],
    },
    ({ ctx, organization }) => getIssuer(ctx, organization),
  ),

  put(
    '/v1/organizations/{slug}/oauth/issuer',
    {
      id: 'v1-set-assertion-issuer',
      stability: 'Beta',
      summary: 'Trust the assertions of an issuer',
      description:
        'For owners with a personal access token; plans Team and Enterprise. In place of the one before. Its keys are fetched from its discovery document, unless one of `jwks_url` and `jwks` says otherwise.',
      scope: 'organizations:write',
      body: SetAssertionIssuer,
      returns: AssertionIssuer,
      errors: ['payment_required.assertions', 'service_unavailable.name_resolution'],
    },
    ({ ctx, organization, body }) => setIssuer(ctx, organization, body),
  ),

  del(
    '/v1/organizations/{slug}/oauth/issuer',
    {
      id: 'v1-delete-assertion-issuer',
      stability: 'Beta',
      summary: 'Trust no issuer of assertions any more',
      description: 'For owners with a personal access token. Access tokens that were issued last up to an hour.',
      scope: 'organizations:write',
      returns: empty,
      status: 204,
      errors: ['not_found.assertion_issuer'],
    },
    ({ ctx, organization }) => deleteIssuer(ctx, organization),
  ),
]
