import { describe, expect, it } from 'vitest'
import { addMember, newMember, newOrganization, newUser, tokenOf } from '../../support/api.ts'
import { createProject } from '../../support/projects.ts'

describe('POST /v1/organizations', () => {
  it('makes the caller the owner of a new organization', async () => {
    const caller = await tokenOf(await newUser())
    const created = await caller.post('/v1/organizations', { name: 'Acme' })
    const slug = expect.stringMatching(/^[a-z]{20}$/)
    expect(created).toMatchObject({ status: 201, body: { id: slug, slug, name: 'Acme' } })
    expect((await caller.get('/v1/organizations')).body).toEqual([created.body])
    const members = await caller.get(`/v1/organizations/${created.body.slug}/members`)
    expect(members.body).toMatchObject([{ role_name: 'Owner' }])
  })

  it.each([
    [{}, 'body.name'],
    [{ name: '' }, 'body.name'],
    [{ name: ' ' }, 'body.name'],
    [{ name: 7 }, 'body.name'],
    [{ name: 'x'.repeat(257) }, 'body.name'],
    [[], 'body'],
    ['text', 'body'],
    [null, 'body'],
  ])('refuses %j and names the field', async (body, field) => {
    const reply = await (await tokenOf(await newUser())).post('/v1/organizations', body)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(field)
  })

  it('accepts a name of 256 characters, and ignores unknown fields', async () => {
    const caller = await tokenOf(await newUser())
    expect((await caller.post('/v1/organizations', { name: 'x'.repeat(256), tier: 'tier_pro' })).status).toBe(201)
  })
})

describe('GET /v1/organizations/{slug}', () => {
  it('shows the organization with its plan', async () => {
    const { owner, slug } = await newOrganization()
    expect(await owner.get(`/v1/organizations/${slug}`)).toMatchObject({ status: 200 })
    expect((await owner.get(`/v1/organizations/${slug}`)).body).toEqual({
      id: slug,
      name: 'Test',
      plan: 'enterprise',
      opt_in_tags: [],
      allowed_release_channels: ['ga'],
    })
  })
})

describe('GET /v1/organizations/{slug}/members', () => {
  it('returns each member once with the highest role', async () => {
    const organization = await newOrganization()
    await newMember(organization, 'developer')
    const userId = await newUser()
    const refs = [await createProject(organization), await createProject(organization)]
    await addMember(organization.id, userId, 'read-only', refs[0])
    await addMember(organization.id, userId, 'administrator', refs[1])
    const { body } = await organization.owner.get(`/v1/organizations/${organization.slug}/members`)
    expect(body).toHaveLength(3)
    expect(body.map((member: { role_name: string }) => member.role_name).sort()).toEqual([
      'Administrator',
      'Developer',
      'Owner',
    ])
    expect(body.find((member: { user_id: string }) => member.user_id === userId)).toEqual({
      user_id: userId,
      user_name: expect.stringMatching(/^user-/),
      email: expect.stringContaining('@example.com'),
      role_name: 'Administrator',
      mfa_enabled: false,
      avatar_url: null,
    })
  })
})

describe('a member of only one project', () => {
  it('sees that project and the organization, and none of the other projects', async () => {
    const organization = await newOrganization()
    const { owner, slug } = organization
    const [mine, other] = [await createProject(organization), await createProject(organization)]
    const member = await newMember(organization, 'administrator', mine)

    expect((await member.get(`/v1/projects/${mine}`)).status).toBe(200)
    expect((await member.get(`/v1/projects/${other}`)).status).toBe(404)
    expect((await member.get('/v1/projects')).body).toHaveLength(1)
    expect((await member.get('/v1/organizations')).body).toHaveLength(1)
    expect((await member.get(`/v1/organizations/${slug}/projects`)).body).toMatchObject({
      projects: [{ ref: mine }],
      pagination: { count: 1 },
    })
    expect((await member.get(`/v2/organizations/${slug}/projects`)).body.data).toMatchObject([{ id: mine }])
    expect((await owner.get(`/v2/organizations/${slug}/projects`)).body.data).toHaveLength(2)

    const elsewhere = await newUser()
    await addMember(organization.id, elsewhere, 'owner', other)
    const { body } = await member.get(`/v1/organizations/${slug}/members`)
    const entry = body.find(({ user_id }: { user_id: string }) => user_id === elsewhere)
    expect(entry).toMatchObject({ user_name: expect.any(String) })
    expect(entry).not.toHaveProperty('role_name')

    expect((await member.patch(`/v1/projects/${mine}`, { name: 'renamed' })).status).toBe(200)
    const create = { name: 'more', organization_slug: slug, db_pass: 'password' }
    expect((await member.post('/v1/projects', create)).status).toBe(403)
  })
})
