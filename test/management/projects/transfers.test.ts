import { and, eq, inArray } from 'drizzle-orm'
import { describe, expect, it, vi } from 'vitest'
import {
  auditLog,
  functionDeployments,
  functions,
  invitations,
  jitGrants,
  memberRoles,
  organizations,
  projectSettings,
  projects,
  projectTasks,
  snippets,
  webhookEndpoints,
  webhookEvents,
  workers,
  workerTasks,
} from '../../../src/model/tables/index.ts'
import {
  addMember,
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  type TestOrganization,
  tokenOf,
} from '../../support/api.ts'
import { type Transaction, untilBlocked } from '../../support/blocked.ts'
import { createBranch, untilBranch } from '../../support/branches.ts'
import { connect, disconnect, newRepository } from '../../support/github.ts'
import { newForeignKey } from '../../support/issuer.ts'
import { newDrain } from '../../support/log-drains.ts'
import { invitation, invite, newPerson } from '../../support/members.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'
import { newReceiver } from '../../support/receiver.ts'
import { fieldsOf, insertProject, newEndpoint, newPlace, placeOf, verified, WAIT } from '../../support/webhooks.ts'

const DRAIN = { url: 'http://127.0.0.1:9/' }
const SNIPPET = { name: 'Kept', sql: 'select 1', visibility: 'project' }
const NOTEBOOK = { data: { type: 'notebook', attributes: { name: 'Kept', content: { cells: [] } } } }
const body = (target_organization_slug: unknown) => ({
  data: { type: 'project_transfer_input', attributes: { target_organization_slug } },
})
const transfer = (caller: Caller, ref: string, target: string) =>
  caller.post(`/v2/projects/${ref}/transfers`, body(target))
const preview = (caller: Caller, ref: string, target: string) =>
  caller.post(`/v2/projects/${ref}/transfers/previews`, body(target))

type Target = TestOrganization & { other: string }

/** Makes two organizations of one owner. */
async function newPair() {
  const source = await newOrganization()
  const target = await newOrganization()
  await addMember(target.id, source.userId, 'owner')
  return { source, target, owner: source.owner }
}

const organizationOf = async (ref: string) =>
  (await control.select({ id: projects.organizationId }).from(projects).where(eq(projects.ref, ref)))[0]?.id
const countOf = async ({ id }: TestOrganization) =>
  (await control.select({ count: projects.ref }).from(projects).where(eq(projects.organizationId, id))).length
const keptCountOf = async ({ id }: TestOrganization) =>
  (await control.select({ count: organizations.projectCount }).from(organizations).where(eq(organizations.id, id)))[0]
    ?.count

describe('POST /v2/projects/{ref}/transfers', () => {
  it('moves a running project with everything that belongs to it, in one moment', async () => {
    const { source, target, owner } = await newPair()
    const [before, after] = [await newMember(source, 'administrator'), await newMember(target, 'administrator')]
    const ref = await newProject(source)
    const branch = await createBranch(owner, ref)
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    await runSql(owner, ref, 'create table kept (n int); insert into kept values (7)')
    await owner.post(`/v1/projects/${ref}/secrets`, [{ name: 'TOLD', value: 'kept' }])
    const snippet = await owner.post('/v1/snippets', { ...SNIPPET, project_ref: ref })
    const keys = await owner.get(`/v1/projects/${ref}/api-keys?reveal=true`)
    const heard = { source: await newReceiver(), target: await newReceiver(), project: await newReceiver() }
    await newEndpoint(await newPlace('organizations', source), { url: heard.source.url })
    await newEndpoint(await newPlace('organizations', { ...target, owner }), { url: heard.target.url })
    const endpoint = await newEndpoint(placeOf(source, ref), { url: heard.project.url })
    expect(await reach(after, ref, branch.project_ref)).toEqual([404, 404])

    const login = await owner.post(`/v1/projects/${ref}/cli/login-role`, { read_only: false })
    expect(await logsIn(ref, login.body)).toBe(true)

    const moved = await transfer(owner, ref, target.slug)
    expect(moved).toMatchObject({ status: 200, body: '' })
    expect(await reach(before, ref, branch.project_ref)).toEqual([404, 404])
    expect(await reach(after, ref, branch.project_ref)).toEqual([200, 200])
    expect((await after.get(`/v1/projects/${ref}`)).body).toMatchObject({ organization_slug: target.slug })
    expect((await runSql(after, ref, 'select n from kept')).body).toEqual([{ n: 7 }])
    expect((await runSql(before, ref, 'select n from kept')).status).toBe(404)
    await vi.waitFor(async () => expect(await logsIn(ref, login.body)).toBe(false), WAIT)
    expect((await before.get(`/v2/organizations/${source.slug}/projects`)).body.data).toEqual([])
    expect((await after.get(`/v2/organizations/${target.slug}/projects`)).body.data).toHaveLength(2)
    expect([await keptCountOf(source), await keptCountOf(target)]).toEqual([0, 2])
    expect((await after.get(`/v1/projects/${ref}/secrets`)).body).toMatchObject([{ name: 'TOLD' }])
    expect((await after.get(`/v1/projects/${ref}/api-keys?reveal=true`)).body).toEqual(keys.body)
    expect((await after.get(`/v1/projects/${ref}/branches`)).body).toHaveLength(2)
    expect(snippet.status).toBe(201)
    expect((await after.get(`/v1/snippets?project_ref=${ref}`)).body.data).toHaveLength(1)
    expect((await before.get(`/v1/snippets/${snippet.body.id}`)).status).toBe(404)
    expect((await after.get(`/v2/projects/${ref}/webhooks/endpoints`)).body.data).toMatchObject([{ id: endpoint }])

    await after.post(`/v1/projects/${ref}/pause`)
    await untilStatus(after, ref, 'INACTIVE')
    const transferred = (slug: string) => ({
      type: 'v1.project.transferred',
      payload: {
        organization_slug: slug,
        project_ref: ref,
        source: { organization_slug: source.slug },
        target: { organization_slug: target.slug },
        actor: { user_id: source.userId },
      },
    })
    const later = ['v1.project.status.changed', 'v1.project.status.changed', 'v1.project.paused']
    await vi.waitFor(() => {
      expect(heard.target.received).toHaveLength(1 + later.length)
      expect(heard.project.received).toHaveLength(1 + later.length)
      expect(heard.source.received).toHaveLength(1)
    }, WAIT)
    for (const [receiver, slug, types] of [
      [heard.source, source.slug, []],
      [heard.target, target.slug, later],
      [heard.project, target.slug, later],
    ] as const) {
      const sent = receiver.received.map((one) => verified(one))
      expect(sent.find(({ type }) => type === 'v1.project.transferred')).toMatchObject(transferred(slug))
      expect(sent.map(({ type }) => type).sort()).toEqual(['v1.project.transferred', ...types].sort())
    }
    const traces = await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, ref), eq(auditLog.action, 'project.transfer')))
    expect(traces.map(({ organizationId }) => organizationId).sort()).toEqual([source.id, target.id].sort())
  })

  it('ends the roles and grants of the source in it, and publishes that', async () => {
    const { source, target, owner } = await newPair()
    const [ref, other] = [await insertProject(source), await insertProject(source)]
    const [both, alone, everywhere, there] = [
      await newPerson(source, 'developer', ref),
      await newPerson(source, 'developer', ref),
      await newPerson(source, 'developer'),
      await newPerson(source, 'read-only', ref),
    ]
    await addMember(source.id, both.id, 'developer', other)
    await addMember(target.id, there.id, 'read-only')
    const people = [both, alone, everywhere, there]
    await control
      .insert(jitGrants)
      .values(people.map(({ id }) => ({ projectRef: ref, userId: id, roles: [], updatedAt: new Date() })))
    expect((await transfer(owner, ref, target.slug)).status).toBe(200)
    expect(
      await Promise.all(people.map(async ({ caller }) => (await caller.get(`/v1/projects/${ref}`)).status)),
    ).toEqual([404, 404, 404, 200])
    expect((await both.caller.get(`/v1/projects/${other}`)).status).toBe(200)
    expect((await alone.caller.get(`/v1/organizations/${source.slug}`)).status).toBe(404)
    const left = await control.select().from(memberRoles).where(eq(memberRoles.projectRef, ref))
    expect(left).toEqual([])
    const grants = await control.select().from(jitGrants).where(eq(jitGrants.projectRef, ref))
    expect(grants.map(({ userId }) => userId)).toEqual([there.id])
    const events = await control.select().from(webhookEvents).where(eq(webhookEvents.organizationId, source.id))
    const published = events.flatMap(({ type, payload }) => {
      const { member } = payload as { member?: { user_id: string; role: object } }
      return member ? [{ type, user: member.user_id, role: member.role }] : []
    })
    const role = (name: string, ...refs: string[]) => ({ name, projects: refs.map((one) => ({ ref: one })) })
    expect(published).toHaveLength(3)
    expect(published).toEqual(
      expect.arrayContaining([
        { type: 'v1.organization.member.role.updated', user: both.id, role: role('Developer', other) },
        { type: 'v1.organization.member.removed', user: alone.id, role: role('Developer', ref) },
        { type: 'v1.organization.member.removed', user: there.id, role: role('Read-only', ref) },
      ]),
    )
  })

  it('ends invitations into it, and publishes those that were only for it', async () => {
    const { source, target, owner } = await newPair()
    const [ref, other] = [await insertProject(source), await insertProject(source)]
    const branch = await insertProject(source, { parentRef: ref })
    const names = ['alone', 'branch', 'both', 'elsewhere', 'everywhere']
    const [alone, ofBranch, both, elsewhere, everywhere] = names.map((name) => `${name}-${ref}@example.com`)
    const open = (email: string | undefined, projectRefs: string[] | null) => ({
      ...{ organizationId: source.id, createdAt: new Date(), role: 'developer' as const },
      ...{ email: email ?? '', projectRefs },
    })
    await control
      .insert(invitations)
      .values([
        ...[open(alone, [ref]), open(ofBranch, [branch, ref]), open(both, [ref, other])],
        ...[open(elsewhere, [other]), open(everywhere, null)],
      ])
    expect((await transfer(owner, ref, target.slug)).status).toBe(200)
    const left = await control.select().from(invitations).where(eq(invitations.organizationId, source.id))
    expect(Object.fromEntries(left.map(({ email, projectRefs }) => [email, projectRefs]))).toEqual({
      [both ?? '']: [other],
      [elsewhere ?? '']: [other],
      [everywhere ?? '']: null,
    })
    const events = await control.select().from(webhookEvents).where(eq(webhookEvents.organizationId, source.id))
    const published = events.filter(({ type }) => type === 'v1.organization.member.invitation.canceled')
    const canceled = (email: string | undefined, ...refs: string[]) => ({
      ...{ organization_slug: source.slug, project_ref: null, actor: { user_id: source.userId } },
      member: {
        invitation: { email, role: { name: 'Developer', projects: refs.sort().map((one) => ({ ref: one })) } },
      },
    })
    expect(published).toHaveLength(2)
    expect(published.map(({ payload }) => payload)).toEqual(
      expect.arrayContaining([canceled(alone, ref), canceled(ofBranch, branch, ref)]),
    )
    const again = await invite(owner, source.slug, invitation(alone ?? '', 'developer', [other]))
    expect(again.status).toBe(201)
  })

  it('requires an owner of both whole organizations, with a token that reaches both', async () => {
    const { source, target, owner } = await newPair()
    const ref = await insertProject(source)
    const administrator = await newPerson(source, 'owner')
    await addMember(target.id, administrator.id, 'administrator')
    const giver = await newPerson(target, 'owner')
    await addMember(source.id, giver.id, 'owner', ref)
    for (const { caller } of [administrator, giver]) {
      expect(await transfer(caller, ref, target.slug)).toMatchObject({
        status: 403,
        body: { error: { code: 'forbidden.permission_denied' } },
      })
    }
    const { caller: app } = await newApp(source, ['projects:write', 'organizations:write'])
    const elsewhere = await newOrganization()
    for (const reply of [
      await transfer(app, ref, target.slug),
      await transfer(owner, ref, elsewhere.slug),
      await preview(owner, ref, elsewhere.slug),
      await transfer(owner, ref, 'no-such-organization'),
    ]) {
      expect(reply).toMatchObject({ status: 404, body: { error: { code: 'not_found.organization' } } })
    }
    expect(await organizationOf(ref)).toBe(source.id)
  })

  it('requires a token that may write organizations, though the caller owns both', async () => {
    const { source, target } = await newPair()
    const ref = await insertProject(source)
    const narrow = await tokenOf(source.userId, { scopes: ['projects:read', 'projects:write'] })
    for (const reply of [await transfer(narrow, ref, target.slug), await preview(narrow, ref, target.slug)]) {
      expect(reply).toMatchObject({
        status: 403,
        body: { error: { description: 'the access token lacks the scope organizations:write' } },
      })
    }
    expect(await organizationOf(ref)).toBe(source.id)
  })

  it.each([
    [{}, 'body.data'],
    [{ data: { type: 'transfer', attributes: { target_organization_slug: 'x' } } }, 'body.data.type'],
    [body(undefined), 'body.data.attributes.target_organization_slug'],
    [body('no slug'), 'body.data.attributes.target_organization_slug'],
  ])('refuses %j and names the field', async (given, field) => {
    const { owner, source } = await newPair()
    const ref = await insertProject(source)
    for (const path of ['transfers', 'transfers/previews']) {
      expect(fieldsOf(await owner.post(`/v2/projects/${ref}/${path}`, given))).toEqual([field])
    }
  })

  it.each([
    [
      'a name that another project is just being given',
      'project_name_taken',
      (tx: Transaction, { other }: Target) => tx.update(projects).set({ name: 'Same' }).where(eq(projects.ref, other)),
    ],
    [
      'a plan that is just being changed',
      'branches_not_covered',
      (tx: Transaction, { id }: Target) =>
        tx.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, id)),
    ],
  ])('is refused for %s', async (_what, key, change) => {
    const { source, target, owner } = await newPair()
    const [ref, other] = [await insertProject(source, { name: 'Same' }), await insertProject(target)]
    await insertProject(source, { parentRef: ref })
    const { asked } = await control.transaction(async (tx) => {
      await change(tx, { ...target, other })
      return untilBlocked(tx, () => transfer(owner, ref, target.slug))
    })
    expect(await asked).toMatchObject({
      status: 422,
      body: { error: { code: 'unprocessable.transfer', issues: [{ code: key }] } },
    })
    expect([await organizationOf(ref), await keptCountOf(source)]).toEqual([source.id, 2])
  })

  it('locks no organization while it waits for a project, because the lock holder of a parent counts branches there', async () => {
    const { source, target, owner } = await newPair()
    const ref = await insertProject(source)
    const both = inArray(organizations.id, [source.id, target.id])
    const { asked } = await control.transaction(async (tx) => {
      await tx.select({ ref: projects.ref }).from(projects).where(eq(projects.ref, ref)).for('no key update')
      const asked = await untilBlocked(tx, () => transfer(owner, ref, target.slug))
      const free = tx.select({ id: organizations.id }).from(organizations).where(both)
      expect(await free.for('no key update', { noWait: true })).toHaveLength(2)
      return asked
    })
    expect((await asked).status).toBe(200)
  })

  it('happens once if two simultaneous requests ask for it', async () => {
    const { source, target, owner } = await newPair()
    const ref = await insertProject(source)
    const replies = await Promise.all([transfer(owner, ref, target.slug), transfer(owner, ref, target.slug)])
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 409])
    const sent = await control.select().from(webhookEvents).where(eq(webhookEvents.projectRef, ref))
    expect(sent).toHaveLength(2)
  })
})

describe('POST /v2/projects/{ref}/transfers/previews', () => {
  const keysOf = (findings: { key: string }[]) => findings.map(({ key }) => key)

  it('returns the changes, and changes nothing', async () => {
    const { source, target, owner } = await newPair()
    const ref = await insertProject(source)
    await insertProject(source, { parentRef: ref })
    await newMember(source, 'read-only')
    await newMember(source, 'developer', ref)
    await control.update(organizations).set({ plan: 'pro' }).where(eq(organizations.id, target.id))
    await newEndpoint(placeOf(source, ref))
    await newDrain({ caller: owner, path: `/v2/projects/${ref}/analytics/log-drains` }, 'webhook', DRAIN)
    await owner.post(`/v2/projects/${ref}/notebooks`, NOTEBOOK)
    const { jwk } = await newForeignKey()
    await owner.post(`/v1/projects/${ref}/config/auth/third-party-auth`, { custom_jwks: { keys: [jwk] } })
    const reply = await preview(owner, ref, target.slug)
    expect(reply).toMatchObject({ status: 200, body: { data: { type: 'project_transfer_result' } } })
    const { valid, errors, warnings, info } = reply.body.data.attributes
    expect([valid, errors]).toEqual([true, []])
    expect(keysOf(warnings)).toEqual([
      'members_lose_access',
      'plan_changes',
      'credentials_stay',
      'third_party_issuers_stay',
    ])
    expect(warnings[0].message).toContain(`2 members of ${source.slug}`)
    expect(keysOf(info)).toEqual([
      'members_gain_access',
      'branches_move',
      'notebooks_move',
      'webhook_endpoints_move',
      'log_drains_move',
      'organization_webhooks_change',
    ])
    expect(info[0].message).toBe(`1 member of ${target.slug} will gain access to the project`)
    expect(info[1].message).toBe('1 branch will move with the project')
    expect(await organizationOf(ref)).toBe(source.id)
    expect((await transfer(owner, ref, target.slug)).status).toBe(200)
    expect([await countOf(source), await countOf(target)]).toEqual([0, 2])
  })

  /** Expects the same obstacle in the preview and in the transfer, which then has changed nothing. */
  async function expectInvalid(
    { source, target, owner }: Awaited<ReturnType<typeof newPair>>,
    ref: string,
    ...keys: string[]
  ) {
    const { body: previewed } = await preview(owner, ref, target.slug)
    expect({ valid: previewed.data.attributes.valid, keys: keysOf(previewed.data.attributes.errors) }).toEqual({
      valid: false,
      keys,
    })
    const refused = await transfer(owner, ref, target.slug)
    expect(refused).toMatchObject({ status: 422, body: { error: { code: 'unprocessable.transfer' } } })
    expect(refused.body.error.issues.map(({ code }: { code: string }) => code)).toEqual(keys)
    expect(await organizationOf(ref)).toBe(source.id)
  }

  it('reports a name in use, work under way, and features that the plan does not cover', async () => {
    const pair = await newPair()
    const { source, target } = pair
    const ref = await insertProject(source, { name: 'Same' })
    await insertProject(target, { name: 'Same' })
    await expectInvalid(pair, ref, 'project_name_taken')
    await control.update(projects).set({ name: 'Other' }).where(eq(projects.ref, ref))
    const branch = await insertProject(source, { parentRef: ref })
    await control
      .insert(projectTasks)
      .values({ projectRef: branch, kind: 'backup', dueAt: new Date(Date.now() + 3_600_000) })
    await expectInvalid(pair, ref, 'project_busy')
    await control.delete(projectTasks).where(eq(projectTasks.projectRef, branch))
    const spec = { size: '2gb' as const, exposure: 'public' as const, instances: 1 }
    const times = { createdAt: new Date(), updatedAt: new Date() }
    const [worker] = await control
      .insert(workers)
      .values({ projectRef: branch, name: 'w', spec, buildState: 'building', ...times })
      .returning()
    if (!worker) throw new Error('no worker')
    const dueAt = new Date(Date.now() + 3_600_000)
    await control.insert(workerTasks).values({ workerId: worker.id, kind: 'build', spec, dueAt, createdAt: new Date() })
    await expectInvalid(pair, ref, 'project_busy')
    await control.delete(workers).where(eq(workers.id, worker.id))
    await control.update(projects).set({ status: 'GOING_DOWN' }).where(eq(projects.ref, branch))
    await expectInvalid(pair, ref, 'project_busy')
    await control.update(projects).set({ status: 'INACTIVE' }).where(eq(projects.ref, branch))
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, target.id))
    await expectInvalid(pair, ref, 'branches_not_covered')
    await expectInvalid(pair, branch, 'project_is_branch')
    await expectInvalid({ ...pair, target: source }, ref, 'same_organization')
  })

  it('reports a repository that the project follows', async () => {
    const pair = await newPair()
    const ref = await insertProject(pair.source)
    await connect(pair.source, ref, await newRepository())
    await expectInvalid(pair, ref, 'github_connection_active')
    await disconnect(ref)
    expect((await transfer(pair.owner, ref, pair.target.slug)).status).toBe(200)
  })

  it('reports more functions than the plan allows', async () => {
    const pair = await newPair()
    const ref = await insertProject(pair.source)
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, pair.target.id))
    await insertFunctions(ref, 101)
    await expectInvalid(pair, ref, 'functions_not_covered')
    await control.delete(functions).where(and(eq(functions.projectRef, ref), eq(functions.slug, 'f101')))
    expect((await transfer(pair.owner, ref, pair.target.slug)).status).toBe(200)
  })

  it('reports log drains that the plan does not cover', async () => {
    const pair = await newPair()
    const ref = await insertProject(pair.source)
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, pair.target.id))
    const drained = { caller: pair.owner, path: `/v2/projects/${ref}/analytics/log-drains` }
    const id = await newDrain(drained, 'webhook', DRAIN)
    await expectInvalid(pair, ref, 'log_drains_not_covered')
    await pair.owner.delete(`${drained.path}/${id}`)
    expect((await transfer(pair.owner, ref, pair.target.slug)).status).toBe(200)
  })

  it('reports to administrators that they may not transfer', async () => {
    const { source, target } = await newPair()
    const ref = await insertProject(source)
    const { caller } = await newPerson(source, 'administrator')
    const person = await newPerson(source, 'administrator')
    await addMember(target.id, person.id, 'read-only')
    expect((await preview(caller, ref, target.slug)).status).toBe(404)
    const { attributes } = (await preview(person.caller, ref, target.slug)).body.data
    expect(attributes.valid).toBe(false)
    expect(keysOf(attributes.errors)).toEqual(['source_owner_required', 'target_owner_required'])
    expect([attributes.warnings, attributes.info]).toEqual([[], []])
  })

  it('reveals nothing about the other organization to callers who may not write it', async () => {
    const { source, target } = await newPair()
    const ref = await insertProject(source, { name: 'Same' })
    await insertProject(target, { name: 'Same' })
    const { caller, id } = await newPerson(source, 'owner')
    await addMember(target.id, id, 'read-only', await insertProject(target))
    const { attributes } = (await preview(caller, ref, target.slug)).body.data
    expect(keysOf(attributes.errors)).toEqual(['target_owner_required'])
    expect([attributes.warnings, attributes.info]).toEqual([[], []])
  })
})

describe('a change that started before the transfer of its project', () => {
  it.each([
    [
      'a webhook endpoint',
      (owner: Caller, ref: string) =>
        owner.post(`/v2/projects/${ref}/webhooks/endpoints`, {
          data: {
            type: 'endpoint',
            attributes: {
              url: 'http://127.0.0.1:9/',
              event_types: [{ type: '*' }],
              signing_secret: 'a secret of ours',
            },
          },
        }),
      webhookEndpoints,
    ],
    [
      'a snippet',
      (owner: Caller, ref: string) => owner.post('/v1/snippets', { ...SNIPPET, project_ref: ref }),
      snippets,
    ],
    [
      'a setting',
      (owner: Caller, ref: string) => owner.patch(`/v1/projects/${ref}/config/auth`, { jwt_exp: 77 }),
      projectSettings,
    ],
  ] as const)('is refused and stores nothing: %s', async (_what, create, table) => {
    const [source, target] = [await newOrganization(), await newOrganization()]
    const ref = await insertProject(source)
    const caller = await tokenOf(source.userId)
    const reply = await control.transaction(async (tx) => {
      await tx.select({ ref: projects.ref }).from(projects).where(eq(projects.ref, ref)).for('update')
      await tx.update(projects).set({ organizationId: target.id }).where(eq(projects.ref, ref))
      return untilBlocked(tx, () => create(caller, ref))
    })
    expect((await reply.asked).status).toBe(404)
    expect(await control.select().from(table).where(eq(table.projectRef, ref))).toEqual([])
  })
})

async function reach(caller: Caller, ...refs: string[]): Promise<number[]> {
  return Promise.all(refs.map(async (ref) => (await caller.get(`/v1/projects/${ref}`)).status))
}

async function logsIn(ref: string, { role, password }: { role: string; password: string }): Promise<boolean> {
  const client = ownerClient(ref, { user: `${role}.${ref}`, password })
  return client.connect().then(
    () => client.end().then(() => true),
    () => false,
  )
}

/** Inserts only rows, f1 to f`count`. */
async function insertFunctions(ref: string, count: number): Promise<void> {
  const createdAt = new Date()
  const [deployment] = await control
    .insert(functionDeployments)
    .values({ projectRef: ref, slug: 'f', sha256: '', entrypoint: 'index.ts', createdAt })
    .returning()
  if (!deployment) throw new Error('no deployment')
  await control.insert(functions).values(
    Array.from({ length: count }, (_, n) => ({
      ...{ projectRef: ref, slug: `f${n + 1}`, name: 'f', status: 'ACTIVE' as const, version: 1, verifyJwt: true },
      ...{ deploymentId: deployment.id, createdAt, updatedAt: createdAt },
    })),
  )
}
