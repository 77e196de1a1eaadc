import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { DeleteObjectCommand, ListObjectsV2Command, PutObjectCommand, S3Client } from '@aws-sdk/client-s3'
import { and, desc, eq, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { workerImages, workers, workerTasks, workerUploads } from '../../../src/model/tables/index.ts'
import { startBuilderProcess } from '../../builder/client.ts'
import { control, newMember, newOrganization, type TestOrganization, tick, workerLogs } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { startInstallation } from '../../support/storage-installation.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { serveWorker } from '../../support/worker.ts'
import { packed, saying, workerOf } from '../../support/workers.ts'

type Task = typeof workerTasks.$inferSelect
type Worker = ReturnType<typeof workerOf>

const WAIT = { timeout: WAIT_MS, interval: 250 }

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

const newWorker = async (project = ref) => workerOf(await newMember(organization, 'developer'), project)

const { bucket: Bucket, accessKeyId, secretAccessKey, endpoint } = inject('s3')
const credentials = { accessKeyId, secretAccessKey }
const s3 = new S3Client({ endpoint, region: 'auto', credentials, forcePathStyle: true })
const keysBelow = async (prefix: string) => {
  const { Contents = [] } = await s3.send(new ListObjectsV2Command({ Bucket, Prefix: prefix }))
  return Contents.map(({ Key = '' }) => Key.slice(prefix.length))
}
const imagesOf = (project: string) => keysBelow(`projects/${project}/workers/images/`)

async function rowOf({ name }: Worker, project = ref) {
  const [row] = await control
    .select()
    .from(workers)
    .where(and(eq(workers.projectRef, project), eq(workers.name, name)))
  if (!row) throw new Error('no worker')
  return row
}

async function taskOf(worker: Worker, project = ref): Promise<Task> {
  const { id } = await rowOf(worker, project)
  const [task] = await control
    .select()
    .from(workerTasks)
    .where(eq(workerTasks.workerId, id))
    .orderBy(desc(workerTasks.createdAt))
  if (!task) throw new Error('no task')
  return task
}

/** Leaves a task as a consumer that died some time ago in the middle of its build. */
async function abandon(worker: Worker, fields: Partial<Task> = {}): Promise<Task> {
  const { id, workerId } = await taskOf(worker)
  const died = { state: 'running' as const, claim: crypto.randomUUID(), leaseUntil: new Date(0), finishedAt: null }
  const [task] = await control
    .update(workerTasks)
    .set({ ...died, ...fields })
    .where(eq(workerTasks.id, id))
    .returning()
  await control.update(workers).set({ buildState: 'building' }).where(eq(workers.id, workerId))
  return task as Task
}

async function shipped(text: string, project = ref) {
  const worker = await newWorker(project)
  expect(await worker.ship(saying(text))).toMatchObject({ build_state: 'active' })
  return worker
}

async function buildsHeldUp(): Promise<number> {
  const { rows } = await control.execute(
    sql`select from pg_stat_activity where wait_event_type = 'Lock' and query like '%worker_images%'`,
  )
  return rows.length
}

/** Deploys the workers. Their builds wait to record their finished image until `meanwhile` has ended. */
async function holdUpBuilds<T>(held: readonly Worker[], meanwhile: () => Promise<T>, project = ref): Promise<T> {
  const source = saying(`held up ${crypto.randomUUID()}`)
  const { image_version: sha256 } = await (await newWorker(project)).ship(source)
  const uploads = await Promise.all(held.map((worker) => worker.upload(packed(source))))
  return control.transaction(async (tx) => {
    await tx.select().from(workerImages).where(eq(workerImages.sha256, sha256)).for('update')
    for (const [n, worker] of held.entries()) await worker.deploy({}, uploads[n])
    await vi.waitFor(async () => expect(await buildsHeldUp()).toBeGreaterThan(0), WAIT)
    return meanwhile()
  })
}

describe('a build whose consumer died', () => {
  it('is done by another one, once, however often its message arrives', async () => {
    const worker = await shipped('hello')
    const { attempts } = await abandon(worker)
    await Promise.all([tick(), tick()])
    expect(await worker.built()).toMatchObject({ build_state: 'active' })
    expect(await taskOf(worker)).toMatchObject({ state: 'done', attempts: attempts + 1 })
    expect(await (await worker.call()).text()).toBe('hello')
  })

  it('is not taken over while the lease is valid', async () => {
    const [held, dead] = [await shipped('held'), await shipped('dead')]
    const { claim } = await abandon(held, { leaseUntil: new Date(Date.now() + 60_000) })
    await abandon(dead)
    await tick()
    await dead.built()
    expect(await taskOf(held)).toMatchObject({ state: 'running', claim })
  })

  it('fails with a reason if every attempt dies, and the next deployment works', async () => {
    const worker = await shipped('hello')
    await abandon(worker, { attempts: 5, lastError: null })
    await tick()
    expect(await worker.built()).toMatchObject({
      build_state: 'failed',
      state_reason: expect.stringContaining('5 attempts: each attempt stopped the builder'),
    })
    expect(await worker.ship(saying('again'))).toMatchObject({ build_state: 'active' })
  })
})

describe('a build', () => {
  it('whose message was lost is sent again by the sweeper', async () => {
    const worker = await shipped('hello')
    await abandon(worker, { state: 'pending', claim: null, leaseUntil: null, dueAt: new Date(0) })
    await tick()
    expect(await worker.built()).toMatchObject({ build_state: 'active' })
  })

  it('is superseded by a newer one', async () => {
    const worker = await newWorker()
    const [first, second] = [
      await worker.upload(packed(saying('first'))),
      await worker.upload(packed(saying('second'))),
    ]
    await worker.deploy({}, first)
    await worker.deploy({ instances: 2 }, second)
    expect(await worker.built()).toMatchObject({ build_state: 'active', spec: { instances: 2 } })
    expect(await (await worker.call()).text()).toBe('second')
    const { id } = await rowOf(worker)
    const left = await control.select().from(workerTasks).where(eq(workerTasks.workerId, id))
    expect(left).toMatchObject([{ state: 'done', uploadId: second }])
  })

  it('stays in the log for 7 days, with the reason if it failed', async () => {
    const worker = await shipped('first')
    await control
      .update(workerTasks)
      .set({ finishedAt: new Date(Date.now() - 8 * 24 * 3_600_000) })
      .where(eq(workerTasks.id, (await taskOf(worker)).id))
    const { state_reason: reason } = await worker.ship({ 'index.js': 'export default {' })
    await worker.ship(saying('second'))
    const query = new URLSearchParams({
      sql: `select event_message, log_attributes['reason'] as reason from worker_api_logs
        where log_attributes['worker'] = '${worker.name}' order by timestamp limit 10`,
    })
    const { body } = await organization.owner.get(`/v1/projects/${ref}/analytics/endpoints/logs?${query}`)
    expect(body.result).toEqual([
      { event_message: 'build_failed', reason },
      { event_message: 'build_succeeded', reason: null },
    ])
    const { id } = await rowOf(worker)
    expect(await control.$count(workerTasks, eq(workerTasks.workerId, id))).toBe(2)
  })

  it('keeps the context that was being built if the newer one brings only a spec', async () => {
    const worker = await shipped('hello')
    const upload = await worker.upload(packed(saying('newer')))
    await worker.deploy({}, upload)
    await worker.deploy({ instances: 2 })
    expect(await worker.built()).toMatchObject({ build_state: 'active', spec: { instances: 2 } })
    expect(await (await worker.call()).text()).toBe('newer')
  })

  it('fails if its context no longer exists', async () => {
    const worker = await shipped('hello')
    const { uploadId } = await taskOf(worker)
    await s3.send(new DeleteObjectCommand({ Bucket, Key: `projects/${ref}/workers/uploads/${uploadId}` }))
    await abandon(worker)
    await tick()
    const { build_state, state_reason } = await worker.built()
    expect([build_state, state_reason]).toEqual(['failed', expect.stringContaining('upload it again')])
    expect(await (await worker.call()).text()).toBe('hello')
  })
})

extended('a build refuses a context that replaced the one that was checked', async () => {
  const worker = await shipped('hello')
  const { uploadId } = await taskOf(worker)
  const Key = `projects/${ref}/workers/uploads/${uploadId}`
  await s3.send(new PutObjectCommand({ Bucket, Key, Body: new Uint8Array(32 * 1024 ** 2 + 1) }))
  await abandon(worker)
  await tick()
  const { build_state, state_reason } = await worker.built()
  expect([build_state, state_reason]).toEqual(['failed', expect.stringContaining('at most 33554432 are allowed')])
  expect(await (await worker.call()).text()).toBe('hello')
})

describe('a build for which the builder has no place', () => {
  it('waits until there is one, without counting as an attempt', async () => {
    const silent = createServer().listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const silentUrl = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/mod.ts`
    const builder = await startBuilderProcess({ IMPORT_LOOPBACK: 'on' })
    const installation = await startInstallation({
      serve: (bindings, folder) => serveWorker(bindings, { bundle: inject('bundle'), folder, builder }),
    })
    const own = await installation.newOrganization()
    const { ref: project, url } = await installation.newStorage(own)
    const form = new FormData()
    form.set('spec', JSON.stringify({ entrypoint: 'index.ts' }))
    form.append('file', new Blob([`import '${silentUrl}'`]), 'index.ts')
    const left = new AbortController()
    const build = () => builder.post('/function', form, { organizationId: own.id, signal: left.signal })
    const requested = once(silent, 'request')
    const running = build()
    await requested
    const waiting = Array.from({ length: 51 }, build)
    expect(await Promise.race(waiting)).toMatchObject({ isBusy: true })

    const worker = workerOf(own.owner, project, { base: url })
    await worker.deploy({}, await worker.upload(packed(saying('hello'))))
    const tasks = () => installation.control.select().from(workerTasks)
    const lastError = expect.stringContaining('Too many programs are waiting')
    await vi.waitFor(
      async () => expect(await tasks()).toMatchObject([{ state: 'pending', attempts: 0, lastError }]),
      WAIT,
    )
    left.abort()
    silent.closeAllConnections()
    await Promise.allSettled([running, ...waiting])
    // The pause before the next try is longer than the rate limit lets a client ask.
    await vi.waitFor(async () => expect(await tasks()).toMatchObject([{ state: 'done', attempts: 1 }]), WAIT)
    expect(await worker.built()).toMatchObject({ build_state: 'active' })
    await installation.stop()
    await builder.stop()
    silent.close()
  })
})

describe('builds of a project', () => {
  it('run two at a time, and the others wait without counting as attempts', async () => {
    const [own, other] = [await newProject(organization), await newProject(organization)]
    const slow = await Promise.all(Array.from({ length: 6 }, () => newWorker(own)))
    const tasks = () => Promise.all(slow.map((worker) => taskOf(worker, own)))
    const meanwhile = async () => {
      await vi.waitFor(async () => expect(await buildsHeldUp()).toBeGreaterThanOrEqual(2), WAIT)
      await shipped('of another project', other)
      // A task that the sweep sends again runs until it is put back.
      await vi.waitFor(async () => {
        const states = (await tasks()).map(({ state, attempts }) => `${state} ${attempts}`).toSorted()
        expect(states).toEqual([...Array(4).fill('pending 0'), ...Array(2).fill('running 1')])
      }, WAIT)
    }
    await holdUpBuilds(slow, meanwhile, own)
    for (const worker of slow) expect(await worker.built()).toMatchObject({ build_state: 'active' })
    for (const task of await tasks()) expect(task).toMatchObject({ state: 'done', attempts: 1 })
  })

  it('do not keep the sweep from sending the tasks of other projects', async () => {
    const [busy, quiet] = [await newProject(organization), await newProject(organization)]
    const worker = await shipped('hello', quiet)
    const { id, spec } = await rowOf(worker, quiet)
    const at = new Date()
    const rows = Array.from({ length: 110 }, (_, n) => ({
      ...{ projectRef: busy, name: `w-${n}`, spec, buildState: 'building' as const },
      ...{ createdAt: at, updatedAt: at },
    }))
    const waiting = await control.insert(workers).values(rows).returning({ id: workers.id })
    const held = { state: 'running' as const, claim: crypto.randomUUID(), leaseUntil: new Date(Date.now() + 600_000) }
    const tasks = waiting.map(({ id: workerId }, n) => ({
      ...{ workerId, kind: 'build' as const, spec, dueAt: new Date(0), createdAt: at, ...(n < 2 && held) },
    }))
    await control.insert(workerTasks).values(tasks)
    const overdue = { state: 'pending' as const, dueAt: new Date(Date.now() - 60_000), finishedAt: null }
    await control.update(workers).set({ buildState: 'building' }).where(eq(workers.id, id))
    await control.update(workerTasks).set(overdue).where(eq(workerTasks.workerId, id))
    await tick()
    expect(await worker.built()).toMatchObject({ build_state: 'active' })
    await control.delete(workers).where(eq(workers.projectRef, busy))
  })
})

describe('a build that another task has replaced', () => {
  /** Runs a build that waits to record its finished image until `meanwhile` has ended. */
  async function buildHeldUp(worker: Worker, meanwhile: (task: Task) => Promise<unknown>): Promise<Task> {
    const task = await holdUpBuilds([worker], async () => {
      const held = await taskOf(worker)
      await meanwhile(held)
      return held
    })
    await vi.waitFor(async () => {
      expect((await workerLogs(task.id)).join()).toContain('worker_task_not_held')
    }, WAIT)
    return task
  }

  /** Makes the worker serve what that build has made, and returns its instances. */
  async function startedBy({ id: deploymentId }: Task, worker: Worker) {
    const { id, served } = await rowOf(worker)
    if (!served) throw new Error('nothing is served')
    await control
      .update(workers)
      .set({ served: { ...served, deploymentId } })
      .where(eq(workers.id, id))
    return (await worker.get()).body.data.attributes.instances
  }

  it('starts nothing', async () => {
    const worker = await shipped('first')
    const superseded = { state: 'superseded' as const, claim: null, leaseUntil: null }
    const task = await buildHeldUp(worker, ({ id }) =>
      control.update(workerTasks).set(superseded).where(eq(workerTasks.id, id)),
    )
    expect(await startedBy(task, worker)).toMatchObject({ live: 1, ready: 0, stale: 1 })
  })
})

describe('a worker that is deleted', () => {
  it('is removed with its image, and its name can be used at once', async () => {
    const worker = await shipped('before')
    const { image_version } = await worker.built()
    expect(await imagesOf(ref)).toContain(image_version)
    expect((await worker.delete()).status).toBe(204)
    expect(await worker.ship(saying('after'))).toMatchObject({ build_state: 'active' })
    expect(await (await worker.call()).text()).toBe('after')
    await vi.waitFor(async () => expect(await imagesOf(ref)).not.toContain(image_version), WAIT)
    expect(await worker.delete()).toMatchObject({ status: 204 })
    await vi.waitFor(async () => expect((await worker.get()).status).toBe(404), WAIT)
  })

  it('is shown as deleting until it is removed, and does not answer any more', async () => {
    const worker = await shipped('hello')
    await control
      .update(workers)
      .set({ deletedAt: new Date() })
      .where(eq(workers.id, (await rowOf(worker)).id))
    expect((await worker.get()).body.data.attributes).toMatchObject({ deleting: true })
    expect(await worker.delete()).toMatchObject({ status: 204 })
    await vi.waitFor(async () => expect((await worker.call()).status).toBe(404), WAIT)
  })

  extended('keeps the image for another one that serves the same', async () => {
    const [one, other] = [await shipped('the same'), await shipped('the same')]
    const { image_version } = await other.built()
    await one.delete()
    await vi.waitFor(async () => expect((await one.get()).status).toBe(404), WAIT)
    expect(await imagesOf(ref)).toContain(image_version)
    await other.delete()
    await vi.waitFor(async () => expect(await imagesOf(ref)).not.toContain(image_version), WAIT)
  })
})

describe('the sweep', () => {
  extended('removes expired uploads, and images that no worker serves', async () => {
    const project = await newProject(organization)
    const worker = await shipped('old', project)
    const { image_version: old } = await worker.built()
    expect(await worker.ship(saying('new'))).toMatchObject({ build_state: 'active' })
    const { image_version: kept } = await worker.built()
    const [expired, fresh] = [await worker.upload('x'), await worker.upload('x')]
    const longAgo = new Date(Date.now() - 2 * 60 * 60 * 1000)
    await control.update(workerUploads).set({ expiresAt: longAgo }).where(eq(workerUploads.id, expired))
    await control.update(workerImages).set({ touchedAt: longAgo }).where(eq(workerImages.projectRef, project))
    await tick()
    const uploads = () => keysBelow(`projects/${project}/workers/uploads/`)
    await vi.waitFor(async () => expect(await uploads()).not.toContain(expired), WAIT)
    await vi.waitFor(async () => expect(await imagesOf(project)).toEqual([kept]), WAIT)
    expect(old).not.toBe(kept)
    // An image that is served is not checked again with each sweep.
    const [image] = await control.select().from(workerImages).where(eq(workerImages.projectRef, project))
    expect(image?.touchedAt.getTime()).toBeGreaterThan(longAgo.getTime())
    expect(await uploads()).toContain(fresh)
    expect(await control.select().from(workerUploads).where(eq(workerUploads.id, expired))).toEqual([])
    expect(await (await worker.call()).text()).toBe('new')
  })
})

it('an upload that is too large to be built is removed while its slot is open', async () => {
  const worker = await newWorker()
  const [large, small] = [await worker.upload(new Uint8Array(32 * 1024 ** 2 + 1)), await worker.upload('small')]
  await vi.waitFor(async () => {
    await tick()
    const left = await keysBelow(`projects/${ref}/workers/uploads/`)
    expect(left).toContain(small)
    expect(left).not.toContain(large)
  }, WAIT)
})

describe('a project that is removed', () => {
  it('deletes its workers', async () => {
    const project = await newProject(organization)
    const worker = await shipped('hello', project)
    await organization.owner.delete(`/v1/projects/${project}`)
    await untilGone(organization.owner, project)
    expect((await worker.call()).status).toBe(404)
    expect(await keysBelow(`projects/${project}/workers/`)).toEqual([])
    expect(await control.select().from(workers).where(eq(workers.projectRef, project))).toEqual([])
  })
})
