import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog, JWT_BEARER, temporaryLogins, users } from '../../../src/model/tables/index.ts'
import { admin } from '../../support/admin.ts'
import {
  as,
  type Caller,
  control,
  newMember,
  newOrganization,
  type TestOrganization,
  tick,
  tokenOf,
} from '../../support/api.ts'
import { claimTokenPath } from '../../support/claims.ts'
import {
  answer,
  authorizePath,
  byCode,
  byRefresh,
  newCode,
  newTokens,
  registerApp,
  revoke,
  stranger,
} from '../../support/oauth.ts'
import { newProject } from '../../support/projects.ts'
import { insertProject } from '../../support/webhooks.ts'

async function nameOf(userId: string): Promise<string> {
  const [user] = await control.select().from(users).where(eq(users.id, userId))
  return user?.username ?? ''
}

/** Returns the caller at a time when no isolate has the caller cached any more. */
const later = (caller: Caller) => caller.at(new Date(Date.now() + 11_000))

const v1 = (subject: string) => ({ message: `Forbidden action: the ${subject} is disabled` })
const v2 = (subject: string) => ({
  error: {
    ...{ id: expect.any(String), code: 'forbidden.access_disabled', message: 'Forbidden: Access disabled' },
    description: `the ${subject} is disabled`,
  },
})

describe('a disabled user', () => {
  it('is refused with every token within ten seconds, until enabled', async () => {
    const organization = await newOrganization()
    const { owner, slug, userId } = organization
    const name = await nameOf(userId)
    const app = await registerApp(organization)
    const { access_token, refresh_token } = await newTokens(app, organization)
    const code = await newCode(app, organization)
    const colleague = await newMember(organization, 'owner')
    expect(await admin('user', 'disable', name)).toContain(`${name} is disabled`)
    expect(await admin('user', 'disable', name)).toBe(`${name} is disabled already`)

    for (const caller of [later(owner), later(as(access_token)), await tokenOf(userId)]) {
      expect(await caller.get('/v1/profile')).toMatchObject({ status: 403, body: v1(`user ${name}`) })
      const reply = await caller.get(`/v2/organizations/${slug}/members`)
      expect([reply.status, reply.body]).toEqual([403, v2(`user ${name}`)])
      expect((await caller.post('/v1/organizations', { name: 'x' })).status).toBe(403)
    }
    expect((await colleague.get(`/v1/organizations/${slug}`)).status).toBe(200)
    for (const { status, body } of [await byCode(app, code), await byRefresh(app, refresh_token)])
      expect([status, body.error, body.message]).toEqual([400, 'invalid_grant', expect.stringContaining('disabled')])
    const approved = await answer(app, (await tokenOf(userId)).token)
    expect([approved.status, approved.body]).toEqual([422, expect.stringContaining('Your account is disabled.')])

    expect(await admin('user', 'enable', name)).toContain(`${name} is enabled`)
    expect(await admin('user', 'enable', name)).toBe(`${name} is enabled already`)
    expect(
      (
        await later(owner)
          .at(new Date(Date.now() + 22_000))
          .get('/v1/profile')
      ).status,
    ).toBe(200)
    expect((await byRefresh(app, refresh_token)).status).toBe(200)
    const traces = await control.select().from(auditLog).where(eq(auditLog.action, 'user.disable'))
    expect(traces.filter(({ detail }) => detail.user === userId)).toHaveLength(1)
  })

  it('gives away no project with an earlier claim token', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    const { token } = (await organization.owner.post(claimTokenPath(ref))).body
    const taker = await newOrganization()
    const claim = () => taker.owner.get(`/v1/organizations/${taker.slug}/project-claim/${token}`)
    expect((await claim()).status).toBe(200)
    await admin('user', 'disable', await nameOf(organization.userId))
    expect((await claim()).status).toBe(404)
  })

  it('keeps no login to a database', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const { status } = await organization.owner.post(`/v1/projects/${ref}/cli/login-role`, { read_only: false })
    expect(status).toBe(201)
    await admin('user', 'disable', await nameOf(organization.userId))
    const left = () => control.$count(temporaryLogins, eq(temporaryLogins.projectRef, ref))
    await expect.poll(() => tick().then(left)).toBe(0)
  })

  it('must exist, like an organization', async () => {
    await expect(admin('user', 'disable', 'nobody-of-this-name')).rejects.toThrow('no user')
    await expect(admin('organization', 'disable', 'no-such')).rejects.toThrow('no organization')
  })
})

describe('a disabled organization', () => {
  let organization: TestOrganization
  let ref: string
  let snippet: string
  let published: string
  beforeAll(async () => {
    organization = await newOrganization()
    ref = await insertProject(organization)
    const save = async (visibility: string): Promise<string> => {
      const saved = await organization.owner.post('/v1/snippets', { project_ref: ref, name: 's', visibility, sql: '' })
      expect(saved.status).toBe(201)
      return saved.body.id
    }
    snippet = await save('project')
    published = await save('public')
    expect(await admin('organization', 'disable', organization.slug)).toContain('is disabled')
  })

  it('answers its members with 403 at once, and others as if it did not exist', async () => {
    const { owner, slug } = organization
    const subject = `organization ${slug}`
    expect(await owner.get(`/v1/organizations/${slug}`)).toMatchObject({ status: 403, body: v1(subject) })
    expect(await owner.get(`/v1/projects/${ref}`)).toMatchObject({ status: 403, body: v1(subject) })
    expect((await owner.get(`/v2/projects/${ref}/webhooks/endpoints`)).body).toEqual(v2(subject))
    expect(
      (await owner.post('/v1/projects', { name: 'x', organization_slug: slug, db_pass: 'a password of ours' })).status,
    ).toBe(403)
    const outsider = (await newOrganization()).owner
    expect((await outsider.get(`/v1/organizations/${slug}`)).status).toBe(404)
    expect((await outsider.get(`/v1/projects/${ref}`)).status).toBe(404)
  })

  it('shows its public snippets to nobody', async () => {
    const { owner: outsider } = await newOrganization()
    for (const caller of [organization.owner, outsider])
      expect(await caller.get(`/v1/snippets/${published}`)).toMatchObject({ status: 404 })
  })

  it('is in no list, and accepts neither projects nor applications', async () => {
    const { owner, slug } = organization
    expect((await owner.get('/v1/organizations')).body).toEqual([])
    expect((await owner.get('/v1/projects')).body).toEqual([])
    expect((await owner.get('/v1/snippets')).body.data).toEqual([])
    expect((await owner.get(`/v1/snippets/${snippet}`)).status).toBe(404)
    const registered = { client_name: 'x', redirect_uris: ['https://app.example/'], scope: 'projects:read' }
    expect((await owner.post('/v1/oauth/register', { ...registered, organization_slug: slug })).status).toBe(403)
    expect((await owner.post('/v1/oauth/register', registered)).status).toBe(400)
    const app = await registerApp(await newOrganization())
    const reply = await answer(app, owner.token, { query: { organization_slug: slug } })
    expect([reply.status, reply.body]).toEqual([
      422,
      expect.stringContaining(`You are not in the organization ${slug}`),
    ])
  })

  it('publishes applications that are refused everywhere until it is enabled', async () => {
    const [publisher, user] = [await newOrganization(), await newOrganization()]
    const app = await registerApp(publisher, {
      grantTypes: [JWT_BEARER],
      scopes: ['projects:read', 'database:write'],
    })
    const { access_token, refresh_token } = await newTokens(app, user)
    const code = await newCode(app, user)
    const before = as(access_token)
    const ref = await newProject(user)
    expect((await before.post(`/v1/projects/${ref}/cli/login-role`, { read_only: true })).status).toBe(201)
    await admin('organization', 'disable', publisher.slug)

    const page = { message: expect.stringContaining('query.client_id: is not an application of this server') }
    expect(await stranger().get(authorizePath(app))).toMatchObject({ status: 400, body: page })
    expect(await answer(app, user.owner.token)).toMatchObject({ status: 400, body: page })
    for (const { status, body } of [
      await byCode(app, code),
      await byRefresh(app, refresh_token),
      await byRefresh(app, '', { grant_type: JWT_BEARER, assertion: 'x' }),
      await revoke(app, refresh_token),
    ])
      expect([status, body.error]).toEqual([401, 'invalid_client'])
    expect((await later(before).get('/v1/projects')).status).toBe(401)
    expect((await later(user.owner).get('/v1/projects')).status).toBe(200)
    const logins = () => control.$count(temporaryLogins, eq(temporaryLogins.projectRef, ref))
    await expect.poll(() => tick().then(logins)).toBe(0)

    await admin('organization', 'enable', publisher.slug)
    expect((await later(before).get('/v1/projects')).status).toBe(200)
    expect((await stranger().get(authorizePath(app))).status).toBe(200)
    expect((await byCode(app, code)).status).toBe(200)
    expect((await byRefresh(app, refresh_token)).status).toBe(200)
  })

  it('is unchanged after it is enabled', async () => {
    const { owner, slug } = organization
    await admin('organization', 'enable', slug)
    expect((await owner.get(`/v1/projects/${ref}`)).status).toBe(200)
    expect((await owner.get('/v1/organizations')).body).toMatchObject([{ slug }])
    expect((await owner.get('/v1/projects')).body).toMatchObject([{ ref }])
    const { data } = (await owner.get('/v1/snippets')).body
    expect(data.map(({ id }: { id: string }) => id).sort()).toEqual([snippet, published].sort())
    expect((await (await newOrganization()).owner.get(`/v1/snippets/${published}`)).status).toBe(200)
  })
})
