import { randomUUID } from 'node:crypto'
import { and, eq, inArray } from 'drizzle-orm'
import { importJWK, type JWTPayload, SignJWT } from 'jose'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import {
  accessTokens,
  assertionIssuers,
  auditLog,
  heartbeats,
  JWT_BEARER,
  memberRoles,
  oauthGrants,
  organizations,
  usedAssertions,
  users,
} from '../../../src/model/tables/index.ts'
import {
  as,
  type Caller,
  control,
  newMember,
  newOrganization,
  type Reply,
  setName,
  type TestOrganization,
  tick,
} from '../../support/api.ts'
import { type ForeignKey, newForeignKey, newIssuer } from '../../support/issuer.ts'
import {
  answer,
  exchange,
  newTokens,
  registerApp,
  revoke,
  SCOPES,
  stranger,
  type TestApp,
} from '../../support/oauth.ts'

const BASE_URL = 'https://api.example.com'
const MINUTE_MS = 60_000
const later = (ms: number) => new Date(Date.now() + ms)
const seconds = (ms = 0) => Math.floor(later(ms).getTime() / 1000)

let key: ForeignKey
beforeAll(async () => {
  key = await newForeignKey()
})

interface Signing {
  by?: ForeignKey
  header?: Record<string, unknown>
}

/** Signs an assertion as an identity provider does for a user and an application; `at` shifts its time. */
async function sign(claims: JWTPayload, { by = key, header = {} }: Signing = {}, at = 0) {
  const { alg } = by.privateJwk
  const usual = { aud: BASE_URL, jti: randomUUID(), iat: seconds(at), exp: seconds(at + 5 * MINUTE_MS) }
  return new SignJWT({ ...usual, ...claims })
    .setProtectedHeader({ alg, kid: by.kid, typ: 'oauth-id-jag+jwt', ...header })
    .sign(await importJWK(by.privateJwk, alg))
}

const present = (app: TestApp, assertion: string, fields = {}, by?: Caller) =>
  exchange(
    { grant_type: JWT_BEARER, client_id: app.id, client_secret: app.secret, assertion, ...fields },
    by ?? stranger(),
  )

const issuerPath = ({ slug }: TestOrganization) => `/v1/organizations/${slug}/oauth/issuer`

/** Makes an organization that trusts an issuer, whose owner has approved an application; `claims` are the owner's. */
async function newCase({ issuer = `https://${randomUUID()}.example`, approves = true } = {}) {
  const organization = await newOrganization()
  const app = await registerApp(organization, { grantTypes: [JWT_BEARER] })
  const jwks = { keys: [key.jwk] }
  expect((await organization.owner.put(issuerPath(organization), { issuer, jwks })).status).toBe(200)
  const tokens = approves
    ? await newTokens(app, organization, { query: { organization_slug: organization.slug } })
    : undefined
  const [user] = await control.select().from(users).where(eq(users.id, organization.userId))
  const claims = { iss: issuer, sub: 'at-the-issuer', email: user?.primaryEmail ?? '', client_id: app.id }
  return { organization, app, issuer, claims, refreshToken: tokens?.refresh_token ?? '' }
}

const expectRefused = ({ status, body }: Reply, error: string, text: string) => {
  expect([status, body.error]).toEqual([400, error])
  expect(body.error_description).toContain(text)
}

const profileOf = async (token: string, at = new Date()) => (await as(token).at(at).get('/v1/profile')).status

describe('an assertion of the issuer that an organization trusts', () => {
  it('yields an access token for the user, and no refresh token', async () => {
    const { organization, app, claims, issuer, refreshToken } = await newCase()
    const { status, body, headers } = await present(app, await sign(claims))
    expect([status, body]).toEqual([
      200,
      {
        access_token: expect.stringMatching(/^sbp_oauth_[0-9a-f]{40}$/),
        ...{ expires_in: 3600, token_type: 'Bearer', scope: SCOPES.join(' '), project_refs: null },
      },
    ])
    expect(headers.get('cache-control')).toBe('no-store')
    const caller = as(body.access_token)
    expect((await caller.get('/v1/profile')).body).toMatchObject({ gotrue_id: organization.userId })
    expect((await caller.get('/v1/organizations')).body).toMatchObject([{ slug: organization.slug }])
    expect(await profileOf(body.access_token, later(61 * MINUTE_MS))).toBe(401)
    const [trace] = await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.organizationId, organization.id), eq(auditLog.action, 'oauth_app.assert')))
    const detail = { app: app.id, scopes: SCOPES, issuer }
    expect(trace).toMatchObject({ actorUserId: organization.userId, actorAppId: app.id, detail })
    await revoke(app, refreshToken)
    expect(await profileOf(body.access_token, later(11_000))).toBe(401)
    expectRefused(await present(app, await sign(claims)), 'invalid_grant', 'approved')
  })

  it('names the user by an e-mail address in any case, or by the id here', async () => {
    const { organization, app, claims } = await newCase()
    const { email, ...others } = claims
    for (const one of [
      { email: email.toUpperCase(), email_verified: true },
      { sub: email },
      { sub: organization.userId },
      { aud: [BASE_URL] },
      { aud: `${BASE_URL}/v1/oauth/token` },
      { aud_tenant: organization.slug },
      { resource: `${BASE_URL}/mcp` },
    ]) {
      const whole = 'sub' in one ? { ...others, ...one } : { ...claims, ...one }
      expect((await present(app, await sign(whole))).status).toBe(200)
    }
  })

  it('may request fewer scopes than were approved, in its scope or in the request', async () => {
    const { app, claims } = await newCase()
    const scopeOf = async (scope: string | undefined, fields = {}) =>
      (await present(app, await sign({ ...claims, ...(scope !== undefined && { scope }) }), fields)).body.scope
    expect(await scopeOf('projects:read database:write')).toBe('projects:read')
    expect(await scopeOf(undefined, { scope: 'organizations:read' })).toBe('organizations:read')
    for (const [scope, fields] of [
      ['database:write', {}],
      ['', {}],
      ['projects:read', { scope: 'organizations:read' }],
      ['projects:read', { scope: 'database:write' }],
    ] as const)
      expectRefused(await present(app, await sign({ ...claims, scope }), fields), 'invalid_scope', 'scope')
  })

  it('is accepted once, also if several arrive at the same moment', async () => {
    const { app, claims } = await newCase()
    const assertion = await sign(claims)
    const replies = await Promise.all(Array.from({ length: 5 }, () => present(app, assertion)))
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(1)
    for (const reply of replies.filter(({ status }) => status !== 200))
      expectRefused(reply, 'invalid_grant', 'already used')
    expectRefused(await present(app, assertion), 'invalid_grant', 'already used')
  })

  it('can be presented again if it was refused', async () => {
    const { app, claims } = await newCase()
    const assertion = await sign(claims)
    expect((await present(app, assertion, { scope: 'database:write' })).status).toBe(400)
    expect((await present(app, assertion)).status).toBe(200)
  })

  it('is deleted after it has expired', async () => {
    const { app, claims } = await newCase()
    expect((await present(app, await sign(claims))).status).toBe(200)
    const ids = (await control.select().from(usedAssertions)).map(({ id }) => id)
    const mine = inArray(usedAssertions.id, ids)
    await control
      .update(usedAssertions)
      .set({ expiresAt: later(-1) })
      .where(mine)
    await control.delete(heartbeats).where(eq(heartbeats.name, 'oauth'))
    await tick()
    await vi.waitFor(async () => expect(await control.$count(usedAssertions, mine)).toBe(0), 60_000)
  })
})

describe('an assertion is refused', () => {
  let place: Awaited<ReturnType<typeof newCase>>
  beforeAll(async () => {
    place = await newCase()
  })

  it.each<[string, string, (claims: JWTPayload) => Promise<string> | string]>([
    ['that is not a JWT', 'not a JWT', () => 'nonsense'],
    ['without a JSON header', 'not a JWT', () => 'bm8.e30.x'],
    ['of another type', 'typ', (claims) => sign(claims, { header: { typ: 'JWT' } })],
    ['with a critical header', 'crit', (claims) => sign(claims, { header: { crit: ['b64'], b64: true } })],
    ['that has expired', 'expired', (claims) => sign({ ...claims, iat: seconds(-6 * MINUTE_MS), exp: seconds(-1000) })],
    ['of the future', 'future', (claims) => sign({ ...claims, iat: seconds(3 * MINUTE_MS) })],
    ['that holds later', 'future', (claims) => sign({ ...claims, nbf: seconds(3 * MINUTE_MS) })],
    ['that holds for long', 'exp', (claims) => sign({ ...claims, exp: seconds(11 * MINUTE_MS) })],
    ['for another server', 'aud', (claims) => sign({ ...claims, aud: 'https://other.example' })],
    ['for several servers', 'aud', (claims) => sign({ ...claims, aud: [BASE_URL, 'https://other.example'] })],
    ['for another application', 'client_id', (claims) => sign({ ...claims, client_id: randomUUID() })],
    ['with an address that is not verified', 'verified', (claims) => sign({ ...claims, email_verified: false })],
    ['of another issuer', 'trusts', (claims) => sign({ ...claims, iss: 'https://other.example' })],
    ['for nobody here', 'trusts', (claims) => sign({ ...claims, email: 'nobody@example.com' })],
    ['for another organization', 'trusts', (claims) => sign({ ...claims, aud_tenant: 'other' })],
    ['without a signature', 'trusts', async (claims) => (await sign(claims)).replace(/[^.]+$/, '')],
    ['of another key', 'trusts', async (claims) => sign(claims, { by: await newForeignKey('ES256', key.kid) })],
    ['of an unknown key', 'trusts', async (claims) => sign(claims, { by: await newForeignKey() })],
    [
      'that says it needs no signature',
      'trusts',
      async (claims) => {
        const [, payload] = (await sign(claims)).split('.')
        const header = Buffer.from(JSON.stringify({ alg: 'none', typ: 'oauth-id-jag+jwt' })).toString('base64url')
        return `${header}.${payload}.`
      },
    ],
  ])('%s', async (_, text, signed) => {
    expectRefused(await present(place.app, await signed(place.claims)), 'invalid_grant', text)
  })

  it.each(['iss', 'sub', 'aud', 'client_id', 'jti', 'exp', 'iat'])('without %s', async (claim) => {
    const signed = await sign({ ...place.claims, [claim]: undefined })
    expectRefused(await present(place.app, signed), 'invalid_grant', `claim ${claim}`)
  })

  it.each(['iss', 'sub', 'email', 'aud_tenant'])('with a NUL in %s', async (claim) => {
    const signed = await sign({ ...place.claims, [claim]: 'a\0' })
    expectRefused(await present(place.app, signed), 'invalid_grant', `claim ${claim}`)
  })

  it('for a resource of another server', async () => {
    const signed = await sign({ ...place.claims, resource: ['https://other.example/'] })
    expect((await present(place.app, signed)).body).toMatchObject({ error: 'invalid_target' })
  })

  it('of a user who never approved the application, or only for a token in a browser', async () => {
    const { app, claims, organization } = await newCase({ approves: false })
    expectRefused(await present(app, await sign(claims)), 'invalid_grant', 'approved')
    const page = await registerApp(organization, { grantTypes: [JWT_BEARER, 'implicit'] })
    await answer(page, organization.owner.token, { query: { response_type: 'token' } })
    expect(await control.$count(oauthGrants, eq(oauthGrants.appId, page.id))).toBe(1)
    expectRefused(await present(page, await sign({ ...claims, client_id: page.id })), 'invalid_grant', 'approved')
  })

  it('of a user who approved with a token that was revoked, or who has left', async () => {
    const { app, claims, organization } = await newCase()
    const ofToken = and(eq(accessTokens.userId, organization.userId), eq(accessTokens.name, 'test'))
    await control.update(accessTokens).set({ revokedAt: new Date() }).where(ofToken)
    expectRefused(await present(app, await sign(claims)), 'invalid_grant', 'approved')
    await control.update(accessTokens).set({ revokedAt: null }).where(ofToken)
    await control.delete(memberRoles).where(eq(memberRoles.organizationId, organization.id))
    expectRefused(await present(app, await sign(claims)), 'invalid_grant', 'ended')
  })

  it('from an application that is not registered for it, has the wrong secret or sends none', async () => {
    const { app, claims, organization } = place
    const usual = await registerApp(organization)
    const signed = await sign({ ...claims, client_id: usual.id })
    expectRefused(await present(usual, signed), 'unauthorized_client', JWT_BEARER)
    expect(await present(app, await sign(claims), { client_secret: 'wrong' })).toMatchObject({
      status: 401,
      body: { error: 'invalid_client' },
    })
    for (const assertion of ['', undefined])
      expectRefused(await present(app, 'x', { assertion }), 'invalid_request', 'body.assertion')
    expectRefused(await present(app, 'x'.repeat(8_193)), 'invalid_request', 'body.assertion')
  })

  it('for an organization whose plan does not cover it', async () => {
    const { app, claims, organization } = await newCase()
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, organization.id))
    expect(await present(app, await sign(claims))).toMatchObject({
      status: 402,
      body: { error: 'unauthorized_client', message: expect.stringContaining('Team') },
    })
    await control.update(organizations).set({ plan: 'team' }).where(eq(organizations.id, organization.id))
    expect((await present(app, await sign(claims))).status).toBe(200)
  })
})

describe('several organizations', () => {
  it('that trust the same issuer are distinguished by aud_tenant', async () => {
    const first = await newCase()
    const { app, claims, issuer } = first
    const { body } = await first.organization.owner.post('/v1/organizations', { name: 'Second' })
    const jwks = { keys: [key.jwk] }
    await first.organization.owner.put(`/v1/organizations/${body.slug}/oauth/issuer`, { issuer, jwks })
    await newTokens(app, { ...first.organization, slug: body.slug })
    expectRefused(await present(app, await sign(claims)), 'invalid_grant', 'aud_tenant')
    for (const slug of [body.slug, first.organization.slug]) {
      const named = await present(app, await sign({ ...claims, aud_tenant: slug }))
      expect((await as(named.body.access_token).get('/v1/organizations')).body).toMatchObject([{ slug }])
    }
  })

  it('cannot act for each other by naming the same issuer with keys of their own', async () => {
    const victim = await newCase()
    const attacker = await newOrganization()
    const own = await newForeignKey()
    const jwks = { keys: [own.jwk] }
    const { app, claims, issuer } = victim
    expect((await attacker.owner.put(issuerPath(attacker), { issuer, jwks })).status).toBe(200)
    expectRefused(await present(app, await sign(claims, { by: own })), 'invalid_grant', 'trusts')
    expect((await present(app, await sign(claims))).status).toBe(200)
  })
})

describe('the keys of an issuer', () => {
  it('are found by its discovery document, and fetched again for an unknown key', async () => {
    const published = await newIssuer([key])
    const { organization, app, claims } = await newCase()
    const set = await organization.owner.put(issuerPath(organization), { issuer: published.issuer })
    expect(set.body).toEqual({
      ...{ issuer: published.issuer, jwks: { keys: [key.jwk] } },
      ...{ fetched_at: expect.any(String), updated_at: expect.any(String) },
    })
    const next = await newForeignKey('RS256')
    published.publish([next])
    const tried = async (by: ForeignKey, ms: number) =>
      (await present(app, await sign({ ...claims, iss: published.issuer }, { by }, ms), {}, stranger().at(later(ms))))
        .status
    expect(await tried(next, 30_000)).toBe(400)
    expect(await tried(next, 61_000)).toBe(200)
    expect(await tried(key, 62_000)).toBe(400)
    expect((await organization.owner.get(issuerPath(organization))).body.jwks.keys).toMatchObject([{ kid: next.kid }])
  })

  it('are fetched again after half an hour, and trusted for a day if that fails', async () => {
    const published = await newIssuer([key])
    const { organization, app, claims } = await newCase()
    const { issuer, jwksUrl } = published
    await organization.owner.put(issuerPath(organization), { issuer, jwks_url: jwksUrl })
    published.answer((_request, response) => response.writeHead(500).end())
    const before = published.paths().length
    const tried = async (minutes: number) => {
      const ms = minutes * MINUTE_MS
      return (await present(app, await sign({ ...claims, iss: issuer }, {}, ms), {}, stranger().at(later(ms)))).status
    }
    expect([await tried(1), published.paths().length]).toEqual([200, before])
    expect([await tried(31), published.paths().length]).toEqual([200, before + 1])
    expect([await tried(31.5), published.paths().length]).toEqual([200, before + 1])
    expect([await tried(33), published.paths().length]).toEqual([200, before + 2])
    expect(await tried(25 * 60)).toBe(400)
  })

  it('are trusted no longer if the issuer is withdrawn while they are fetched', async () => {
    const published = await newIssuer([key])
    const { organization, app, claims } = await newCase()
    await organization.owner.put(issuerPath(organization), { issuer: published.issuer })
    published.answer(async ({ url = '' }, response) => {
      await organization.owner.delete(issuerPath(organization))
      response.end(JSON.stringify(published.documents.get(url)))
    })
    const ms = 31 * MINUTE_MS
    const signed = await sign({ ...claims, iss: published.issuer }, {}, ms)
    expectRefused(await present(app, signed, {}, stranger().at(later(ms))), 'invalid_grant', 'trusts')
    expect(published.paths()).toHaveLength(4)
  })

  it('are trusted no longer after they are withdrawn', async () => {
    const published = await newIssuer([key])
    const { organization, app, claims } = await newCase()
    await organization.owner.put(issuerPath(organization), { issuer: published.issuer })
    published.publish([])
    const ms = 31 * MINUTE_MS
    const signed = await sign({ ...claims, iss: published.issuer }, {}, ms)
    expectRefused(await present(app, signed, {}, stranger().at(later(ms))), 'invalid_grant', 'trusts')
  })
})

describe('/v1/organizations/{slug}/oauth/issuer', () => {
  it('is set, read, replaced and deleted by an owner', async () => {
    const { organization, app, claims, issuer } = await newCase()
    const { owner } = organization
    const path = issuerPath(organization)
    const jwks = { keys: [key.jwk] }
    expect((await owner.get(path)).body).toEqual({ issuer, jwks, updated_at: expect.any(String) })
    expect((await owner.put(path, { issuer: 'https://next.example', jwks })).body.issuer).toBe('https://next.example')
    expectRefused(await present(app, await sign(claims)), 'invalid_grant', 'trusts')
    expect(await control.$count(assertionIssuers, eq(assertionIssuers.organizationId, organization.id))).toBe(1)
    expect((await owner.delete(path)).status).toBe(204)
    for (const reply of [await owner.get(path), await owner.delete(path)])
      expect(reply).toMatchObject({ status: 404, body: { message: 'The organization has no assertion issuer' } })
    const actions = await control
      .select({ action: auditLog.action })
      .from(auditLog)
      .where(eq(auditLog.organizationId, organization.id))
    const changes = actions.map(({ action }) => action).filter((action) => action.startsWith('assertion_issuer.'))
    expect(changes.sort()).toEqual(['assertion_issuer.delete', 'assertion_issuer.set', 'assertion_issuer.set'])
  })

  it('is changed only by owners, because it grants access in their name, and not by their applications', async () => {
    const { organization } = await newCase()
    const path = issuerPath(organization)
    const body = { issuer: 'https://x.example', jwks: { keys: [key.jwk] } }
    const administrator = await newMember(organization, 'administrator')
    const app = await registerApp(organization, { scopes: ['organizations:read', 'organizations:write'] })
    const { access_token } = await newTokens(app, organization)
    for (const [caller, text] of [
      [administrator, 'administrator'],
      [as(access_token), 'applications'],
    ] as const) {
      for (const reply of [await caller.put(path, body), await caller.delete(path)])
        expect(reply).toMatchObject({ status: 403, body: { message: expect.stringContaining(text) } })
      expect((await caller.get(path)).status).toBe(200)
    }
  })

  it('requires the plan Team or Enterprise', async () => {
    const organization = await newOrganization()
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, organization.id))
    const reply = await organization.owner.put(issuerPath(organization), { issuer: 'x', jwks: { keys: [key.jwk] } })
    expect(reply).toMatchObject({ status: 402, body: { message: expect.stringContaining('Team') } })
  })

  it.each([
    ['body.issuer', () => ({})],
    ['body.issuer', () => ({ issuer: '' })],
    ['body.issuer', () => ({ issuer: 'http://issuer.example' })],
    ['body.issuer', () => ({ issuer: 'https://127.0.0.1' })],
    ['body.jwks_url', () => ({ issuer: 'x', jwks_url: 'http://issuer.example/jwks' })],
    ['body.jwks', () => ({ issuer: 'x', jwks: { keys: [] } })],
    ['body.jwks', () => ({ issuer: 'x', jwks: { keys: [key.privateJwk] } })],
    ['body.jwks', () => ({ issuer: 'x', jwks: { keys: [key.jwk] }, jwks_url: 'https://x.example' })],
  ])('refuses an invalid %s', async (field, bodyOf) => {
    const organization = await newOrganization()
    const reply = await organization.owner.put(issuerPath(organization), bodyOf())
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    expect((await organization.owner.get(issuerPath(organization))).status).toBe(404)
  })
})

it("can be set later if the issuer's name cannot be resolved at the moment", async () => {
  const organization = await newOrganization()
  const host = `${randomUUID()}.issuers.dev`
  await setName(host, { raw: { status: 502, body: '' } })
  const reply = await organization.owner.put(issuerPath(organization), { issuer: `https://${host}` })
  expect([reply.status, reply.headers.get('retry-after')]).toEqual([503, '1'])
})

it('refuses an application without a secret for assertions', async () => {
  const { owner, slug } = await newOrganization()
  const path = `/v1/organizations/${slug}/oauth/apps`
  const fields = { client_name: 'x', redirect_uris: ['https://app.example/'], scope: 'projects:read' }
  const isPublic = { ...fields, token_endpoint_auth_method: 'none' }
  const refused = { status: 400, body: { message: expect.stringContaining('body.grant_types') } }
  const grant_types = [JWT_BEARER]
  expect(await owner.post(path, { ...isPublic, grant_types })).toMatchObject(refused)
  const { client_id } = (await owner.post(path, isPublic)).body
  expect(await owner.patch(`${path}/${client_id}`, { grant_types })).toMatchObject(refused)
  expect((await owner.get(`${path}/${client_id}`)).body.grant_types).not.toContain(JWT_BEARER)
  const secret = await owner.post(path, { ...fields, grant_types })
  expect(secret.body.grant_types).toEqual(['authorization_code', 'refresh_token', JWT_BEARER])
})
