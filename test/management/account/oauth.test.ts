import { randomUUID } from 'node:crypto'
import { desc, eq } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { describe, expect, it, vi } from 'vitest'
import {
  accessTokens,
  auditLog,
  heartbeats,
  memberRoles,
  oauthGrants,
  temporaryLogins,
} from '../../../src/model/tables/index.ts'
import {
  as,
  baseUrl,
  control,
  newMember,
  newOrganization,
  type Reply,
  tick,
  tokenOf,
  workerLogs,
} from '../../support/api.ts'
import {
  answer,
  authorizePath,
  byCode,
  byRefresh,
  exchange,
  newCode,
  newProof,
  newTokens,
  REDIRECT_URI,
  registerApp,
  revoke,
  SCOPES,
  sentTo,
  stranger,
} from '../../support/oauth.ts'
import { newProject } from '../../support/projects.ts'

const MINUTE_MS = 60_000
const HOUR_MS = 60 * MINUTE_MS
const DAY_MS = 24 * HOUR_MS

const later = (ms: number) => new Date(Date.now() + ms)
const profileOf = async (token: string, at = new Date()) => (await as(token).at(at).get('/v1/profile')).status

/** Returns a time at which no isolate has a token cached any more. */
const afterCaches = () => later(11_000)

async function auditOf({ id }: { id: string }) {
  const where = eq(auditLog.organizationId, id)
  const rows = await control.select().from(auditLog).where(where).orderBy(desc(auditLog.createdAt))
  return rows
    .filter(({ action }) => action.startsWith('oauth_app.'))
    .map(({ action, actorUserId, actorAppId, detail }) => ({ action, actorUserId, actorAppId, detail }))
}

const ISSUED = {
  access_token: expect.stringMatching(/^sbp_oauth_[0-9a-f]{40}$/),
  refresh_token: expect.stringMatching(/^sbr_[0-9a-f]{80}$/),
  expires_in: 3600,
  token_type: 'Bearer',
  scope: SCOPES.join(' '),
  project_refs: null,
}

describe('an application', () => {
  it('is approved on a page, acts for the user within its scopes, refreshes its tokens and is revoked', async () => {
    const publisher = await newOrganization()
    const organization = await newOrganization()
    const { slug, owner, userId } = organization
    const other = await owner.post('/v1/organizations', { name: 'Other' })
    const ref = await newProject(organization)
    const app = await registerApp(publisher, { name: '<b>Tool</b> & more' })
    const { verifier, challenge } = newProof()
    const query = {
      ...{ state: 'a b&c', code_challenge: challenge, code_challenge_method: 'S256', organization_slug: slug },
      resource: 'https://api.example.com/mcp',
    }

    const page = await stranger().get(authorizePath(app, query))
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=UTF-8'])
    expect(page.body).toContain('Authorize &lt;b&gt;Tool&lt;/b&gt; &amp; more?')
    expect(page.body).toContain(`<strong>${slug}</strong>`)
    for (const scope of SCOPES) expect(page.body).toContain(`<code>${scope}</code>`)
    expect(page.body).not.toMatch(/<b>|undefined|null|>\s*false/)

    const approved = await answer(app, owner.token, { query })
    const { url, code, state } = sentTo(approved)
    expect(approved.headers.get('cache-control')).toBe('no-store')
    expect(url.href.startsWith(`${REDIRECT_URI}&code=`)).toBe(true)
    expect([state, code]).toEqual(['a b&c', expect.stringMatching(/^[0-9a-f]{40}$/)])

    const exchanged = await byCode(app, code, { code_verifier: verifier })
    expect(exchanged).toMatchObject({ status: 200, body: ISSUED })
    expect(Object.keys(exchanged.body).sort()).toEqual(Object.keys(ISSUED).sort())
    expect(exchanged.headers.get('cache-control')).toBe('no-store')

    const tool = as(exchanged.body.access_token)
    expect((await tool.get('/v1/profile')).body).toMatchObject({ gotrue_id: userId })
    expect((await tool.get(`/v1/projects/${ref}`)).status).toBe(200)
    expect(await tool.patch(`/v1/projects/${ref}`, { name: 'x' })).toMatchObject({
      status: 403,
      body: { message: 'Forbidden action: the access token lacks the scope projects:write' },
    })
    expect((await tool.get('/v1/organizations')).body).toEqual([expect.objectContaining({ slug })])
    expect((await tool.get(`/v1/organizations/${other.body.slug}`)).status).toBe(404)
    expect((await tool.get(`/v1/organizations/${publisher.slug}`)).status).toBe(404)

    const refreshed = await byRefresh(app, exchanged.body.refresh_token, { scope: 'projects:read' })
    expect(refreshed).toMatchObject({ status: 200, body: { ...ISSUED, scope: 'projects:read' } })
    const narrow = as(refreshed.body.access_token)
    expect((await narrow.get(`/v1/projects/${ref}`)).status).toBe(200)
    expect((await narrow.get(`/v1/organizations/${slug}`)).status).toBe(403)
    // A scope that was left out once may be requested again (RFC 6749, 6).
    const again = await byRefresh(app, refreshed.body.refresh_token)
    expect(again.body).toMatchObject(ISSUED)

    expect(await revoke(app, again.body.refresh_token)).toMatchObject({ status: 204, body: '' })
    const tokens = [exchanged, refreshed, again].map(({ body }) => body.access_token)
    expect(await Promise.all(tokens.map((token) => profileOf(token, afterCaches())))).toEqual([401, 401, 401])
    expect(await byRefresh(app, again.body.refresh_token)).toMatchObject({
      status: 400,
      body: { error: 'invalid_grant' },
    })
    const detail = { app: app.id, scopes: SCOPES }
    expect(await auditOf(organization)).toEqual([
      {
        ...{ action: 'oauth_app.revoke', actorUserId: userId, actorAppId: app.id },
        detail: { app: app.id, user: userId, reason: 'requested' },
      },
      { action: 'oauth_app.exchange', actorUserId: userId, actorAppId: app.id, detail },
      { action: 'oauth_app.approve', actorUserId: userId, actorAppId: null, detail },
    ])
  })

  it('without a secret authenticates only by its verifier', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization, { isPublic: true })
    const { verifier, challenge } = newProof()
    const query = { code_challenge: challenge, code_challenge_method: 'sha256' }
    const code = await newCode(app, organization, { query })
    expect(await byCode(app, code, { code_verifier: newProof().verifier })).toMatchObject({
      status: 400,
      body: { error: 'invalid_grant', message: expect.stringContaining('code_verifier') },
    })
    const { body } = await byCode(app, code, { code_verifier: verifier })
    expect(body).toMatchObject(ISSUED)
    const { body: next } = await byRefresh(app, body.refresh_token)
    expect((await revoke(app, next.refresh_token)).status).toBe(204)
    expect(await profileOf(next.access_token)).toBe(401)
  })

  it('may use any port of a loopback address, and must match every other address exactly', async () => {
    const organization = await newOrganization()
    const redirectUris = ['http://127.0.0.1:1/cb', 'http://[::1]/cb', 'http://localhost:1/cb', 'com.example.app:/cb']
    const app = await registerApp(organization, { redirectUris: [...redirectUris, REDIRECT_URI] })
    const asked = async (redirect_uri: string) => (await stranger().get(authorizePath(app, { redirect_uri }))).status
    const taken = ['http://127.0.0.1:65535/cb', 'http://127.0.0.1/cb', 'http://[::1]:8080/cb', ...redirectUris]
    expect(await Promise.all(taken.map(asked))).toEqual(taken.map(() => 200))
    const refused = [
      ...[
        'http://localhost:2/cb',
        'http://127.0.0.1:1/cb/',
        'http://127.0.0.1:1/CB',
        'http://127.0.0.1:1@evil.example/cb',
      ],
      ...['http://127.0.0.1:65536/cb', 'http://[::1]:99999/cb'],
      ...['https://127.0.0.1:1/cb', 'http://127.0.0.2:1/cb', 'com.example.app:/cb?x', `${REDIRECT_URI}&x`],
      ...['https://app.example/callback', 'https://app.example:443/callback?from=us', `${REDIRECT_URI}#`],
    ]
    expect(await Promise.all(refused.map(asked))).toEqual(refused.map(() => 400))
    const query = { redirect_uri: 'http://127.0.0.1:5555/cb' }
    const code = await newCode(app, organization, { query })
    expect((await byCode(app, code, { redirect_uri: 'http://127.0.0.1:5556/cb' })).status).toBe(400)
    expect((await byCode(app, code, query)).status).toBe(200)
  })

  it('shares one quota among all its users in an organization', async () => {
    const [first, other] = [await newOrganization(), await newOrganization()]
    const second = { ...first, owner: await newMember(first, 'administrator') }
    const app = await registerApp(first)
    const at = new Date()
    const replies = []
    for (const organization of [first, second, other]) {
      const { access_token } = await newTokens(app, organization)
      replies.push(await as(access_token).at(at).get('/v1/organizations'))
    }
    expect(replies.map(({ headers }) => headers.get('x-ratelimit-remaining'))).toEqual(['119', '118', '119'])
    expect((await first.owner.at(at).get('/v1/organizations')).headers.get('x-ratelimit-remaining')).toBe('119')
  })

  it('that sends its secret has a quota of its own for tokens, whatever others send from its address', async () => {
    const organization = await newOrganization()
    const [app, open] = [await registerApp(organization), await registerApp(organization, { isPublic: true })]
    const tokens = await newTokens(app, organization)
    const by = as(undefined, { 'x-test-address': `test-${randomUUID()}` }).at(later(2 * MINUTE_MS))
    await Promise.all(Array.from({ length: 120 }, () => by.get('/v1/profile')))
    const left = ({ status, headers }: Reply) => [status, headers.get('x-ratelimit-remaining')]
    const next = await byRefresh(app, tokens.refresh_token, {}, by)
    expect(left(next)).toEqual([200, '119'])
    expect(left(await byRefresh(open, 'x', {}, by))).toEqual([429, '0'])
    expect(left(await exchange({}, by))).toEqual([429, '0'])
    expect(left(await by.post('/v1/oauth/token', {}))).toEqual([429, '0'])
    expect(left(await byRefresh(app, next.body.refresh_token, { client_secret: 'guess' }, by))).toEqual([401, '119'])
    const basic = { authorization: `Basic ${btoa(`${app.id}:${app.secret}`)}` }
    expect(left(await exchange({ grant_type: 'refresh_token' }, by, basic))).toEqual([400, '118'])
    const revoked = { client_id: app.id, client_secret: app.secret, refresh_token: next.body.refresh_token }
    expect(left(await by.post('/v1/oauth/revoke', revoked))).toEqual([204, '117'])
    const guesses = Array.from({ length: 120 }, () => byRefresh(app, 'x', { client_secret: 'guess' }, by))
    expect((await Promise.all(guesses)).filter(({ status }) => status === 429)).toHaveLength(1)
  })

  it('is not locked out by wrong secrets from its address, if its own was right before or it has none', async () => {
    const organization = await newOrganization()
    const [app, open] = [await registerApp(organization), await registerApp(organization, { isPublic: true })]
    const by = as(undefined, { 'x-test-address': `test-${randomUUID()}` }).at(later(2 * MINUTE_MS))
    await newTokens(app, organization)
    const guess = () => byRefresh(app, 'x', { client_secret: 'guess' }, by)
    await Promise.all(Array.from({ length: 120 }, guess))
    expect((await guess()).status).toBe(429)
    expect((await byRefresh(app, 'x', {}, by)).body).toMatchObject({ error: 'invalid_grant' })
    expect((await byRefresh(open, 'x', {}, by)).body).toMatchObject({ error: 'invalid_grant' })
  })

  it('has no access any more once its user has left the organization', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const { access_token, refresh_token } = await newTokens(app, organization)
    await control.delete(memberRoles).where(eq(memberRoles.organizationId, organization.id))
    expect((await as(access_token).get(`/v1/organizations/${organization.slug}`)).status).toBe(404)
    expect((await byRefresh(app, refresh_token)).body).toMatchObject({ error: 'invalid_grant' })
  })
})

describe('a code', () => {
  it('is valid for five minutes', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const start = Date.now()
    const at = (ms: number) => stranger().at(new Date(start + ms))
    const codes = [
      await newCode(app, organization, { by: at(0) }),
      await newCode(app, organization, { by: at(0) }),
    ] as const
    expect((await byCode(app, codes[0], {}, at(5 * MINUTE_MS - 1))).status).toBe(200)
    expect((await byCode(app, codes[1], {}, at(5 * MINUTE_MS))).body).toMatchObject({ error: 'invalid_grant' })
  })

  it('that is used again ends all tokens that it led to', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const code = await newCode(app, organization)
    const { body } = await byCode(app, code)
    const { body: next } = await byRefresh(app, body.refresh_token)
    expect(await byCode(app, code)).toMatchObject({ status: 400, body: { error: 'invalid_grant' } })
    expect(await profileOf(body.access_token)).toBe(401)
    expect(await profileOf(next.access_token)).toBe(401)
    expect((await byRefresh(app, next.refresh_token)).body).toMatchObject({ error: 'invalid_grant' })
    expect((await auditOf(organization))[0]).toMatchObject({ detail: { reason: 'code used twice' } })
  })

  it('is exchanged by one of several simultaneous requests', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const code = await newCode(app, organization)
    const replies = await Promise.all(Array.from({ length: 5 }, () => byCode(app, code)))
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 400, 400, 400, 400])
    const tokens = replies.flatMap(({ body }) => body.access_token ?? [])
    expect(await Promise.all(tokens.map((token: string) => profileOf(token)))).toEqual([401])
  })

  it('is refused for another application, and stays valid for its own', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const other = await registerApp(await newOrganization())
    const code = await newCode(app, organization)
    expect((await byCode(other, code)).body).toMatchObject({ error: 'invalid_grant' })
    const { body } = await byCode(app, code)
    expect((await byRefresh(other, body.refresh_token)).body).toMatchObject({ error: 'invalid_grant' })
    expect((await revoke(other, body.refresh_token)).status).toBe(204)
    expect((await byRefresh(app, body.refresh_token)).status).toBe(200)
  })

  it('requires the verifier of its challenge, and none if it has no challenge', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const { verifier, challenge } = newProof()
    const plain = await newCode(app, organization, { query: { code_challenge: verifier } })
    const hashed = await newCode(app, organization, {
      query: { code_challenge: challenge, code_challenge_method: 'S256' },
    })
    const none = await newCode(app, organization)
    const statuses = []
    for (const [code, code_verifier] of [
      ...[
        [plain, challenge],
        [plain, undefined],
        [hashed, challenge],
        [hashed, undefined],
        [none, verifier],
      ],
      ...[
        [plain, verifier],
        [hashed, verifier],
        [none, undefined],
      ],
    ] as [string, string | undefined][])
      statuses.push((await byCode(app, code, { code_verifier })).status)
    expect(statuses).toEqual([400, 400, 400, 400, 400, 200, 200, 200])
  })
})

describe('the tokens of an application', () => {
  it('end after an hour, and the refresh token after 60 days without a refresh', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const start = Date.now()
    const at = (ms: number) => stranger().at(new Date(start + ms))
    const { access_token, refresh_token } = await newTokens(app, organization, { by: at(0) })
    expect(await profileOf(access_token, new Date(start + HOUR_MS - 1))).toBe(200)
    expect(await profileOf(access_token, new Date(start + HOUR_MS))).toBe(401)
    const next = await byRefresh(app, refresh_token, {}, at(60 * DAY_MS - 1))
    expect(next.status).toBe(200)
    expect((await byRefresh(app, next.body.refresh_token, {}, at(120 * DAY_MS - 1))).body).toMatchObject({
      error: 'invalid_grant',
      error_description: expect.stringContaining('expired'),
    })
  })

  it('are issued again for ten seconds, with the same refresh token, when a refresh is retried', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const start = Date.now()
    const at = (ms: number) => stranger().at(new Date(start + ms))
    const { refresh_token } = await newTokens(app, organization, { by: at(0) })
    const replies = await Promise.all([1, 2, 3].map(() => byRefresh(app, refresh_token, {}, at(0))))
    replies.push(await byRefresh(app, refresh_token, {}, at(9_999)))
    expect(replies.map(({ body }) => body)).toEqual(Array(4).fill(ISSUED))
    const [next, ...others] = new Set(replies.map(({ body }) => body.refresh_token as string))
    expect([next === refresh_token, others]).toEqual([false, []])
    const tokens = replies.map(({ body }) => body.access_token)
    expect(await Promise.all(tokens.map((token) => profileOf(token)))).toEqual([200, 200, 200, 200])
    expect((await byRefresh(app, next ?? '', {}, at(HOUR_MS))).status).toBe(200)
    expect((await byRefresh(app, next ?? '', {}, at(HOUR_MS))).status).toBe(200)
  })

  it.each([
    ['again after ten seconds', 1, 10_000],
    ['again after the one that replaced it', 2, 1],
  ])('all end when a refresh token is used %s', async (_, refreshes, waitMs) => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const start = Date.now()
    const at = (ms: number) => stranger().at(new Date(start + ms))
    const issued = [await newTokens(app, organization, { by: at(0) })]
    for (let n = 0; n < refreshes; n++)
      issued.push((await byRefresh(app, issued.at(-1)?.refresh_token ?? '', {}, at(0))).body)
    const [first, last] = [issued[0]?.refresh_token ?? '', issued.at(-1)?.refresh_token ?? '']
    expect((await byRefresh(app, first, {}, at(waitMs))).body).toMatchObject({ error: 'invalid_grant' })
    expect((await byRefresh(app, last, {}, at(waitMs))).body).toMatchObject({ error: 'invalid_grant' })
    expect(await Promise.all(issued.map(({ access_token }) => profileOf(access_token)))).toEqual(issued.map(() => 401))
    expect((await auditOf(organization))[0]).toMatchObject({ detail: { reason: 'refresh token used twice' } })
  })

  it('end with everything that the user approved for the application in the organization, and nothing else', async () => {
    const [organization, elsewhere] = [await newOrganization(), await newOrganization()]
    const app = await registerApp(organization)
    const first = await newTokens(app, organization)
    const second = await newTokens(app, organization)
    const other = await newTokens(app, elsewhere)
    const stale = first.refresh_token
    const { body: next } = await byRefresh(app, stale)
    expect((await revoke(app, stale)).status).toBe(204)
    const dead = [first, second, next].map(({ access_token }) => access_token)
    expect(await Promise.all(dead.map((token) => profileOf(token)))).toEqual([401, 401, 401])
    expect(await profileOf(other.access_token)).toBe(200)
    expect((await revoke(app, next.refresh_token)).status).toBe(204)
    expect((await revoke(app, 'nonsense')).status).toBe(204)
  })

  it('live no longer and have no more scopes than the token that approved them', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const start = Date.now()
    const expiresAt = new Date(start + 10 * MINUTE_MS)
    const approver = await tokenOf(organization.userId, { expiresAt, scopes: SCOPES })
    const by = stranger().at(new Date(start))
    const tokens = await newTokens(app, { ...organization, owner: approver }, { by })
    expect(tokens).toMatchObject({ expires_in: 600 })
    expect(await profileOf(tokens.access_token, expiresAt)).toBe(401)
    const late = stranger().at(expiresAt)
    expect((await byRefresh(app, tokens.refresh_token, {}, late)).body).toMatchObject({ error: 'invalid_grant' })
    const weak = await tokenOf(organization.userId, { scopes: ['projects:read'] })
    const refused = await answer(app, weak.token, { query: { organization_slug: organization.slug } })
    expect([refused.status, refused.body]).toEqual([422, expect.stringContaining('organizations:read')])
    const revoked = await newTokens(app, organization)
    await control
      .update(accessTokens)
      .set({ revokedAt: new Date() })
      .where(eq(accessTokens.userId, organization.userId))
    expect((await byRefresh(app, revoked.refresh_token)).body).toMatchObject({ error: 'invalid_grant' })
  })

  it('end the database logins that were opened with them', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const app = await registerApp(organization, { scopes: ['database:write'] })
    const { access_token, refresh_token } = await newTokens(app, organization)
    const { status, body } = await as(access_token).post(`/v1/projects/${ref}/cli/login-role`, { read_only: true })
    expect(status).toBe(201)
    const logins = () => control.select().from(temporaryLogins).where(eq(temporaryLogins.role, body.role))
    await revoke(app, refresh_token)
    // Not every driver can list its roles: a login without a row would be missed.
    expect(await logins()).toMatchObject([{ tokenId: null }])
    await vi.waitFor(async () => {
      await tick()
      expect(await logins()).toEqual([])
    }, 60_000)
  })

  it('are stored as hashes and are in no log', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const { verifier, challenge } = newProof()
    const query = { code_challenge: challenge, code_challenge_method: 'S256', state: randomUUID() }
    const code = await newCode(app, organization, { query })
    const { body } = await byCode(app, code, { code_verifier: verifier })
    await byCode(app, code, { client_secret: 'guess' })
    await answer(app, 'sbp_no_token', { query })
    await revoke(app, body.refresh_token)
    const kept = await newTokens(app, organization)
    const secrets = [
      ...[code, verifier, query.state, app.secret, organization.owner.token],
      ...[body.access_token, body.refresh_token, kept.access_token, kept.refresh_token],
    ] as string[]
    const rows = [
      await control.select().from(oauthGrants).where(eq(oauthGrants.appId, app.id)),
      await control.select().from(accessTokens).where(eq(accessTokens.oauthAppId, app.id)),
      await auditOf(organization),
    ]
    const text = JSON.stringify(rows) + (await workerLogs()).join('\n')
    expect(rows[0]).toHaveLength(1)
    expect(secrets.filter((secret) => text.includes(secret))).toEqual([])
    expect(text).toContain('/v1/oauth/token')
  })

  it('are deleted after they have expired', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const [over, staying] = [await newTokens(app, organization), await newTokens(app, organization)]
    await newCode(app, organization, { by: stranger().at(later(-HOUR_MS)) })
    const ofApp = eq(accessTokens.oauthAppId, app.id)
    const rows = await control.select().from(accessTokens).where(ofApp).orderBy(accessTokens.createdAt)
    const [first] = rows
    await control
      .update(accessTokens)
      .set({ expiresAt: later(-1) })
      .where(eq(accessTokens.id, first?.id ?? ''))
    await control.delete(heartbeats).where(eq(heartbeats.name, 'oauth'))
    await tick()
    const left = async () => ({
      tokens: (await control.select().from(accessTokens).where(ofApp)).map(({ id }) => id),
      grants: await control.$count(oauthGrants, eq(oauthGrants.appId, app.id)),
    })
    await vi.waitFor(async () => expect(await left()).toEqual({ tokens: [rows[1]?.id], grants: 2 }), 60_000)
    expect([await profileOf(over.access_token), await profileOf(staying.access_token)]).toEqual([401, 200])
    expect((await byRefresh(app, over.refresh_token)).status).toBe(200)
  })
})

it('supabase-management-js exchanges a code, refreshes and revokes', async () => {
  const organization = await newOrganization()
  const app = await registerApp(organization)
  const client = { client_id: app.id, client_secret: app.secret ?? '' }
  const anonymous = new SupabaseManagementAPI({ accessToken: 'none', baseUrl })
  const page = { response_type: 'code', redirect_uri: REDIRECT_URI } as const
  expect((await anonymous.authorizeUser({ client_id: app.id, ...page })).status).toBe(200)
  const code = await newCode(app, organization)
  const { data } = await anonymous.exchangeOauthToken({
    ...{ grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI },
    ...client,
  })
  const api = new SupabaseManagementAPI({ accessToken: data.access_token, baseUrl })
  expect((await api.listAllOrganizations()).data).toMatchObject([{ slug: organization.slug }])
  const { refresh_token } = data
  const { data: next } = await api.exchangeOauthToken({ grant_type: 'refresh_token', refresh_token, ...client })
  expect((await api.revokeToken({ refresh_token: next.refresh_token, ...client })).status).toBe(204)
  await expect(
    api.exchangeOauthToken({ grant_type: 'refresh_token', refresh_token: next.refresh_token, ...client }),
  ).rejects.toThrow(/code or refresh token is not valid/)
})
