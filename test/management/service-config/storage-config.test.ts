import { and, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog } from '../../../src/model/tables/index.ts'
import { adminClient, adminRows } from '../../instances.ts'
import { control, newApp, newMember, newOrganization, type TestOrganization, unhurried } from '../../support/api.ts'
import { createProject, newProject, ownerClient, runSql, untilGone, untilStatus } from '../../support/projects.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

const DEFAULTS = {
  fileSizeLimit: 52_428_800,
  features: {
    imageTransformation: { enabled: false },
    s3Protocol: { enabled: false },
    purgeCache: { enabled: false },
    icebergCatalog: { enabled: false, maxNamespaces: 0, maxTables: 0, maxCatalogs: 0 },
    vectorBuckets: { enabled: false, maxBuckets: 0, maxIndexes: 0 },
  },
  capabilities: { list_v2: true, iceberg_catalog: false, object_versioning: false },
  external: { upstreamTarget: 'main' },
  migrationVersion: null,
  databasePoolMode: 'recycled',
}

const limits = { maxNamespaces: 1, maxTables: 1, maxCatalogs: 1 }

describe('the settings of storage', () => {
  let path: string
  beforeAll(async () => {
    path = `/v1/projects/${await createProject(organization)}/config/storage`
  })

  it('have defaults at first, and show no missing feature as available', async () => {
    const ref = await createProject(organization)
    const reply = await organization.owner.get(`/v1/projects/${ref}/config/storage`)
    expect([reply.status, reply.body]).toEqual([200, DEFAULTS])
  })

  it.each([0, 1, 536_870_912_000])('accept a limit of %d bytes', async (fileSizeLimit) => {
    const reply = await organization.owner.patch(path, { fileSizeLimit })
    expect([reply.status, reply.body]).toEqual([200, {}])
    expect((await organization.owner.get(path)).body).toEqual({ ...DEFAULTS, fileSizeLimit })
  })

  it('accept the values that they return, and keep unnamed ones', async () => {
    await organization.owner.patch(path, { fileSizeLimit: 1000 })
    const { body: said } = await organization.owner.get(path)
    for (const body of [said, {}, { features: { s3Protocol: { enabled: false } } }]) {
      expect((await organization.owner.patch(path, body)).status).toBe(200)
      expect((await organization.owner.get(path)).body).toEqual(said)
    }
  })

  it.each([
    [{ fileSizeLimit: -1 }, 'body.fileSizeLimit'],
    [{ fileSizeLimit: 536_870_912_001 }, 'body.fileSizeLimit'],
    [{ fileSizeLimit: 1.5 }, 'body.fileSizeLimit'],
    [{ fileSizeLimit: '50MB' }, 'body.fileSizeLimit'],
    [{ fileSizeLimit: null }, 'body.fileSizeLimit'],
    [{ features: { imageTransformation: { enabled: 'yes' } } }, 'body.features.imageTransformation.enabled'],
    [{ features: { icebergCatalog: { enabled: false } } }, 'body.features.icebergCatalog.maxNamespaces'],
    [{ features: { vectorBuckets: { enabled: true, maxBuckets: -1, maxIndexes: 1 } } }, 'body.features.vectorBuckets'],
    [{ features: { s3Protocol: {} } }, 'body.features.s3Protocol.enabled'],
    [{ features: { s3Protocol: { enabled: true } } }, 'body.features.s3Protocol.enabled'],
    [{ features: { imageTransformation: { enabled: true } } }, 'body.features.imageTransformation.enabled'],
    [{ features: { purgeCache: { enabled: true } } }, 'body.features.purgeCache.enabled'],
    [{ features: { icebergCatalog: { enabled: true, ...limits } } }, 'body.features.icebergCatalog.enabled'],
    [{ features: { icebergCatalog: { enabled: false, ...limits } } }, 'body.features.icebergCatalog.maxNamespaces'],
    [{ features: { vectorBuckets: { enabled: true, maxBuckets: 0, maxIndexes: 0 } } }, 'vectorBuckets.enabled'],
    [{ features: { vectorBuckets: { enabled: false, maxBuckets: 1, maxIndexes: 0 } } }, 'vectorBuckets.maxBuckets'],
    [{ external: { upstreamTarget: 'canary' } }, 'body.external.upstreamTarget'],
  ])('refuse %j and name the field', async (body, field) => {
    const { body: before } = await organization.owner.get(path)
    const reply = await organization.owner.patch(path, { fileSizeLimit: 5, ...body })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    expect((await organization.owner.get(path)).body).toEqual(before)
  })

  it('leave an entry in the audit log for each change, and none without a change', async () => {
    const ref = await createProject(organization)
    for (const body of [{ fileSizeLimit: 5 }, { fileSizeLimit: 5 }, {}, { fileSizeLimit: -5 }]) {
      await organization.owner.patch(`/v1/projects/${ref}/config/storage`, body)
    }
    const entries = await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, ref), eq(auditLog.action, 'project.storage.update')))
    expect(entries).toMatchObject([
      { actorUserId: organization.userId, organizationId: organization.id, detail: { fields: ['fileSizeLimit'] } },
    ])
  })

  it('require the right to read storage, or to change the project', async () => {
    const [developer, reader, app, other] = await Promise.all([
      newMember(organization, 'developer'),
      newMember(organization, 'read-only'),
      newApp(organization, ['storage:read']),
      newOrganization(),
    ])
    const unscoped = (await newApp(organization, ['projects:read'])).caller
    const writer = (await newApp(organization, ['projects:write'])).caller
    const callers = [developer, reader, app.caller, unscoped, other.owner]
    const read = await Promise.all(callers.map((caller) => caller.get(path)))
    expect(read.map(({ status }) => status)).toEqual([200, 200, 200, 403, 404])
    const written = await Promise.all(callers.map((caller) => caller.patch(path, { fileSizeLimit: 77 })))
    expect(written.map(({ status }) => status)).toEqual([403, 403, 403, 403, 404])
    expect((await organization.owner.get(path)).body.fileSizeLimit).not.toBe(77)
    expect((await writer.patch(path, { fileSizeLimit: 77 })).status).toBe(200)
    expect((await organization.owner.get(path)).body.fileSizeLimit).toBe(77)
  })

  it('are deleted with the project', async () => {
    const ref = await newProject(organization)
    await organization.owner.delete(`/v1/projects/${ref}`)
    await untilGone(organization.owner, ref)
    expect((await organization.owner.get(`/v1/projects/${ref}/config/storage`)).status).toBe(404)
    const reply = await organization.owner.patch(`/v1/projects/${ref}/config/storage`, { fileSizeLimit: 5 })
    expect(reply.status).toBe(404)
  })
})

describe('GET /v1/projects/{ref}/storage/buckets', () => {
  let ref: string
  beforeAll(async () => {
    ref = await newProject(organization)
    owner = unhurried(organization.owner)
  })
  let owner: () => ReturnType<typeof organization.owner.at>
  const buckets = (project = ref) => owner().get(`/v1/projects/${project}/storage/buckets`)
  const sql = async (query: string, project = ref) => {
    expect(await runSql(owner(), project, query)).toMatchObject({ status: 201 })
  }

  it('lists only the buckets, in the form that clients know', async () => {
    expect(await buckets()).toMatchObject({ status: 200, body: [] })
    await sql(`
      insert into storage.buckets (id, name, public, created_at, updated_at) values
        ('public', 'public', true, '2026-01-02 03:04:05.678+00', '2026-01-02 05:04:05+02'),
        ('private', 'private', false, now(), now());
      update storage.buckets set owner = '6ac0f1b3-3f2b-4e2c-9a0a-6c4d7f6f8a10' where id = 'private'`)
    const { status, body } = await buckets()
    expect([status, body]).toEqual([
      200,
      [
        {
          id: 'private',
          name: 'private',
          owner: '6ac0f1b3-3f2b-4e2c-9a0a-6c4d7f6f8a10',
          created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
          updated_at: expect.stringMatching(/Z$/),
          public: false,
        },
        {
          id: 'public',
          name: 'public',
          owner: '',
          created_at: '2026-01-02T03:04:05.678Z',
          updated_at: '2026-01-02T03:04:05.000Z',
          public: true,
        },
      ],
    ])
  })

  it('lists buckets whose times are impossible dates', async () => {
    const project = await newProject(organization)
    await sql(
      `insert into storage.buckets (id, name, created_at, updated_at) values
        ('late', 'late', 'infinity', '20000-01-01 00:00:00+00'), ('never', 'never', null, '-infinity')`,
      project,
    )
    const { status, body } = await buckets(project)
    expect([status, body]).toMatchObject([
      200,
      [
        { id: 'late', created_at: 'infinity', updated_at: '20000-01-01T00:00:00.000Z' },
        { id: 'never', created_at: '', updated_at: '-infinity' },
      ],
    ])
  })

  it('reports a table that is locked, too large or different, and lists no buckets if it is missing', async () => {
    const project = await newProject(organization)
    const client = ownerClient(project)
    await client.connect()
    await client.query('begin; lock table storage.buckets')
    const locked = await buckets(project)
    expect(locked).toMatchObject({ status: 400, body: { message: expect.stringContaining('longer than allowed') } })
    await client.query('rollback')
    await client.query(
      `insert into storage.buckets (id, name)
       select repeat('x', 90) || n, repeat('x', 90) || n from generate_series(1, 70000) as n`,
    )
    await client.end()
    const large = await buckets(project)
    expect(large).toMatchObject({ status: 400, body: { message: expect.stringContaining('too large') } })
    const rename = 'alter table storage.buckets rename column public to open'
    const drop = 'drop table storage.buckets cascade'
    for (const change of [rename, drop])
      expect(await runSql(owner(), project, change)).toMatchObject({ status: 400, body: { code: '42501' } })
    await adminRows(project, rename)
    expect(await buckets(project)).toMatchObject({ status: 400, body: { code: '42703' } })
    await adminRows(project, drop)
    expect(await buckets(project)).toMatchObject({ status: 200, body: [] })
  })

  it('answers 409 for a paused project and 503 for an unreachable one', async () => {
    const project = await newProject(organization)
    const admin = await adminClient(project)
    await admin.query(`alter role supabase_read_only_user nologin`)
    await admin.end()
    expect(await buckets(project)).toMatchObject({
      status: 503,
      body: { message: expect.stringContaining('cannot be reached') },
    })
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    expect(await buckets(project)).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('INACTIVE') },
    })
  })

  it('requires the right to read storage', async () => {
    const reader = await newMember(organization, 'read-only')
    const { caller } = await newApp(organization, ['database:read'])
    const other = await newOrganization()
    const replies = await Promise.all(
      [reader, caller, other.owner].map((one) => one.get(`/v1/projects/${ref}/storage/buckets`)),
    )
    expect(replies.map(({ status }) => status)).toEqual([200, 403, 404])
  })
})
