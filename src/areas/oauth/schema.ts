import * as z from 'zod'
import { asFields, held } from '../../http/body.ts'
import { Ref, Text } from '../../http/values.ts'

/** Longer than what any client sends, and what is sent back must still fit into an address. */
const CHARACTERS_MAX = 2_048
const FORM_BYTES_MAX = 16 * 1024

/** One without a value counts as left out (RFC 6749, 3.1). */
const parameter = (description?: string, shape: object = {}) =>
  Text.max(CHARACTERS_MAX)
    .transform((text) => text || undefined)
    .meta({ type: 'string', maxLength: CHARACTERS_MAX, ...(description && { description }), ...shape })

const optional = (...of: Parameters<typeof parameter>) => parameter(...of).optional()

/**
 * What is wrong with the first two is told the user, as nobody may be sent to an address that is not known; what is wrong with
 * the others the application hears, so they are not checked here.
 */
export const AuthorizeQuery = z.object({
  client_id: z.uuid().toLowerCase(),
  redirect_uri: Text.min(1).max(CHARACTERS_MAX),
  response_type: optional('Required: `code`, as the other two are refused', {
    enum: ['code', 'token', 'id_token token'],
  }),
  scope: optional('Names with spaces between; all that the application was registered with where it is left out'),
  state: optional(),
  response_mode: optional('`query`'),
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

export const ConsentBody = held(
  { 'application/x-www-form-urlencoded': asFields(Consent) },
  { sizeBytesMax: FORM_BYTES_MAX },
)

const ExchangeToken = z.object({
  grant_type: parameter('`authorization_code` or `refresh_token`', {
    enum: ['authorization_code', 'refresh_token'],
  }),
  client_id: optional('Unless it is sent by HTTP Basic authentication', { format: 'uuid' }),
  client_secret: optional(),
  code: optional(),
  code_verifier: optional(),
  redirect_uri: optional(),
  refresh_token: optional(),
  resource: optional('An address of this API', { format: 'uri' }),
  scope: optional('With a refresh token: fewer than were approved'),
})
export type ExchangeToken = z.output<typeof ExchangeToken>

export const ExchangeTokenBody = held(
  { 'application/x-www-form-urlencoded': asFields(ExchangeToken) },
  { sizeBytesMax: FORM_BYTES_MAX },
)

export const IssuedToken = z
  .object({
    access_token: z.string(),
    refresh_token: z.string(),
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
