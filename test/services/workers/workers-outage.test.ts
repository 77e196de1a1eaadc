import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { eq } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { workers, workerTasks } from '../../../src/model/tables/index.ts'
import type { Caller } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { newProject } from '../../support/projects.ts'
import { serveLikeStart } from '../../support/serve.ts'
import { type Installation, startInstallation } from '../../support/storage-installation.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { packed, saying, workerOf } from '../../support/workers.ts'

/** Starts a proxy before the bucket; while it is closed, connections end at once. */
async function startBucketProxy(endpoint: string) {
  const { hostname, port, pathname } = new URL(endpoint)
  const proxy = { isOpen: true, isStalled: false }
  const stalled: Socket[] = []
  const sockets = new Set<Socket>()
  const server = createServer((socket) => {
    if (!proxy.isOpen) return socket.destroy()
    if (proxy.isStalled) return void stalled.push(socket)
    const onward = connect(Number(port), hostname)
    sockets.add(socket)
    socket.on('error', () => onward.destroy())
    onward.on('error', () => socket.destroy())
    socket.on('close', () => sockets.delete(socket))
    socket.pipe(onward).pipe(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const endSockets = () => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}${pathname}`,
    open() {
      proxy.isOpen = true
    },
    close() {
      proxy.isOpen = false
      endSockets()
    },
    /** Accepts connections and answers nothing. */
    stall() {
      proxy.isStalled = true
      endSockets()
    },
    resume() {
      proxy.isStalled = false
      for (const socket of stalled.splice(0)) socket.destroy()
    },
  }
}

let proxy: Awaited<ReturnType<typeof startBucketProxy>>
let installation: Installation
let owner: Caller
let ref: string
let base: string
beforeAll(async () => {
  const proxyTo = async (endpoint: string) => {
    proxy = await startBucketProxy(endpoint)
    return proxy.endpoint
  }
  installation = await startInstallation({ proxyTo, serve: serveLikeStart })
  const storage = await installation.newStorage()
  owner = storage.organization.owner
  base = new URL(storage.url).origin
  ref = await newProject(storage.organization)
})
afterAll(() => installation.stop())

/** Waits until an attempt of a build has failed. */
const untilDelayed = (name: string) =>
  vi.waitFor(
    async () => {
      const tasks = await installation.control
        .select()
        .from(workerTasks)
        .innerJoin(workers, eq(workers.id, workerTasks.workerId))
        .where(eq(workers.name, name))
      expect(tasks.map(({ worker_tasks: { lastError } }) => lastError)).toContainEqual(expect.any(String))
    },
    { timeout: WAIT_MS, interval: 50 },
  )

const newWorker = () => workerOf(owner, ref, { base, pollMs: 1_000 })

describe('while the bucket is unreachable', () => {
  it('a deployment is refused with that error, before anything changes', async () => {
    const worker = newWorker()
    const uploadId = await worker.upload(packed(saying('hello')))
    proxy.close()
    const reply = await worker.deploy({}, uploadId)
    proxy.open()
    expect(reply).toMatchObject({ status: 503, body: { error: { code: 'service_unavailable.bucket' } } })
    expect((await worker.get()).status).toBe(404)
    expect(await worker.deploy({}, uploadId)).toMatchObject({ status: 202 })
    expect(await worker.built()).toMatchObject({ build_state: 'active' })
  })

  extended(
    'a build waits, the served version continues, and the build succeeds once the bucket is reachable',
    async () => {
      const worker = newWorker()
      await worker.ship(saying('before'))
      const uploadId = await worker.upload(packed(saying('after')))
      await worker.deploy({}, uploadId)
      proxy.close()
      await untilDelayed(worker.name)
      expect((await worker.get()).body.data.attributes.build_state).toBe('building')
      expect(await (await worker.call()).text()).toBe('before')
      proxy.open()
      expect(await worker.built()).toMatchObject({ build_state: 'active' })
      await vi.waitFor(async () => expect(await (await worker.call()).text()).toBe('after'), 60_000)
    },
  )

  extended('a deployment waits too if the bucket stalls while its instances start', async () => {
    const worker = newWorker()
    await worker.ship(saying('hello'))
    proxy.stall()
    await worker.deploy({})
    await untilDelayed(worker.name)
    expect((await worker.get()).body.data.attributes.build_state).toBe('building')
    proxy.resume()
    expect(await worker.built()).toMatchObject({ build_state: 'active' })
  })
})
