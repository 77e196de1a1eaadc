import { and, eq, like } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { accessTokens, auditLog, oauthApps } from '../../src/model/tables/index.ts'
import { admin } from '../support/admin.ts'
import { as, control, newOrganization, type TestOrganization } from '../support/api.ts'
import { byCode, byRefresh, newCode, newProof, newTokens, REDIRECT_URI, registerApp } from '../support/oauth.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

const OPTIONS = ['--redirect-uris', `${REDIRECT_URI}, http://127.0.0.1/cb`, '--scopes', 'projects:read']

async function create(name: string, ...more: string[]) {
  const text = await admin('oauth-apps', 'create', organization.slug, name, ...OPTIONS, ...more)
  const [, id = ''] = /^client_id ([0-9a-f-]{36})$/m.exec(text) ?? []
  const [, secret] = /^client_secret (sba_[0-9a-f]{40})$/m.exec(text) ?? []
  return { id, secret }
}

const actionsOf = async (app: string) =>
  (
    await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.organizationId, organization.id), like(auditLog.action, 'oauth_app.%')))
      .orderBy(auditLog.createdAt)
  )
    .filter(({ detail }) => detail.app === app)
    .map(({ action }) => action)

const profileOf = async (token: string) => {
  const afterCaches = new Date(Date.now() + 11_000)
  return (await as(token).at(afterCaches).get('/v1/profile')).status
}

describe('oauth-apps', () => {
  it('creates an application, gives it another secret and deletes it with its tokens', async () => {
    const app = await create('Tool')
    const [row] = await control.select().from(oauthApps).where(eq(oauthApps.id, app.id))
    expect(JSON.stringify(row)).not.toContain(app.secret?.slice(4))
    expect(await admin('oauth-apps', 'list', organization.slug)).toContain(
      `${app.id}  secret  Tool  projects:read  ${REDIRECT_URI},http://127.0.0.1/cb`,
    )
    const { access_token, refresh_token } = await newTokens(app, organization)
    const rotated = await admin('oauth-apps', 'rotate', app.id)
    const secret = rotated.replace('client_secret ', '')
    expect((await byRefresh(app, refresh_token)).body).toMatchObject({ error: 'invalid_client' })
    expect((await byRefresh({ ...app, secret }, refresh_token)).status).toBe(200)
    expect((await as(access_token).get('/v1/profile')).status).toBe(200)
    expect(await admin('oauth-apps', 'delete', app.id)).toContain('Tool is deleted')
    expect(await profileOf(access_token)).toBe(401)
    expect((await byRefresh({ ...app, secret }, refresh_token)).status).toBe(401)
    const approved = ['oauth_app.approve', 'oauth_app.exchange', 'oauth_app.rotate', 'oauth_app.delete']
    expect(await actionsOf(app.id)).toEqual(['oauth_app.create', ...approved])
  })

  it('creates public applications, which have no secret', async () => {
    const app = await create('Phone', '--public')
    expect(app.secret).toBeUndefined()
    const { verifier, challenge } = newProof()
    const query = { code_challenge: challenge, code_challenge_method: 'S256' }
    expect((await byCode(app, await newCode(app, organization, { query }), { code_verifier: verifier })).status).toBe(
      200,
    )
    await expect(admin('oauth-apps', 'rotate', app.id)).rejects.toThrow('has no secret')
    const page = await create('Page', '--public', '--implicit')
    const [row] = await control.select().from(oauthApps).where(eq(oauthApps.id, page.id))
    expect(row?.grantTypes).toContain('implicit')
  })

  it.each([
    ['', 'must be an absolute URI'],
    ['/callback', 'must be an absolute URI'],
    ['http://app.example/cb', 'must be https'],
    ['https://app.example/cb#x', 'must not have a fragment'],
    ['https://user@app.example/cb', 'must not contain a user'],
    ['javascript:alert(1)', 'must be https'],
    [`https://app.example/${'x'.repeat(1000)}`, 'must have at most 1000 characters'],
  ])('refuses the redirect URI "%s"', async (uri, reason) => {
    const args = ['Tool', '--redirect-uris', uri, '--scopes', 'projects:read']
    await expect(admin('oauth-apps', 'create', organization.slug, ...args)).rejects.toThrow(reason)
  })

  it('refuses missing and invalid arguments, and an unknown organization or application', async () => {
    await expect(admin('oauth-apps', 'create', 'no-such', 'Tool', ...OPTIONS)).rejects.toThrow('no organization')
    await expect(admin('oauth-apps', 'create', organization.slug, ' ', ...OPTIONS)).rejects.toThrow('the name must')
    const noScope = ['--redirect-uris', REDIRECT_URI, '--scopes', 'all']
    await expect(admin('oauth-apps', 'create', organization.slug, 'x', ...noScope)).rejects.toThrow(
      'all is not a scope',
    )
    for (const without of ['--redirect-uris', '--scopes']) {
      const at = OPTIONS.indexOf(without)
      const rest = OPTIONS.toSpliced(at, 2)
      await expect(admin('oauth-apps', 'create', organization.slug, 'x', ...rest)).rejects.toThrow(
        `${without} is missing`,
      )
    }
    await expect(admin('oauth-apps', 'rotate', 'nonsense')).rejects.toThrow('no application')
    await expect(admin('oauth-apps', 'delete', organization.id)).rejects.toThrow('no application')
  })

  it('shows that a new organization has no applications', async () => {
    const { slug } = await newOrganization()
    expect(await admin('oauth-apps', 'list', slug)).toBe('no applications')
  })
})

describe('token revoke', () => {
  it("ends the approvals that were made with a personal token, and the refresh token of an application's token", async () => {
    const app = await registerApp(organization)
    const personal = await newOrganization()
    const first = await newTokens(app, personal)
    await admin('token', 'revoke', personal.owner.token ?? '')
    expect([await profileOf(first.access_token), (await byRefresh(app, first.refresh_token)).status]).toEqual([
      401, 400,
    ])
    const second = await newTokens(app, organization)
    await admin('token', 'revoke', second.access_token)
    expect([await profileOf(second.access_token), (await byRefresh(app, second.refresh_token)).status]).toEqual([
      401, 400,
    ])
    expect(await control.$count(accessTokens, eq(accessTokens.oauthAppId, app.id))).toBe(0)
    expect(await profileOf(organization.owner.token ?? '')).toBe(200)
  })
})
