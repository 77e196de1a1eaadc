import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it } from 'vitest'
import { newOrganization, type TestOrganization } from '../../support/api.ts'
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
  sentTo,
  stranger,
  type TestApp,
} from '../../support/oauth.ts'

let organization: TestOrganization
let app: TestApp
let open: TestApp
beforeAll(async () => {
  organization = await newOrganization()
  app = await registerApp(organization)
  open = await registerApp(organization, { isPublic: true })
})

const FORM = 'application/x-www-form-urlencoded'
const basic = (id: string, secret: string | undefined) => ({ authorization: `Basic ${btoa(`${id}:${secret}`)}` })

describe('GET /v1/oauth/authorize', () => {
  it.each([
    ['client_id', { client_id: randomUUID() }],
    ['client_id', { client_id: 'x' }],
    ['client_id', { client_id: undefined }],
    ['redirect_uri', { redirect_uri: 'https://evil.example/callback' }],
    ['redirect_uri', { redirect_uri: '' }],
    ['redirect_uri', { redirect_uri: undefined }],
  ])('shows the user an error without a redirect for an invalid %s', async (name, query) => {
    for (const reply of [
      await stranger().get(authorizePath(app, query)),
      await answer(app, organization.owner.token, { query }),
    ]) {
      expect(reply.status).toBe(400)
      expect(reply.headers.get('location')).toBeNull()
      expect(reply.body).toMatchObject({ error: 'invalid_request', message: expect.stringContaining(`query.${name}`) })
      expect(reply.headers.get('content-security-policy')).toContain("frame-ancestors 'none'")
    }
  })

  it.each([
    ['a redirect_uri', 'redirect_uri', REDIRECT_URI],
    ['a scope', 'scope', 'projects:read'],
  ])('refuses %s that is sent twice', async (_what, name, value) => {
    const reply = await stranger().get(`${authorizePath(app, { scope: value })}&${name}=${encodeURIComponent(value)}`)
    expect([reply.status, reply.body.message]).toEqual([400, expect.stringContaining(`query.${name}`)])
  })

  const { verifier, challenge } = newProof()
  it.each([
    ['invalid_request', 'response_type', { response_type: undefined }],
    ['unsupported_response_type', 'response_type', { response_type: 'device' }],
    ['invalid_request', 'response_mode', { response_mode: 'web_message' }],
    ['invalid_request', 'code_challenge', { code_challenge: 'short', code_challenge_method: 'S256' }],
    ['invalid_request', 'code_challenge', { code_challenge: 'short' }],
    ['invalid_request', 'code_challenge_method', { code_challenge: challenge, code_challenge_method: 'S512' }],
    ['invalid_request', 'code_challenge', { code_challenge_method: 'S256' }],
    ['invalid_scope', 'projects:read', { scope: 'projects:write' }],
    ['invalid_scope', 'projects:read', { scope: 'projects:read nonsense' }],
    ['invalid_scope', 'projects:read', { scope: ' ' }],
    ['invalid_target', 'resource', { resource: 'https://other.example/' }],
    ['invalid_target', 'resource', { resource: 'nonsense' }],
    ['invalid_target', 'resource', { resource: 'https://api.example.com/#x' }],
    ['invalid_request', 'organization_slug', { organization_slug: 'no slug' }],
  ])('reports %s to the application (%s)', async (error, what, query) => {
    for (const reply of [
      await stranger().get(authorizePath(app, { state: 's', ...query })),
      await answer(app, organization.owner.token, { query: { state: 's', ...query } }),
    ]) {
      const { url, ...sent } = sentTo(reply)
      expect(url.href.startsWith(`${REDIRECT_URI}&`)).toBe(true)
      expect(sent).toMatchObject({ error, error_description: expect.stringContaining(what), state: 's' })
      expect(sent).not.toHaveProperty('code')
    }
  })

  it('requires a challenge from an application without a secret', async () => {
    expect(sentTo(await stranger().get(authorizePath(open)))).toMatchObject({
      error: 'invalid_request',
      error_description: expect.stringContaining('code_challenge is missing'),
    })
    expect((await stranger().get(authorizePath(open, { code_challenge: verifier }))).status).toBe(200)
  })
})

describe('POST /v1/oauth/authorize', () => {
  const post = (raw: BodyInit, type = FORM) =>
    stranger().send('POST', authorizePath(app), { raw, headers: { 'content-type': type } })

  it('accepts only a small form, with each field once', async () => {
    expect((await post('{}', 'application/json')).status).toBe(415)
    expect((await post(`token=${'x'.repeat(16 * 1024)}`)).status).toBe(413)
    expect((await post(new Uint8Array([0xff, 0xfe]))).body.message).toContain('UTF-8')
    expect((await post('decision=maybe')).body.message).toContain('body.decision')
    expect((await post('decision=approve&token=a&token=b')).body.message).toContain('body.token')
    expect((await post('decision=approve&token=%00')).body.message).toContain('body.token')
    expect((await post(`decision=approve&organization=${'x'.repeat(3000)}`)).body.message).toContain(
      'body.organization',
    )
  })
})

describe('POST /v1/oauth/token', () => {
  it.each([
    ['grant_type', { grant_type: '' }],
    ['grant_type', { grant_type: undefined }],
    ['client_id', { client_id: undefined }],
    ['code', { code: undefined }],
    ['redirect_uri', { redirect_uri: undefined }],
    ['code_verifier', { code_verifier: 'a\0' }],
  ])('names a missing or wrong %s', async (name, fields) => {
    const { status, body, headers } = await byCode(app, 'x', fields)
    expect([status, body]).toEqual([
      400,
      {
        error: 'invalid_request',
        message: expect.stringContaining(`body.${name}:`),
        error_description: expect.stringContaining(`body.${name}:`),
      },
    ])
    expect(body.error_description).toMatch(/^[\x20-\x21\x23-\x5b\x5d-\x7e]*$/)
    expect(headers.get('cache-control')).toBe('no-store')
  })

  it('names a missing refresh token', async () => {
    expect((await byRefresh(app, '')).body).toMatchObject({
      error: 'invalid_request',
      message: expect.stringContaining('body.refresh_token:'),
    })
  })

  it('authenticates an application only by its secret, in the body or in the header', async () => {
    const code = await newCode(app, organization)
    const invalid = { error: 'invalid_client', message: expect.any(String), error_description: expect.any(String) }
    for (const fields of [
      ...[{ client_secret: 'sba_wrong' }, { client_secret: undefined }, { client_id: randomUUID() }],
      ...[{ client_id: 'nonsense' }, { client_id: open.id }],
    ]) {
      const { status, headers, body } = await byCode(app, code, fields)
      expect([status, headers.get('www-authenticate'), body]).toEqual([401, 'Basic realm="oauth"', invalid])
    }
    const form = { grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI }
    const inHeader = (headers: Record<string, string>, fields = {}) =>
      exchange({ ...form, ...fields }, stranger(), headers)
    for (const headers of [
      ...[basic(app.id, 'wrong'), basic(app.id, ''), basic('nonsense', app.secret), { authorization: 'Basic %%%' }],
      ...[{ authorization: `Basic ${btoa(app.id)}` }, { authorization: `Basic ${btoa('%zz:x')}` }],
    ])
      expect((await inHeader(headers)).body).toEqual(invalid)
    const twice = await inHeader(basic(app.id, app.secret), { client_secret: app.secret })
    expect(twice.body).toMatchObject({
      error: 'invalid_request',
      message: expect.stringContaining('body.client_secret'),
    })
    const differs = await inHeader(basic(app.id, app.secret), { client_id: open.id })
    expect(differs.body).toMatchObject({ error: 'invalid_request', message: expect.stringContaining('body.client_id') })
    const id = app.id.replaceAll('-', '%2D')
    expect((await inHeader(basic(id, app.secret), { client_id: app.id })).status).toBe(200)
  })

  it('refuses unknown codes and refresh tokens', async () => {
    for (const { body } of [
      await byCode(app, 'f'.repeat(40)),
      await byCode(app, await newCode(app, organization), { redirect_uri: 'https://app.example/other' }),
      await byRefresh(app, `sbr_${'f'.repeat(80)}`),
      await byRefresh(app, 'nonsense'),
    ])
      expect(body).toMatchObject({ error: 'invalid_grant' })
  })

  it('refuses scopes that were not approved, and keeps the refresh token valid', async () => {
    const { refresh_token } = await newTokens(app, organization, { query: { scope: 'projects:read' } })
    for (const scope of ['organizations:read', 'projects:read organizations:read', 'nonsense'])
      expect((await byRefresh(app, refresh_token, { scope })).body).toMatchObject({ error: 'invalid_scope' })
    expect((await byRefresh(app, refresh_token)).body).toMatchObject({ scope: 'projects:read' })
  })

  it('refuses unknown resources and unsupported grant types', async () => {
    const code = await newCode(app, organization)
    const resource = 'https://other.example/'
    expect((await byCode(app, code, { resource })).body).toMatchObject({ error: 'invalid_target' })
    for (const grant_type of ['implicit', 'password', 'client_credentials'])
      expect((await byCode(app, code, { grant_type })).body).toMatchObject({ error: 'unsupported_grant_type' })
    expect((await byCode(app, code)).status).toBe(200)
  })

  it('accepts only a small form, with each field once', async () => {
    const post = (raw: BodyInit, type = FORM) =>
      stranger().send('POST', '/v1/oauth/token', { raw, headers: { 'content-type': type } })
    expect(await post('{}', 'application/json')).toMatchObject({ status: 415, body: { error: 'invalid_request' } })
    expect((await post(`code=${'x'.repeat(16 * 1024)}`)).status).toBe(413)
    expect((await post(new Uint8Array([0xff, 0xfe]))).body.message).toContain('UTF-8')
    expect((await post('grant_type=a&grant_type=b')).body.message).toContain('body.grant_type')
    expect((await post('')).body.message).toContain('body.grant_type')
  })
})

describe('POST /v1/oauth/revoke', () => {
  it('names a missing field or one of another type', async () => {
    const post = (raw: string, type = 'application/json') =>
      stranger().send('POST', '/v1/oauth/revoke', { raw, headers: { 'content-type': type } })
    for (const name of ['client_id', 'client_secret', 'refresh_token'])
      expect((await revoke(app, 'x', { [name]: undefined })).body).toMatchObject({
        error: 'invalid_request',
        message: expect.stringContaining(`body.${name}`),
      })
    expect((await post('{')).body).toMatchObject({ error: 'invalid_request' })
    expect((await post('token=x', FORM)).status).toBe(415)
    expect((await post(`"${'x'.repeat(1024 * 1024)}"`)).status).toBe(413)
  })

  it('revokes only tokens of the application', async () => {
    const { refresh_token } = await newTokens(app, organization)
    for (const fields of [{ client_secret: 'wrong' }, { client_secret: '' }, { client_id: randomUUID() }])
      expect(await revoke(app, refresh_token, fields)).toMatchObject({ status: 401, body: { error: 'invalid_client' } })
    expect((await byRefresh(app, refresh_token)).status).toBe(200)
  })
})
