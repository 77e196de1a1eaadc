import { once } from 'node:events'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import { withClient } from '../../dev/control-database.ts'
import { as, type Caller } from '../support/api.ts'
import { newCli } from '../support/cli.ts'
import { extended } from '../support/extended.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import { startMcp } from '../support/mcp.ts'
import { newProject, PASSWORD, runSql, untilGone, untilStatus } from '../support/projects.ts'
import { WAIT_MS } from '../support/wait.ts'
import { saying, workerOf } from '../support/workers.ts'

/** The program that the CLI generates imports packages of the public registry. */
const hasRegistry = await fetch('https://registry.npmjs.org/@supabase%2fserver', { method: 'HEAD' }).then(
  ({ ok }) => ok,
  () => false,
)

/**
 * An installation as users run it: the production Worker without a proxy before it, which would change some replies.
 */
let machine: Machine
let baseUrl: string
let token: string
let slug: string
let owner: Caller
beforeAll(async () => {
  machine = await newMachine({}, inject('begun'))
  await machine.started()
  ;({ base_url: baseUrl, access_token: token, organization_slug: slug } = machine.credentials())
  owner = as(token, {}, baseUrl)
})
afterAll(() => machine.dispose())

describe('supabase-management-js', () => {
  it('creates a project, runs SQL on it, reads its keys, sets its storage, pauses, restores and deletes it', async () => {
    const api = new SupabaseManagementAPI({ accessToken: token, baseUrl })
    expect((await api.listAllOrganizations()).data).toMatchObject([{ slug }])
    expect((await api.getAnOrganization(slug)).data).toMatchObject({ plan: 'enterprise' })
    const { data: project } = await api.createAProject({ name: 'js', organization_slug: slug, db_pass: PASSWORD })
    const { ref } = project
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect((await api.getProject(ref)).data).toMatchObject({ database: { postgres_engine: '18' } })
    await api.runAQuery(ref, { query: 'create table t (id int); insert into t values (7)' })
    expect((await api.runAQuery(ref, { query: 'select id from t' })).data).toEqual([{ id: 7 }])
    expect((await api.readOnlyQuery(ref, { query: 'select id from public.t' })).data).toEqual([{ id: 7 }])
    await expect(api.runAQuery(ref, { query: 'select * from missing' })).rejects.toThrow(
      /relation "missing" does not exist/,
    )
    expect((await api.getServicesHealth(ref, { services: ['db'] })).data).toMatchObject([{ status: 'ACTIVE_HEALTHY' }])
    expect((await api.getAllProjectsForOrganization(slug)).data).toMatchObject({ projects: [{ ref }] })
    expect((await api.getProjectApiKeys(ref, { reveal: true })).data).toMatchObject([
      { name: 'anon', type: 'legacy', api_key: expect.stringContaining('.') },
      { name: 'service_role', type: 'legacy', api_key: expect.stringContaining('.') },
      { name: 'default', type: 'publishable', api_key: expect.stringMatching(/^sb_publishable_/) },
      { name: 'default', type: 'secret', api_key: expect.stringMatching(/^sb_secret_[^·]+$/) },
    ])
    await api.updateStorageConfig(ref, { fileSizeLimit: 1000 })
    expect((await api.getStorageConfig(ref)).data).toMatchObject({ fileSizeLimit: 1000 })
    expect((await api.listAllBuckets(ref)).data).toEqual([])
    expect((await api.updateAProject(ref, { name: 'js-renamed' })).data).toMatchObject({ ref, name: 'js-renamed' })
    expect((await api.pauseAProject(ref)).status).toBe(200)
    await untilStatus(owner, ref, 'INACTIVE')
    expect((await api.listAvailableRestoreVersions(ref)).data).toMatchObject({ available_versions: [{}] })
    expect((await api.restoreAProject(ref)).status).toBe(200)
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect((await api.deleteAProject(ref)).data).toMatchObject({ ref })
    await untilGone(owner, ref)
  })
})

/** Opens a CLI for the tests of a group. */
function openCli() {
  let opened: ReturnType<typeof newCli>
  beforeAll(() => {
    opened = newCli({ token }, baseUrl)
    return opened.remove
  })
  return {
    cli: (...args: string[]) => opened.run(...args),
    feed: (input: string, ...args: string[]) => opened.feed(input, ...args),
    inHome: (path: string) => join(opened.home, path),
  }
}

describe('the supabase CLI', () => {
  const { cli, feed, inHome } = openCli()

  it('runs whoami, orgs list|create, projects list|create|api-keys|delete, db query and link', async () => {
    expect(await cli('whoami')).toContain('owner')
    expect(await cli('orgs', 'list')).toContain(slug)
    expect(await cli('orgs', 'create', 'made-by-cli', '--yes')).toContain('made-by-cli')
    await cli(
      'projects',
      'create',
      'cli',
      '--org-id',
      slug,
      '--db-password',
      PASSWORD,
      '--region',
      'us-east-1',
      '--size',
      'small',
      '--yes',
    )
    const listed = JSON.parse(await cli('projects', 'list', '-o', 'json')) as {
      name: string
      id: string
      region: string
    }[]
    const project = listed.find(({ name }) => name === 'cli')
    expect(project?.region).toBe('us-east-1')
    const ref = project?.id ?? ''
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
    expect(await cli('db', 'query', `--remote=${ref}`, '--yes', "select 'of ' || 42 as answer")).toContain('of 42')
    expect(await cli('db', 'query', `--remote=${ref}`, '--read-only', 'select 1 as one')).toContain('one')
    const keys = async (...more: string[]) => {
      const listed = JSON.parse(await cli('projects', 'api-keys', '--project-ref', ref, '-o', 'json', ...more))
      return (listed as { name: string; api_key: string }[]).map(({ name, api_key }) => [name, api_key])
    }
    const jwt = expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]+$/)
    expect(await keys('--reveal')).toEqual([
      ['anon', jwt],
      ['service_role', jwt],
      ['default', expect.stringMatching(/^sb_publishable_/)],
      ['default', expect.stringMatching(/^sb_secret_[^·]+$/)],
    ])
    expect(await keys()).toEqual([
      ['anon', jwt],
      ['service_role', expect.stringMatching(/^[\w-]{5}·+$/)],
      ['default', expect.stringMatching(/^sb_publishable_[^·]+$/)],
      ['default', expect.stringMatching(/^sb_secret_.{5}·+$/)],
    ])
    const rootKey = () => cli('encryption', 'get-root-key', '--project-ref', ref)
    expect(await rootKey()).toMatch(/^[0-9a-f]{64}$/m)
    const newKey = (key: string) => feed(key, 'encryption', 'update-root-key', '--project-ref', ref, '--yes')
    await newKey('ab'.repeat(32))
    expect(await rootKey()).toContain('ab'.repeat(32))
    await expect(newKey('')).rejects.toThrow('Expected a 32 byte secret, hex-encoded (64 characters).')
    expect(await cli('link', '--project-ref', ref, '--password', PASSWORD, '--yes')).toContain('Finished')
    await runSql(owner, ref, 'create table public.typed (n int not null)')
    expect(await cli('gen', 'types', '--project-id', ref, '--lang', 'typescript')).toMatch(
      /typed: {\s+Row: {\s+n: number/,
    )
    await expect(cli('db', 'query', `--remote=${ref}`, '--yes', 'select * from missing')).rejects.toThrow(/missing/)
    await cli('projects', 'delete', ref, '--yes')
    await untilGone(owner, ref)
  })

  extended(
    'runs branches create|list|get|update|pause|unpause|delete|disable',
    async () => {
      const ref = await newProject({ owner, slug })
      const branches = (...args: string[]) => cli('branches', ...args, `--remote=${ref}`)
      const listed = async () => JSON.parse(await branches('list', '-o', 'json')) as { name: string; status: string }[]
      expect(await branches('create', 'feature', '--persistent', '--with-data', '--yes')).toContain('CREATING_PROJECT')
      await vi.waitFor(
        async () =>
          expect(await listed()).toContainEqual(
            expect.objectContaining({ name: 'feature', status: 'FUNCTIONS_DEPLOYED' }),
          ),
        { timeout: WAIT_MS, interval: 500 },
      )
      const env = JSON.parse(await branches('get', 'feature', '-o', 'json')) as Record<string, string>
      expect(await answerAt(env.POSTGRES_URL ?? '')).toBe(42)
      expect(await answerAt(env.POSTGRES_URL_NON_POOLING ?? '')).toBe(42)
      expect(env.SUPABASE_ANON_KEY).toMatch(/^eyJ/)
      await branches('update', 'feature', '--name', 'renamed', '--persistent=false', '--yes')
      const { body: branch } = await owner.get(`/v1/projects/${ref}/branches/renamed`)
      expect(branch).toMatchObject({ persistent: false })
      await branches('pause', 'renamed', '--yes')
      await untilStatus(owner, branch.project_ref, 'INACTIVE')
      await branches('unpause', 'renamed', '--yes')
      await untilStatus(owner, branch.project_ref, 'ACTIVE_HEALTHY')
      await branches('delete', 'renamed', '--yes')
      expect((await listed()).map(({ name }) => name)).toEqual(['main'])
      await branches('disable', '--yes')
      await expect(branches('list')).rejects.toThrow(/Preview branching is not enabled/)
    },
    180_000,
  )

  it('runs postgres-config, ssl-enforcement, db push, db reset and migration list', async () => {
    const ref = await newProject({ owner, slug })
    const remote = [`--remote=${ref}`, '--experimental']
    expect(await cli('postgres-config', 'update', '--config', 'work_mem=8MB', ...remote, '--yes')).toContain('8MB')
    expect(await cli('postgres-config', 'get', ...remote)).toMatch(/work_mem\s+\| 8MB/)
    expect((await runSql(owner, ref, 'show work_mem')).body).toEqual([{ work_mem: '8MB' }])
    expect(await cli('postgres-config', 'delete', '--config', 'work_mem', ...remote, '--yes')).toMatch(
      / work_mem\s+\| 2MB/,
    )
    expect((await runSql(owner, ref, 'show work_mem')).body).toEqual([{ work_mem: '2MB' }])
    expect(await cli('ssl-enforcement', 'get', ...remote)).toContain('*NOT*')
    const { body: project } = await owner.get(`/v1/projects/${ref}`)
    const url = `postgresql://postgres.${ref}:${PASSWORD}@${project.database.host}:${machine.env.POSTGRES_PORT}/postgres`
    mkdirSync(inHome('supabase/migrations'), { recursive: true })
    writeFileSync(inHome('supabase/migrations/20260101000000_pushed.sql'), 'create table pushed (n int);')
    await cli('db', 'push', `--remote=${url}`, '--yes')
    expect(await cli('migration', 'list', `--remote=${url}`)).toMatch(/`20260101000000` \| `20260101000000`/)
    expect((await owner.get(`/v1/projects/${ref}/database/migrations`)).body).toEqual([
      { version: '20260101000000', name: 'pushed' },
    ])
    await runSql(owner, ref, 'insert into pushed values (1); insert into auth.users (id) values (gen_random_uuid())')
    await cli('db', 'reset', `--remote=${url}`, '--yes')
    const left = await runSql(
      owner,
      ref,
      'select (select count(*) from pushed)::int + (select count(*) from auth.users)::int as rows',
    )
    expect(left.body).toEqual([{ rows: 0 }])
    expect(await cli('ssl-enforcement', 'update', '--enable-db-ssl-enforcement', ...remote, '--yes')).not.toContain('*')
    await expect(answerAt(url)).rejects.toThrow(/pg_hba|SSL/)
  })
})

/** Returns what a query reads there, over a connection without TLS. */
const answerAt = (url: string): Promise<number> =>
  withClient(url, async (client) => (await client.query('select 42 as answer')).rows[0].answer)

describe('the MCP server', () => {
  it('lists organizations, projects, keys and buckets, runs SQL, pauses and restores', async () => {
    const ref = await newProject({ owner, slug })
    await runSql(owner, ref, 'create table public.noted (id int primary key); insert into public.noted values (11)')
    const served = 'account,branching,database,development,storage'
    const tool = await startMcp({ baseUrl, token, features: served })
    expect(await tool('list_organizations')).toContain(slug)
    expect(await tool('get_organization', { id: slug })).toContain('enterprise')
    expect(await tool('list_projects')).toContain(ref)
    expect(await tool('get_project', { id: ref })).toContain('ACTIVE_HEALTHY')
    expect(await tool('list_tables', { project_id: ref, schemas: ['public'] })).toContain('noted')
    expect(await tool('list_extensions', { project_id: ref })).toContain('pgcrypto')
    expect(await tool('execute_sql', { project_id: ref, query: 'select id from noted' })).toContain('11')
    expect(await tool('list_migrations', { project_id: ref })).toContain('[]')
    const query = "create type public.mood as enum ('sad', 'ok'); create table public.moods (mood public.mood)"
    await tool('apply_migration', { project_id: ref, name: 'make_moods', query })
    expect(await tool('list_migrations', { project_id: ref })).toContain('make_moods')
    expect(await tool('generate_typescript_types', { project_id: ref })).toContain('moods: {')
    const keys = await tool('get_publishable_keys', { project_id: ref })
    expect(keys).toMatch(/eyJ.*anon.*sb_publishable_[\w-]{31}/)
    expect(keys).not.toContain('sb_secret_')
    expect(await tool('get_project_url', { project_id: ref })).toContain(`https://${ref}.`)
    expect(await tool('list_storage_buckets', { project_id: ref })).toContain('[]')
    const features = { imageTransformation: { enabled: false }, s3Protocol: { enabled: false } }
    await tool('update_storage_config', { project_id: ref, config: { fileSizeLimit: 1000, features } })
    expect(await tool('get_storage_config', { project_id: ref })).toContain('1000')
    const cost = await tool('confirm_cost', { type: 'branch', recurrence: 'hourly', amount: 0.01344 })
    const [, confirm_cost_id] = /confirmation_id[^\w]+([\w+/=-]+)/.exec(cost) ?? []
    await tool('create_branch', { project_id: ref, name: 'by-mcp', confirm_cost_id })
    const branch = async () => {
      const { body } = await owner.get(`/v1/projects/${ref}/branches/by-mcp`)
      expect(body).toMatchObject({ status: 'FUNCTIONS_DEPLOYED' })
      return body
    }
    const { id: branch_id, project_ref: own } = await vi.waitFor(branch, { timeout: WAIT_MS, interval: 500 })
    expect(await tool('list_branches', { project_id: ref })).toContain(branch_id)
    await tool('apply_migration', { project_id: own, name: 'on_branch', query: 'create table public.merged (n int)' })
    await tool('merge_branch', { branch_id })
    const merged = async () =>
      expect(await tool('list_tables', { project_id: ref, schemas: ['public'] })).toContain('merged')
    await vi.waitFor(merged, { timeout: WAIT_MS, interval: 500 })
    await tool('reset_branch', { branch_id })
    await vi.waitFor(branch, { timeout: WAIT_MS, interval: 500 })
    await tool('delete_branch', { branch_id })
    await untilGone(owner, own)
    await tool('pause_project', { project_id: ref })
    await untilStatus(owner, ref, 'INACTIVE')
    await tool('restore_project', { project_id: ref })
    await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  })
})

describe('functions and workers', () => {
  let ref: string
  beforeAll(async () => {
    ref = await newProject({ owner, slug })
  })

  const entrypointOf = async (slug: string) =>
    (await owner.get(`/v1/projects/${ref}/functions/${slug}`)).body.entrypoint_path

  const answer = async (slug: string) => {
    const response = await fetch(`${baseUrl}/p/${ref}/functions/v1/${slug}`)
    return { status: response.status, text: await response.text() }
  }

  describe('the supabase CLI for functions', () => {
    const { cli, feed, inHome } = openCli()

    const write = (path: string, contents: string) => {
      mkdirSync(dirname(inHome(path)), { recursive: true })
      writeFileSync(inHome(path), contents)
    }
    const read = (path: string) => readFileSync(inHome(path), 'utf8')
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
      rmSync(inHome('supabase/functions'), { recursive: true })
      await functions('download', 'hello', '--use-api')
      expect(read('supabase/functions/hello/index.ts')).toBe(files['supabase/functions/hello/index.ts'])
      expect(read('supabase/functions/_shared/greet.ts')).toBe(files['supabase/functions/_shared/greet.ts'])
      expect(existsSync(inHome('supabase/functions/other'))).toBe(false)
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

  describe('the MCP server for functions', () => {
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
        expect(await (await api.call('/users')).json()).toEqual({
          compute: 'hello-node',
          path: '/users',
          greeting: null,
        })
        expect((await workerOf(owner, ref, { base: baseUrl, name: 'jobs', spelling: 'compute' }).call()).status).toBe(
          401,
        )
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
})
