import { eq } from 'drizzle-orm'
import { describe, expect, it } from 'vitest'
import { hashToken, newAccessToken } from '../../../src/access/token.ts'
import { accessTokens } from '../../../src/model/tables/index.ts'
import { anyone, as, control, newApp, newOrganization, newUser, tokenOf } from '../../support/api.ts'
import { createProject } from '../../support/projects.ts'

const HOUR_MS = 3_600_000
const CHALLENGE = 'Bearer resource_metadata="https://api.example.com/.well-known/oauth-protected-resource"'

describe('GET /v1/profile', () => {
  it("returns the caller's user", async () => {
    const userId = await newUser()
    const reply = await (await tokenOf(userId)).get('/v1/profile')
    expect(reply).toMatchObject({
      status: 200,
      body: {
        gotrue_id: userId,
        username: expect.stringMatching(/^user-/),
        primary_email: expect.stringContaining('@'),
      },
    })
    expect(Object.keys(reply.body)).toHaveLength(3)
    expect(reply.headers.get('x-gotrue-id')).toBe(userId)
    expect(reply.headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/)
  })

  it.each(['', 'Bearer', 'Bearer x', 'Basic abc', `Bearer sbp_${'0'.repeat(39)}`, `Bearer ${newAccessToken()}`])(
    'refuses the header "%s"',
    async (authorization) => {
      const reply = await anyone.get('/v1/profile', {
        headers: { authorization, 'x-test-address': crypto.randomUUID() },
      })
      expect(reply).toMatchObject({ status: 401, body: { message: expect.stringMatching(/^Unauthorized/) } })
      expect(reply.headers.get('www-authenticate')).toBe(
        authorization.startsWith('Bearer ') ? `${CHALLENGE}, error="invalid_token"` : CHALLENGE,
      )
    },
  )

  it('names no error of a token if none was sent, and lets pages of other origins read where to get one', async () => {
    const headers = { origin: 'https://app.example', 'x-test-address': crypto.randomUUID() }
    for (const path of ['/v1/profile', '/v2/projects/x/webhooks/endpoints']) {
      const reply = await anyone.get(path, { headers })
      expect([reply.status, reply.headers.get('www-authenticate')]).toEqual([401, CHALLENGE])
      expect(reply.headers.get('access-control-expose-headers')).toContain('WWW-Authenticate')
    }
  })
})

describe('an access token', () => {
  it('is refused from the moment it expires, even if it was used before', async () => {
    const expiresAt = new Date(Date.now() + HOUR_MS)
    const caller = await tokenOf(await newUser(), { expiresAt })
    expect((await caller.at(new Date(expiresAt.getTime() - 1)).get('/v1/profile')).status).toBe(200)
    expect((await caller.at(expiresAt).get('/v1/profile')).status).toBe(401)
  })

  it('is refused within ten seconds of its revocation', async () => {
    const caller = await tokenOf(await newUser())
    const now = Date.now()
    expect((await caller.at(new Date(now)).get('/v1/profile')).status).toBe(200)
    await control
      .update(accessTokens)
      .set({ revokedAt: new Date(now) })
      .where(eq(accessTokens.hash, await hashToken(caller.token ?? '')))
    expect((await caller.at(new Date(now + 10_000)).get('/v1/profile')).status).toBe(401)
  })

  it('is stored only as its hash', async () => {
    const { token = '' } = await tokenOf(await newUser())
    const rows = await control
      .select()
      .from(accessTokens)
      .where(eq(accessTokens.hash, await hashToken(token)))
    expect(rows).toHaveLength(1)
    expect(JSON.stringify(rows)).not.toContain(token.slice(4))
  })
})

describe('an OAuth token', () => {
  it('allows what its scopes allow and nothing else', async () => {
    const organization = await newOrganization()
    const ref = await createProject(organization)
    const { caller } = await newApp(organization, ['projects:read'])
    expect((await caller.get(`/v1/projects/${ref}`)).status).toBe(200)
    expect(await caller.patch(`/v1/projects/${ref}`, { name: 'x' })).toMatchObject({
      status: 403,
      body: { message: 'Forbidden action: the access token lacks the scope projects:write' },
    })
  })

  it('reaches the organization that approved it and no other of its user', async () => {
    const organization = await newOrganization()
    const { caller } = await newApp(organization, ['projects:read', 'organizations:read'])
    const { body: other } = await organization.owner.post('/v1/organizations', { name: 'Other' })
    expect((await caller.get(`/v1/organizations/${organization.slug}`)).status).toBe(200)
    expect((await caller.get(`/v1/organizations/${other.slug}`)).status).toBe(404)
    expect((await caller.get('/v1/organizations')).body).toHaveLength(1)
    expect((await caller.post('/v1/organizations', { name: 'Third' })).status).toBe(403)
    const own = await createProject(organization)
    const theirs = await createProject({ ...organization, slug: other.slug })
    expect((await caller.get('/v1/projects')).body.map(({ ref }: { ref: string }) => ref)).toEqual([own])
    expect((await caller.get(`/v1/projects/${theirs}`)).status).toBe(404)
  })

  it('shares one quota among all users of its application in an organization', async () => {
    const organization = await newOrganization()
    const { appId, caller } = await newApp(organization, ['organizations:read'])
    const token = newAccessToken('sbp_oauth_')
    await control.insert(accessTokens).values({
      hash: await hashToken(token),
      name: 'oauth',
      userId: await newUser(),
      oauthAppId: appId,
      organizationId: organization.id,
      scopes: ['organizations:read'],
    })
    const at = new Date()
    const first = await caller.at(at).get('/v1/organizations')
    const second = await as(token).at(at).get('/v1/organizations')
    expect([first, second].map(({ headers }) => headers.get('x-ratelimit-remaining'))).toEqual(['119', '118'])
  })
})
