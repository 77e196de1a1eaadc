import type { SystemCtx } from '../../../ctx.ts'
import type { Scope } from '../../../model/scopes.ts'
import { invalidField } from '../../kernel/invalid-field.ts'
import type { Answer } from '../../kernel/route.ts'
import { type Claim, findClaim } from '../../projects/claims/claim.ts'
import { findReach } from '../../projects/transfers/transfer-findings.ts'
import { formPostPage } from './form-post-page.ts'
import { type App, findApp } from './oauth-client.ts'
import { type Challenge, readChallenge } from './pkce.ts'
import { acceptsForms, isRegistered, withParameters } from './redirect-uri.ts'
import { isOwnResource } from './resource.ts'
import { type AuthorizeQuery, RESPONSE_MODES, RESPONSE_TYPES, type ResponseMode, type ResponseType } from './schema.ts'
import { chooseScopes } from './scopes.ts'

/** The request that an application asks a user to approve. */
export interface AuthorizationRequest {
  app: App
  redirectUri: string
  responseType: ResponseType
  /** Present if an ID token is requested. */
  nonce?: string
  scopes: Scope[]
  challenge: Challenge | undefined
  organizationSlug: string | undefined
  /** The project that the user claims with the approval. */
  claim?: Claim & { reach: string[] }
}

/** The codes of RFC 6749, 4.1.2.1, and RFC 8707, 2. */
type Code =
  | 'access_denied'
  | 'invalid_request'
  | 'invalid_scope'
  | 'invalid_target'
  | 'unauthorized_client'
  | 'unsupported_response_type'

/** Error that the application receives instead of a code or token. */
export class Refusal {
  readonly code: Code
  readonly description: string
  constructor(code: Code, description: string) {
    this.code = code
    this.description = description
  }
}

/** Reads the request. Errors before the redirect URI is verified are shown to the user; the application receives the others. */
export async function readRequest(
  ctx: SystemCtx,
  query: AuthorizeQuery,
  claimToken?: string,
): Promise<AuthorizationRequest | Refusal> {
  const app = await findApp(ctx, query.client_id)
  if (!app) throw invalidField('query.client_id', 'is not an application of this server')
  if (!isRegistered(query.redirect_uri, app.redirectUris))
    throw invalidField('query.redirect_uri', 'is not a registered redirect URI of the application')
  const request = checkRequest(ctx, query, app)
  if (request instanceof Refusal || claimToken === undefined) return request
  const claim = await findClaim(ctx, claimToken)
  return { ...request, claim: { ...claim, reach: await findReach(ctx.db, claim.project.ref) } }
}

/** Reads the response type, whose names may be in any order (OAuth 2.0 Multiple Response Type Encoding Practices, 3). */
function readResponseType(requested: string): ResponseType | undefined {
  const sorted = requested.split(' ').sort().join(' ')
  return RESPONSE_TYPES.find((known) => known === sorted)
}

function checkRequest(ctx: SystemCtx, query: AuthorizeQuery, app: App): AuthorizationRequest | Refusal {
  if (query.response_type === undefined) return new Refusal('invalid_request', 'response_type is missing')
  const responseType = readResponseType(query.response_type)
  if (responseType === undefined)
    return new Refusal('unsupported_response_type', `response_type must be one of ${RESPONSE_TYPES.join(', ')}`)
  if (responseType !== 'code' && !app.grantTypes.includes('implicit'))
    return new Refusal('unauthorized_client', 'the application is not registered for the grant type implicit')
  const error = findResponseModeError(query)
  if (error) return new Refusal('invalid_request', error)
  const challenge = readChallenge(query)
  if (typeof challenge === 'string') return new Refusal('invalid_request', challenge)
  const wantsIdToken = responseType === 'id_token token'
  if (wantsIdToken && query.nonce === undefined)
    return new Refusal('invalid_request', 'nonce is missing: it is required for an ID token')
  // With a code_challenge, the client would believe that only the holder of the verifier can use the token.
  if (challenge && responseType !== 'code')
    return new Refusal('invalid_request', 'code_challenge is only valid with response_type code')
  if (!challenge && responseType === 'code' && app.secretHash === null)
    return new Refusal(
      'invalid_request',
      'code_challenge is missing: it is required for an application without a secret',
    )
  const scopes = chooseScopes(query.scope, app.scopes, { takesOpenId: wantsIdToken })
  if (!scopes) return new Refusal('invalid_scope', `scope must be one or more of ${app.scopes.join(' ')}`)
  if (!isOwnResource(ctx, query.resource))
    return new Refusal('invalid_target', `resource must be a URL of ${ctx.config.BASE_URL}`)
  const organizationSlug = query.organization_slug
  if (organizationSlug !== undefined && !/^[\w-]{1,100}$/.test(organizationSlug))
    return new Refusal('invalid_request', 'organization_slug is not a valid slug')
  return {
    app,
    redirectUri: query.redirect_uri,
    responseType,
    ...(wantsIdToken && query.nonce !== undefined && { nonce: query.nonce }),
    scopes,
    challenge,
    organizationSlug,
  }
}

/** Redirects the user to the application. With status 303, browsers do not post the form, and the user's token in it, there. */
export async function redirectBack(query: AuthorizeQuery, outcome: Refusal | Record<string, string>): Promise<Answer> {
  const answer: Record<string, string> =
    outcome instanceof Refusal ? { error_description: outcome.description, error: outcome.code } : outcome
  const parameters = new URLSearchParams({ ...answer, ...(query.state !== undefined && { state: query.state }) })
  const mode = responseModeOf(query)
  if (mode === 'form_post') return formPostPage(query.redirect_uri, parameters)
  const place = mode === 'fragment' ? '#' : '?'
  return { status: 303, headers: { location: withParameters(query.redirect_uri, parameters, place) } }
}

/** Returns the response mode; for an invalid one, the default (OAuth 2.0 Multiple Response Type Encoding Practices, 2.1). */
function responseModeOf(query: AuthorizeQuery): ResponseMode {
  const mode = RESPONSE_MODES.find((known) => known === query.response_mode)
  if (mode !== undefined && !findResponseModeError(query)) return mode
  return query.response_type?.includes('token') ? 'fragment' : 'query'
}

function findResponseModeError({ response_mode: mode, response_type: type, redirect_uri: uri }: AuthorizeQuery) {
  if (mode === undefined) return undefined
  if (!RESPONSE_MODES.some((known) => known === mode)) return `response_mode must be ${RESPONSE_MODES.join(' or ')}`
  if (mode === 'query' && type?.includes('token'))
    return 'response_mode query would expose the token in URLs and logs: must be fragment or form_post'
  if (mode === 'form_post' && !acceptsForms(uri))
    return 'response_mode form_post requires an http or https redirect_uri'
  return undefined
}
