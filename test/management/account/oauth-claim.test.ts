import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { describe, expect, it } from 'vitest'
import { auditLog, oauthGrants, projectClaimTokens, projects } from '../../../src/model/tables/index.ts'
import {
  addMember,
  as,
  baseUrl,
  type Caller,
  control,
  newMember,
  newOrganization,
  newUser,
  type Reply,
  tokenOf,
} from '../../support/api.ts'
import { claimTokenPath, NO_CLAIM } from '../../support/claims.ts'
import { newForeignKey, newIssuer } from '../../support/issuer.ts'
import { newDrain } from '../../support/log-drains.ts'
import {
  answer,
  authorizePath,
  byCode,
  newProof,
  newTokens,
  REDIRECT_URI,
  registerApp,
  SCOPES,
  sentTo,
  stranger,
  type TestApp,
} from '../../support/oauth.ts'
import { insertProject, newEndpoint, placeOf } from '../../support/webhooks.ts'

const DRAIN = { url: 'http://127.0.0.1:9/' }

type Query = Record<string, string | undefined>

/** Returns the path where the user who gives the project away begins. */
const beginPath = (app: TestApp, ref: string | undefined, query: Query = {}) =>
  authorizePath(app, { project_ref: ref, ...query }).replace('/authorize?', '/authorize/project-claim?')

/** Returns the page of the public address to which the browser is redirected, at the local address that tests use. */
function pageOf({ status, headers }: Reply): string {
  if (status !== 303) throw new Error(`not sent to a page: ${status}`)
  const { origin, pathname, search } = new URL(headers.get('location') ?? '')
  expect(origin).toBe('https://api.example.com')
  return pathname + search
}

async function newPage(by: Caller, app: TestApp, ref: string, query: Query = {}) {
  return pageOf(await by.get(beginPath(app, ref, query)))
}

/** Makes a builder with a project and an application, and a user who is to receive the project. */
async function newCase(fields: Parameters<typeof insertProject>[1] = {}) {
  const [builder, user] = [await newOrganization(), await newOrganization()]
  return { builder, user, app: await registerApp(builder, { name: 'Tool' }), ref: await insertProject(builder, fields) }
}

const organizationOf = async (ref: string) =>
  (await control.select({ id: projects.organizationId }).from(projects).where(eq(projects.ref, ref)))[0]?.id
const grantsOf = (app: TestApp) => control.$count(oauthGrants, eq(oauthGrants.appId, app.id))
const statusAndAlert = ({ status, body }: Reply) => [status, /role="alert">([^<]*)</.exec(body)?.[1]]

describe('a project that is claimed on the page', () => {
  it('goes to the user together with the approval of the application, which acts for the user there', async () => {
    const { builder, user, app, ref } = await newCase({ name: '<b>Shop</b>' })
    const { verifier, challenge } = newProof()
    const query = { state: 'a b&c', code_challenge: challenge, code_challenge_method: 'S256' }
    const begun = await builder.owner.get(beginPath(app, ref, query))
    expect(begun.headers.get('cache-control')).toBe('no-store')
    const path = pageOf(begun)

    const page = await stranger().get(path)
    expect([page.status, page.headers.get('content-type')]).toEqual([200, 'text/html; charset=UTF-8'])
    for (const text of ['Claim &lt;b&gt;Shop&lt;/b&gt;?', `<code>${ref}</code>`, builder.slug, ...SCOPES, 'Tool'])
      expect(page.body).toContain(text)
    expect(page.body).not.toMatch(/<b>|undefined|null|>\s*false|\[object/)
    expect(Object.fromEntries(page.headers)).toMatchObject({
      ...{ 'cache-control': 'no-store', 'referrer-policy': 'same-origin', 'x-frame-options': 'DENY' },
      'content-security-policy': expect.not.stringContaining('form-action'),
    })

    const approved = await answer(app, user.owner.token, { path })
    const { url, code, state } = sentTo(approved)
    expect([url.href.startsWith(`${REDIRECT_URI}&code=`), state]).toEqual([true, 'a b&c'])
    expect((await user.owner.get(`/v1/projects/${ref}`)).body).toMatchObject({ organization_slug: user.slug })
    expect((await builder.owner.get(`/v1/projects/${ref}`)).status).toBe(404)

    const { body } = await byCode(app, code, { code_verifier: verifier })
    const tool = as(body.access_token)
    expect((await tool.get(`/v1/projects/${ref}`)).status).toBe(200)
    expect((await tool.get('/v1/organizations')).body).toMatchObject([{ slug: user.slug }])
    const rows = await control.select().from(auditLog).where(eq(auditLog.organizationId, user.id))
    expect(rows.map(({ action, actorUserId }) => [action, actorUserId]).sort()).toEqual([
      ['oauth_app.approve', user.userId],
      ['oauth_app.exchange', user.userId],
      ['project.claim', user.userId],
    ])
    for (const reply of [await stranger().get(path), await answer(app, user.owner.token, { path })])
      expect(reply).toMatchObject({ status: 404, body: { error: 'invalid_request', ...NO_CLAIM } })
  })

  it('is shown with all that continues to reach it: issuers of tokens, webhook endpoints and log drains', async () => {
    const { builder, app, ref } = await newCase()
    const branch = await insertProject(builder, { parentRef: ref })
    const path = await newPage(builder.owner, app, ref)
    expect((await stranger().get(path)).body).not.toMatch(/issuer|webhook endpoint|log drain/)
    const { issuer } = await newIssuer([await newForeignKey()])
    const trusted = { oidc_issuer_url: issuer }
    await builder.owner.post(`/v1/projects/${branch}/config/auth/third-party-auth`, trusted)
    await newEndpoint(placeOf(builder, ref))
    await newDrain({ caller: builder.owner, path: `/v2/projects/${ref}/analytics/log-drains` }, 'webhook', DRAIN)
    const { body } = await stranger().get(path)
    for (const text of [`that they contain: ${issuer}.`, '1 webhook endpoint will', '1 log drain will'])
      expect(body).toContain(text)
  })

  it('goes to the chosen organization, among those to which the user may add projects', async () => {
    const { builder, user, app, ref } = await newCase()
    const [other, mere] = [await newOrganization(), await newOrganization()]
    await addMember(other.id, user.userId, 'administrator')
    await addMember(mere.id, user.userId, 'developer')
    const path = await newPage(builder.owner, app, ref)
    const asked = await answer(app, user.owner.token, { path })
    expect(asked.status).toBe(422)
    expect(asked.body).toContain(`<option value="${other.slug}">`)
    expect(asked.body).toContain(`<option value="${user.slug}">`)
    expect(asked.body).not.toContain(mere.slug)
    const refused = await answer(app, user.owner.token, { path, form: { organization: mere.slug } })
    expect(statusAndAlert(refused)).toEqual([
      422,
      `You are not owner or administrator of the organization ${mere.slug}.`,
    ])
    expect([await grantsOf(app), await organizationOf(ref)]).toEqual([0, builder.id])
    const chosen = await answer(app, user.owner.token, { path, form: { organization: other.slug } })
    expect(sentTo(chosen).code).toMatch(/^[0-9a-f]{40}$/)
    expect(await organizationOf(ref)).toBe(other.id)
  })

  it('stays where it is, without an approval, while something prevents the transfer', async () => {
    const { builder, user, app, ref } = await newCase({ name: 'Same' })
    const taken = await insertProject(user, { name: 'Same' })
    const path = await newPage(builder.owner, app, ref)
    expect(statusAndAlert(await answer(app, user.owner.token, { path }))).toEqual([
      422,
      `The project cannot be claimed: ${user.slug} has a project of this name.`,
    ])
    expect([await grantsOf(app), await organizationOf(ref)]).toEqual([0, builder.id])
    await control.update(projects).set({ name: 'Other' }).where(eq(projects.ref, taken))
    expect((await answer(app, user.owner.token, { path })).status).toBe(303)
    expect(await organizationOf(ref)).toBe(user.id)
  })

  it('requires a personal token with the requested scopes and the right to write organizations', async () => {
    const { builder, user, app, ref } = await newCase()
    const path = await newPage(builder.owner, app, ref)
    const { access_token } = await newTokens(app, user)
    const narrow = await tokenOf(user.userId, { scopes: SCOPES })
    const lone = await tokenOf(await newUser())
    const answered = async (token: string | undefined) => statusAndAlert(await answer(app, token, { path }))
    for (const token of [undefined, 'nonsense', access_token])
      expect(await answered(token)).toEqual([422, 'This is not a valid personal access token.'])
    const lacks = 'Your token lacks scopes that the application requests: organizations:write.'
    expect(await answered(narrow.token)).toEqual([422, lacks])
    expect(await answered(lone.token)).toEqual([422, 'You are not owner or administrator of any organization.'])
    expect(await organizationOf(ref)).toBe(builder.id)
  })

  it("stays the builder's if the user refuses, and may be claimed later", async () => {
    const { builder, user, app, ref } = await newCase()
    const path = await newPage(builder.owner, app, ref, { state: 's' })
    const denied = await answer(app, undefined, { path, form: { decision: 'deny' } })
    expect(sentTo(denied)).toMatchObject({ error: 'access_denied', state: 's' })
    expect(await organizationOf(ref)).toBe(builder.id)
    expect((await answer(app, user.owner.token, { path })).status).toBe(303)
  })

  it('goes to one of two users who approve at the same moment, and the other approves nothing', async () => {
    const { builder, user, app, ref } = await newCase()
    const other = await newOrganization()
    const path = await newPage(builder.owner, app, ref)
    const replies = await Promise.all([user, other].map(({ owner }) => answer(app, owner.token, { path })))
    expect(replies.map(({ status }) => status).sort()).toEqual([303, 404])
    const winner = replies[0]?.status === 303 ? user : other
    expect(await organizationOf(ref)).toBe(winner.id)
    const grants = await control.select().from(oauthGrants).where(eq(oauthGrants.appId, app.id))
    expect(grants.map(({ organizationId }) => organizationId)).toEqual([winner.id])
  })

  it('accepts only its own small form, with each field once', async () => {
    const { builder, user, app, ref } = await newCase()
    const path = await newPage(builder.owner, app, ref)
    const from = (headers: Record<string, string>) => answer(app, user.owner.token, { path, headers })
    expect((await from({ 'sec-fetch-site': 'cross-site' })).status).toBe(403)
    expect((await from({ origin: 'https://evil.example' })).status).toBe(403)
    const post = (raw: BodyInit, type = 'application/x-www-form-urlencoded') =>
      stranger().send('POST', path, { raw, headers: { 'content-type': type } })
    expect((await post('{}', 'application/json')).status).toBe(415)
    expect((await post(`token=${'x'.repeat(16 * 1024)}`)).status).toBe(413)
    expect((await post(new Uint8Array([0xff, 0xfe]))).status).toBe(400)
    expect((await post('decision=maybe')).body.message).toContain('body.decision')
    expect(await organizationOf(ref)).toBe(builder.id)
  })
})

describe('GET /v1/oauth/authorize/project-claim', () => {
  it('makes a claim token that replaces the one before, for owners and administrators of the organization', async () => {
    const { builder, app, ref } = await newCase()
    const first = await newPage(builder.owner, app, ref)
    const administrator = await newMember(builder, 'administrator')
    const second = await newPage(administrator, app, ref)
    expect((await stranger().get(first)).body).toMatchObject(NO_CLAIM)
    expect((await stranger().get(second)).status).toBe(200)
    expect((await builder.owner.get(claimTokenPath(ref))).status).toBe(200)
    const [developer, ofProject] = [await newMember(builder, 'developer'), await newMember(builder, 'owner', ref)]
    const narrow = await newMember(builder, 'owner', undefined, { scopes: ['projects:write'] })
    for (const caller of [developer, ofProject, narrow])
      expect((await caller.get(beginPath(app, ref))).status).toBe(403)
    const outsider = await newOrganization()
    expect((await outsider.owner.get(beginPath(app, ref))).status).toBe(404)
    const ending = await insertProject(builder, { status: 'GOING_DOWN' })
    expect((await builder.owner.get(beginPath(app, ending))).status).toBe(409)
    expect((await stranger().get(beginPath(app, ref))).status).toBe(401)
    expect((await stranger().get(second)).status).toBe(200)
  })

  it('is refused for a branch without its project', async () => {
    const { builder, app, ref } = await newCase()
    const branch = await insertProject(builder, { parentRef: ref })
    expect((await builder.owner.get(beginPath(app, branch))).status).toBe(422)
  })

  it.each([
    ['project_ref', undefined, {}],
    ['project_ref', 'no ref', {}],
    ['client_id', 'abcdefghijklmnopqrst', { client_id: 'x' }],
  ])('names a missing or wrong %s (%s)', async (name, ref, query) => {
    const { builder, app } = await newCase()
    const { status, body } = await builder.owner.get(beginPath(app, ref, query))
    expect([status, body.message]).toEqual([400, expect.stringContaining(`query.${name}`)])
  })

  it.each([
    ['client_id', { client_id: randomUUID() }],
    ['redirect_uri', { redirect_uri: 'https://evil.example/' }],
  ])('makes no token for an unknown %s, and its page shows nothing of the project', async (name, query) => {
    const { builder, user, app, ref } = await newCase()
    const { token } = (await builder.owner.post(claimTokenPath(ref))).body
    const path = authorizePath(app, query).replace('/authorize?', `/authorize/project-claim/${token}?`)
    for (const reply of [
      await builder.owner.get(beginPath(app, ref, query)),
      await stranger().get(path),
      await answer(app, user.owner.token, { path }),
    ]) {
      expect([reply.status, reply.headers.get('location')]).toEqual([400, null])
      expect(reply.body.message).toContain(`query.${name}`)
      expect(reply.body.message).not.toContain(ref)
    }
    const [kept] = await control.select().from(projectClaimTokens).where(eq(projectClaimTokens.projectRef, ref))
    expect(kept?.alias.slice(-4)).toBe(token.slice(-4))
    expect(await organizationOf(ref)).toBe(builder.id)
  })

  it.each([
    ['invalid_request', { response_type: undefined }],
    ['unsupported_response_type', { response_type: 'token id' }],
    ['invalid_request', { response_mode: 'web_message' }],
    ['invalid_request', { code_challenge: 'short', code_challenge_method: 'S256' }],
    ['invalid_scope', { scope: 'projects:write' }],
    ['invalid_target', { resource: 'https://other.example/' }],
    ['invalid_request', { organization_slug: 'no slug' }],
  ])('reports %s to the application, makes no token and transfers no project (%j)', async (error, fields) => {
    const { builder, user, app, ref } = await newCase()
    const query = { state: 's', ...fields }
    const errorOf = (reply: Reply) => {
      const { url, ...sent } = sentTo(reply)
      return { ...Object.fromEntries(new URLSearchParams(url.hash.slice(1))), ...sent }
    }
    expect(errorOf(await builder.owner.get(beginPath(app, ref, query)))).toMatchObject({ error, state: 's' })
    expect((await builder.owner.get(claimTokenPath(ref))).status).toBe(404)
    const { token } = (await builder.owner.post(claimTokenPath(ref))).body
    const path = authorizePath(app, query).replace('/authorize?', `/authorize/project-claim/${token}?`)
    expect(errorOf(await stranger().get(path))).toMatchObject({ error, state: 's' })
    expect(errorOf(await answer(app, user.owner.token, { path }))).toMatchObject({ error, state: 's' })
    expect([await grantsOf(app), await organizationOf(ref)]).toEqual([0, builder.id])
  })

  it('requires a challenge from an application without a secret, and uses only the named organization', async () => {
    const { builder, user, ref } = await newCase()
    const open = await registerApp(builder, { isPublic: true })
    const reply = await builder.owner.get(beginPath(open, ref))
    expect(sentTo(reply).error_description).toContain('code_challenge is missing')
    const { verifier, challenge } = newProof()
    const query = { code_challenge: challenge, code_challenge_method: 'S256', organization_slug: user.slug }
    const other = await newOrganization()
    await addMember(other.id, user.userId, 'owner')
    const path = await newPage(builder.owner, open, ref, { ...query, scope: 'projects:read' })
    expect((await stranger().get(path)).body).toContain(`<strong>${user.slug}</strong>`)
    const { code } = sentTo(await answer(open, user.owner.token, { path, form: { organization: other.slug } }))
    expect(await organizationOf(ref)).toBe(user.id)
    expect((await byCode(open, code, { code_verifier: verifier })).body.scope).toBe('projects:read')
  })
})

it('supabase-management-js starts the claim of a project', async () => {
  const { builder, user, app, ref } = await newCase()
  const api = new SupabaseManagementAPI({ accessToken: builder.owner.token ?? '', baseUrl })
  const asked = { project_ref: ref, client_id: app.id, response_type: 'code', redirect_uri: REDIRECT_URI } as const
  const { status, headers } = await api.oauthAuthorizeProjectClaim(asked, { redirect: 'manual' })
  const path = pageOf({ status, headers, body: undefined })
  const { code } = sentTo(await answer(app, user.owner.token, { path }))
  const { data } = await api.exchangeOauthToken({
    ...{ grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI, client_id: app.id },
    ...(app.secret && { client_secret: app.secret }),
  })
  const theirs = new SupabaseManagementAPI({ accessToken: data.access_token, baseUrl })
  expect((await theirs.listAllProjects()).data).toMatchObject([{ id: ref }])
  await expect(api.oauthAuthorizeProjectClaim(asked)).rejects.toThrow(/Project not found/)
  expect(await control.$count(projectClaimTokens, eq(projectClaimTokens.projectRef, ref))).toBe(0)
})
