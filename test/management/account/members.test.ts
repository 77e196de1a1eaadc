import { asc, eq, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import {
  auditLog,
  invitations,
  jitGrants,
  memberRoles,
  organizations,
  users,
  webhookEvents,
} from '../../../src/model/tables/index.ts'
import {
  addMember,
  as,
  control,
  newApp,
  newMember,
  newOrganization,
  newUser,
  type TestOrganization,
} from '../../support/api.ts'
import {
  assign,
  cancel,
  insertLogins,
  invitation,
  invite,
  newPerson,
  openLogins,
  personOf,
  remove,
  rolesOf,
} from '../../support/members.ts'
import { byRefresh, newTokens, registerApp } from '../../support/oauth.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { fieldsOf, insertProject, WAIT } from '../../support/webhooks.ts'

const NOBODY = '00000000-0000-4000-8000-000000000000'

async function named(organization: TestOrganization, name: string) {
  const ref = await insertProject(organization, { name })
  return { ref, name }
}

const traces = ({ id }: TestOrganization) =>
  control.select().from(auditLog).where(eq(auditLog.organizationId, id)).orderBy(asc(auditLog.createdAt))

describe('GET /v2/organizations/{slug}/members', () => {
  const COUNT = 5
  let organization: TestOrganization
  let ids: string[]
  beforeAll(async () => {
    organization = await newOrganization()
    ids = [organization.userId]
    for (let n = 1; n < COUNT; n++) {
      const id = await newUser()
      await addMember(organization.id, id, 'read-only')
      ids.push(id)
    }
    ids.sort()
  })
  const list = (query = '') => organization.owner.get(`/v2/organizations/${organization.slug}/members?${query}`)
  const idsIn = ({ body }: Awaited<ReturnType<typeof list>>) => body.data.map(({ id }: { id: string }) => id)

  it('returns each member once, with their roles', async () => {
    const place = await newOrganization()
    const [b, a] = [await named(place, 'B'), await named(place, 'A')]
    const gone = await insertProject(place, { removedAt: new Date() })
    const person = await newPerson(place, 'read-only')
    for (const { ref } of [a, b]) await addMember(place.id, person.id, 'developer', ref)
    await addMember(place.id, person.id, 'administrator', gone)
    const { status, body } = await place.owner.get(`/v2/organizations/${place.slug}/members`)
    expect(status).toBe(200)
    expect(body.links).toEqual({
      first: `/v2/organizations/${place.slug}/members?page[size]=20`,
      prev: null,
      next: null,
    })
    expect(body.data).toHaveLength(2)
    expect(body.data.find(({ id }: { id: string }) => id === person.id)).toEqual({
      type: 'organization_member',
      id: person.id,
      attributes: {
        username: person.username,
        primary_email: person.primaryEmail,
        mfa_enabled: false,
        is_sso_user: false,
        avatar_url: null,
        roles: [
          { name: 'Developer', scope: 'project', projects: [a, b] },
          { name: 'Read-only', scope: 'organization', projects: [] },
        ],
      },
    })
  })

  it('pages forwards and backwards', async () => {
    const first = await list('page[size]=2')
    expect(idsIn(first)).toEqual(ids.slice(0, 2))
    expect(first.body.links.prev).toBeNull()
    const second = await organization.owner.get(first.body.links.next)
    expect(idsIn(second)).toEqual(ids.slice(2, 4))
    const third = await organization.owner.get(second.body.links.next)
    expect(idsIn(third)).toEqual(ids.slice(4))
    expect(third.body.links.next).toBeNull()
    const back = await organization.owner.get(third.body.links.prev)
    expect(idsIn(back)).toEqual(ids.slice(2, 4))
    expect(idsIn(await organization.owner.get(back.body.links.prev))).toEqual(ids.slice(0, 2))
  })

  it('continues after a page without members', async () => {
    const above = await list(`page[size]=2&page[before]=${ids[0]}`)
    expect([idsIn(above), above.body.links.prev]).toEqual([[], null])
    expect(idsIn(await organization.owner.get(above.body.links.next))).toEqual(ids.slice(1, 3))
    const beyond = await list(`page[size]=2&page[after]=${ids.at(-1)}`)
    expect([idsIn(beyond), beyond.body.links.next]).toEqual([[], null])
    expect(idsIn(await organization.owner.get(beyond.body.links.prev))).toEqual(ids.slice(2, 4))
  })

  it('finds a member by name or by address in any case, and nobody from another organization', async () => {
    const { id, username, primaryEmail } = await personOf(ids[1] ?? '')
    expect(idsIn(await list(`filter[username]=${username}`))).toEqual([id])
    expect(idsIn(await list(`filter[primary_email]=${primaryEmail.toUpperCase()}`))).toEqual([id])
    expect(idsIn(await list(`filter[username]=${username}&filter[primary_email]=${primaryEmail}`))).toEqual([id])
    expect(idsIn(await list(`filter[username]=${username}x`))).toEqual([])
    expect(idsIn(await list(`filter[username]=${'x'.repeat(257)}`))).toEqual([])
    expect(idsIn(await list('filter[username]='))).toEqual(ids)
    const stranger = await personOf(await newUser())
    expect(idsIn(await list(`filter[primary_email]=${stranger.primaryEmail}`))).toEqual([])
  })

  it.each([
    ['page[size]=0', 'query.page[size]'],
    ['page[size]=101', 'query.page[size]'],
    ['page[after]=x', 'query.page[after]'],
    ['page[before]=x', 'query.page[before]'],
    [`page[after]=${NOBODY}&page[before]=${NOBODY}`, 'query.page[before]'],
    ['filter[primary_email]=x', 'query.filter[primary_email]'],
  ])('refuses %s by name', async (query, field) => {
    const reply = await list(query)
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual([field])
  })

  it('shows a member of one project nothing of the others', async () => {
    const place = await newOrganization()
    const [mine, other] = [await named(place, 'Mine'), await named(place, 'Other')]
    const person = await newPerson(place, 'developer', other.ref)
    await addMember(place.id, person.id, 'read-only', mine.ref)
    const member = await newMember(place, 'read-only', mine.ref)
    expect(await rolesOf(member, place.slug, person)).toEqual([
      { name: 'Read-only', scope: 'project', projects: [mine] },
    ])
  })
})

describe('GET /v2/organizations/{slug}/roles', () => {
  it('returns the roles with the names that requests use', async () => {
    const { owner, slug } = await newOrganization()
    const type = 'organization_role'
    expect((await owner.get(`/v2/organizations/${slug}/roles`)).body).toEqual({
      data: [
        { type, id: 'owner', attributes: { name: 'Owner' } },
        { type, id: 'administrator', attributes: { name: 'Administrator' } },
        { type, id: 'developer', attributes: { name: 'Developer' } },
        { type, id: 'read-only', attributes: { name: 'Read-only' } },
      ],
    })
  })
})

describe('PATCH /v2/organizations/{slug}/members/{user_id}/roles', () => {
  it('takes effect at once in the organization and in projects', async () => {
    const place = await newOrganization()
    const { owner, slug } = place
    const [a, b] = [await named(place, 'A'), await named(place, 'B')]
    const branch = await insertProject(place, { name: 'branch', parentRef: a.ref })
    const person = await newPerson(place, 'administrator')
    const statuses = async () => ({
      reads: await Promise.all(
        [a.ref, branch, b.ref].map(async (ref) => (await person.caller.get(`/v1/projects/${ref}`)).status),
      ),
      listed: (await person.caller.get('/v1/projects')).body.map(({ ref }: { ref: string }) => ref).sort(),
      writes: (await person.caller.patch(`/v1/projects/${a.ref}`, { name: 'A' })).status,
    })
    expect(await statuses()).toEqual({ reads: [200, 200, 200], listed: [a.ref, b.ref].sort(), writes: 200 })

    const scoped = await assign(owner, slug, person.id, 'read-only', [a.ref])
    expect(scoped).toMatchObject({
      status: 200,
      body: {
        data: {
          type: 'organization_member_role',
          attributes: { name: 'Read-only', scope: 'project', projects: [a] },
        },
      },
    })
    expect(await statuses()).toEqual({ reads: [200, 200, 404], listed: [a.ref], writes: 403 })
    expect((await person.caller.get(`/v2/organizations/${slug}/projects`)).body.data).toHaveLength(2)

    await assign(owner, slug, person.id, 'administrator', [b.ref])
    expect(await statuses()).toEqual({ reads: [200, 200, 200], listed: [a.ref, b.ref].sort(), writes: 403 })

    const everywhere = await assign(owner, slug, person.id, 'read-only')
    expect(everywhere.body.data.attributes).toEqual({ name: 'Read-only', scope: 'organization', projects: [] })
    expect(await rolesOf(owner, slug, person)).toEqual([everywhere.body.data.attributes])
    expect((await person.caller.patch(`/v1/projects/${b.ref}`, { name: 'B' })).status).toBe(403)
    const done = (await traces(place)).filter(({ action }) => action === 'member.role.assign')
    expect(done.map(({ actorUserId, detail }) => ({ actorUserId, detail }))).toEqual([
      { actorUserId: place.userId, detail: { user: person.id, role: 'read-only', projects: [a.ref] } },
      { actorUserId: place.userId, detail: { user: person.id, role: 'administrator', projects: [b.ref] } },
      { actorUserId: place.userId, detail: { user: person.id, role: 'read-only' } },
    ])
  })

  it('removes overlapping projects from other roles, deletes roles that become empty, and keeps a lower one everywhere', async () => {
    const place = await newOrganization()
    const { owner, slug } = place
    const [a, b, c] = [await named(place, 'A'), await named(place, 'B'), await named(place, 'C')]
    const person = await newPerson(place, 'read-only')
    await assign(owner, slug, person.id, 'developer', [a.ref, b.ref, a.ref])
    const everywhere = { name: 'Read-only', scope: 'organization', projects: [] }
    const roles = () => rolesOf(owner, slug, person)
    expect(await roles()).toEqual([{ name: 'Developer', scope: 'project', projects: [a, b] }, everywhere])
    await assign(owner, slug, person.id, 'administrator', [b.ref, c.ref])
    expect(await roles()).toEqual([
      { name: 'Administrator', scope: 'project', projects: [b, c] },
      { name: 'Developer', scope: 'project', projects: [a] },
      everywhere,
    ])
    await assign(owner, slug, person.id, 'administrator', [a.ref])
    expect(await roles()).toEqual([{ name: 'Administrator', scope: 'project', projects: [a] }, everywhere])
    await assign(owner, slug, person.id, 'read-only', [a.ref])
    expect(await roles()).toEqual([{ name: 'Read-only', scope: 'project', projects: [a] }])
  })

  it('leaves no role in a branch beside one in its project', async () => {
    const place = await newOrganization()
    const a = await named(place, 'A')
    const branch = await insertProject(place, { parentRef: a.ref })
    const person = await newPerson(place, 'administrator', branch)
    await assign(place.owner, place.slug, person.id, 'read-only', [a.ref])
    expect((await person.caller.patch(`/v1/projects/${branch}`, { name: 'x' })).status).toBe(403)
    expect(await rolesOf(place.owner, place.slug, person)).toEqual([
      { name: 'Read-only', scope: 'project', projects: [a] },
    ])
  })

  it('refuses a caller who loses the required role while the request waits', async () => {
    const place = await newOrganization()
    const [caller, person] = [await newPerson(place, 'owner'), await newPerson(place, 'developer')]
    const waiting = sql`select from pg_stat_activity where wait_event_type = 'Lock' and query like '%organizations%for no key update%'`
    const { replies } = await control.transaction(async (tx) => {
      await tx.update(organizations).set({ name: 'Held' }).where(eq(organizations.id, place.id))
      await tx.update(memberRoles).set({ role: 'read-only' }).where(eq(memberRoles.userId, caller.id))
      const replies = Promise.all([
        assign(caller.caller, place.slug, person.id, 'owner'),
        remove(caller.caller, place.slug, person.id),
        invite(caller.caller, place.slug, invitation('late@example.com')),
        cancel(caller.caller, place.slug, 'late@example.com'),
      ])
      await vi.waitFor(async () => expect((await control.execute(waiting)).rows.length).toBeGreaterThan(3), WAIT)
      return { replies }
    })
    expect((await replies).map(({ status }) => status)).toEqual([403, 403, 403, 403])
    expect(await rolesOf(place.owner, place.slug, person)).toMatchObject([{ name: 'Developer' }])
  })

  it('ends the database logins that the new role does not allow, and keeps the others', async () => {
    const place = await newOrganization()
    const [a, b] = [await insertProject(place), await insertProject(place)]
    const branch = await insertProject(place, { parentRef: b })
    const person = await newPerson(place, 'developer')
    const refs = [a, b, branch]
    await insertLogins(person.id, refs)
    await control
      .insert(jitGrants)
      .values(refs.map((projectRef) => ({ projectRef, userId: person.id, roles: [], updatedAt: new Date() })))
    const left = async () => ({
      logins: (await openLogins(person.id)).sort(),
      grants: (await control.select().from(jitGrants).where(eq(jitGrants.userId, person.id)))
        .map(({ projectRef }) => projectRef)
        .sort(),
    })
    const both = (ref: string) => [`${ref} cli`, `${ref} jit`]
    expect(await left()).toEqual({ logins: refs.flatMap(both).sort(), grants: [...refs].sort() })
    await assign(place.owner, place.slug, person.id, 'developer', [b])
    expect(await left()).toEqual({ logins: [b, branch].flatMap(both).sort(), grants: [b, branch].sort() })
    await assign(place.owner, place.slug, person.id, 'read-only', [b])
    expect(await left()).toEqual({ logins: [`${b} jit`, `${branch} jit`].sort(), grants: [b, branch].sort() })
    await remove(place.owner, place.slug, person.id)
    expect(await left()).toEqual({ logins: [], grants: [] })
  })

  it('lets only owners change who is an owner, and keeps the last one', async () => {
    const place = await newOrganization()
    const { owner, slug, userId } = place
    const admin = await newPerson(place, 'administrator')
    const project = await insertProject(place)
    for (const reply of [
      await assign(admin.caller, slug, admin.id, 'owner'),
      await assign(admin.caller, slug, admin.id, 'owner', [project]),
      await assign(admin.caller, slug, userId, 'developer'),
      await remove(admin.caller, slug, userId),
    ]) {
      expect(reply).toMatchObject({ status: 403, body: { error: { code: 'forbidden.permission_denied' } } })
    }
    for (const reply of [
      await assign(owner, slug, userId, 'administrator'),
      await assign(owner, slug, userId, 'owner', [project]),
      await remove(owner, slug, userId),
    ]) {
      expect(reply).toMatchObject({ status: 409, body: { error: { code: 'conflict.last_owner' } } })
    }
    expect(await rolesOf(owner, slug, await personOf(userId))).toEqual([
      { name: 'Owner', scope: 'organization', projects: [] },
    ])
    expect(await traces(place)).toEqual([])
    expect((await assign(owner, slug, admin.id, 'owner')).status).toBe(200)
    expect((await assign(admin.caller, slug, userId, 'developer')).status).toBe(200)
    expect((await assign(owner, slug, admin.id, 'developer')).status).toBe(403)
  })

  it('keeps the last owner whom the operator has not disabled', async () => {
    const place = await newOrganization()
    const { owner, slug, userId } = place
    const other = await newPerson(place, 'owner')
    const setDisabled = (disabledAt: Date | null) =>
      control.update(users).set({ disabledAt }).where(eq(users.id, other.id))
    await setDisabled(new Date())
    for (const reply of [await assign(owner, slug, userId, 'administrator'), await remove(owner, slug, userId)]) {
      expect(reply).toMatchObject({ status: 409, body: { error: { code: 'conflict.last_owner' } } })
    }
    await setDisabled(null)
    expect((await remove(owner, slug, userId)).status).toBe(204)
  })

  it('lets administrators change members if the command line left no owner', async () => {
    const place = await newOrganization()
    const admin = await newPerson(place, 'administrator')
    const [one, two] = [await newPerson(place, 'developer'), await newPerson(place, 'developer')]
    await control.delete(memberRoles).where(eq(memberRoles.userId, place.userId))
    expect((await assign(admin.caller, place.slug, one.id, 'read-only')).status).toBe(200)
    expect((await remove(admin.caller, place.slug, two.id)).status).toBe(204)
  })

  it('keeps one of two owners who leave at the same time', async () => {
    const place = await newOrganization()
    const other = await newPerson(place, 'owner')
    const replies = await Promise.all([
      remove(place.owner, place.slug, place.userId),
      assign(other.caller, place.slug, other.id, 'developer'),
    ])
    expect(replies.map(({ status }) => status).filter((status) => status === 409)).toHaveLength(1)
    const owners = await control.select().from(memberRoles).where(eq(memberRoles.organizationId, place.id))
    expect(owners.filter(({ role }) => role === 'owner')).toHaveLength(1)
  })

  it.each([
    [{ data: { type: 'organization_member_role', attributes: {} } }, 'body.data.attributes.role'],
    [{ data: { type: 'organization_member_role', attributes: { role: 'king' } } }, 'body.data.attributes.role'],
    [{ data: { type: 'role', attributes: { role: 'owner' } } }, 'body.data.type'],
    [
      { data: { type: 'organization_member_role', attributes: { role: 'owner', projects: [] } } },
      'body.data.attributes.projects',
    ],
    [
      { data: { type: 'organization_member_role', attributes: { role: 'owner', projects: [{ ref: 'x' }] } } },
      'body.data.attributes.projects.0.ref',
    ],
    [
      {
        data: {
          type: 'organization_member_role',
          attributes: { role: 'owner', projects: Array.from({ length: 251 }, () => ({ ref: 'a'.repeat(20) })) },
        },
      },
      'body.data.attributes.projects',
    ],
    [{}, 'body.data'],
  ])('refuses %j and names the field', async (body, field) => {
    const { owner, slug, userId } = await newOrganization()
    const reply = await owner.patch(`/v2/organizations/${slug}/members/${userId}/roles`, body)
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual([field])
  })

  it('refuses projects of others, deleted projects and branches, and changes nothing', async () => {
    const place = await newOrganization()
    const person = await newPerson(place, 'read-only')
    const mine = await insertProject(place)
    const refs = [
      mine,
      await insertProject(await newOrganization()),
      await insertProject(place, { removedAt: new Date() }),
      await insertProject(place, { parentRef: mine }),
    ]
    const reply = await assign(place.owner, place.slug, person.id, 'developer', refs)
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual([1, 2, 3].map((n) => `body.data.attributes.projects.${n}.ref`))
    expect(reply.body.error.description).toContain(`assign a role in ${mine}, which also applies to its branches`)
    expect(await rolesOf(place.owner, place.slug, person)).toMatchObject([{ name: 'Read-only' }])
  })

  it('answers 404 for a user who is not a member, and requires the plan', async () => {
    const place = await newOrganization()
    const { owner, slug } = place
    const stranger = await newUser()
    for (const id of [NOBODY, stranger]) {
      const missing = { status: 404, body: { error: { code: 'not_found.member' } } }
      expect(await assign(owner, slug, id, 'developer')).toMatchObject(missing)
      expect(await remove(owner, slug, id)).toMatchObject(missing)
    }
    expect(fieldsOf(await assign(owner, slug, 'x', 'developer'))).toEqual(['path.user_id'])
    expect(fieldsOf(await remove(owner, slug, 'x'))).toEqual(['path.user_id'])
    await control.update(organizations).set({ plan: 'team' }).where(eq(organizations.id, place.id))
    expect(await assign(owner, slug, place.userId, 'owner')).toMatchObject({
      status: 402,
      body: { error: { code: 'payment_required.members', description: 'its plan is team' } },
    })
    await control.update(organizations).set({ plan: 'platform' }).where(eq(organizations.id, place.id))
    expect((await assign(owner, slug, place.userId, 'owner')).status).toBe(200)
  })

  it('accepts an application with the scope for its user, and not one of another organization', async () => {
    const place = await newOrganization()
    const person = await newPerson(place, 'read-only')
    const { caller } = await newApp(place, ['organizations:write'])
    expect((await assign(caller, place.slug, person.id, 'developer')).status).toBe(200)
    const foreign = await newApp(await newOrganization(), ['organizations:write'])
    expect((await assign(foreign.caller, place.slug, person.id, 'owner')).status).toBe(404)
  })
})

describe('the deletion of a project', () => {
  it('deletes the roles in it and the invitations to it, and publishes that with the deleting user as actor', async () => {
    const place = await newOrganization()
    const [ref, other] = [await newProject(place), await insertProject(place)]
    const [alone, both] = [await newPerson(place, 'developer', ref), await newPerson(place, 'read-only')]
    await addMember(place.id, both.id, 'administrator', ref)
    await control.insert(jitGrants).values({ projectRef: ref, userId: both.id, roles: [], updatedAt: new Date() })
    const [gone, kept] = [`gone-${ref}@example.com`, `kept-${ref}@example.com`]
    await invite(place.owner, place.slug, invitation(gone, 'developer', [ref]), invitation(kept, 'owner', [ref, other]))
    expect((await place.owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
    await untilGone(place.owner, ref)
    expect((await alone.caller.get(`/v1/organizations/${place.slug}`)).status).toBe(404)
    const { body } = await place.owner.get(`/v1/organizations/${place.slug}/members`)
    const shown = body.map(({ user_id, role_name }: Record<string, string>) => [user_id, role_name])
    expect(Object.fromEntries(shown)).toEqual({ [place.userId]: 'Owner', [both.id]: 'Read-only' })
    expect(await control.$count(jitGrants, eq(jitGrants.projectRef, ref))).toBe(0)
    const open = await control.select().from(invitations).where(eq(invitations.organizationId, place.id))
    expect(open.map(({ email, projectRefs }) => [email, projectRefs])).toEqual([[kept, [other]]])
    const events = await control.select().from(webhookEvents).where(eq(webhookEvents.organizationId, place.id))
    const published = events.filter(({ type }) => /removed|canceled/.test(type))
    const role = (name: string) => ({ name, projects: [{ ref }] })
    const from = { organization_slug: place.slug, actor: { user_id: place.userId } }
    const member = ({ id, primaryEmail }: typeof alone, name: string) => ({
      ...{ ...from, project_ref: null },
      member: { user_id: id, primary_email: primaryEmail, role: role(name) },
    })
    const canceled = { member: { invitation: { email: gone, role: role('Developer') } } }
    expect(Object.fromEntries(published.map(({ type, payload }) => [type, payload]))).toEqual({
      'v1.project.removed': { ...from, project_ref: ref },
      'v1.organization.member.removed': member(alone, 'Developer'),
      'v1.organization.member.role.removed': member(both, 'Administrator'),
      'v1.organization.member.invitation.canceled': { ...from, project_ref: null, ...canceled },
    })
  })
})

describe('DELETE /v2/organizations/{slug}/members/{user_id}', () => {
  it('removes all roles and grants of the member at once, on any plan', async () => {
    const place = await newOrganization()
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, place.id))
    const ref = await insertProject(place)
    const person = await newPerson(place, 'developer')
    await addMember(place.id, person.id, 'administrator', ref)
    const grant = { userId: person.id, roles: [], updatedAt: new Date() }
    const elsewhere = await newOrganization()
    const kept = await insertProject(elsewhere)
    await addMember(elsewhere.id, person.id, 'developer')
    await control.insert(jitGrants).values([ref, kept].map((projectRef) => ({ ...grant, projectRef })))

    expect(await remove(place.owner, place.slug, person.id)).toMatchObject({ status: 204, body: '' })
    expect((await person.caller.get(`/v1/projects/${ref}`)).status).toBe(404)
    expect((await person.caller.get(`/v1/organizations/${place.slug}`)).status).toBe(404)
    expect((await person.caller.get('/v1/organizations')).body).toMatchObject([{ slug: elsewhere.slug }])
    expect((await person.caller.get(`/v1/projects/${kept}`)).status).toBe(200)
    const grants = await control.select().from(jitGrants).where(eq(jitGrants.userId, person.id))
    expect(grants.map(({ projectRef }) => projectRef)).toEqual([kept])
    expect((await remove(place.owner, place.slug, person.id)).status).toBe(404)
    expect(await traces(place)).toMatchObject([
      { action: 'member.remove', actorUserId: place.userId, detail: { user: person.id } },
    ])
  })

  it('ends the approvals for applications, also if the member returns later', async () => {
    const place = await newOrganization()
    const elsewhere = await newOrganization()
    const person = await newPerson(place, 'developer')
    await addMember(elsewhere.id, person.id, 'developer')
    const app = await registerApp(place)
    const approver = { owner: person.caller, userId: person.id }
    const here = await newTokens(app, { ...place, ...approver })
    const there = await newTokens(app, { ...elsewhere, ...approver })
    await remove(place.owner, place.slug, person.id)
    await addMember(place.id, person.id, 'developer')
    expect((await as(here.access_token).get(`/v1/organizations/${place.slug}`)).status).toBe(401)
    expect((await byRefresh(app, here.refresh_token)).body).toMatchObject({ error: 'invalid_grant' })
    expect((await byRefresh(app, there.refresh_token)).status).toBe(200)
  })

  it('lets an administrator leave', async () => {
    const place = await newOrganization()
    const admin = await newPerson(place, 'administrator')
    expect((await remove(admin.caller, place.slug, admin.id)).status).toBe(204)
    expect((await admin.caller.get(`/v2/organizations/${place.slug}/members`)).status).toBe(404)
  })
})
