import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import pg from 'pg'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { organizations, projects } from '../../../src/model/tables/index.ts'
import { adminClient, instancesOfHost } from '../../instances.ts'
import { control, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { createProject, newProject, PASSWORD, runSql, untilGone, untilStatus } from '../../support/projects.ts'
import { insertProject } from '../../support/webhooks.ts'

const connectionString = (ref: string, password = PASSWORD) =>
  `postgresql://postgres.${ref}:${encodeURIComponent(password)}@${inject('databaseHost')}:${inject('databasePort')}/postgres`

async function connect(ref: string, password?: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: connectionString(ref, password) })
  client.on('error', () => {})
  await client.connect()
  return client
}

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})
const create = (fields: Record<string, unknown> = {}) =>
  organization.owner.post('/v1/projects', {
    name: `project-${randomUUID()}`,
    organization_slug: organization.slug,
    db_pass: PASSWORD,
    ...fields,
  })

describe('POST /v1/projects', () => {
  it('answers at once and then creates a database with the given password', async () => {
    const { owner, slug } = organization
    const db_pass = `Pässwörd '"\\$ ${randomUUID()}`
    const reply = await create({ name: 'first', db_pass })
    expect(reply.status).toBe(201)
    const { ref } = reply.body
    const identity = {
      id: ref,
      ref: expect.stringMatching(/^[a-z]{20}$/),
      organization_id: slug,
      organization_slug: slug,
      name: 'first',
      region: 'us-east-1',
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    }
    expect(reply.body).toEqual({ ...identity, status: 'COMING_UP' })

    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    const database = {
      host: inject('databaseHost'),
      version: expect.stringMatching(/^18\.\d+/),
      postgres_engine: '18',
      release_channel: 'ga',
    }
    const whole = { ...identity, status: 'ACTIVE_HEALTHY', database }
    expect((await owner.get(`/v1/projects/${ref}`)).body).toEqual(whole)
    expect((await owner.get('/v1/projects')).body).toContainEqual(whole)

    const { body: pooler } = await owner.get(`/v1/projects/${ref}/config/database/pooler`)
    expect(pooler).toMatchObject([{ database_type: 'PRIMARY', db_user: `postgres.${ref}`, db_name: 'postgres' }])
    const url = pooler[0].connection_string.replace('[YOUR-PASSWORD]', encodeURIComponent(db_pass))
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    const { rows } = await client.query('select current_user as user')
    expect(rows[0].user).toBe('postgres')
    await client.end()
    await expect(connect(ref, 'another password')).rejects.toThrow(/password authentication failed/)
  })

  it.each([
    [{ region_selection: { type: 'specific', code: 'us-east-1' } }, 'us-east-1'],
    [{ region_selection: { type: 'smartGroup', code: 'americas' } }, 'us-east-1'],
    [{ region: 'us-east-1' }, 'us-east-1'],
    [{ region: 'us-east-1', region_selection: { type: 'specific', code: 'us-east-1' } }, 'us-east-1'],
    [{ region: 'us-east-1', region_selection: { type: 'smartGroup', code: 'americas' } }, 'us-east-1'],
  ])('puts %j into %s', async (fields, region) => {
    expect((await create(fields)).body.region).toBe(region)
  })

  it('creates it with the requested size and version', async () => {
    const ref = await newProject(organization, { postgres_engine: '17', desired_instance_size: 'small' })
    const { database } = (await organization.owner.get(`/v1/projects/${ref}`)).body
    expect(database).toMatchObject({ postgres_engine: '17', release_channel: 'ga' })
    const { body } = await runSql(
      organization.owner,
      ref,
      `select current_setting('server_version') as version, current_setting('max_connections') as connections`,
    )
    expect(body).toEqual([{ version: database.version, connections: '90' }])
    expect(database.version).toMatch(/^17\.\d+$/)
  })

  it.each([
    ['region', 'sa-east-1', 'body.region: sa-east-1 is not available on this installation: must be us-east-1'],
    ['region_selection', { type: 'specific', code: 'eu-west-3' }, 'body.region_selection.code: eu-west-3 is not'],
    ['region_selection', { type: 'smartGroup', code: 'apac' }, 'body.region_selection.code: apac is not'],
    ['desired_instance_size', '48xlarge_high_memory', 'body.desired_instance_size: 48xlarge_high_memory is not'],
    ['postgres_engine', '15', 'must be one of 18, 17'],
    ['postgres_engine', '17-oriole', 'body.postgres_engine: 17-oriole is not available'],
    ['release_channel', 'alpha', 'body.release_channel: alpha is not available on this installation: must be ga'],
  ])('refuses what the host does not offer: %s = %j', async (field, value, message) => {
    const reply = await create({ [field]: value })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(message) } })
  })

  it('accepts the deprecated and the unknown fields that clients still send', async () => {
    const reply = await create({
      organization_id: organization.slug,
      plan: 'pro',
      kps_enabled: true,
      release_channel: 'ga',
      postgres_engine: '17',
      desired_instance_size: 'small',
      high_availability: false,
      something_new: {},
    })
    expect(reply.status).toBe(201)
  })

  it.each([
    ['eu-west-3', { type: 'specific', code: 'us-east-1' }, 'must be within region_selection'],
    ['eu-west-3', { type: 'smartGroup', code: 'americas' }, 'must be within region_selection'],
    ['us-west-1', { type: 'smartGroup', code: 'americas' }, 'us-west-1 is not available'],
  ])('refuses the region %s with the selection %j', async (region, selection, message) => {
    const reply = await create({ region, region_selection: selection })
    expect(reply).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`body.region: ${message}`) },
    })
  })

  it.each([
    ['organization_id', 'another'],
    ['plan', 'enterprise'],
    ['kps_enabled', 'yes'],
    ['name', undefined],
    ['name', ''],
    ['name', 'x'.repeat(257)],
    ['db_pass', undefined],
    ['db_pass', 'abc'],
    ['db_pass', '1234'],
    ['db_pass', '12345'],
    ['db_pass', '123456'],
    ['db_pass', '1234567'],
    ['db_pass', 'with\0nul'],
    ['organization_slug', undefined],
    ['organization_slug', 'no slug'],
    ['region', 'mars-1'],
    ['region_selection', { type: 'specific', code: 'mars-1' }],
    ['region_selection', { type: 'nowhere' }],
    ['desired_instance_size', 'huge'],
    ['template_url', 'no address'],
    ['high_availability', true],
    ['postgres_engine', '9.6'],
  ])('refuses %s = %j and creates nothing', async (field, value) => {
    const before = await organization.owner.get(`/v1/organizations/${organization.slug}/projects`)
    const reply = await create({ [field]: value })
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(`body.${field}`)
    const after = await organization.owner.get(`/v1/organizations/${organization.slug}/projects`)
    expect(after.body.pagination.count).toBe(before.body.pagination.count)
  })

  it('accepts a name once, also for two simultaneous callers', async () => {
    const name = `project-${randomUUID()}`
    const replies = await Promise.all(Array.from({ length: 8 }, () => create({ name })))
    expect(replies.map(({ status }) => status).sort()).toEqual([201, ...Array(7).fill(409)])
    expect(replies.find(({ status }) => status === 409)?.body.message).toContain(name)
    expect((await createProject(await newOrganization(), { name })).length).toBe(20)
  })

  it('is refused if the organization was removed while the request waited', async () => {
    const { id, slug, owner } = await newOrganization()
    const { asked } = await control.transaction(async (tx) => {
      await tx.update(organizations).set({ removedAt: new Date() }).where(eq(organizations.id, id))
      const body = { name: 'late', organization_slug: slug, db_pass: PASSWORD }
      return untilBlocked(tx, () => owner.post('/v1/projects', body))
    })
    expect((await asked).status).toBe(404)
    expect(await control.$count(projects, eq(projects.organizationId, id))).toBe(0)
  })

  it('reveals nothing about an organization to which the caller does not belong', async () => {
    const { slug } = await newOrganization()
    expect(await create({ organization_slug: slug })).toMatchObject({
      status: 404,
      body: { message: 'Organization not found' },
    })
  })
})

describe('PATCH /v1/projects/{ref}', () => {
  it('renames the project', async () => {
    const ref = await createProject(organization)
    const name = `renamed-${randomUUID()}`
    const reply = await organization.owner.patch(`/v1/projects/${ref}`, { name })
    expect(reply).toMatchObject({ status: 200, body: { id: expect.any(Number), ref, name } })
    expect((await organization.owner.get(`/v1/projects/${ref}`)).body.name).toBe(name)
  })

  it('refuses the name of another project', async () => {
    const name = `taken-${randomUUID()}`
    await createProject(organization, { name })
    const ref = await createProject(organization)
    expect((await organization.owner.patch(`/v1/projects/${ref}`, { name })).status).toBe(409)
    expect((await organization.owner.patch(`/v1/projects/${ref}`, {})).body.message).toContain('body.name')
  })
})

describe('the life of a project', () => {
  it('is paused, restored, restarted and deleted, together with its data and its sessions', async () => {
    const { owner } = organization
    const ref = await newProject(organization)
    const path = `/v1/projects/${ref}`
    await runSql(owner, ref, 'create table kept (n int); insert into kept values (42)')
    const session = await connect(ref)

    // Compressed replies lose their length in transit; clients that need it do not request compression here.
    const paused = await owner.post(`${path}/pause`, undefined, { headers: { 'accept-encoding': 'identity' } })
    expect(paused).toMatchObject({ status: 200, body: '' })
    expect([paused.headers.get('content-length'), paused.headers.get('content-type')]).toEqual(['0', null])
    await untilStatus(owner, ref, 'INACTIVE')
    await expect(session.query('select 1')).rejects.toThrow()
    expect(await runSql(owner, ref, 'select 1')).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('INACTIVE') },
    })
    for (const change of ['pause', 'restart', 'restore/cancel']) {
      expect((await owner.post(`${path}/${change}`)).status).toBe(409)
    }
    expect((await owner.get(`${path}/health?services=db`)).body).toMatchObject([
      { name: 'db', healthy: false, status: 'UNHEALTHY' },
    ])

    expect((await owner.get(`${path}/restore`)).body).toMatchObject({ available_versions: [{ postgres_engine: '17' }] })
    expect((await owner.post(`${path}/restore`)).status).toBe(200)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect((await runSql(owner, ref, 'select n from kept')).body).toEqual([{ n: 42 }])
    expect((await owner.post(`${path}/restore`)).status).toBe(409)

    const before = await connect(ref)
    expect((await owner.post(`${path}/restart`)).status).toBe(200)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    await expect(before.query('select 1')).rejects.toThrow()

    const { body: project } = await owner.get(path)
    expect(await owner.delete(path)).toMatchObject({
      status: 200,
      body: { id: expect.any(Number), ref, name: project.name },
    })
    expect((await create({ name: project.name })).status).toBe(201)
    await untilGone(owner, ref)
    await expect(connect(ref)).rejects.toThrow('Tenant or user not found')
    expect(await instancesOfHost()).not.toContain(ref)
    expect((await owner.get('/v1/projects')).body.map((row: { ref: string }) => row.ref)).not.toContain(ref)
  })

  it('is restored by a client that logs in to its database while it is paused', async () => {
    const { owner } = organization
    const ref = await newProject(organization)
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    await tick()
    await expect(connect(ref, 'wrong-password')).rejects.toThrow('password authentication failed')
    await tick()
    expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('INACTIVE')

    const session = await connect(ref)
    expect((await session.query('select 1 as n')).rows).toEqual([{ n: 1 }])
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect((await runSql(owner, ref, 'select 2 as n')).body).toEqual([{ n: 2 }])
    expect((await session.query('select 3 as n')).rows).toEqual([{ n: 3 }])
    await session.end()
  })

  it('is reported as healthy again once its database works', async () => {
    const { owner } = organization
    const ref = await newProject(organization)
    const withoutDatabase = await insertProject(organization, { status: 'ACTIVE_UNHEALTHY' })
    await control.update(projects).set({ status: 'ACTIVE_UNHEALTHY' }).where(eq(projects.ref, ref))
    await tick()
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect((await owner.get(`/v1/projects/${withoutDatabase}`)).body.status).toBe('ACTIVE_UNHEALTHY')
  })

  it('is paused again after such a login while its organization is disabled', async () => {
    const { owner, id, slug } = await newOrganization()
    const ref = await newProject({ owner, slug })
    await owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(owner, ref, 'INACTIVE')
    const disable = (disabledAt: Date | null) =>
      control.update(organizations).set({ disabledAt }).where(eq(organizations.id, id))
    await disable(new Date())
    const session = await connect(ref)
    await tick()
    await expect(session.query('select 1')).rejects.toThrow()
    await disable(null)
    expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('INACTIVE')
  })

  it.each(['with connection limit 0', 'with allow_connections false'])(
    'is opened by a restart if SQL has closed it to everybody: %s',
    async (closing) => {
      const { owner } = organization
      const ref = await newProject(organization)
      await runSql(owner, ref, `alter database postgres ${closing}`)
      expect((await owner.post(`/v1/projects/${ref}/restart`)).status).toBe(200)
      await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
      expect((await runSql(owner, ref, 'select 1 as n')).body).toEqual([{ n: 1 }])
    },
  )

  it('refuses a second change while one runs', async () => {
    const ref = await newProject(organization)
    const replies = await Promise.all(
      Array.from({ length: 6 }, () => organization.owner.post(`/v1/projects/${ref}/pause`)),
    )
    expect(replies.map(({ status }) => status).sort()).toEqual([200, 409, 409, 409, 409, 409])
    const refused = replies.filter(({ status }) => status === 409).map(({ body }) => body.message)
    expect(refused.join()).not.toContain('its status is ACTIVE_HEALTHY')
    await untilStatus(organization.owner, ref, 'INACTIVE')
  })
})

describe('PATCH /v1/projects/{ref}/database/password', () => {
  it('makes the new password valid and the old one invalid', async () => {
    const ref = await newProject(organization)
    const path = `/v1/projects/${ref}/database/password`
    const { owner } = organization
    expect(await owner.patch(path, { password: 'another one' })).toMatchObject({
      status: 200,
      body: { message: expect.any(String) },
    })
    await (await connect(ref, 'another one')).end()
    await expect(connect(ref)).rejects.toThrow(/password authentication failed/)
    for (const password of ['', 'abc', '1234', '12345', '123456', '1234567']) {
      const refused = { status: 400, body: { message: expect.stringContaining('body.password') } }
      expect(await owner.patch(path, { password })).toMatchObject(refused)
    }
    await (await connect(ref, 'another one')).end()
    expect((await owner.patch(path, { password: '12345678' })).status).toBe(200)
    await (await connect(ref, '12345678')).end()
    await owner.post(`/v1/projects/${ref}/pause`)
    expect((await owner.patch(path, { password: 'while pausing' })).status).toBe(409)
  })
})

describe('GET /v1/projects/{ref}/upgrade/eligibility', () => {
  it('answers that there is nothing to upgrade to', async () => {
    const ref = await newProject(organization)
    const { status, body } = await organization.owner.get(`/v1/projects/${ref}/upgrade/eligibility`)
    expect(status).toBe(200)
    expect(body).toMatchObject({ eligible: false, target_upgrade_versions: [], validation_errors: [], warnings: [] })
    expect(body.current_app_version).toMatch(/^18\.\d+/)
    expect(body.latest_app_version).toBe(body.current_app_version)
  })
})

describe('GET /v1/projects/{ref}/health', () => {
  it('reports the existing services and leaves out the others', async () => {
    const ref = await newProject(organization)
    const { owner } = organization
    const healthy = { healthy: true, status: 'ACTIVE_HEALTHY' }
    for (const query of [
      'services=db,db_postgres_user,realtime',
      'services=db&services=db_postgres_user&services=auth',
    ]) {
      expect((await owner.get(`/v1/projects/${ref}/health?${query}`)).body).toEqual([
        { name: 'db', ...healthy },
        { name: 'db_postgres_user', ...healthy },
      ])
    }
    const { body } = await owner.get(`/v1/projects/${ref}/health?services=storage,rest,db`)
    expect(body).toEqual([
      { name: 'storage', ...healthy },
      { name: 'rest', ...healthy },
      { name: 'db', ...healthy },
    ])
    // Terraform waits for Auth by this request before it adds an issuer of tokens.
    const absent = await owner.get(`/v1/projects/${ref}/health?services=auth`)
    expect(absent).toMatchObject({ status: 200, body: [] })
    for (const query of ['', 'services=', 'services=nothing', 'services=db&timeout_ms=10001']) {
      const reply = await owner.get(`/v1/projects/${ref}/health?${query}`)
      expect(reply.status).toBe(400)
      expect(reply.body.message).toMatch(/query\.(services|timeout_ms)/)
    }
  })

  it('reports the storage as unhealthy if its tables do not answer', async () => {
    const ref = await newProject(organization)
    const storage = async () => {
      const { body } = await organization.owner.get(`/v1/projects/${ref}/health?services=storage&timeout_ms=1000`)
      return body
    }
    const admin = await adminClient(ref)
    await admin.query('begin; lock table storage.objects')
    const unhealthy = { name: 'storage', healthy: false, status: 'UNHEALTHY' }
    expect(await storage()).toEqual([{ ...unhealthy, error: 'no answer in 1000 ms' }])
    await admin.query('alter table storage.objects rename to elsewhere; commit')
    expect(await storage()).toEqual([{ ...unhealthy, error: 'relation "storage.objects" does not exist' }])
    await admin.end()
  })
})

describe('GET /v1/projects/available-regions', () => {
  it('lists the regions that have a host', async () => {
    const path = `/v1/projects/available-regions?organization_slug=${organization.slug}`
    const { body } = await organization.owner.get(`${path}&continent=EU&desired_instance_size=small`)
    const here = { name: 'East US (North Virginia)', code: 'us-east-1', type: 'specific', provider: 'AWS' }
    const smartGroup = { name: 'Americas', code: 'americas', type: 'smartGroup' }
    // The host is in that region, however far away it is.
    expect(body.recommendations).toEqual({ smartGroup, specific: [here] })
    expect(body.all).toEqual({ smartGroup: [smartGroup], specific: [here] })
    const huge = await organization.owner.get(`${path}&desired_instance_size=48xlarge_high_memory`)
    expect(huge.body.all).toEqual({ smartGroup: [], specific: [] })
    expect((await organization.owner.get('/v1/projects/available-regions')).body.message).toContain(
      'query.organization_slug',
    )
    expect((await organization.owner.get(`${path}&continent=XX`)).body.message).toContain('query.continent')
    const { slug } = await newOrganization()
    expect((await organization.owner.get(`/v1/projects/available-regions?organization_slug=${slug}`)).status).toBe(404)
  })
})
