import { desc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { accessTokens, auditLog, oauthApps, oauthGrants } from '../../../src/model/tables/index.ts'
import {
  as,
  control,
  newOrganization,
  type Reply,
  type TestOrganization,
  tokenOf,
  workerLogs,
} from '../../support/api.ts'
import {
  answer,
  authorizePath,
  exchange,
  newProof,
  REDIRECT_URI,
  registerApp,
  SCOPES,
  stranger,
} from '../../support/oauth.ts'

const MINUTE_MS = 60_000

let organization: TestOrganization
let app: Awaited<ReturnType<typeof registerApp>>
beforeAll(async () => {
  organization = await newOrganization()
  app = await registerApp(organization, { isPublic: true, grantTypes: ['implicit'] })
})

/**
 * Returns the parameters that the browser takes to the application in the fragment, which must not be in the query.
 */
function inFragment({ status, headers }: Reply): Record<string, string> {
  expect(status).toBe(303)
  const { hash, href } = new URL(headers.get('location') ?? '')
  expect(href.split('#')[0]).toBe(REDIRECT_URI)
  return Object.fromEntries(new URLSearchParams(hash.slice(1)))
}

const QUERY = { response_type: 'token', state: 's' }
const approve = (query = {}, token = organization.owner.token) => {
  const asked = { ...QUERY, organization_slug: organization.slug, ...query }
  return answer(app, token, { query: asked })
}
const profileOf = async (token = '', at = new Date()) => (await as(token).at(at).get('/v1/profile')).status

describe('response_type=token', () => {
  it('answers in the fragment with a token for a quarter of an hour, and no refresh token', async () => {
    const page = await stranger().get(authorizePath(app, QUERY))
    expect(page.status).toBe(200)
    const approved = await approve()
    const { access_token = '', ...sent } = inFragment(approved)
    expect(access_token).toMatch(/^sbp_oauth_[0-9a-f]{40}$/)
    expect(sent).toEqual({ token_type: 'Bearer', expires_in: '900', scope: SCOPES.join(' '), state: 's' })
    expect(approved.headers.get('cache-control')).toBe('no-store')
    expect((await as(access_token).get('/v1/organizations')).body).toMatchObject([{ slug: organization.slug }])
    expect((await as(access_token).post('/v1/organizations', { name: 'x' })).status).toBe(403)
    expect(await workerLogs(access_token)).toEqual([])
    const start = Date.now()
    expect(await profileOf(access_token, new Date(start + 14 * MINUTE_MS))).toBe(200)
    expect(await profileOf(access_token, new Date(start + 16 * MINUTE_MS))).toBe(401)
    const [trace] = await control
      .select()
      .from(auditLog)
      .where(eq(auditLog.organizationId, organization.id))
      .orderBy(desc(auditLog.createdAt))
      .limit(1)
    const detail = { app: app.id, scopes: SCOPES, responseType: 'token' }
    expect(trace).toMatchObject({ action: 'oauth_app.approve', actorUserId: organization.userId, detail })
  })

  it('carries only the requested scopes, and is posted on request', async () => {
    expect(inFragment(await approve({ scope: 'projects:read' }))).toMatchObject({ scope: 'projects:read' })
    const { status, headers, body } = await approve({ response_mode: 'form_post' })
    expect([status, headers.get('location')]).toEqual([200, null])
    const token = /name="access_token" value="([^"]+)"/.exec(body)?.[1]
    expect(await profileOf(token)).toBe(200)
  })

  it('yields a token that ends with the token that approved it and with the application', async () => {
    const expiresAt = new Date(Date.now() + 5 * MINUTE_MS)
    const short = await tokenOf(organization.userId, { expiresAt })
    const { expires_in } = inFragment(await approve({}, short.token))
    expect(Number(expires_in)).toBeLessThanOrEqual(300)
    const once = await registerApp(organization, { isPublic: true, grantTypes: ['implicit'] })
    const { access_token } = inFragment(await answer(once, organization.owner.token, { query: QUERY }))
    await control.delete(oauthApps).where(eq(oauthApps.id, once.id))
    expect(await profileOf(access_token)).toBe(401)
  })

  it('leaves nothing after the token has expired', async () => {
    const { access_token } = inFragment(await approve())
    const [grant] = await control
      .select()
      .from(oauthGrants)
      .where(eq(oauthGrants.appId, app.id))
      .orderBy(desc(oauthGrants.createdAt))
      .limit(1)
    expect(grant).toMatchObject({ codeHash: null, refreshHash: null })
    expect(grant?.expiresAt.getTime()).toBeLessThanOrEqual(Date.now() + 15 * MINUTE_MS)
    await control.delete(oauthGrants).where(eq(oauthGrants.id, grant?.id ?? ''))
    expect(await control.$count(accessTokens, eq(accessTokens.oauthGrantId, grant?.id ?? ''))).toBe(0)
    expect(await profileOf(access_token)).toBe(401)
  })

  it('lets the user refuse', async () => {
    const denied = await answer(app, undefined, { query: QUERY, form: { decision: 'deny' } })
    expect(inFragment(denied)).toEqual({
      error: 'access_denied',
      error_description: 'the user denied the request',
      state: 's',
    })
  })

  const { challenge } = newProof()
  it.each([
    ['response_mode', 'invalid_request', { response_mode: 'query' }],
    ['response_mode', 'invalid_request', { response_mode: 'web_message' }],
    ['code_challenge', 'invalid_request', { code_challenge: challenge, code_challenge_method: 'S256' }],
    ['projects:read', 'invalid_scope', { scope: 'database:write' }],
  ])('refuses a wrong %s in the fragment, never in the query', async (what, error, query) => {
    for (const reply of [await stranger().get(authorizePath(app, { ...QUERY, ...query })), await approve(query)]) {
      const { error_description, ...sent } = inFragment(reply)
      expect(sent).toEqual({ error, state: 's' })
      expect(error_description).toContain(what)
    }
  })
})

describe('an application that is not registered for the implicit grant', () => {
  it('receives no token from the page, and no implicit grant at the token endpoint', async () => {
    const usual = await registerApp(organization)
    const query = { ...QUERY, organization_slug: organization.slug }
    for (const reply of [
      await stranger().get(authorizePath(usual, query)),
      await answer(usual, organization.owner.token, { query }),
    ])
      expect(inFragment(reply)).toMatchObject({
        error: 'unauthorized_client',
        error_description: expect.stringContaining('implicit'),
      })
    const tried = await exchange({ grant_type: 'implicit', client_id: app.id })
    expect(tried).toMatchObject({ status: 400, body: { error: 'unsupported_grant_type' } })
  })

  it('can be registered for it by either name, and changed', async () => {
    const path = `/v1/organizations/${organization.slug}/oauth/apps`
    const fields = { client_name: 'Page', redirect_uris: [REDIRECT_URI], scope: SCOPES.join(' ') }
    const all = ['authorization_code', 'refresh_token', 'implicit']
    const allowed = { grant_types: all, response_types: ['code', 'token', 'id_token token'] }
    const refused = { grant_types: all.slice(0, 2), response_types: ['code'] }
    const create = (more: object) => organization.owner.post(path, { ...fields, ...more })
    expect((await create({ grant_types: ['implicit'] })).body).toMatchObject(allowed)
    expect((await create({ response_types: ['token'] })).body).toMatchObject(allowed)
    const { body } = await create({ grant_types: ['authorization_code'], response_types: ['code'] })
    expect(body).toMatchObject(refused)
    const change = (grant_types: string[]) => organization.owner.patch(`${path}/${body.client_id}`, { grant_types })
    const tried = async () => {
      const changed = { id: body.client_id, secret: body.client_secret }
      return (await stranger().get(authorizePath(changed, QUERY))).status
    }
    expect([(await change(all)).body, await tried()]).toEqual([expect.objectContaining(allowed), 200])
    expect([(await change([])).body, await tried()]).toEqual([expect.objectContaining(refused), 303])
    expect(await change(['password'])).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('body.grant_types.0') },
    })
  })
})
