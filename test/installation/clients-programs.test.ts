import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { as, type Caller } from '../support/api.ts'
import { newCli } from '../support/cli.ts'
import { extended } from '../support/extended.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import { startMcp } from '../support/mcp.ts'
import { newProject } from '../support/projects.ts'
import { saying, workerOf } from '../support/workers.ts'

/** The program that the CLI generates imports packages of the public registry. */
const hasRegistry = await fetch('https://registry.npmjs.org/@supabase%2fserver', { method: 'HEAD' }).then(
  ({ ok }) => ok,
  () => false,
)

/** An installation as users run it: a program that never starts has a process of its own here. */
let machine: Machine
let baseUrl: string
let token: string
let owner: Caller
let ref: string
beforeAll(async () => {
  machine = await newMachine({}, inject('begun'))
  await machine.started()
  const { base_url, access_token, organization_slug: slug } = machine.credentials()
  baseUrl = base_url
  token = access_token
  owner = as(token, {}, baseUrl)
  ref = await newProject({ owner, slug })
})
afterAll(() => machine.dispose())

const entrypointOf = async (slug: string) =>
  (await owner.get(`/v1/projects/${ref}/functions/${slug}`)).body.entrypoint_path

const answer = async (slug: string) => {
  const response = await fetch(`${baseUrl}/p/${ref}/functions/v1/${slug}`)
  return { status: response.status, text: await response.text() }
}

describe('the supabase CLI', () => {
  let home: string
  let cli: ReturnType<typeof newCli>['run']
  let feed: ReturnType<typeof newCli>['feed']
  beforeAll(() => {
    const made = newCli({ token }, baseUrl)
    ;({ home, run: cli, feed } = made)
    return made.remove
  })

  const write = (path: string, contents: string) => {
    mkdirSync(dirname(join(home, path)), { recursive: true })
    writeFileSync(join(home, path), contents)
  }
  const read = (path: string) => readFileSync(join(home, path), 'utf8')
  const functions = (...args: string[]) => cli('functions', ...args, '--project-ref', ref)
  const listed = async () =>
    (JSON.parse(await functions('list', '-o', 'json')) as { slug: string; version: number }[]).map(
      ({ slug, version }) => `${slug} ${version}`,
    )

  it('deploys one function and several, lists, downloads, prunes and deletes them', async () => {
    const files = {
      'supabase/functions/_shared/greet.ts': 'export const greet = (name: string): string => "hello " + name\n',
      'supabase/functions/hello/index.ts':
        'import { greet } from "../_shared/greet.ts"\nDeno.serve(() => new Response(greet("you")))\n',
      'supabase/functions/other/index.ts': 'Deno.serve(() => new Response("other"))\n',
    }
    for (const [path, contents] of Object.entries(files)) write(path, contents)
    await functions('deploy', 'hello', '--use-api', '--yes')
    expect(await listed()).toEqual(['hello 1'])
    expect(await answer('hello')).toMatchObject({ status: 401 })
    expect(await entrypointOf('hello')).toContain('/source/supabase/functions/hello/index.ts')
    await functions('deploy', '--use-api', '--no-verify-jwt', '--yes')
    expect((await listed()).sort()).toEqual(['hello 2', 'other 1'])
    expect((await owner.get(`/v1/projects/${ref}/functions/other`)).body).toMatchObject({ verify_jwt: false })
    expect(await answer('other')).toEqual({ status: 200, text: 'other' })
    expect(await answer('hello')).toEqual({ status: 200, text: 'hello you' })
    rmSync(join(home, 'supabase/functions'), { recursive: true })
    await functions('download', 'hello', '--use-api')
    expect(read('supabase/functions/hello/index.ts')).toBe(files['supabase/functions/hello/index.ts'])
    expect(read('supabase/functions/_shared/greet.ts')).toBe(files['supabase/functions/_shared/greet.ts'])
    expect(existsSync(join(home, 'supabase/functions/other'))).toBe(false)
    await functions('deploy', '--use-api', '--prune', '--yes')
    expect(await listed()).toEqual(['hello 3'])
    expect(await answer('other')).toMatchObject({ status: 404 })
    write('supabase/functions/hello/index.ts', 'const = 1\n')
    await expect(functions('deploy', 'hello', '--use-api', '--yes')).rejects.toThrow(/hello\/index\.ts:1:7/)
    await functions('delete', 'hello', '--yes')
    expect(await listed()).toEqual([])
  })

  it.runIf(hasRegistry)(
    'deploys its template for a new function, which answers callers with a key',
    async () => {
      await feed('n\n', 'functions', 'new', 'scaffold', '--yes')
      await functions('deploy', 'scaffold', '--use-api', '--yes')
      const { body: keys } = await owner.get(`/v1/projects/${ref}/api-keys?reveal=true`)
      const call = async (apikey: string) => {
        const headers = { 'content-type': 'application/json', apikey }
        const body = JSON.stringify({ name: 'you' })
        const response = await fetch(`${baseUrl}/p/${ref}/functions/v1/scaffold`, { method: 'POST', headers, body })
        return { status: response.status, body: await response.json() }
      }
      for (const { api_key } of keys.slice(2)) {
        expect(await call(api_key)).toEqual({ status: 200, body: { message: 'Hello you!' } })
      }
      expect(await call('sb_secret_unknown')).toMatchObject({ status: 401, body: { code: 'INVALID_API_KEY' } })
      expect((await owner.delete(`/v1/projects/${ref}/api-keys/${keys[3].id}`)).status).toBe(200)
      const fields = { type: 'secret', name: 'default' }
      const { body: replaced } = await owner.post(`/v1/projects/${ref}/api-keys?reveal=true`, fields)
      expect(await call(keys[3].api_key)).toMatchObject({ status: 401 })
      expect(await call(replaced.api_key)).toMatchObject({ status: 200 })
      await functions('delete', 'scaffold', '--yes')
    },
    120_000,
  )

  extended(
    'sets, lists and unsets secrets',
    async () => {
      const secrets = (...args: string[]) => cli('secrets', ...args, '--project-ref', ref)
      await secrets('set', 'A=one', 'B=two words', '--yes')
      const names = async () =>
        (JSON.parse(await secrets('list', '-o', 'json')) as { name: string }[]).map(({ name }) => name)
      expect(await names()).toEqual(['A', 'B'])
      expect(await secrets('list')).toContain('7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed')
      const program = 'Deno.serve(() => new Response(Deno.env.get("A") + " " + Deno.env.get("B")))'
      write('supabase/functions/env/index.ts', program)
      await functions('deploy', 'env', '--use-api', '--no-verify-jwt', '--yes')
      expect(await answer('env')).toEqual({ status: 200, text: 'one two words' })
      await secrets('unset', 'A', '--yes')
      expect(await answer('env')).toEqual({ status: 200, text: 'undefined two words' })
      expect(await names()).toEqual(['B'])
    },
    60_000,
  )
})

describe('the MCP server', () => {
  it('deploys a function, lists it, shows its files and deploys it again', async () => {
    const call = await startMcp({ baseUrl, token, features: 'functions' })
    const tool = async (name: string, args: Record<string, unknown>) =>
      (await call(name, { project_id: ref, ...args })).replaceAll('\\', '')

    const files = [
      { name: 'index.ts', content: 'import { a } from "./lib/a.ts"; Deno.serve(() => new Response(a))' },
      { name: 'lib/a.ts', content: 'export const a = "from mcp"' },
      { name: 'deno.json', content: '{}' },
    ]
    const deployed = { name: 'by-mcp', entrypoint_path: 'index.ts', verify_jwt: false, files }
    expect(await tool('deploy_edge_function', deployed)).toContain('"slug":"by-mcp"')
    expect(await tool('list_edge_functions', {})).toContain('"entrypoint_path":"index.ts"')
    const shown = await tool('get_edge_function', { function_slug: 'by-mcp' })
    expect(shown).toContain('"import_map_path":"deno.json"')
    expect(shown).toContain('"name":"lib/a.ts","content":"export const a = "from mcp""')
    expect(await tool('deploy_edge_function', { ...deployed, verify_jwt: true })).toContain('"version":2')
  })
})

const newWorker = () => workerOf(owner, ref, { base: baseUrl, pollMs: 1_000 })

describe('a worker over the wire', () => {
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
    const { home, run, remove } = newCli({ token }, baseUrl)
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
      const api = workerOf(owner, ref, { base: baseUrl, name: 'api', spelling: 'compute' })
      expect(await (await api.call('/users')).json()).toEqual({ compute: 'hello-node', path: '/users', greeting: null })
      expect((await workerOf(owner, ref, { base: baseUrl, name: 'jobs', spelling: 'compute' }).call()).status).toBe(401)
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
