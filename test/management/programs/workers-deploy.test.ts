import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { projects, workers, workerUploads } from '../../../src/model/tables/index.ts'
import { type Caller, control, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { newProject } from '../../support/projects.ts'
import { packed, SPEC, type Spelling, saying, TYPES, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

const developer = (): Promise<Caller> => newMember(organization, 'developer')
const newWorker = async (fields: Parameters<typeof workerOf>[2] = {}) => workerOf(await developer(), ref, fields)

const SPELLINGS: Spelling[] = ['workers', 'compute']
const FIELD = 'body.data.attributes'

describe.each(SPELLINGS)('POST /v2/projects/{ref}/%s/{name}/deploy', (spelling) => {
  it.each([
    ['runtime', 'python'],
    ['runtime', 'dockerfile'],
    ['size', '1tb'],
    ['size', undefined],
    ['exposure', 'secret'],
    ['instances', -1],
    ['instances', 17],
    ['instances', 1.5],
    ['instances', '1'],
    ['secrets_scope', 'some'],
    ['secrets_scope', [{ name: 'A' }]],
    ['secrets_scope', [{ secret_name: 'SUPABASE_URL' }, { secret_name: 'NOBODY_SET_IT' }]],
  ])('refuses %s %j, names it, and leaves nothing', async (field, value) => {
    const worker = await newWorker({ spelling })
    const reply = await worker.deploy({ [field]: value }, randomUUID())
    expect(reply).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed' } } })
    expect(reply.body.error.issues[0].meta.field).toMatch(new RegExp(`^${FIELD}\\.spec\\.${field}`))
    expect((await worker.get()).status).toBe(404)
  })

  it('refuses an invalid name, and a type of the other spelling', async () => {
    const caller = await developer()
    for (const name of ['-a', 'A', 'a_b', 'a'.repeat(64)]) {
      const { status, body } = await workerOf(caller, ref, { name, spelling }).deploy({})
      expect([status, body.error.issues[0].meta.field]).toEqual([400, 'path.name'])
    }
    const other = spelling === 'workers' ? 'compute' : 'workers'
    const reply = await caller.post(`/v2/projects/${ref}/${spelling}/a/deploy`, {
      data: { type: TYPES[other], attributes: { spec: SPEC } },
    })
    expect([reply.status, reply.body.error.issues[0].meta.field]).toEqual([400, 'body.data.type'])
  })

  async function expectRefused(
    worker: Awaited<ReturnType<typeof newWorker>>,
    uploadId: string | undefined,
    why: string,
  ) {
    const reply = await worker.deploy({}, uploadId)
    expect(reply.status).toBe(400)
    expect(reply.body.error.issues).toMatchObject([
      { message: expect.stringContaining(why), meta: { field: `${FIELD}.context_upload_id` } },
    ])
  }

  it('refuses an upload that is unknown, malformed, of another worker or of another project', async () => {
    const worker = await newWorker({ spelling })
    const uploadId = await worker.upload(packed(saying('hello')))
    const noSuch = `must be the id of an upload for the worker`
    await expectRefused(worker, randomUUID(), noSuch)
    await expectRefused(worker, 'none', 'must be the id of an upload')
    await expectRefused(await newWorker({ spelling }), uploadId, noSuch)
    const other = await newProject(organization)
    await expectRefused(workerOf(organization.owner, other, { name: worker.name, spelling }), uploadId, noSuch)
    expect((await worker.get()).status).toBe(404)
  })

  it('refuses an upload that has expired, was never PUT or is too large, and a first deployment without one', async () => {
    const worker = await newWorker({ spelling })
    const caller = await developer()
    const slot = await caller.post(`${worker.path}/uploads`)
    await expectRefused(worker, slot.body.data.id, 'the upload is empty')
    await expectRefused(worker, undefined, 'is required: the worker has no earlier build')
    await expectRefused(
      worker,
      await worker.upload(new Uint8Array(32 * 1024 * 1024 + 1)),
      'at most 33554432 are allowed',
    )
    const expired = await worker.upload(packed(saying('hello')))
    await control.update(workerUploads).set({ expiresAt: new Date() }).where(eq(workerUploads.id, expired))
    await expectRefused(worker, expired, 'has expired')
    expect((await worker.get()).status).toBe(404)
  })

  it('deploys an earlier build with another spec if no upload is named', async () => {
    const worker = await newWorker({ spelling })
    const { image_version } = await worker.ship(saying('hello'))
    const spec = { ...SPEC, instances: 0, size: '4gb-2vcpu' }
    expect((await worker.deploy(spec)).body.data.attributes).toMatchObject({ build_state: 'building', spec })
    expect(await worker.built()).toMatchObject({
      ...{ build_state: 'active', spec, image_version },
      instances: { declared: 0, live: 0, ready: 0, stale: 0 },
    })
    const answer = await worker.call()
    expect([answer.status, await answer.json()]).toEqual([503, { code: 'NO_INSTANCE', message: expect.any(String) }])
  })

  it('allows a hundred open uploads, and expired ones do not count', async () => {
    const full = await newProject(organization)
    const row = { projectRef: full, workerName: 'other', expiresAt: new Date(Date.now() + 60_000) }
    const open = Array.from({ length: 99 }, () => row)
    await control.insert(workerUploads).values([...open, { ...row, expiresAt: new Date(Date.now() - 60_000) }])
    const { path } = workerOf(await developer(), full, { spelling })
    const create = () => organization.owner.post(`${path}/uploads`)
    expect(await create()).toMatchObject({ status: 201 })
    expect(await create()).toMatchObject({ status: 422, body: { error: { code: 'unprocessable.too_many_uploads' } } })
    const left = await control.select().from(workerUploads).where(eq(workerUploads.projectRef, full))
    expect(left).toHaveLength(101)
  })

  it('refuses more than a hundred workers', async () => {
    const full = await newProject(organization)
    const row = {
      projectRef: full,
      spec: SPEC as never,
      buildState: 'failed' as const,
      createdAt: new Date(),
      updatedAt: new Date(),
    }
    await control.insert(workers).values(Array.from({ length: 100 }, (_, i) => ({ ...row, name: `w${i}` })))
    const worker = workerOf(await developer(), full, { spelling })
    const reply = await worker.deploy({}, await worker.upload(packed(saying('hello'))))
    expect(reply).toMatchObject({ status: 422, body: { error: { code: 'unprocessable.too_many_workers' } } })
    expect((await worker.get()).status).toBe(404)
  })

  it('is refused, like uploads, for a project that is being deleted', async () => {
    const going = await newProject(organization)
    const worker = workerOf(await developer(), going, { spelling })
    const uploadId = await worker.upload(packed(saying('hello')))
    await control.update(projects).set({ status: 'GOING_DOWN' }).where(eq(projects.ref, going))
    const refused = { status: 409, body: { error: { code: 'conflict.project_status' } } }
    expect(await worker.deploy({}, uploadId)).toMatchObject(refused)
    expect(await (await developer()).post(`${worker.path}/uploads`)).toMatchObject(refused)
  })

  it('answers 404 for an unknown worker', async () => {
    const worker = await newWorker({ spelling })
    const missing = { status: 404, body: { error: { code: 'not_found.worker' } } }
    expect(await worker.get()).toMatchObject(missing)
    expect(await worker.delete()).toMatchObject(missing)
  })
})

describe('the URL of an upload', () => {
  it('accepts bytes by PUT at its own key, and nothing else', async () => {
    const slot = await (await developer()).post(`/v2/projects/${ref}/workers/api/uploads`)
    const { url, expires_at } = slot.body.data.attributes
    const { searchParams, pathname } = new URL(url)
    expect(searchParams.get('X-Amz-SignedHeaders')).toBe('host')
    expect(searchParams.get('X-Amz-Expires')).toBe('3600')
    expect(Math.abs(Date.parse(expires_at) - Date.now() - 3_600_000)).toBeLessThan(60_000)
    const attempt = async (to: string, init: RequestInit) => (await fetch(to, init)).status
    expect(await attempt(url, { method: 'GET' })).toBe(403)
    const elsewhere = url.replace(pathname, `${pathname}x`)
    expect(await attempt(elsewhere, { method: 'PUT', body: 'x' })).toBe(403)
    expect(await attempt(url, { method: 'PUT', body: 'x' })).toBe(200)
  })

  it('accepts an archive with any type that programs send, or none; a deployment refuses other types', async () => {
    const worker = await newWorker({ spelling: 'workers' })
    const bytes = packed(saying('hello'))
    for (const type of ['', 'application/gzip', 'application/octet-stream', 'Application/X-Tar; a=b']) {
      const { status } = await worker.deploy({}, await worker.upload(bytes, type))
      expect([type, status]).toEqual([type, 202])
    }
    const reply = await worker.deploy({}, await worker.upload(bytes, 'text/html'))
    const message = expect.stringContaining('the upload must be a .tar.gz (application/gzip), not text/html')
    expect(reply).toMatchObject({ status: 400, body: { error: { issues: [{ message }] } } })
  })
})
