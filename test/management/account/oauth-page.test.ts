import { eq } from 'drizzle-orm'
import { describe, expect, it } from 'vitest'
import { oauthGrants } from '../../../src/model/tables/index.ts'
import {
  as,
  baseUrl,
  control,
  newOrganization,
  newUser,
  type Reply,
  type TestOrganization,
  tokenOf,
} from '../../support/api.ts'
import {
  answer,
  authorizePath,
  byCode,
  newTokens,
  REDIRECT_URI,
  registerApp,
  sentTo,
  stranger,
} from '../../support/oauth.ts'

describe('the page', () => {
  const asked = async (organization: TestOrganization, redirectUri = REDIRECT_URI) => {
    const app = await registerApp(organization, { redirectUris: [redirectUri] })
    return stranger().get(authorizePath(app, { redirect_uri: redirectUri }))
  }

  it('cannot be framed, runs no scripts, and names the target of the redirect', async () => {
    const organization = await newOrganization()
    const { headers, body } = await asked(organization)
    expect(Object.fromEntries(headers)).toMatchObject({
      ...{ 'cache-control': 'no-store', 'referrer-policy': 'same-origin', 'x-frame-options': 'DENY' },
      'x-content-type-options': 'nosniff',
    })
    const nonce = /<style nonce="([\w-]+)">/.exec(body)?.[1]
    expect(headers.get('content-security-policy')).toBe(
      `default-src 'none'; style-src 'nonce-${nonce}'; base-uri 'none'; frame-ancestors 'none'`,
    )
    const targetOf = async (uri: string) =>
      /sent to <code>([^<]*)<\/code>/.exec((await asked(organization, uri)).body)?.[1]
    expect(await targetOf(REDIRECT_URI)).toBe('https://app.example')
    expect(await targetOf('com.example.app:/cb')).toBe('com.example.app:')
    expect(await targetOf('http://127.0.0.1:99/cb')).toBe('http://127.0.0.1:99')
    expect(await targetOf('http://[::1]:99/cb')).toBe('http://[::1]:99')
  })

  it('lets the user refuse', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const reply = await answer(app, undefined, { query: { state: 's' }, form: { decision: 'deny' } })
    expect(sentTo(reply)).toMatchObject({
      error: 'access_denied',
      state: 's',
      error_description: 'the user denied the request',
    })
    expect(await control.$count(oauthGrants, eq(oauthGrants.appId, app.id))).toBe(0)
  })

  it("shows the form again for an invalid token, an application's token, or a token of a user outside the organization", async () => {
    const organization = await newOrganization()
    const { slug, owner } = organization
    const app = await registerApp(organization)
    const { access_token } = await newTokens(app, organization)
    const lone = await tokenOf(await newUser())
    const statusAndAlert = async (token: string | undefined, query = {}) => {
      const { status, body } = await answer(app, token, { query })
      return [status, /role="alert">([^<]*)</.exec(body)?.[1]]
    }
    const noToken = [422, 'This is not a valid personal access token.']
    for (const token of [undefined, '', 'nonsense', `sbp_${'0'.repeat(40)}`, access_token])
      expect(await statusAndAlert(token)).toEqual(noToken)
    expect(await statusAndAlert(lone.token)).toEqual([422, 'You are not in any organization.'])
    expect(await statusAndAlert(lone.token, { organization_slug: slug })).toEqual([
      422,
      `You are not in the organization ${slug}.`,
    ])
    expect((await answer(app, ` ${owner.token}\n`)).status).toBe(303)
  })

  it('lets a user of several organizations choose', async () => {
    const organization = await newOrganization()
    const { owner, slug } = organization
    const { body: other } = await owner.post('/v1/organizations', { name: 'A & B' })
    const app = await registerApp(organization)
    const reply = await answer(app, owner.token)
    expect(reply.status).toBe(422)
    expect(reply.body).toContain(`<option value="${other.slug}">A &amp; B (${other.slug})</option>`)
    expect(reply.body).toContain(`<option value="${slug}">`)
    const chosen = await answer(app, owner.token, { form: { organization: other.slug } })
    const { body } = await byCode(app, sentTo(chosen).code)
    expect((await as(body.access_token).get('/v1/organizations')).body).toMatchObject([{ slug: other.slug }])
  })

  it('accepts only its own form', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const sent = async (headers: Record<string, string>) =>
      (await answer(app, organization.owner.token, { headers })).status
    expect(await sent({ 'sec-fetch-site': 'cross-site', origin: 'https://evil.example' })).toBe(403)
    expect(await sent({ 'sec-fetch-site': 'same-site' })).toBe(403)
    expect(await sent({ origin: 'https://evil.example' })).toBe(403)
    expect(await sent({ origin: 'null' })).toBe(403)
    expect(await sent({ 'sec-fetch-site': 'same-origin', origin: 'null' })).toBe(303)
    expect(await sent({ origin: baseUrl })).toBe(303)
    expect(await sent({ origin: 'https://api.example.com' })).toBe(303)
  })
})

describe('response_mode=form_post', () => {
  const POLICY = /^default-src 'none'; script-src 'nonce-([\w-]+)'; base-uri 'none'; frame-ancestors 'none'$/
  /** Returns what the page posts, and where. */
  function posted({ status, headers, body }: Reply) {
    expect([status, headers.get('location'), headers.get('cache-control')]).toEqual([200, null, 'no-store'])
    const [, nonce] = POLICY.exec(headers.get('content-security-policy') ?? '') ?? []
    expect(body).toContain(`<script nonce="${nonce}">document.forms[0].submit()</script>`)
    const fields = Array.from(String(body).matchAll(/<input type="hidden" name="(\w+)" value="([^"<>]*)">/g))
    const action = /<form method="post" action="([^"]*)">/.exec(body)?.[1]
    return { action, ...Object.fromEntries(fields.map(([, name, value]) => [name, value])) }
  }
  const query = { response_mode: 'form_post', state: '"><script>' }
  const place = { action: REDIRECT_URI, state: '&quot;&gt;&lt;script&gt;' }

  it('posts the code to the application, and also a refusal', async () => {
    const organization = await newOrganization()
    const app = await registerApp(organization)
    const { code, ...sent } = posted(await answer(app, organization.owner.token, { query })) as Record<string, string>
    expect(sent).toEqual(place)
    expect((await byCode(app, code ?? '')).status).toBe(200)
    expect(posted(await answer(app, undefined, { query, form: { decision: 'deny' } }))).toEqual({
      ...place,
      ...{ error: 'access_denied', error_description: 'the user denied the request' },
    })
    const wrong = await stranger().get(authorizePath(app, { ...query, scope: 'nonsense' }))
    expect(posted(wrong)).toMatchObject({ ...place, error: 'invalid_scope' })
  })

  it('is refused for the address of a native app, which accepts no form', async () => {
    const organization = await newOrganization()
    const redirect_uri = 'com.example.app:/cb'
    const app = await registerApp(organization, { redirectUris: [redirect_uri] })
    expect(sentTo(await stranger().get(authorizePath(app, { ...query, redirect_uri })))).toMatchObject({
      error: 'invalid_request',
      error_description: expect.stringContaining('response_mode'),
    })
  })
})
