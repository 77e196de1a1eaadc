import { createHash, randomBytes, randomUUID } from 'node:crypto'
import { hashToken, randomHex } from '../../src/access/token.ts'
import type { Scope } from '../../src/model/scopes.ts'
import { type GrantType, oauthApps } from '../../src/model/tables/index.ts'
import { as, type Caller, control, type Reply, type TestOrganization } from './api.ts'

export const REDIRECT_URI = 'https://app.example/callback?from=us'
export const SCOPES: Scope[] = ['organizations:read', 'projects:read']

/** A browser or a program without a token; an address of its own keeps it out of the quota of the others. */
export const stranger = () => as(undefined, { 'x-test-address': `test-${randomUUID()}` })

interface AppFields {
  name?: string
  isPublic?: boolean
  scopes?: Scope[]
  redirectUris?: string[]
  /** Grant types beside codes and refresh tokens. */
  grantTypes?: GrantType[]
}

export async function registerApp({ id: organizationId }: { id: string }, fields: AppFields = {}) {
  const { name = 'App', isPublic = false, scopes = SCOPES, redirectUris = [REDIRECT_URI] } = fields
  const grantTypes: GrantType[] = ['authorization_code', 'refresh_token', ...(fields.grantTypes ?? [])]
  const secret = `sba_${randomHex()}`
  const secretHash = isPublic ? null : await hashToken(secret)
  const [app] = await control
    .insert(oauthApps)
    .values({ organizationId, name, scopes, redirectUris, grantTypes, secretHash })
    .returning()
  if (!app) throw new Error('no application')
  return { id: app.id, secret: isPublic ? undefined : secret }
}
export type TestApp = Awaited<ReturnType<typeof registerApp>>

/** Makes a verifier and its challenge. */
export function newProof() {
  const verifier = randomBytes(32).toString('base64url')
  return { verifier, challenge: createHash('sha256').update(verifier).digest('base64url') }
}

type Fields = Record<string, string | undefined>
const given = (fields: Fields) =>
  new URLSearchParams(Object.entries(fields).filter((field): field is [string, string] => field[1] !== undefined))

export const authorizePath = (app: TestApp, query: Fields = {}) =>
  `/v1/oauth/authorize?${given({ client_id: app.id, response_type: 'code', redirect_uri: REDIRECT_URI, ...query })}`

interface Answering {
  /** The path of the page, if it differs from `authorizePath`. */
  path?: string
  query?: Fields
  form?: Fields
  headers?: Record<string, string>
  by?: Caller
}

/** Sends the page's form as a user who approves. */
export const answer = (
  app: TestApp,
  token: string | undefined,
  { path, query, form, headers = {}, by }: Answering = {},
) =>
  (by ?? stranger()).send('POST', path ?? authorizePath(app, query), {
    raw: given({ token, decision: 'approve', ...form }),
    headers,
  })

/** Returns the address and the parameters of the redirect. */
export function sentTo({ status, headers }: Reply) {
  if (status !== 303) throw new Error(`not sent back: ${status}`)
  const url = new URL(headers.get('location') ?? '')
  return { url, ...Object.fromEntries(url.searchParams) } as { url: URL; code: string } & Record<string, string>
}

/** Returns a code for an organization in which the user approves the application. */
export async function newCode(app: TestApp, { slug, owner }: TestOrganization, answering: Answering = {}) {
  const query = { organization_slug: slug, ...answering.query }
  return sentTo(await answer(app, owner.token, { ...answering, query })).code
}

export const exchange = (fields: Fields, by = stranger(), headers: Record<string, string> = {}) =>
  by.send('POST', '/v1/oauth/token', { raw: given(fields), headers })

export const byCode = (app: TestApp, code: string, fields: Fields = {}, by?: Caller) =>
  exchange(
    {
      ...{ grant_type: 'authorization_code', client_id: app.id, client_secret: app.secret },
      ...{ redirect_uri: REDIRECT_URI, code, ...fields },
    },
    by,
  )

export const byRefresh = (app: TestApp, token: string, fields: Fields = {}, by?: Caller) =>
  exchange(
    {
      ...{ grant_type: 'refresh_token', client_id: app.id, client_secret: app.secret },
      ...{ refresh_token: token, ...fields },
    },
    by,
  )

export const revoke = (app: TestApp, token: string, fields: object = {}) =>
  stranger().post('/v1/oauth/revoke', {
    ...{ client_id: app.id, client_secret: app.secret ?? '', refresh_token: token },
    ...fields,
  })

/** Returns the tokens of an application that the organization's owner has approved. */
export async function newTokens(app: TestApp, organization: TestOrganization, answering: Answering = {}) {
  const { status, body } = await byCode(app, await newCode(app, organization, answering), {}, answering.by)
  if (status !== 200) throw new Error(`no tokens: ${JSON.stringify(body)}`)
  return body as { access_token: string; refresh_token: string }
}
