import * as z from 'zod'
import { GRANT_TYPES, JWT_BEARER } from '../../../model/tables/index.ts'
import { Ref, Slug, Text } from '../../../platform/http/common-values.ts'
import { asUrlEncoded, bufferedBody } from '../../kernel/body.ts'
import { redirectUriError } from './redirect-uri.ts'

/** Maximum length of a parameter: no client sends more, and values that are sent back must fit into a URL. */
const CHARACTERS_MAX = 2_048
export const FORM_BYTES_MAX = 16 * 1024
const ASSERTION_CHARACTERS_MAX = 8_192

/** An OAuth parameter. One without a value counts as omitted (RFC 6749, 3.1). */
const parameter = (description?: string, shape: object = {}) =>
  Text.max(CHARACTERS_MAX)
    .transform((text) => text || undefined)
    .meta({ type: 'string', maxLength: CHARACTERS_MAX, ...(description && { description }), ...shape })

const optional = (...of: Parameters<typeof parameter>) => parameter(...of).optional()

export const RESPONSE_TYPES = ['code', 'token', 'id_token token'] as const
export type ResponseType = (typeof RESPONSE_TYPES)[number]

export const RESPONSE_MODES = ['query', 'fragment', 'form_post'] as const
export type ResponseMode = (typeof RESPONSE_MODES)[number]

/**
 * Only the first two parameters are checked here, because their errors are shown to the user: nobody may be redirected to an
 * unverified URL. Errors in the other parameters are sent to the application.
 */
export const AuthorizeQuery = z.object({
  client_id: z.uuid().toLowerCase(),
  redirect_uri: Text.min(1).max(CHARACTERS_MAX),
  response_type: optional('Required; all but `code` need the grant type `implicit`', { enum: RESPONSE_TYPES }),
  scope: optional(
    'Space-separated names, with `openid` for an ID token. Defaults to all registered scopes of the application',
  ),
  state: optional(),
  nonce: optional('Required for an ID token, which contains it'),
  response_mode: optional('`form_post` requires an http or https `redirect_uri`', { enum: RESPONSE_MODES }),
  code_challenge: optional('Required for an application without a secret'),
  code_challenge_method: optional('`sha256` is an alias of `S256`', { enum: ['plain', 'sha256', 'S256'] }),
  organization_slug: optional('The organization to approve for; by default the user chooses'),
  target_flow: optional('Accepted, without effect'),
  resource: optional('A URL of this API', { format: 'uri' }),
})
export type AuthorizeQuery = z.output<typeof AuthorizeQuery>

/** The parameters of the later authorization request, so that errors are found before the user is sent to it. */
export const ClaimQuery = AuthorizeQuery.extend({ project_ref: Ref })
export type ClaimQuery = z.output<typeof ClaimQuery>

const Consent = z.object({
  decision: z.enum(['approve', 'deny']),
  token: Text.max(CHARACTERS_MAX).optional().meta({ description: "The user's personal access token" }),
  organization: optional('The slug of the organization, if the URL names none and the user has several'),
})
export type Consent = z.output<typeof Consent>

export const ConsentBody = bufferedBody(
  { 'application/x-www-form-urlencoded': asUrlEncoded(Consent) },
  { sizeBytesMax: FORM_BYTES_MAX },
)

/** Grant types that every application may use. */
export const BASIC_GRANT_TYPES = ['authorization_code', 'refresh_token'] as const

const ExchangeToken = z.object({
  grant_type: parameter('Assertions require the plan Team or Enterprise; beta', {
    enum: [...BASIC_GRANT_TYPES, JWT_BEARER],
  }),
  client_id: optional('Required unless it is sent by HTTP Basic authentication', { format: 'uuid' }),
  client_secret: optional(),
  code: optional(),
  code_verifier: optional(),
  redirect_uri: optional(),
  refresh_token: optional(),
  assertion: Text.max(ASSERTION_CHARACTERS_MAX)
    .transform((text) => text || undefined)
    .optional()
    .meta({
      type: 'string',
      description: 'An identity assertion (ID-JAG) for the user, signed by the issuer of the organization',
    }),
  resource: optional('A URL of this API', { format: 'uri' }),
  scope: optional('With a refresh token or an assertion: a subset of the approved scopes'),
})
export type ExchangeToken = z.output<typeof ExchangeToken>

export const ExchangeTokenBody = bufferedBody(
  { 'application/x-www-form-urlencoded': asUrlEncoded(ExchangeToken) },
  { sizeBytesMax: FORM_BYTES_MAX },
)

export const IssuedToken = z
  .object({
    access_token: z.string(),
    refresh_token: z.string().optional().meta({ description: 'Absent for an assertion' }),
    expires_in: z.int().meta({ description: 'Seconds' }),
    token_type: z.literal('Bearer'),
    scope: z.string(),
    project_refs: z.array(z.string()).nullable().meta({ description: 'Null: all projects that the user can access' }),
  })
  .meta({ id: 'OAuthTokenResponse' })

export const RevokeToken = z
  .object({
    client_id: z.uuid().toLowerCase(),
    client_secret: Text.max(CHARACTERS_MAX).meta({ description: 'Empty for an application without a secret' }),
    refresh_token: Text.max(CHARACTERS_MAX),
  })
  .meta({ id: 'OAuthRevokeTokenBody' })

const REDIRECT_URIS_MAX = 20
export const CLIENT_NAME_LENGTH_MAX = 100

const RedirectUri = Text.superRefine((uri, { addIssue }) => {
  const error = redirectUriError(uri)
  if (error) addIssue(error)
})
const ClientName = Text.max(CLIENT_NAME_LENGTH_MAX).regex(/\S/, 'must not be blank')
const RedirectUris = z.array(RedirectUri).min(1).max(REDIRECT_URIS_MAX)
const RequestedScope = Text.max(CHARACTERS_MAX).meta({
  description: 'The scopes that the application may request, as space-separated names',
})
const clientFacts = {
  grant_types: z.array(z.enum(GRANT_TYPES)),
  response_types: z.array(z.enum(RESPONSE_TYPES)),
}
const RequestedGrantTypes = clientFacts.grant_types.optional().meta({
  description:
    '`authorization_code` and `refresh_token` are always included; `implicit` and assertions must be requested. A public application cannot use assertions',
})

/** Fields named as in RFC 7591. */
const NewApp = {
  client_name: ClientName,
  redirect_uris: RedirectUris,
  scope: RequestedScope,
  token_endpoint_auth_method: z
    .enum(['client_secret_basic', 'client_secret_post', 'none'])
    .default('client_secret_basic')
    .meta({ description: '`none` for a public application, which must use PKCE; the other two are equivalent' }),
  grant_types: RequestedGrantTypes,
  response_types: clientFacts.response_types
    .optional()
    .meta({ description: 'Types with `token` also request `implicit`' }),
}
export const CreateApp = z.object(NewApp).meta({ id: 'CreateOAuthApp' })
export const RegisterApp = z
  .object({
    ...NewApp,
    organization_slug: Slug.optional().meta({
      description: 'The publisher; optional if the caller administers only one organization',
    }),
  })
  .meta({ id: 'RegisterOAuthApp' })
export const UpdateApp = z
  .object({
    client_name: ClientName,
    redirect_uris: RedirectUris,
    scope: RequestedScope,
    grant_types: RequestedGrantTypes,
  })
  .partial()
  .meta({ id: 'UpdateOAuthApp' })

export const OAuthApp = z
  .object({
    client_id: z.uuid(),
    client_id_issued_at: z.int().meta({ description: 'Seconds since 1970-01-01T00:00:00Z' }),
    client_name: z.string(),
    redirect_uris: z.array(z.string()),
    scope: z.string(),
    token_endpoint_auth_method: z.enum(['client_secret_basic', 'none']),
    ...clientFacts,
  })
  .meta({ id: 'OAuthApp' })
export const OAuthAppWithSecret = OAuthApp.extend({
  client_secret: z
    .string()
    .optional()
    .meta({ description: 'Only this reply contains it; a public application has none' }),
  client_secret_expires_at: z.int().optional().meta({ description: '0 means never' }),
}).meta({ id: 'OAuthAppWithSecret' })

export const SetAssertionIssuer = z
  .object({
    issuer: Text.min(1)
      .max(1_024)
      .meta({ description: 'The claim `iss` of assertions. The keys are found through its discovery document' }),
    jwks_url: Text.max(CHARACTERS_MAX)
      .optional()
      .meta({ description: 'The URL of the keys, if there is no discovery document' }),
    jwks: z.unknown().optional().meta({ description: 'The public keys. If they are given, none are fetched' }),
  })
  .refine((body) => body.jwks_url === undefined || body.jwks === undefined, {
    path: ['jwks'],
    message: 'cannot be combined with jwks_url',
  })
  .meta({ id: 'SetAssertionIssuer' })
export const AssertionIssuer = z
  .object({
    issuer: z.string(),
    jwks_url: z.string().optional(),
    jwks: z.unknown().meta({ description: 'The trusted keys' }),
    fetched_at: z.iso.datetime().optional(),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'AssertionIssuer' })
