import * as z from 'zod'
import { GRANT_TYPES, JWT_BEARER } from '../../../model/tables/index.ts'
import { Ref, Slug, Text } from '../../../platform/http/common-values.ts'
import { asFields, bufferedBody } from '../../kernel/body.ts'
import { redirectUriFault } from './redirect-uri.ts'

/** Longer than what any client sends, and what is sent back must still fit into an address. */
const CHARACTERS_MAX = 2_048
const FORM_BYTES_MAX = 16 * 1024
const ASSERTION_CHARACTERS_MAX = 8_192

/** One without a value counts as left out (RFC 6749, 3.1). */
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
 * What is wrong with the first two is told the user, as nobody may be sent to an address that is not known; what is wrong with
 * the others the application hears, so they are not checked here.
 */
export const AuthorizeQuery = z.object({
  client_id: z.uuid().toLowerCase(),
  redirect_uri: Text.min(1).max(CHARACTERS_MAX),
  response_type: optional('Required; all but `code` need the grant type `implicit`', { enum: RESPONSE_TYPES }),
  scope: optional(
    'Names with spaces between; all that the application was registered with where it is left out. `openid` for an ID token',
  ),
  state: optional(),
  nonce: optional('Required for an ID token, which repeats it'),
  response_mode: optional('`form_post` needs a `redirect_uri` of http or https', { enum: RESPONSE_MODES }),
  code_challenge: optional('Required of an application without a secret'),
  code_challenge_method: optional('`sha256` is `S256`', { enum: ['plain', 'sha256', 'S256'] }),
  organization_slug: optional('In which organization; else the user chooses'),
  target_flow: optional('Taken, and without effect'),
  resource: optional('An address of this API', { format: 'uri' }),
})
export type AuthorizeQuery = z.output<typeof AuthorizeQuery>

/** That of the request which the user is to approve, so that nothing of it is refused only once he has come. */
export const ClaimQuery = AuthorizeQuery.extend({ project_ref: Ref })
export type ClaimQuery = z.output<typeof ClaimQuery>

const Consent = z.object({
  decision: z.enum(['approve', 'deny']),
  token: Text.max(CHARACTERS_MAX).optional().meta({ description: "The user's personal access token" }),
  organization: optional('Its slug, where the address names none and the user has several'),
})
export type Consent = z.output<typeof Consent>

export const ConsentBody = bufferedBody(
  { 'application/x-www-form-urlencoded': asFields(Consent) },
  { sizeBytesMax: FORM_BYTES_MAX },
)

/** What each application may use. */
export const BASIC_GRANT_TYPES = ['authorization_code', 'refresh_token'] as const

const ExchangeToken = z.object({
  grant_type: parameter('An assertion is for the plans Team and Enterprise; beta', {
    enum: [...BASIC_GRANT_TYPES, JWT_BEARER],
  }),
  client_id: optional('Unless it is sent by HTTP Basic authentication', { format: 'uuid' }),
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
  resource: optional('An address of this API', { format: 'uri' }),
  scope: optional('With a refresh token or an assertion: fewer than were approved'),
})
export type ExchangeToken = z.output<typeof ExchangeToken>

export const ExchangeTokenBody = bufferedBody(
  { 'application/x-www-form-urlencoded': asFields(ExchangeToken) },
  { sizeBytesMax: FORM_BYTES_MAX },
)

export const IssuedToken = z
  .object({
    access_token: z.string(),
    refresh_token: z.string().optional().meta({ description: 'None for an assertion' }),
    expires_in: z.int().meta({ description: 'Seconds' }),
    token_type: z.literal('Bearer'),
    scope: z.string(),
    project_refs: z.array(z.string()).nullable().meta({ description: 'null: all that the user reaches' }),
  })
  .meta({ id: 'OAuthTokenResponse' })

export const RevokeToken = z
  .object({
    client_id: z.uuid().toLowerCase(),
    client_secret: Text.max(CHARACTERS_MAX).meta({ description: 'Empty for an application without one' }),
    refresh_token: Text.max(CHARACTERS_MAX),
  })
  .meta({ id: 'OAuthRevokeTokenBody' })

const REDIRECT_URIS_MAX = 20
export const CLIENT_NAME_LENGTH_MAX = 100

const RedirectUri = Text.superRefine((uri, { addIssue }) => {
  const fault = redirectUriFault(uri)
  if (fault) addIssue(fault)
})
const ClientName = Text.max(CLIENT_NAME_LENGTH_MAX).regex(/\S/, 'must not be blank')
const RedirectUris = z.array(RedirectUri).min(1).max(REDIRECT_URIS_MAX)
const RequestedScope = Text.max(CHARACTERS_MAX).meta({
  description: 'The most that it may ask for: names with spaces between',
})
const clientFacts = {
  grant_types: z.array(z.enum(GRANT_TYPES)),
  response_types: z.array(z.enum(RESPONSE_TYPES)),
}
const RequestedGrantTypes = clientFacts.grant_types.optional().meta({
  description:
    '`authorization_code` and `refresh_token` are always among them; `implicit` and assertions must be asked for; a public application gets no assertions',
})

/** Named as in RFC 7591. */
const NewApp = {
  client_name: ClientName,
  redirect_uris: RedirectUris,
  scope: RequestedScope,
  token_endpoint_auth_method: z
    .enum(['client_secret_basic', 'client_secret_post', 'none'])
    .default('client_secret_basic')
    .meta({ description: '`none` for a public application, which must use PKCE; the other two are accepted alike' }),
  grant_types: RequestedGrantTypes,
  response_types: clientFacts.response_types
    .optional()
    .meta({ description: 'Those with `token` ask for `implicit` too' }),
}
export const CreateApp = z.object(NewApp).meta({ id: 'CreateOAuthApp' })
export const RegisterApp = z
  .object({
    ...NewApp,
    organization_slug: Slug.optional().meta({
      description: 'The publisher; may be left out where the caller administers one organization alone',
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
    client_id_issued_at: z.int().meta({ description: 'Seconds since 1970' }),
    client_name: z.string(),
    redirect_uris: z.array(z.string()),
    scope: z.string(),
    token_endpoint_auth_method: z.enum(['client_secret_basic', 'none']),
    ...clientFacts,
  })
  .meta({ id: 'OAuthApp' })
export const OAuthAppWithSecret = OAuthApp.extend({
  client_secret: z.string().optional().meta({ description: 'Told this once; a public application has none' }),
  client_secret_expires_at: z.int().optional().meta({ description: '0: never' }),
}).meta({ id: 'OAuthAppWithSecret' })

export const SetAssertionIssuer = z
  .object({
    issuer: Text.min(1).max(1_024).meta({ description: 'What assertions say in `iss`; also where its keys are found' }),
    jwks_url: Text.max(CHARACTERS_MAX)
      .optional()
      .meta({ description: 'Its keys, where no discovery document leads to them' }),
    jwks: z.unknown().optional().meta({ description: 'Its public keys, which are then never fetched' }),
  })
  .refine((body) => body.jwks_url === undefined || body.jwks === undefined, {
    path: ['jwks'],
    message: 'give one of jwks_url and jwks',
  })
  .meta({ id: 'SetAssertionIssuer' })
export const AssertionIssuer = z
  .object({
    issuer: z.string(),
    jwks_url: z.string().optional(),
    jwks: z.unknown().meta({ description: 'The keys that are trusted' }),
    fetched_at: z.iso.datetime().optional(),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'AssertionIssuer' })
