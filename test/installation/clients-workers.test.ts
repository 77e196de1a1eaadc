import { once } from 'node:events'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { as, type Caller } from '../support/api.ts'
import { newCli } from '../support/cli.ts'
import { extended } from '../support/extended.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import { newProject } from '../support/projects.ts'
import { saying, workerOf } from '../support/workers.ts'

/** An installation as users run it: a program that never starts has a process of its own here. */
let machine: Machine
let base: string
let owner: Caller
let ref: string
let token: string
beforeAll(async () => {
  machine = await newMachine({}, inject('begun'))
  await machine.started()
  const { base_url, access_token, organization_slug: slug } = machine.credentials()
  base = base_url
  token = access_token
  owner = as(token, {}, base)
  ref = await newProject({ owner, slug })
})
afterAll(() => machine.dispose())

const newWorker = () => workerOf(owner, ref, { base, pollMs: 1_000 })

describe('over the wire', () => {
  it('an answer arrives piece by piece', async () => {
    const worker = newWorker()
    const program = `export default { fetch() {
      let n = 0
      return new Response(new ReadableStream({
        async pull(controller) {
          if (n > 0) await new Promise((resolve) => setTimeout(resolve, 500))
          if (n++ === 2) return controller.close()
          controller.enqueue(new TextEncoder().encode('piece'))
        },
      }))
    } }`
    await worker.ship({ 'index.js': program })
    const pieces: string[] = []
    for await (const piece of (await worker.call()).body ?? []) pieces.push(new TextDecoder().decode(piece))
    expect(pieces).toEqual(['piece', 'piece'])
  })

  it('a WebSocket connects to the worker', async () => {
    const worker = newWorker()
    const program = `export default { fetch() {
      const [client, server] = Object.values(new WebSocketPair())
      server.accept()
      server.addEventListener('message', ({ data }) => server.send('echo ' + data))
      return new Response(null, { status: 101, webSocket: client })
    } }`
    await worker.ship({ 'index.js': program })
    const socket = new WebSocket(worker.url().replace('http', 'ws'))
    await once(socket, 'open')
    socket.send('hello')
    expect(String((await once(socket, 'message'))[0])).toBe('echo hello')
    socket.close()
  })
})

describe('a program that never starts', () => {
  extended('fails with a reason, affects nobody else, and is fixed by the next deployment', async () => {
    const [worker, bystander] = [newWorker(), newWorker()]
    await bystander.ship(saying('well'))
    await worker.ship(saying('before'))
    const { build_state, state_reason } = await worker.ship({ 'index.js': 'for (;;) {}' })
    expect([build_state, state_reason]).toEqual(['failed', expect.stringMatching(/did not start within \d+ s/)])
    expect(await (await bystander.call()).text()).toBe('well')
    expect(await (await worker.call()).text()).toBe('before')
    expect(await worker.ship(saying('mended'))).toMatchObject({ build_state: 'active' })
  })
})

describe('supabase compute', () => {
  it('scaffolds, pushes, lists, shows and deletes, for node and for deno', async () => {
    const { home, run, remove } = newCli({ token }, base)
    mkdirSync(join(home, 'supabase'))
    writeFileSync(join(home, 'supabase', 'config.toml'), 'project_id = "x"\n[experimental]\ncompute = true\n')
    const compute = (...args: string[]) => run('compute', ...args, '--project-ref', ref, '--yes', '-o', 'json')
    try {
      await run('compute', 'new', 'api', '--runtime', 'node', '--size', '2gb', '--exposure', 'public')
      await run('compute', 'new', 'jobs', '--runtime', 'deno', '--size', '4gb', '--exposure', 'private')
      const pushed = JSON.parse(await compute('push', 'api', 'jobs'))
      expect(pushed.compute).toMatchObject([
        {
          compute_name: 'api',
          runtime: 'node',
          build_state: 'active',
          url: expect.stringMatching(/\/compute\/v1\/api$/),
        },
        { compute_name: 'jobs', runtime: 'deno', build_state: 'active', exposure: 'private' },
      ])
      const api = workerOf(owner, ref, { base, name: 'api', spelling: 'compute' })
      expect(await (await api.call('/users')).json()).toEqual({ compute: 'hello-node', path: '/users', greeting: null })
      expect((await workerOf(owner, ref, { base, name: 'jobs', spelling: 'compute' }).call()).status).toBe(401)
      expect(await compute('list')).toContain('jobs')
      expect(await compute('status', 'api')).toContain('active')
      await compute('delete', 'api')
      await vi.waitFor(async () => expect((await api.get()).status).toBe(404), 60_000)
      expect(JSON.parse(await compute('list')).compute).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ name: 'api', state: 'not deployed' }),
          expect.objectContaining({ name: 'jobs', state: 'active' }),
        ]),
      )
    } finally {
      remove()
    }
  })
})
