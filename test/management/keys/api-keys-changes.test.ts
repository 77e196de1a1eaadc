import { randomUUID } from 'node:crypto'
import { and, asc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { apiKeys, auditLog, projects, webhookEvents } from '../../../src/model/tables/index.ts'
import {
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  type Reply,
  type TestOrganization,
  unhurried,
} from '../../support/api.ts'
import { createProject, newProject, untilGone } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
let caller: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  caller = unhurried(organization.owner)
  ref = await createProject(organization)
})

interface ApiKey {
  type: string
  name: string
}

const keys = (project = ref) => `/v1/projects/${project}/api-keys`
const nameOf = (what: string) => `${what}_${randomUUID().slice(0, 8)}`
const create = async (fields: Record<string, unknown> = {}, query = '?reveal=true') =>
  caller().post(keys() + query, { type: 'secret', name: nameOf('key'), ...fields })
const read = async (id: string, query = '?reveal=true') => caller().get(`${keys()}/${id}${query}`)
const listed = async (project = ref) => (await caller().get(`${keys(project)}?reveal=true`)).body
const rowOf = async (id: string) => (await control.select().from(apiKeys).where(eq(apiKeys.id, id)))[0]
const generation = async () =>
  (await control.select({ n: projects.secretsGeneration }).from(projects).where(eq(projects.ref, ref)))[0]?.n ?? 0
const traces = (action: string) =>
  control
    .select()
    .from(auditLog)
    .where(and(eq(auditLog.projectRef, ref), eq(auditLog.action, action)))
    .orderBy(asc(auditLog.createdAt))

/** Returns the length of the claims as Postgres writes jsonb, with a space after each colon and comma. */
const lengthOf = (claims: object) => JSON.stringify(claims).length + 2 * Object.keys(claims).length - 1

const nested = (levels: number): unknown => JSON.parse(`${'['.repeat(levels)}1${']'.repeat(levels)}`)

const WRONG: [field: string, value: unknown, said?: string][] = [
  ['name', 'abc'],
  ['name', 'a'.repeat(65)],
  ['name', 'Capital'],
  ['name', '9lives'],
  ['name', 'with-dash'],
  ['name', 7],
  ['description', 'x'.repeat(1_025)],
  ['description', 5],
  ['secret_jwt_template', 'service_role'],
  ['secret_jwt_template', []],
  ['secret_jwt_template', { role: 'postgres' }, 'body.secret_jwt_template.role'],
  ['secret_jwt_template', { role: 'none' }, 'body.secret_jwt_template.role'],
  ['secret_jwt_template', { role: 'anon', big: 'x'.repeat(4_096) }],
  ['secret_jwt_template', { role: 'anon', exp: 4_000_000_000 }],
  ['secret_jwt_template', { role: 'anon', nul: ['\0'] }],
  ['secret_jwt_template', { role: 'anon', half: { '\ud800': 1 } }],
  ...[16, 1_000, 2_000].map((levels): [string, unknown] => [
    'secret_jwt_template',
    { role: 'anon', deep: nested(levels) },
  ]),
]

describe('POST /v1/projects/{ref}/api-keys', () => {
  it('creates a secret key, which is shown on request and never changes', async () => {
    const before = await generation()
    const name = nameOf('server')
    const template = { role: 'authenticated', sub: randomUUID(), app: { level: 3, tags: ['a', null] } }
    const created = await create({ name, description: 'For the server', secret_jwt_template: template })
    expect(created).toMatchObject({
      status: 201,
      body: { name, type: 'secret', description: 'For the server', secret_jwt_template: template },
    })
    expect(created.body.api_key).toMatch(/^sb_secret_[\w-]{22}_[\w-]{8}$/)
    expect(await read(created.body.id)).toMatchObject({ status: 200, body: created.body })
    expect(await listed()).toContainEqual(created.body)
    expect((await read(created.body.id, '')).body.api_key).toBe(`${created.body.prefix}${'·'.repeat(26)}`)
    expect(await generation()).toBe(before + 1)
    const trace = (await traces('api_key.create')).find(({ detail }) => detail.id === created.body.id)
    expect(trace).toMatchObject({ actorUserId: organization.userId, organizationId: organization.id })
    expect(trace?.detail).toEqual({ id: created.body.id, type: 'secret', name })
  })

  it('hides a new secret key and shows a publishable one if nothing is requested', async () => {
    expect((await create({}, '')).body.api_key).toMatch(/^sb_secret_.{5}·{26}$/)
    const { body } = await create({ type: 'publishable' }, '')
    expect(body.api_key).toMatch(/^sb_publishable_[\w-]{22}_[\w-]{8}$/)
    expect(body.secret_jwt_template).toBeNull()
  })

  it('gives a template without a role the role of a secret key', async () => {
    const { body } = await create({ secret_jwt_template: { team: 7 } })
    expect(body.secret_jwt_template).toEqual({ role: 'service_role', team: 7 })
  })

  it.each([undefined, null])('makes a secret key with full access for the template %s', async (template) => {
    const { body } = await create({ secret_jwt_template: template, description: template })
    expect(body).toMatchObject({ secret_jwt_template: { role: 'service_role' }, description: null })
  })

  it.each<[string, unknown]>([
    ['name', 'a_b1'],
    ['name', '_'.repeat(60) + randomUUID().slice(0, 4)],
    ['description', 'x'.repeat(1_024)],
    ['description', ''],
    ['secret_jwt_template', { role: 'anon', big: 'x'.repeat(4_096 - '{"role":"anon","big":""}'.length) }],
    ['secret_jwt_template', { role: 'anon', deep: nested(15) }],
  ])('accepts %s just inside its limits (%#), and returns it', async (field, value) => {
    const { status, body } = await create({ [field]: value })
    expect([status, body[field]]).toEqual([201, value])
  })

  it.each([
    [{ type: 'legacy' }, 'body.type'],
    [{ type: undefined }, 'body.type'],
    [{ name: undefined }, 'body.name'],
    [{ type: 'publishable', secret_jwt_template: { role: 'anon' } }, 'body.secret_jwt_template'],
  ])('refuses %j', async (fields, said) => {
    const reply = await create(fields)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(said) } })
  })

  it('accepts a name once for each type, also for simultaneous requests', async () => {
    const name = nameOf('once')
    const replies = await Promise.all(Array.from({ length: 4 }, () => create({ name })))
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409])
    expect(replies.find(({ status }) => status === 409)?.body.message).toContain(name)
    expect((await create({ name, type: 'publishable' })).status).toBe(201)
    const id = replies.find(({ status }) => status === 201)?.body.id
    expect((await caller().delete(`${keys()}/${id}`)).status).toBe(200)
    expect((await create({ name })).status).toBe(201)
  })

  it('refuses more than 100, however many arrive at once', async () => {
    const full = await createProject(organization)
    const [model] = await control.select().from(apiKeys).where(eq(apiKeys.projectRef, full))
    if (!model) throw new Error('a project begins with keys')
    const rows = Array.from({ length: 97 }, (_, n) => ({
      ...model,
      id: randomUUID(),
      name: `n${n}_`,
      hash: `h${full}${n}`,
    }))
    await control.insert(apiKeys).values(rows)
    const replies = await Promise.all(
      ['aaaa', 'bbbb', 'cccc'].map((name) => caller().post(keys(full), { type: 'secret', name })),
    )
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 400, 400])
    expect(replies.find(({ status }) => status === 400)?.body.message).toContain('at most 100')
  })
})

describe('the claims of all keys', () => {
  it('may have 65,536 characters together, and the key that exceeds them is refused by its field', async () => {
    const full = await createProject(organization)
    const [model] = await control.select().from(apiKeys).where(eq(apiKeys.projectRef, full))
    if (!model) throw new Error('a project begins with keys')
    const secretJwtTemplate = { role: 'anon', big: 'x'.repeat(4_070) }
    const rows = Array.from({ length: 15 }, (_, n) => ({
      ...{ ...model, type: 'secret' as const, secretJwtTemplate },
      ...{ id: randomUUID(), name: `n${n}_`, hash: `h${full}${n}` },
    }))
    await control.insert(apiKeys).values(rows)
    const templates = async () => {
      const kept = await control.select().from(apiKeys).where(eq(apiKeys.projectRef, full))
      return kept.map((row) => row.secretJwtTemplate)
    }
    const taken = (await templates()).reduce((sum, kept) => sum + (kept ? lengthOf(kept) : 0), 0)
    const left = 65_536 - taken - lengthOf({ role: 'anon', big: '' })
    const ofLength = (length: number) => ({ role: 'anon', big: 'x'.repeat(length) })
    const said =
      /body.secret_jwt_template: is too long: the claims of all keys together have 65537 characters, at most 65536 are allowed$/
    const add = (name: string, template: unknown) =>
      caller().post(keys(full), { type: 'secret', name, secret_jwt_template: template })
    const refused = await add('beyond', ofLength(left + 1))
    expect([refused.status, refused.body.message]).toEqual([400, expect.stringMatching(said)])
    expect(await templates()).toHaveLength(17)
    const { status, body } = await add('within', ofLength(left))
    expect(status).toBe(201)
    const changed = await caller().patch(`${keys(full)}/${body.id}`, { secret_jwt_template: ofLength(left + 1) })
    expect([changed.status, changed.body.message]).toEqual([400, expect.stringMatching(said)])
    expect(await templates()).toContainEqual(ofLength(left))
    expect((await caller().patch(`${keys(full)}/${body.id}`, { secret_jwt_template: null })).status).toBe(200)
    // A number of few characters may be stored as one of many.
    const long = await add('number', { role: 'anon', numbers: Array.from({ length: 300 }, () => 1e300) })
    expect([long.status, long.body.message]).toEqual([400, expect.stringContaining('body.secret_jwt_template: ')])
  })
})

describe('GET /v1/projects/{ref}/api-keys/{id}', () => {
  it.each(['get', 'patch', 'delete'] as const)('answers %s with 404 for an unknown key', async (method) => {
    const gone = (await create()).body.id
    await caller().delete(`${keys()}/${gone}`)
    const theirs = (await listed(await createProject(organization)))[2].id
    for (const id of [randomUUID(), gone, theirs]) {
      const path = `${keys()}/${id}`
      const reply = method === 'patch' ? await caller().patch(path, { name: 'other' }) : await caller()[method](path)
      expect(reply).toMatchObject({ status: 404, body: { message: 'API key not found' } })
    }
  })

  it.each(['get', 'patch', 'delete'] as const)('refuses %s of a legacy key, which has no id', async (method) => {
    for (const id of ['anon', 'service_role']) {
      const path = `${keys()}/${id}`
      const reply = method === 'patch' ? await caller().patch(path, { name: 'other' }) : await caller()[method](path)
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('path.id') } })
    }
  })
})

describe('PATCH /v1/projects/{ref}/api-keys/{id}', () => {
  it('changes the named fields and keeps the rest, the key too', async () => {
    const { body } = await create({ description: 'before' })
    const name = nameOf('renamed')
    const path = `${keys()}/${body.id}`
    const template = { role: 'anon', a: 1 }
    const replies = await Promise.all([
      caller().patch(path, { name }),
      caller().patch(path, { description: 'after' }),
      caller().patch(path, { secret_jwt_template: template }),
    ])
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200])
    const changed = (await read(body.id)).body
    const { updated_at } = changed
    expect(changed).toEqual({ ...body, name, description: 'after', secret_jwt_template: template, updated_at })
    const cleared = await caller().patch(path, { description: null, secret_jwt_template: null })
    expect(cleared.body).toMatchObject({ description: null, secret_jwt_template: { role: 'service_role' } })
    expect((await caller().patch(`${path}?reveal=true`, {})).body.api_key).toBe(body.api_key)
    const fields = (await traces('api_key.update')).filter(({ detail }) => detail.id === body.id)
    expect(fields.map(({ detail }) => (detail.fields as string[]).join()).sort()).toEqual([
      'description',
      'description,secretJwtTemplate',
      'name',
      'secretJwtTemplate',
    ])
  })

  it.each(WRONG)('refuses an invalid %s by name (%#), as POST does, and changes nothing', async (...wrong) => {
    const [field, value, said = `body.${field}`] = wrong
    const before = await listed()
    const fields = { description: 'new', [field]: value }
    const replies = await Promise.all([create(fields), caller().patch(`${keys()}/${before[3].id}`, fields)])
    for (const reply of replies) {
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(said) } })
    }
    expect(await listed()).toEqual(before)
  })

  it('refuses a name in use, and claims for a publishable key', async () => {
    const [one, other, open] = await Promise.all([create(), create(), create({ type: 'publishable' })])
    const taken = await caller().patch(`${keys()}/${one.body.id}`, { name: other.body.name, description: 'x' })
    expect(taken).toMatchObject({ status: 409, body: { message: expect.stringContaining(other.body.name) } })
    expect((await read(one.body.id)).body).toEqual(one.body)
    const path = `${keys()}/${open.body.id}`
    const claims = await caller().patch(path, { secret_jwt_template: { role: 'service_role' } })
    expect(claims).toMatchObject({ status: 400, body: { message: expect.stringContaining('secret_jwt_template') } })
    expect((await caller().patch(path, { secret_jwt_template: null })).body).toMatchObject({
      secret_jwt_template: null,
    })
  })
})

describe('DELETE /v1/projects/{ref}/api-keys/{id}', () => {
  it('records the reason, and returns the deleted key', async () => {
    const { body } = await create()
    const reply = await caller().delete(`${keys()}/${body.id}?reveal=true&was_compromised=true&reason=in%20a%20log`)
    expect(reply).toMatchObject({ status: 200, body })
    expect(await rowOf(body.id)).toMatchObject({
      deletedAt: expect.any(Date),
      wasCompromised: true,
      deletionReason: 'in a log',
    })
    expect(await listed()).not.toContainEqual(expect.objectContaining({ id: body.id }))
    const [trace] = (await traces('api_key.delete')).filter(({ detail }) => detail.id === body.id)
    expect(trace?.detail).toEqual({ id: body.id, type: 'secret', name: body.name, was_compromised: true })
    const events = await control.select().from(webhookEvents).where(eq(webhookEvents.projectRef, ref))
    const leaks = events.filter(({ type }) => type === 'v1.project.secrets.leaked')
    expect(leaks.map(({ payload }) => JSON.stringify(payload))).toEqual([expect.stringContaining(body.name)])
    expect(JSON.stringify(leaks)).not.toContain(body.api_key.slice(body.prefix.length))
  })

  it('publishes nothing about a key that was not compromised', async () => {
    const [quiet, safe] = await Promise.all([create(), create()])
    await caller().delete(`${keys()}/${quiet.body.id}`)
    await caller().delete(`${keys()}/${safe.body.id}?was_compromised=false`)
    const events = await control.select().from(webhookEvents).where(eq(webhookEvents.projectRef, ref))
    expect(JSON.stringify(events)).not.toMatch(new RegExp(`${quiet.body.name}|${safe.body.name}`))
    expect(await rowOf(quiet.body.id)).toMatchObject({ wasCompromised: null, deletionReason: null })
    expect(await rowOf(safe.body.id)).toMatchObject({ wasCompromised: false })
  })

  it.each([
    ['was_compromised=perhaps', 'query.was_compromised'],
    ['was_compromised=yes', 'query.was_compromised'],
    [`reason=${'x'.repeat(1_001)}`, 'query.reason'],
    ['reason=%00', 'query.reason'],
    ['reveal=2', 'query.reveal'],
  ])('refuses an invalid query by name (%#), and keeps the key', async (query, said) => {
    const { body } = await create()
    const reply = await caller().delete(`${keys()}/${body.id}?${query}`)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(said) } })
    expect((await read(body.id)).status).toBe(200)
  })

  it('requires the right to write secrets, like all changes', async () => {
    const { body } = await create()
    const outsider = (await newOrganization()).owner
    const reader = await newMember(organization, 'read-only')
    const developer = await newMember(organization, 'developer')
    const { caller: app } = await newApp(organization, ['secrets:read'])
    const calls = (who: Caller) => [
      who.delete(`${keys()}/${body.id}`),
      who.patch(`${keys()}/${body.id}`, { name: 'other' }),
      who.post(keys(), { type: 'secret', name: 'other' }),
      who.put(`${keys()}/legacy?enabled=false`),
    ]
    for (const [who, status] of [
      [outsider, 404],
      [reader, 403],
      [developer, 403],
      [app, 403],
    ] as const) {
      const replies = await Promise.all(calls(who))
      expect(replies.map((reply) => reply.status)).toEqual([status, status, status, status])
    }
    expect((await read(body.id)).body).toEqual(body)
    expect((await caller().get(`${keys()}/legacy`)).body).toEqual({ enabled: true })
  })
})

describe('PUT /v1/projects/{ref}/api-keys/legacy', () => {
  it('is on at first, and returns its last setting', async () => {
    const own = await createProject(organization)
    const legacy = `${keys(own)}/legacy`
    expect(await caller().get(legacy)).toMatchObject({ status: 200, body: { enabled: true } })
    expect(await caller().put(`${legacy}?enabled=false`)).toMatchObject({ status: 200, body: { enabled: false } })
    expect((await caller().get(legacy)).body).toEqual({ enabled: false })
    expect((await caller().put(`${legacy}?enabled=true`)).body).toEqual({ enabled: true })
    expect((await caller().get(legacy)).body).toEqual({ enabled: true })
    const noted = await control.select().from(auditLog).where(eq(auditLog.projectRef, own))
    const changes = noted.filter(({ action }) => action === 'project.legacy_api_keys.update')
    expect(changes.map(({ detail }) => detail.enabled).sort()).toEqual([false, true])
  })

  it('cannot be turned on while the JWT secret, which signs the keys, is revoked', async () => {
    const own = await createProject(organization)
    const signing = `/v1/projects/${own}/config/auth/signing-keys`
    const { body: secret } = await caller().post(`${signing}/legacy`)
    const { body: next } = await caller().post(signing, { algorithm: 'ES256' })
    await caller().patch(`${signing}/${next.id}`, { status: 'in_use' })
    const set = (enabled: boolean) => caller().put(`${keys(own)}/legacy?enabled=${enabled}`)
    expect((await set(false)).status).toBe(200)
    expect((await caller().patch(`${signing}/${secret.id}`, { status: 'revoked' })).status).toBe(200)
    expect(await set(true)).toMatchObject({ status: 409, body: { message: expect.stringContaining(secret.id) } })
    expect((await caller().get(`${keys(own)}/legacy`)).body).toEqual({ enabled: false })
    expect((await caller().patch(`${signing}/${secret.id}`, { status: 'standby' })).status).toBe(200)
    expect(await set(true)).toMatchObject({ status: 200, body: { enabled: true } })
  })

  it.each(['', '?enabled=', '?enabled=perhaps'])('refuses "%s" by name', async (query) => {
    const reply = await caller().put(`${keys()}/legacy${query}`)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('query.enabled') } })
    expect((await caller().get(`${keys()}/legacy`)).body).toEqual({ enabled: true })
  })
})

it('answers the requests of the Terraform provider with the exact status and JSON', async () => {
  const json = ({ status, headers }: Reply) => [status, headers.get('content-type')]
  const JSON_TYPE = 'application/json; charset=utf-8'
  const own = await createProject(organization)
  const there = await caller().get(`${keys(own)}?reveal=true`)
  expect(json(there)).toEqual([200, JSON_TYPE])
  expect(there.body.filter(({ type, name }: ApiKey) => type === 'publishable' && name === 'default')).toHaveLength(1)
  const fields = { type: 'secret', name: 'terraform', secret_jwt_template: { role: 'service_role' } }
  const created = await caller().post(`${keys(own)}?reveal=true`, fields)
  expect(json(created)).toEqual([201, JSON_TYPE])
  expect(created.body).toMatchObject(fields)
  const path = `${keys(own)}/${created.body.id}?reveal=true`
  const found = await caller().get(path)
  expect([json(found), found.body]).toEqual([[200, JSON_TYPE], created.body])
  const changes = { name: 'terraform_2', description: 'managed' }
  const changed = await caller().patch(path, changes)
  expect(json(changed)).toEqual([200, JSON_TYPE])
  expect(changed.body).toMatchObject({ ...created.body, ...changes, updated_at: expect.any(String) })
  expect(json(await caller().delete(path))).toEqual([200, JSON_TYPE])
  expect((await caller().get(path)).status).toBe(404)
})

it('deletes the keys of a removed project with it', async () => {
  const { owner, slug } = await newOrganization()
  const gone = await newProject({ owner, slug })
  await owner.delete(`/v1/projects/${gone}`)
  await untilGone(owner, gone)
  expect(await control.select().from(apiKeys).where(eq(apiKeys.projectRef, gone))).toEqual([])
})
