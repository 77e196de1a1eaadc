import { createHash, randomUUID } from 'node:crypto'
import { desc } from 'drizzle-orm'
import { createLocalJWKSet, jwtVerify } from 'jose'
import { beforeAll, describe, expect, it } from 'vitest'
import { oauthSigningKeys } from '../../../src/model/tables/index.ts'
import { admin } from '../../support/admin.ts'
import { as, control, newOrganization, type Reply, type TestOrganization } from '../../support/api.ts'
import { answer, authorizePath, registerApp, SCOPES, stranger, type TestApp } from '../../support/oauth.ts'

let organization: TestOrganization
let app: TestApp
beforeAll(async () => {
  organization = await newOrganization()
  app = await registerApp(organization, { isPublic: true, grantTypes: ['implicit'] })
})

const QUERY = { response_type: 'id_token token', nonce: 'n-1' }
const approve = (query = {}) => answer(app, organization.owner.token, { query: { ...QUERY, ...query } })

function inFragment({ status, headers }: Reply): Record<string, string> {
  expect(status).toBe(303)
  const { hash, search } = new URL(headers.get('location') ?? '')
  expect(search).toBe('?from=us')
  return Object.fromEntries(new URLSearchParams(hash.slice(1)))
}

const discovery = async () => (await stranger().get('/.well-known/openid-configuration')).body

/**
 * Verifies a token as a client does that knows only the issuer; the name of the test's installation does not resolve.
 */
async function verified(idToken = '') {
  const { issuer, jwks_uri, id_token_signing_alg_values_supported: algorithms } = await discovery()
  expect(jwks_uri.startsWith(`${issuer}/`)).toBe(true)
  const { status, body } = await stranger().get(new URL(jwks_uri).pathname)
  expect(status).toBe(200)
  const { payload } = await jwtVerify(idToken, createLocalJWKSet(body), { issuer, audience: app.id, algorithms })
  return payload
}

describe('response_type=id_token token', () => {
  it('names the user who approved, for one application, one request and one access token', async () => {
    const { id_token, access_token = '', ...sent } = inFragment(await approve({ state: 's' }))
    expect(sent).toEqual({ token_type: 'Bearer', expires_in: '900', scope: SCOPES.join(' '), state: 's' })
    const claims = await verified(id_token)
    const half = createHash('sha256').update(access_token).digest().subarray(0, 16)
    expect(claims).toEqual({
      ...{ iss: 'https://api.example.com', aud: app.id, sub: organization.userId, nonce: 'n-1' },
      ...{ at_hash: half.toString('base64url'), iat: expect.any(Number), exp: (claims.iat ?? 0) + 900 },
    })
    expect((await as(access_token).get('/v1/profile')).body).toMatchObject({ gotrue_id: claims.sub })
  })

  it('accepts its two names in any order, and openid with other scopes or alone', async () => {
    const page = await stranger().get(authorizePath(app, { ...QUERY, scope: 'openid' }))
    expect(page.body).toContain('your identity')
    const scoped = inFragment(await approve({ response_type: 'token id_token', scope: 'openid projects:read' }))
    expect(scoped).toMatchObject({ scope: 'projects:read', id_token: expect.any(String) })
    const { access_token, scope } = inFragment(await approve({ scope: 'openid' }))
    expect(scope).toBe('')
    expect((await as(access_token).get('/v1/profile')).status).toBe(200)
    expect((await as(access_token).get('/v1/organizations')).status).toBe(403)
  })

  it.each([
    ['nonce', 'invalid_request', { nonce: undefined }],
    ['nonce', 'invalid_request', { nonce: '' }],
    ['response_mode', 'invalid_request', { response_mode: 'query' }],
    ['projects:read', 'invalid_scope', { scope: 'openid nonsense' }],
    ['projects:read', 'invalid_scope', { scope: ' ' }],
    ['projects:read', 'invalid_scope', { scope: 'openid', response_type: 'token' }],
    ['response_type', 'unsupported_response_type', { response_type: 'id_token' }],
  ])('refuses a wrong %s (%s, %j)', async (what, error, query) => {
    for (const reply of [await stranger().get(authorizePath(app, { ...QUERY, ...query })), await approve(query)]) {
      const { error_description, ...sent } = inFragment(reply)
      expect(sent).toEqual({ error })
      expect(error_description).toContain(what)
    }
  })

  it('is only for applications that are registered for it', async () => {
    const usual = await registerApp(organization)
    expect(inFragment(await stranger().get(authorizePath(usual, QUERY)))).toMatchObject({
      error: 'unauthorized_client',
    })
  })
})

describe('the key of ID tokens', () => {
  it('is published without its private part, and stored sealed', async () => {
    const { id_token = '' } = inFragment(await approve())
    const { body, headers } = await stranger().get('/.well-known/jwks.json')
    expect(headers.get('cache-control')).toBe('public, max-age=300')
    expect(headers.get('x-ratelimit-limit')).toBe('120')
    for (const jwk of body.keys) {
      expect(jwk).toMatchObject({ kty: 'RSA', alg: 'RS256', use: 'sig', kid: expect.any(String) })
      expect(jwk).not.toHaveProperty('d')
    }
    const { kid } = JSON.parse(Buffer.from(id_token.split('.')[0] ?? '', 'base64url').toString())
    const [row] = await control.select().from(oauthSigningKeys).orderBy(desc(oauthSigningKeys.createdAt))
    expect(row).toMatchObject({ id: kid, sealedPrivateJwk: expect.stringMatching(/^\w+\.[\w-]+$/) })
  })

  it('is replaced by the operator', async () => {
    const before = inFragment(await approve()).id_token
    await verified(before)
    expect(await admin('oauth-keys', 'rotate')).toContain('new key')
    const after = inFragment(await approve({ nonce: randomUUID() })).id_token
    await verified(after)
    await expect(verified(before)).rejects.toThrow('no applicable key')
  })
})

it('the discovery document has what an OpenID client needs', async () => {
  expect(await discovery()).toMatchObject({
    response_types_supported: ['code', 'token', 'id_token token'],
    subject_types_supported: ['public'],
    id_token_signing_alg_values_supported: ['RS256'],
    scopes_supported: expect.arrayContaining(['openid', 'projects:read']),
  })
  const { body } = await stranger().get('/.well-known/oauth-authorization-server')
  expect(body.scopes_supported).not.toContain('openid')
})
