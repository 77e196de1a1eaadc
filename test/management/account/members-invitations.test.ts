import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { describe, expect, it, vi } from 'vitest'
import { auditLog, invitations, organizations } from '../../../src/model/tables/index.ts'
import { admin } from '../../support/admin.ts'
import { addMember, control, newMember, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { assign, cancel, invitation, invite, newPerson, personOf, remove, rolesOf } from '../../support/members.ts'
import { newReceiver } from '../../support/receiver.ts'
import { fieldsOf, insertProject, newEndpoint, newPlace, verified, WAIT } from '../../support/webhooks.ts'

const newEmail = () => `invited-${randomUUID()}@example.com`
const invitedTo = ({ id }: TestOrganization) =>
  control.select().from(invitations).where(eq(invitations.organizationId, id)).orderBy(invitations.email)
const shown = (...emails: string[]) =>
  emails.map((email) => ({ type: 'organization_invitation', attributes: { email } }))

describe('POST /v2/organizations/{slug}/members/invitations', () => {
  it('invites each address in lower case, with a role of its own', async () => {
    const place = await newOrganization()
    const ref = await insertProject(place)
    const [one, two] = [`a-${newEmail()}`, `b-${newEmail()}`]
    const reply = await invite(place.owner, place.slug, invitation(one.toUpperCase(), 'owner'), {
      ...invitation(two),
      attributes: { ...invitation(two, 'read-only', [ref, ref]).attributes, require_sso: false },
    })
    expect(reply).toMatchObject({ status: 201 })
    expect(reply.body).toEqual({ data: shown(one, two) })
    expect(await invitedTo(place)).toMatchObject([
      { email: one, role: 'owner', projectRefs: null, invitedBy: place.userId },
      { email: two, role: 'read-only', projectRefs: [ref], invitedBy: place.userId },
    ])
    const traces = await control.select().from(auditLog).where(eq(auditLog.organizationId, place.id))
    expect(traces).toMatchObject([{ action: 'invitation.create', detail: { emails: [one, two] } }])
  })

  it('reports addresses that are members or invited already, and invites the others', async () => {
    const place = await newOrganization()
    const { primaryEmail } = await newPerson(place, 'developer')
    const [first, second] = [newEmail(), newEmail()]
    expect((await invite(place.owner, place.slug, invitation(first))).status).toBe(201)
    const all = [invitation(primaryEmail.toUpperCase()), invitation(first, 'owner'), invitation(second)]
    const reply = await invite(place.owner, place.slug, ...all)
    expect(reply.status).toBe(201)
    expect(reply.body).toEqual({
      data: shown(second),
      error: {
        code: 'organization_invitations_partially_failed',
        message: 'Some invitations were not created',
        issues: [
          {
            code: 'already_member',
            message: `${primaryEmail} is already a member`,
            meta: { email: primaryEmail },
          },
          { code: 'already_invited', message: `${first} is already invited`, meta: { email: first } },
        ],
      },
    })
    const again = await invite(place.owner, place.slug, ...all)
    expect(again).toMatchObject({ status: 409, body: { error: { code: 'conflict.invitations' } } })
    expect(again.body.error.issues.map(({ code }: { code: string }) => code)).toEqual([
      'already_member',
      'already_invited',
      'already_invited',
    ])
    expect((await invitedTo(place)).map(({ role }) => role)).toEqual(['developer', 'developer'])
  })

  it('makes one invitation of two simultaneous requests', async () => {
    const { owner, slug } = await newOrganization()
    const email = newEmail()
    const replies = await Promise.all([1, 2].map(() => invite(owner, slug, invitation(email))))
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 409])
  })

  const { attributes, ...rest } = invitation('a@example.com')
  it.each<[object[], string]>([
    [[], 'body.data'],
    [Array.from({ length: 51 }, (_, n) => invitation(`n${n}@example.com`)), 'body.data'],
    [[invitation('nobody')], 'body.data.0.attributes.email'],
    [[invitation('a@localhost')], 'body.data.0.attributes.email'],
    [[invitation(`${'a'.repeat(320)}@example.com`)], 'body.data.0.attributes.email'],
    [[invitation('a@example.com', 'king')], 'body.data.0.attributes.role'],
    [[invitation('a@example.com', 'owner', [])], 'body.data.0.attributes.projects'],
    [
      [invitation('b@example.com'), invitation('a@example.com', 'owner', ['x'])],
      'body.data.1.attributes.projects.0.ref',
    ],
    [[invitation('a@example.com'), invitation('A@example.com')], 'body.data.1.attributes.email'],
    [[{ ...rest, attributes: { ...attributes, require_sso: true } }], 'body.data.0.attributes.require_sso'],
    [[{ ...rest, type: 'invitation', attributes }], 'body.data.0.type'],
  ])('refuses case %#, names the field and invites nobody', async (data, field) => {
    const place = await newOrganization()
    const reply = await invite(place.owner, place.slug, ...data)
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual([field])
    expect(await invitedTo(place)).toEqual([])
  })

  it("refuses projects of others, an owner's invitation by a non-owner, and too many invitations", async () => {
    const place = await newOrganization()
    const { owner, slug } = place
    const foreign = await insertProject(await newOrganization())
    const refused = await invite(owner, slug, invitation(newEmail()), invitation(newEmail(), 'developer', [foreign]))
    expect(fieldsOf(refused)).toEqual(['body.data.1.attributes.projects.0.ref'])
    const administrator = await newMember(place, 'administrator')
    expect((await invite(administrator, slug, invitation(newEmail(), 'owner'))).status).toBe(403)
    expect(await invitedTo(place)).toEqual([])
    expect((await invite(administrator, slug, invitation(newEmail(), 'administrator'))).status).toBe(201)
    const full = Array.from({ length: 998 }, (_, n) => ({
      organizationId: place.id,
      email: `n${n}@example.com`,
      role: 'developer' as const,
      createdAt: new Date(),
    }))
    await control.insert(invitations).values(full)
    const many = [invitation(newEmail()), invitation(newEmail())]
    expect(await invite(owner, slug, ...many)).toMatchObject({
      status: 422,
      body: { error: { code: 'unprocessable.too_many_invitations', description: '999 of at most 1000 are open' } },
    })
    expect((await invite(owner, slug, invitation(newEmail()))).status).toBe(201)
  })

  it('requires the plan Enterprise, like the deletion', async () => {
    const place = await newOrganization()
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, place.id))
    const unpaid = {
      status: 402,
      body: { error: { message: 'Payment Required: This feature requires the Enterprise organization plan.' } },
    }
    expect(await invite(place.owner, place.slug, invitation(newEmail()))).toMatchObject(unpaid)
    expect(await cancel(place.owner, place.slug, newEmail())).toMatchObject(unpaid)
  })
})

describe('DELETE /v2/organizations/{slug}/members/invitations', () => {
  it('returns the deleted invitations, and changes no other organization', async () => {
    const [place, elsewhere] = [await newOrganization(), await newOrganization()]
    const [one, two] = [newEmail(), newEmail()]
    await invite(place.owner, place.slug, invitation(one), invitation(two))
    await invite(elsewhere.owner, elsewhere.slug, invitation(one))
    const reply = await cancel(place.owner, place.slug, one.toUpperCase(), newEmail())
    expect(reply).toMatchObject({ status: 200 })
    expect(reply.body).toEqual({ data: shown(one) })
    expect((await cancel(place.owner, place.slug, one)).body).toEqual({ data: [] })
    expect(await invitedTo(place)).toMatchObject([{ email: two }])
    expect(await invitedTo(elsewhere)).toHaveLength(1)
    expect(fieldsOf(await cancel(place.owner, place.slug))).toEqual(['body.data'])
    expect(fieldsOf(await cancel(place.owner, place.slug, 'x'))).toEqual(['body.data.0.attributes.email'])
  })

  it('lets only owners delete an invitation of an owner', async () => {
    const place = await newOrganization()
    const email = newEmail()
    await invite(place.owner, place.slug, invitation(email, 'owner'))
    const administrator = await newMember(place, 'administrator')
    expect((await cancel(administrator, place.slug, email)).status).toBe(403)
    expect(await invitedTo(place)).toHaveLength(1)
  })
})

describe('an invitation', () => {
  it('is accepted by the command line, for an existing and for a new user', async () => {
    const [place, other] = [await newOrganization(), await newOrganization()]
    const ref = await insertProject(place)
    const here = await newPerson(other)
    const email = newEmail()
    await invite(
      place.owner,
      place.slug,
      invitation(here.primaryEmail, 'developer', [ref, await insertProject(place, { name: 'other' })]),
      invitation(email, 'administrator'),
    )
    await invite(other.owner, other.slug, invitation(email, 'read-only'))
    expect((await here.caller.get(`/v1/projects/${ref}`)).status).toBe(404)
    const listed = (await admin('invitation', 'list', place.slug)).split('\n')
    expect(listed.filter((line) => line.endsWith(`${email}  administrator`))).toHaveLength(1)
    expect(listed).toHaveLength(2)

    expect(await admin('invitation', 'accept', place.slug, here.username)).toMatch(`${here.username} is developer in `)
    expect((await here.caller.get(`/v1/projects/${ref}`)).status).toBe(200)
    expect((await here.caller.patch(`/v1/projects/${ref}`, { name: 'x' })).status).toBe(403)
    await expect(admin('invitation', 'accept', place.slug, here.username)).rejects.toThrow(
      `${here.primaryEmail} has no invitation to ${place.slug}`,
    )

    const username = `new-${randomUUID()}`
    const created = await admin('user', 'create', username, email.toUpperCase())
    expect(created.split('\n').slice(1).sort()).toEqual(
      [`${username} is administrator in ${place.slug}`, `${username} is read-only in ${other.slug}`].sort(),
    )
    expect(await rolesOf(place.owner, place.slug, { username })).toMatchObject([{ name: 'Administrator' }])
    expect(await admin('invitation', 'list', place.slug)).toBe('no open invitations')
  })

  it('stays open for an existing user, even if that user is created once more', async () => {
    const place = await newOrganization()
    const { username, primaryEmail } = await newPerson(await newOrganization())
    await invite(place.owner, place.slug, invitation(primaryEmail, 'administrator'))
    expect(await admin('user', 'create', username, primaryEmail)).toMatch(/^user [0-9a-f-]{36}\n.* existed already$/)
    expect(await rolesOf(place.owner, place.slug, { username })).toBeUndefined()
    expect(await admin('invitation', 'list', place.slug)).toContain(primaryEmail)
  })

  it('ends when its sender could no longer send it', async () => {
    const place = await newOrganization()
    const [owner, administrator] = [await newPerson(place, 'owner'), await newPerson(place, 'administrator')]
    const [first, second, third] = ['1-', '2-', '3-'].map((prefix) => prefix + newEmail()) as [string, string, string]
    await invite(owner.caller, place.slug, invitation(first, 'owner'), invitation(second, 'developer'))
    await invite(administrator.caller, place.slug, invitation(third, 'administrator'))
    const invited = async () => (await invitedTo(place)).map(({ email }) => email)

    expect((await assign(place.owner, place.slug, owner.id, 'administrator')).status).toBe(200)
    expect(await invited()).toEqual([second, third])
    expect((await assign(place.owner, place.slug, owner.id, 'developer')).status).toBe(200)
    expect(await invited()).toEqual([third])
    await admin('member', 'remove', place.slug, administrator.username)
    expect(await invited()).toEqual([])
    const traces = await control.select().from(auditLog).where(eq(auditLog.organizationId, place.id))
    const canceled = traces.filter(({ action }) => action === 'invitation.cancel')
    expect(canceled.map(({ detail }) => detail)).toEqual([first, second, third].map((email) => ({ emails: [email] })))
  })

  it('leaves the role of a member unchanged, and grants nothing if its projects are deleted', async () => {
    const place = await newOrganization()
    const ref = await insertProject(place, { removedAt: new Date() })
    const [member, late] = [await newPerson(place), await newPerson(place)]
    const common = { organizationId: place.id, createdAt: new Date() }
    await control.insert(invitations).values([
      { ...common, email: member.primaryEmail, role: 'owner' },
      { ...common, email: late.primaryEmail, role: 'developer', projectRefs: [ref] },
    ])
    await addMember(place.id, member.id, 'read-only')
    expect(await admin('invitation', 'accept', place.slug, member.username)).toContain('is a member')
    expect(await admin('invitation', 'accept', place.slug, late.username)).toContain('no longer exist')
    expect(await rolesOf(place.owner, place.slug, member)).toMatchObject([{ name: 'Read-only' }])
    expect(await rolesOf(place.owner, place.slug, late)).toBeUndefined()
    expect(await invitedTo(place)).toEqual([])
  })
})

describe('the events of members', () => {
  it('reach a receiver, each with its member and role', async () => {
    const place = await newOrganization()
    const { owner, slug } = place
    const receiver = await newReceiver()
    const [a, b] = [await insertProject(place, { name: 'A' }), await insertProject(place, { name: 'B' })]
    await newEndpoint(await newPlace('organizations', place), { url: receiver.url })
    await newEndpoint(await newPlace('organizations'), { url: receiver.url })
    const person = await personOf((await newPerson(place)).id)
    const canceled = newEmail()
    const [all, first] = [[a, b].sort(), [a]]

    await invite(owner, slug, invitation(canceled, 'developer', [a, b]))
    await cancel(owner, slug, canceled)
    await invite(owner, slug, invitation(person.primaryEmail, 'read-only'))
    await admin('invitation', 'accept', slug, person.username)
    await tick()
    await assign(owner, slug, person.id, 'developer', [a, b])
    await assign(owner, slug, person.id, 'administrator', [b])
    await assign(owner, slug, person.id, 'administrator', [b])
    await assign(owner, slug, person.id, 'developer')
    await assign(owner, slug, person.id, 'read-only')
    await remove(owner, slug, person.id)

    const role = (name: string, refs?: string[]) => ({ name, projects: refs?.map((ref) => ({ ref })) ?? null })
    const of = (assigned: ReturnType<typeof role>) => ({
      user_id: person.id,
      primary_email: person.primaryEmail,
      role: assigned,
    })
    const event = (type: string, member: object, actor: object | null = { user_id: place.userId }) => ({
      type: `v1.organization.member.${type}`,
      payload: { organization_slug: slug, project_ref: null, member, actor },
    })
    const invited = (email: string, assigned: ReturnType<typeof role>) => ({ invitation: { email, role: assigned } })
    const expected = [
      event('invitation.created', invited(canceled, role('Developer', all))),
      event('invitation.canceled', invited(canceled, role('Developer', all))),
      event('invitation.created', invited(person.primaryEmail, role('Read-only'))),
      event('added', of(role('Read-only')), null),
      event('role.assigned', of(role('Developer', all))),
      event('role.updated', of(role('Developer', first))),
      event('role.assigned', of(role('Administrator', [b]))),
      event('role.removed', of(role('Administrator', [b]))),
      event('role.removed', of(role('Read-only'))),
      event('role.updated', of(role('Developer'))),
      event('role.updated', of(role('Read-only'))),
      event('removed', of(role('Read-only'))),
    ]
    await vi.waitFor(() => expect(receiver.received).toHaveLength(expected.length), WAIT)
    const key = (one: object) => JSON.stringify(one)
    const received = receiver.received.map((one) => {
      const { type, payload } = verified(one)
      return { type, payload }
    })
    expect(received.map(key).sort()).toEqual(expected.map(key).sort())
  })
})
