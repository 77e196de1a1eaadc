import { randomUUID } from 'node:crypto'
import { and, desc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog, JWT_BEARER, oauthApps, organizations } from '../../../src/model/tables/index.ts'
import { control, newApp, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { answer, exchange, newCode, newProof, REDIRECT_URI, stranger } from '../../support/oauth.ts'

let organization: TestOrganization
let path: string
beforeAll(async () => {
  organization = await newOrganization()
  path = `/v1/organizations/${organization.slug}/oauth/apps`
})

const APP = { client_name: 'My tool', redirect_uris: [REDIRECT_URI], scope: 'projects:read organizations:read' }
const REPLY = {
  client_id: expect.stringMatching(/^[\da-f-]{36}$/),
  client_id_issued_at: expect.any(Number),
  client_name: 'My tool',
  redirect_uris: [REDIRECT_URI],
  scope: 'projects:read organizations:read',
  token_endpoint_auth_method: 'client_secret_basic',
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
}
const SECRET = { client_secret: expect.stringMatching(/^sba_[\da-f]+$/), client_secret_expires_at: 0 }

const actions = async () => {
  const rows = await control
    .select({ action: auditLog.action })
    .from(auditLog)
    .where(and(eq(auditLog.organizationId, organization.id), eq(auditLog.actorUserId, organization.userId)))
    .orderBy(desc(auditLog.id))
  return rows.map(({ action }) => action)
}

describe('the applications of an organization', () => {
  it('are registered by its owners, can be used at once, and end with their deletion', async () => {
    const { owner } = organization
    const created = await owner.post(path, APP)
    expect(created).toMatchObject({ status: 201, body: REPLY })
    expect(created.body).toEqual({ ...REPLY, ...SECRET })
    expect(created.headers.get('cache-control')).toBe('no-store')
    const { client_id: id, client_secret: secret } = created.body
    const code = await newCode({ id, secret }, organization)
    const tokens = await exchange({
      grant_type: 'authorization_code',
      code,
      redirect_uri: REDIRECT_URI,
      client_id: id,
      client_secret: secret,
    })
    expect(tokens).toMatchObject({ status: 200, body: { token_type: 'Bearer' } })

    const { client_secret: _, client_secret_expires_at: __, ...shown } = created.body
    expect((await owner.get(`${path}/${id}`)).body).toEqual(shown)
    expect((await owner.get(path)).body).toContainEqual(shown)

    const changed = { client_name: 'Renamed', redirect_uris: ['https://other.example/'], scope: 'projects:read' }
    expect(await owner.patch(`${path}/${id}`, changed)).toMatchObject({ status: 200, body: { ...shown, ...changed } })
    expect((await owner.patch(`${path}/${id}`, {})).body).toEqual({ ...shown, ...changed })

    const rotated = await owner.post(`${path}/${id}/rotate-secret`)
    expect(rotated).toMatchObject({ status: 201, body: SECRET })
    const refresh = (client_secret: string) =>
      exchange({ grant_type: 'refresh_token', refresh_token: tokens.body.refresh_token, client_id: id, client_secret })
    expect((await refresh(secret)).status).toBe(401)
    expect((await refresh(rotated.body.client_secret)).status).toBe(200)

    expect((await owner.delete(`${path}/${id}`)).status).toBe(204)
    for (const reply of [
      await owner.get(`${path}/${id}`),
      await owner.patch(`${path}/${id}`, changed),
      await owner.post(`${path}/${id}/rotate-secret`),
      await owner.delete(`${path}/${id}`),
    ]) {
      expect(reply).toMatchObject({ status: 404, body: { message: 'OAuth application not found' } })
    }
    expect((await refresh(rotated.body.client_secret)).status).toBe(401)
    const done = (await actions()).filter((action) => /^oauth_app\.(create|update|rotate|delete)$/.test(action))
    expect(done.toSorted()).toEqual(['create', 'delete', 'rotate', 'update'].map((verb) => `oauth_app.${verb}`))
  })

  it('without a secret must use PKCE, and have no secret to rotate', async () => {
    const { owner } = organization
    const { body } = await owner.post(path, { ...APP, token_endpoint_auth_method: 'none' })
    expect(body).toEqual({ ...REPLY, token_endpoint_auth_method: 'none' })
    const { verifier, challenge } = newProof()
    const app = { id: body.client_id, secret: undefined }
    const query = { code_challenge: challenge, code_challenge_method: 'S256' }
    const code = await newCode(app, organization, { query })
    const fields = { grant_type: 'authorization_code', code, redirect_uri: REDIRECT_URI, client_id: app.id }
    expect((await exchange({ ...fields, code_verifier: verifier })).status).toBe(200)
    expect(await owner.post(`${path}/${app.id}/rotate-secret`)).toMatchObject({ status: 409 })
  })

  it.each([
    [{ client_name: ' ' }, 'body.client_name'],
    [{ client_name: 'x'.repeat(101) }, 'body.client_name'],
    [{ redirect_uris: [] }, 'body.redirect_uris'],
    [{ redirect_uris: ['http://app.example/'] }, 'body.redirect_uris.0: must be https'],
    [{ redirect_uris: ['javascript:alert(1)'] }, 'body.redirect_uris.0'],
    [{ scope: '' }, 'body.scope'],
    [{ scope: 'projects:read everything' }, 'body.scope'],
  ])('are not accepted with %j, and the reply names the field', async (fields, field) => {
    const { owner } = organization
    const refused = { status: 400, body: { message: expect.stringContaining(field) } }
    expect(await owner.post(path, { ...APP, ...fields })).toMatchObject(refused)
    const { client_id: id } = (await owner.post(path, APP)).body
    expect(await owner.patch(`${path}/${id}`, fields)).toMatchObject(refused)
  })

  it.each([
    [{ token_endpoint_auth_method: 'private_key_jwt' }, 'body.token_endpoint_auth_method'],
    [{ grant_types: ['password'] }, 'body.grant_types.0'],
    [{ response_types: ['code token'] }, 'body.response_types.0'],
  ])('are not accepted with %j, which is not supported', async (fields, field) => {
    const refused = { status: 400, body: { message: expect.stringContaining(field) } }
    expect(await organization.owner.post(path, { ...APP, ...fields })).toMatchObject(refused)
  })

  it('are limited to a hundred', async () => {
    const place = await newOrganization()
    const values = { organizationId: place.id, name: 'x', redirectUris: [REDIRECT_URI], scopes: [] }
    await control.insert(oauthApps).values(Array.from({ length: 99 }, () => values))
    const replies = await Promise.all([
      place.owner.post(`/v1/organizations/${place.slug}/oauth/apps`, APP),
      place.owner.post('/v1/oauth/register', APP),
    ])
    expect(replies.map(({ status }) => status).toSorted()).toEqual([201, 422])
    expect((await place.owner.post('/v1/oauth/register', APP)).status).toBe(422)
    expect((await place.owner.post(`/v1/organizations/${place.slug}/oauth/apps`, APP)).status).toBe(422)
  })

  it('are refused if the organization was removed while the request waited', async () => {
    const { id, slug, owner } = await newOrganization()
    const { asked } = await control.transaction(async (tx) => {
      await tx.update(organizations).set({ removedAt: new Date() }).where(eq(organizations.id, id))
      return untilBlocked(tx, () => owner.post(`/v1/organizations/${slug}/oauth/apps`, APP))
    })
    expect((await asked).status).toBe(404)
    expect(await control.$count(oauthApps, eq(oauthApps.organizationId, id))).toBe(0)
  })

  it('belong to nobody else, even if their id is known', async () => {
    const other = await newOrganization()
    const { client_id: id } = (await organization.owner.post(path, APP)).body
    const theirs = `/v1/organizations/${other.slug}/oauth/apps/${id}`
    expect((await other.owner.get(theirs)).status).toBe(404)
    expect((await other.owner.patch(theirs, { client_name: 'Mine' })).status).toBe(404)
    expect((await other.owner.delete(theirs)).status).toBe(404)
    expect((await organization.owner.get(`${path}/${id}`)).body.client_name).toBe('My tool')
  })
})

describe('POST /v1/oauth/register', () => {
  it('registers in the one organization that the caller administers, or in the named one', async () => {
    const place = await newOrganization()
    expect(await place.owner.post('/v1/oauth/register', APP)).toMatchObject({ status: 201, body: REPLY })
    const named = await organization.owner.post('/v1/oauth/register', { ...APP, organization_slug: organization.slug })
    expect(named.body).toEqual({ ...REPLY, ...SECRET })
    const [row] = await control.select().from(oauthApps).where(eq(oauthApps.id, named.body.client_id))
    expect(row?.organizationId).toBe(organization.id)
  })

  it('is refused without a publisher, for another organization, and for callers who may not administer it', async () => {
    const nobody = await newMember(organization, 'developer')
    const missing = {
      status: 400,
      body: { error: 'invalid_request', message: expect.stringContaining('organization_slug') },
    }
    expect(await nobody.post('/v1/oauth/register', APP)).toMatchObject(missing)
    const named = { ...APP, organization_slug: organization.slug }
    expect((await nobody.post('/v1/oauth/register', named)).status).toBe(403)
    const { owner } = await newOrganization()
    expect((await owner.post('/v1/oauth/register', named)).status).toBe(404)
    const reader = await newApp(organization, ['organizations:read'])
    expect((await reader.caller.post('/v1/oauth/register', named)).status).toBe(403)
    expect((await stranger().post('/v1/oauth/register', named)).status).toBe(401)
  })
})

describe('the metadata of OAuth', () => {
  it('names the existing endpoints', async () => {
    const { status, body } = await stranger().get('/.well-known/oauth-authorization-server')
    expect([status, body.issuer, body.response_types_supported]).toEqual([
      200,
      'https://api.example.com',
      ['code', 'token', 'id_token token'],
    ])
    expect(body.response_modes_supported).toEqual(['query', 'fragment', 'form_post'])
    expect(body.grant_types_supported).toEqual(['authorization_code', 'refresh_token', 'implicit', JWT_BEARER])
    expect(body.scopes_supported).toContain('projects:read')
    for (const name of ['authorization', 'token', 'registration']) {
      const { pathname } = new URL(body[`${name}_endpoint`])
      expect(body[`${name}_endpoint`]).toBe(`${body.issuer}${pathname}`)
      expect((await stranger().get(pathname)).status).not.toBe(404)
    }
    const resource = await stranger().get('/.well-known/oauth-protected-resource')
    expect(resource.body).toMatchObject({ resource: body.issuer, authorization_servers: [body.issuer] })
  })

  it('counts against the quota of the address', async () => {
    expect((await stranger().get('/.well-known/oauth-authorization-server')).headers.get('x-ratelimit-limit')).toBe(
      '120',
    )
  })
})

it('response_mode decides where the redirect carries the answer', async () => {
  const { body } = await organization.owner.post(path, APP)
  const app = { id: body.client_id, secret: body.client_secret }
  const back = async (response_mode: string | undefined, decision = 'approve') => {
    const query = { organization_slug: organization.slug, state: randomUUID(), response_mode }
    const { headers } = await answer(app, organization.owner.token, { query, form: { decision } })
    const { hash, searchParams } = new URL(headers.get('location') ?? '')
    return [hash, searchParams.toString()].map((text) => /(code|error)=/.exec(text)?.[1])
  }
  expect(await back('query')).toEqual([undefined, 'code'])
  expect(await back(undefined)).toEqual([undefined, 'code'])
  expect(await back('fragment')).toEqual(['code', undefined])
  expect(await back('fragment', 'deny')).toEqual(['error', undefined])
})
