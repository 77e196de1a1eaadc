import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { and, eq, sql } from 'drizzle-orm'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { freePort } from '../../dev/ports.ts'
import { readSecrets } from '../../dev/secrets.ts'
import { type ControlDb, openControlDatabase } from '../../dev/seed.ts'
import { targetDatabaseUrl } from '../../dev/target.ts'
import { type Host, type HostOptions, startHost } from '../../host/host.ts'
import { openAdmin } from '../../host/instances/admin.ts'
import type { EngineStates } from '../../src/engine/driver-states.ts'
import type { ProjectEngine } from '../../src/engine/engine.ts'
import { EngineUnavailable } from '../../src/engine/engine-errors.ts'
import type { HostAddress, HostDirectory } from '../../src/engine/host/directory.ts'
import { createHostEngine } from '../../src/engine/host/host.ts'
import type { HostState } from '../../src/engine/host/project-host.ts'
import { loginRole } from '../../src/engine/logins.ts'
import { privateLinkAssociations, projectSettings, projects } from '../../src/model/tables/index.ts'
import { oneHost } from '../engine/host-engine.ts'
import { newRef, specOf } from '../engine/specs.ts'
import { as, type Caller } from '../support/api.ts'
import { newBranch } from '../support/branches.ts'
import { deploy } from '../support/deploys.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import { newProject, PASSWORD, runSql } from '../support/projects.ts'
import { WAIT_MS } from '../support/wait.ts'
import { callHost } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'

const KEY = 'a key of the test, of enough letters'
const WAIT = { timeout: WAIT_MS, interval: 50 }
/** A poll that outlasts the time for which a Worker caches the host of a project. */
const NOTICED = { timeout: WAIT_MS, interval: 1_000 }

/** A function that answers with the port of its database, and with what the gateway there reports about TLS. */
const GREETING = `import net from 'node:net'
Deno.serve(async () => {
  const { hostname, port } = new URL(Deno.env.get('SUPABASE_DB_URL'))
  const socket = net.connect(Number(port), hostname)
  socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]))
  const answer = await new Promise((resolve, reject) => socket.on('data', (data) => resolve(String(data))).on('error', reject))
  socket.destroy()
  return Response.json({ port, answer })
})
`

const folders: string[] = []
async function newFolder(): Promise<string> {
  const folder = await newHostFolder()
  folders.push(folder)
  return folder
}
afterAll(async () => {
  for (const folder of folders) await rm(folder, { recursive: true, force: true })
})

const start = (options: Partial<HostOptions> & { folder: string }) =>
  startHost({ key: KEY, isDurable: false, region: 'eu-central-1', ...options })

describe('an installation with two hosts', () => {
  let machine: Machine
  let owner: Caller
  let place: { owner: Caller; slug: string }
  let second: Host
  let settings: Parameters<typeof start>[0]

  beforeAll(async () => {
    machine = await newMachine({ HOST_KEY: KEY }, inject('begun'))
    const secrets = await readSecrets(machine.folder, { isNew: false })
    const { S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey, ARCHIVE_KEY: key } = secrets
    const endpoint = `http://127.0.0.1:${machine.env.S3_PORT}/cdn-cgi/local/r2/s3`
    const archive = { endpoint, region: 'auto', bucket: 'pilothouse', accessKeyId, secretAccessKey, key }
    const ports = { port: await freePort(0, 'proxy'), gatewayPort: await freePort(0, 'postgres') }
    settings = { folder: await newFolder(), archive, memoryBytes: 2 * 1024 ** 3, ...ports }
    second = await start(settings)
    await machine.started()
    const { access_token, base_url, organization_slug: slug } = machine.credentials()
    owner = as(access_token, {}, base_url)
    place = { owner, slug }
  }, 300_000)
  afterAll(async () => {
    await machine.dispose()
    await second.stop()
  })

  const add = () =>
    machine.command('hosts', 'add', 'fra-1', second.url, '--database-host', '127.0.0.1', ...databasePort())
  const databasePort = () => ['--database-port', String(second.gatewayPort)]
  const regions = async (): Promise<string[]> => {
    const { body } = await owner.get(`/v1/projects/available-regions?organization_slug=${place.slug}`)
    return body.all.specific.map(({ code }: { code: string }) => code)
  }
  const far = (name: string) => ({
    name,
    organization_slug: place.slug,
    db_pass: PASSWORD,
    region: 'eu-central-1',
  })

  let ref: string
  let near: string

  it('places a project in the region that it names, and its branches on the same host', async () => {
    expect(await machine.command('hosts', 'list')).toBe('no hosts except the one in the settings')
    expect(await regions()).toEqual(['us-east-1'])
    expect(await owner.post('/v1/projects', far('too early'))).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('body.region: eu-central-1 is not available') },
    })
    expect(await add()).toMatch(
      new RegExp(
        String.raw`^fra-1 was added and takes projects in eu-central-1, with Postgres 18\.\d+ and 17\.\d+
clients reach their databases at 127\.0\.0\.1:${second.gatewayPort}$`,
      ),
    )
    expect(await regions()).toEqual(['us-east-1', 'eu-central-1'])
    const twice = ['fra-2', second.url, '--database-host', '127.0.0.1']
    await expect(machine.command('hosts', 'add', ...twice)).rejects.toThrow(/ is the host fra-1 already/)

    ;[ref, near] = await Promise.all([newProject(place, { region: 'eu-central-1' }), newProject(place)])
    expect(second.pool.find(ref)).toBeDefined()
    expect(second.pool.find(near)).toBeUndefined()
    await runSql(owner, ref, `create table kept as select 'here' as place`)
    const { body } = await owner.get(`/v1/projects/${ref}/config/database/pooler`)
    const { db_host: host, db_port: port, db_user: user, db_name: database } = body[0]
    expect(port).toBe(second.gatewayPort)
    const client = new pg.Client({ host, port, user, database, password: PASSWORD })
    await client.connect()
    expect((await client.query('select place from kept')).rows).toEqual([{ place: 'here' }])
    await client.end()
    expect((await runSql(owner, near, 'select 1 as n')).body).toEqual([{ n: 1 }])
    const branch = await newBranch(owner, ref, { with_data: true })
    expect(second.pool.find(branch.project_ref)).toBeDefined()
    const medium = { branch_name: 'medium', desired_instance_size: 'medium' }
    expect(await owner.post(`/v1/projects/${ref}/branches`, medium)).toMatchObject({
      status: 400,
      body: { message: expect.stringMatching(/medium is not available .*: must be one of pico, nano, micro, small$/) },
    })
    const resize = { addon_type: 'compute_instance', addon_variant: 'ci_medium' }
    expect(await owner.patch(`/v1/projects/${ref}/billing/addons`, resize)).toMatchObject({ status: 400 })
    const { available_addons: addons } = (await owner.get(`/v1/projects/${near}/billing/addons`)).body
    expect(addons[0].variants).toContainEqual(expect.objectContaining({ id: 'ci_medium' }))
    expect(await machine.command('hosts', 'list')).toMatch(
      /^local {2}in the settings {2}1 project\nfra-1 {2}active {2}eu-central-1 {2}http.* {2}127\.0\.0\.1:\d+ {2}2 projects {2}Postgres 18/,
    )
  }, 200_000)

  it('keeps the projects of a silent host, and goes on without it', async () => {
    await second.stop()
    const health = async () => (await owner.get(`/v1/projects/${ref}/health?services=db`)).body[0]
    expect(await health()).toMatchObject({ healthy: false, error: 'the database host does not answer' })
    expect(await runSql(owner, ref, 'select 1')).toMatchObject({ status: 503 })
    expect((await runSql(owner, near, 'select 1 as n')).body).toEqual([{ n: 1 }])
    expect((await owner.get('/v1/projects')).body.map((project: { ref: string }) => project.ref)).toContain(ref)
    expect(await newProject(place)).toHaveLength(20)
    expect(await machine.command('hosts', 'list')).toContain('the database host does not answer')

    second = await start(settings)
    expect(await health()).toMatchObject({ healthy: true })
    expect((await runSql(owner, ref, 'select place from kept')).body).toEqual([{ place: 'here' }])
  }, 200_000)

  it('places no new projects on a drained host', async () => {
    expect(await machine.command('hosts', 'drain', 'fra-1')).toContain('fra-1 takes no new projects')
    expect(await regions()).toEqual(['us-east-1'])
    expect((await owner.post('/v1/projects', far('late'))).status).toBe(400)
    expect((await runSql(owner, ref, 'select place from kept')).body).toEqual([{ place: 'here' }])
    await expect(machine.command('hosts', 'drain', 'mars-1')).rejects.toThrow(/no host is called "mars-1"/)
    await expect(machine.command('hosts', 'remove', 'local')).rejects.toThrow(
      'no host is called "local": it exists only in the settings',
    )
    await expect(machine.command('hosts', 'add', 'No Name', second.url)).rejects.toThrow(/--database-host is missing/)
    const nowhere = 'http://127.0.0.1:9'
    await expect(machine.command('hosts', 'add', 'x', nowhere, '--database-host', 'x')).rejects.toThrow(
      /does not answer/,
    )
    await expect(machine.command('hosts', 'remove', 'fra-1')).rejects.toThrow(/fra-1 has \d+ projects: move or delete/)
    const local = ['local', second.url, '--database-host', '127.0.0.1']
    await expect(machine.command('hosts', 'add', ...local)).rejects.toThrow(
      /has none of the \d+ projects of local, such as/,
    )
    expect(await add()).toMatch(/^fra-1 was changed, is no longer draining and takes projects /)
    expect(await regions()).toEqual(['us-east-1', 'eu-central-1'])
  }, 200_000)

  describe('the move of a project', () => {
    const clientOf = async (ref: string) => {
      const { body } = await owner.get(`/v1/projects/${ref}/config/database/pooler`)
      const { db_host: host, db_port: port, db_user: user, db_name: database } = body[0]
      const client = new pg.Client({ host, port, user, database, password: PASSWORD })
      client.on('error', () => {})
      await client.connect()
      return client
    }
    let ref: string
    const greeting = async () => (await fetch(new URL(`/p/${ref}/functions/v1/hello`, owner.base))).json()
    const preparation = async (db: ControlDb) =>
      (await db.select({ dueAt: projects.preparationDueAt }).from(projects).where(eq(projects.ref, ref)))[0]
    const move = (...args: string[]) => machine.whileTicking(machine.command('project', 'move', ref, ...args))

    it('to another host loses nothing while the project is written to', async () => {
      ref = await newProject(place)
      await runSql(owner, ref, 'create table acknowledged (n int primary key)')
      await deploy(owner, ref, { files: { 'index.ts': GREETING }, metadata: { verify_jwt: false } })
      expect(await greeting()).toEqual({ port: String(machine.env.POSTGRES_PORT), answer: 'S' })
      const settings = { max_connections: 33, work_mem: '7MB' }
      expect((await owner.put(`/v1/projects/${ref}/config/database/postgres`, settings)).status).toBe(200)
      const writer = await clientOf(ref)
      let counted = 0
      const ended = (async () => {
        for (;;) {
          await writer.query('insert into acknowledged values ($1)', [counted + 1])
          counted += 1
        }
      })().catch(() => {})

      await expect(machine.command('project', 'move', ref, 'mars-1')).rejects.toThrow('no host is called "mars-1"')
      await expect(machine.command('project', 'move', ref, 'local')).rejects.toThrow('is on local already')
      await expect(machine.command('project', 'move', newRef(), 'fra-1')).rejects.toThrow('no project has the ref')
      await expect(machine.command('project', 'move', ref, 'fra-1', '--source-lost')).rejects.toThrow('local answers')
      // The Worker reaches the source although this machine has a wrong key, another address or no address for it.
      vi.stubEnv('HOST_URL', `http://127.0.0.1:${machine.env.PROXY_PORT}`)
      await expect(machine.command('project', 'move', ref, 'fra-1', '--source-lost')).rejects.toThrow('local answers')
      vi.stubEnv('HOST_URL', 'http://127.0.0.1:9')
      await expect(move('fra-1', '--source-lost')).rejects.toThrow('has not moved: the host local answers')
      const { ENCRYPTION_KEY } = await readSecrets(machine.folder, { isNew: false })
      for (const option of [[], ['--source-lost']]) {
        vi.stubEnv('DATABASE_URL', await targetDatabaseUrl(machine.env))
        vi.stubEnv('ENCRYPTION_KEY', ENCRYPTION_KEY)
        await expect(machine.command('project', 'move', ref, 'fra-1', ...option)).rejects.toThrow(
          'the host local is not known here: set HOST_URL and HOST_KEY',
        )
      }
      expect(await move('fra-1')).toBe(`${ref} is on fra-1`)
      await ended
      expect(counted).toBeGreaterThan(100)
      const { body } = await runSql(
        owner,
        ref,
        `select count(*)::int as n, max(n) as last, current_setting('work_mem') as mem, current_setting('max_connections') as max
           from acknowledged`,
      )
      expect(body).toEqual([{ n: body[0].last, last: body[0].last, mem: '7MB', max: '33' }])
      expect(body[0].last).toBeGreaterThanOrEqual(counted)
      expect(second.pool.find(ref)?.record.sealed).toBeUndefined()
      expect((await owner.get(`/v1/projects/${ref}`)).body).toMatchObject({
        status: 'ACTIVE_HEALTHY',
        region: 'eu-central-1',
      })
      const there = { port: String(second.gatewayPort), answer: 'S' }
      await vi.waitFor(async () => expect(await greeting()).toEqual(there), NOTICED)
      const client = await clientOf(ref)
      expect((await client.query('select count(*)::int as n from acknowledged')).rows).toEqual([{ n: body[0].n }])
      await client.end()
      // The instance had no backup before, and still has none.
      expect(await machine.command('backups', 'drill', '--project', ref)).toContain('no backup')
      expect(await machine.command('hosts', 'list')).toMatch(/fra-1 .* 3 projects/)
    }, 300_000)

    it('to a host that refuses a setting leaves it open where it is', async () => {
      const { db, close } = openControlDatabase(await targetDatabaseUrl(machine.env))
      const ofPostgres = and(eq(projectSettings.projectRef, ref), eq(projectSettings.area, 'postgres'))
      const [before] = await db.select().from(projectSettings).where(ofPostgres)
      // As if its present host had the extension.
      const value = { ...Object(before?.value), 'cron.log_statement': true }
      await db.update(projectSettings).set({ value }).where(ofPostgres)
      await expect(move('local')).rejects.toThrow('belongs to pg_cron')
      expect((await runSql(owner, ref, 'select 1 as n')).body).toEqual([{ n: 1 }])
      expect(await machine.command('hosts', 'list')).toMatch(/fra-1 .* 3 projects/)
      await db.update(projectSettings).set({ value: before?.value }).where(ofPostgres)
      await close()
    }, 300_000)

    it('leads back', async () => {
      const { db, close } = openControlDatabase(await targetDatabaseUrl(machine.env))
      const before = await preparation(db)
      await runSql(owner, ref, 'insert into acknowledged values (-1)')
      expect(await move('local')).toBe(`${ref} is on local`)
      const { body } = await runSql(owner, ref, 'select min(n) as first from acknowledged')
      expect(body).toEqual([{ first: -1 }])
      // The plan may have changed while the project was copied with the sleep setting of the previous one.
      expect(await preparation(db)).not.toEqual(before)
      await close()
    }, 300_000)

    it('there again that ends after the copy gives programs the new address once the project is open', async () => {
      const { db, close } = openControlDatabase(await targetDatabaseUrl(machine.env))
      const before = await preparation(db)
      await runSql(owner, ref, 'insert into acknowledged values (-2)')
      const here = { port: String(machine.env.POSTGRES_PORT), answer: 'S' }
      await vi.waitFor(async () => expect(await greeting()).toEqual(here), NOTICED)
      // The task ends as if the new host had not answered all attempts to open the project.
      await db.execute(sql`
        create function end_move() returns trigger language plpgsql as $$ begin
          if 'copy_to_host' = any (new.steps_done) then
            new.state := 'failed'; new.claim := null; new.lease_until := null; new.finished_at := now();
          end if;
          return new;
        end $$`)
      await db.execute(sql`create trigger end_move before update on project_tasks
        for each row when (new.kind = 'move') execute function end_move()`)
      await expect(move('fra-1')).rejects.toThrow()
      await db.execute(sql`drop function end_move cascade`)
      const there = { port: String(second.gatewayPort), answer: 'S' }
      const settled = vi.waitFor(async () => {
        expect((await runSql(owner, ref, 'select min(n) as first from acknowledged')).body).toEqual([{ first: -2 }])
        expect(await greeting()).toEqual(there)
      }, NOTICED)
      await machine.whileTicking(settled)
      expect(await preparation(db)).not.toEqual(before)
      await close()
      expect(await machine.command('hosts', 'list')).toMatch(/fra-1 .* 3 projects/)
    }, 300_000)

    it('that was interrupted while both hosts had the project closed leaves it open on one', async () => {
      await owner.post(`/v1/projects/${ref}/database/backups/restore-point`, { name: 'before' })
      const point = async () => (await owner.get(`/v1/projects/${ref}/database/backups/restore-point`)).body.status
      await vi.waitFor(async () => expect(await point()).toBe('AVAILABLE'), NOTICED)
      await runSql(owner, ref, 'create table kept as select 7 as n')
      const { HOST_KEY } = await readSecrets(machine.folder, { isNew: false })
      const local = { url: `http://127.0.0.1:${machine.env.PROXY_PORT}`, key: HOST_KEY }
      const ask = async (host: { url: string; key: string }, method: string, path: string) =>
        (await callHost(host, method, `/instances/${ref}${path}`)).status
      // Both hosts have the project closed, as if the API had been killed before it recorded the end of the copy.
      expect(await ask(local, 'PUT', '/arrival')).toBe(204)
      expect(await ask({ url: second.url, key: KEY }, 'POST', '/seal')).toBe(200)
      expect(await ask(local, 'POST', '/arrival/finish')).toBe(204)
      const settled = vi.waitFor(async () => {
        expect((await runSql(owner, ref, 'select n from kept')).body).toEqual([{ n: 7 }])
        expect(await ask(local, 'GET', '')).toBe(404)
      }, NOTICED)
      await machine.whileTicking(settled)
    }, 300_000)

    it('from a lost host keeps what was archived', async () => {
      expect(await machine.command('backups', 'drill')).toMatch(new RegExp(`^${ref}  ok .*1 restored, 0 failed`, 'ms'))
      await second.stop()
      await expect(machine.command('project', 'move', ref, 'local')).rejects.toThrow('fra-1 does not answer')
      const { db, close } = openControlDatabase(await targetDatabaseUrl(machine.env))
      const [row] = await db.select().from(projects).where(eq(projects.ref, ref))
      const identifier = `${ref}-rr-eu-central-1-abcde`
      const engineState = { ...Object(row?.engineState), replicas: [{ identifier, isReady: true }] }
      // The pause of a project on a lost host fails.
      await db.update(projects).set({ status: 'PAUSE_FAILED', engineState }).where(eq(projects.ref, ref))
      const share = {
        projectRef: ref,
        awsAccountId: '123456789012',
        dnsName: '',
        resourceConfigurationArn: '',
      } as const
      await db.insert(privateLinkAssociations).values([
        { ...share, databaseType: 'PRIMARY', databaseIdentifier: ref, status: 'READY', createdAt: new Date() },
        {
          ...share,
          databaseType: 'READ_REPLICA',
          databaseIdentifier: identifier,
          status: 'READY',
          createdAt: new Date(),
        },
      ])
      await close()
      expect(await move('local', '--source-lost')).toBe(`${ref} is on local`)
      const status = async () => (await owner.get(`/v1/projects/${ref}`)).body.status
      await machine.whileTicking(vi.waitFor(async () => expect(await status()).toBe('ACTIVE_HEALTHY'), NOTICED))
      expect((await runSql(owner, ref, 'select n from kept')).body).toEqual([{ n: 7 }])
      const databases = (await owner.get(`/v1/projects/${ref}/config/database/pooler`)).body
      expect(databases).toMatchObject([{ identifier: ref }])
      const shares = async () => (await owner.get(`/v2/projects/${ref}/private-link/associations`)).body.data
      await vi.waitFor(async () => {
        expect(await shares()).toMatchObject([{ attributes: { database_identifier: ref } }])
      }, NOTICED)
    }, 300_000)
  })
})

describe('the driver with several hosts', () => {
  const running: Host[] = []
  const states = new Map<string, HostState>()
  const engineStates: EngineStates<HostState> = {
    read: async (ref) => states.get(ref),
    refs: async () => [...states.keys()],
    write: async (ref, state) => void (state ? states.set(ref, state) : states.delete(ref)),
  }
  let addresses: HostAddress[]
  let engine: ProjectEngine

  const cached = new Map<string, string>()
  const hosts: HostDirectory = {
    of: (ref) => hosts.get(cached.get(ref) ?? states.get(ref)?.host ?? ''),
    all: async () => addresses,
    async get(id) {
      const found = addresses.find((address) => address.id === id)
      if (!found) throw new EngineUnavailable('unknown')
      return found
    },
    cacheHost: (ref, id) => void (id === undefined ? cached.delete(ref) : cached.set(ref, id)),
  }
  const addressOf = (id: string, { url, gatewayPort }: Pick<Host, 'url' | 'gatewayPort'>): HostAddress => ({
    ...{ id, url, key: KEY, databaseHost: '127.0.0.1', databasePort: gatewayPort },
  })
  const silent = addressOf('silent', { url: 'http://127.0.0.1:9', gatewayPort: 9 })
  const [one, other] = [() => running[0] as Host, () => running[1] as Host]

  beforeAll(async () => {
    for (const region of ['eu-central-1', 'eu-central-1'])
      running.push(await start({ folder: await newFolder(), region }))
    addresses = [addressOf('one', one()), addressOf('other', other()), silent]
    engine = createHostEngine({
      hosts,
      states: engineStates,
    })
  }, 120_000)
  afterAll(async () => {
    for (const host of running) await host.stop()
  })

  const create = async (more: object = {}) => {
    const ref = newRef()
    await engine.create({ ...specOf(ref), region: 'eu-central-1', ...more })
    return ref
  }

  it('spreads projects over the hosts that answer, or places them beside another', async () => {
    const refs = [await create(), await create(), await create(), await create()]
    expect(running.map(({ pool }) => pool.list().length)).toEqual([2, 2])
    const beside = await create({ beside: refs[0] })
    expect(states.get(beside)?.host).toBe(states.get(refs[0] ?? '')?.host)
    // A creation that is repeated continues where it started.
    const [first = ''] = refs
    const before = states.get(first)
    await engine.create({ ...specOf(first), region: 'eu-central-1' })
    expect(states.get(first)).toEqual(before)
    await expect(create({ region: 'eu-west-1' })).rejects.toThrow('no database host that accepts such projects answers')
    await expect(create({ version: '15' })).rejects.toThrow('no database host that accepts such projects answers')
    addresses = addresses.map((address) => (address.id === 'one' ? { ...address, isDraining: true } : address))
    expect(states.get(await create())?.host).toBe('other')
  })

  it('pauses a project that has moved since its host was cached', async () => {
    const ref = newRef()
    states.set(ref, { host: 'one' })
    await one().pool.ensure({ name: ref, password: PASSWORD })
    hosts.cacheHost(ref, 'other')
    await engine.pause(ref)
    expect(one().pool.find(ref)?.record.isPaused).toBe(true)
    // A database that does not exist counts as paused.
    await one().pool.remove(ref)
    await engine.pause(ref)
    states.delete(ref)
  })

  it('ends the logins of a project that has moved since its host was cached', async () => {
    const ref = newRef()
    const role = loginRole('cli', 'abcdefgh')
    const owned = async () => PASSWORD
    const login = {
      ref,
      role,
      power: 'owner',
      password: PASSWORD,
      expiresAt: new Date(Date.now() + 3_600_000),
    } as const
    states.set(ref, { host: 'one' })
    await one().pool.ensure({ name: ref, password: PASSWORD })
    hosts.cacheHost(ref, 'other')
    await engine.logins.put(login, async () => true)
    const { host: gateway, port, database } = engine.connection({ ref, engineState: { host: 'one', at: addresses[0] } })
    const client = new pg.Client({ host: gateway, port, database, user: `${role}.${ref}`, password: PASSWORD })
    client.on('error', () => {})
    await client.connect()
    hosts.cacheHost(ref, 'other')
    expect(await engine.logins.listInUse(ref)).toEqual([role])
    hosts.cacheHost(ref, 'other')
    await engine.logins.end(ref, [role], owned)
    await expect(client.query('select 1')).rejects.toThrow()
    expect(await engine.logins.listInUse(ref)).toEqual([])
    await one().pool.remove(ref)
    states.delete(ref)
  })

  it('does not take logins for ended because the project moves away meanwhile', async () => {
    const ref = newRef()
    states.set(ref, { host: 'other' })
    await one().pool.ensure({ name: ref, password: PASSWORD })
    // The look-up of the host precedes the end of the move.
    const ended = engine.logins.end(ref, [loginRole('cli', 'abcdefgh')], async () => PASSWORD)
    hosts.cacheHost(ref, 'other')
    states.set(ref, { host: 'one' })
    await expect(ended).rejects.toThrow(EngineUnavailable)
    await one().pool.remove(ref)
    states.delete(ref)
  })

  it('leaves no copy on the host that the project has left before the copy was repeated', async () => {
    const [from, to] = [newRef(), newRef()]
    states.set(from, { host: 'one' }).set(to, { host: 'other' })
    await one().pool.ensure({ name: from, password: PASSWORD })
    await other().pool.ensure({ name: to, password: PASSWORD })
    await engine.copy({ from, fromRunnerPassword: '', to: specOf(to), data: true })
    expect(states.get(to)?.host).toBe('one')
    expect([one().pool.find(to)?.name, other().pool.find(to)?.name]).toEqual([to, undefined])
    for (const ref of [from, to]) {
      await one().pool.remove(ref)
      states.delete(ref)
    }
  })

  it('offers a project the sizes of its own host, though it has called no host before', async () => {
    const small = await start({ folder: await newFolder(), memoryBytes: 2 * 1024 ** 3 })
    running.push(small)
    const all = addresses
    addresses = [...all, addressOf('small', small)]
    const [near, far] = [newRef(), newRef()]
    states.set(near, { host: 'one' }).set(far, { host: 'small' })
    const offered = (ref?: string) => createHostEngine({ hosts, states: engineStates }).sizes?.offered(ref)
    const sizes = ['pico', 'nano', 'micro', 'small']
    expect([...((await offered(far)) ?? [])]).toEqual(sizes)
    expect([...((await offered(near)) ?? [])]).toEqual(expect.arrayContaining([...sizes, 'medium']))
    expect(await offered(near)).not.toContain('48xlarge_high_memory')
    expect(await offered()).toEqual(await offered(near))
    for (const ref of [near, far]) states.delete(ref)
    addresses = all
  })

  it('waits for the end of operations that take longer than five minutes', async () => {
    const bucket = Promise.withResolvers<void>()
    const server = createServer(async (_req, res) => {
      await bucket.promise
      res.writeHead(403).end()
    }).listen(0, '127.0.0.1')
    await once(server, 'listening')
    const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
    const archive = { endpoint, region: 'auto', bucket: 'held', accessKeyId: 'a', secretAccessKey: 'b', key: KEY }
    const host = await start({ folder: await newFolder(), archive })
    running.push(host)
    const refs = Array.from({ length: 5 }, newRef) as [string, string, string, string, string]
    const [saved, restored, earlier, parent, branch] = refs
    for (const ref of refs.slice(0, 4)) await host.pool.ensure({ name: ref, password: PASSWORD })
    for (const ref of refs) states.set(ref, { host: 'held' })

    vi.useFakeTimers({ toFake: ['Date', 'setTimeout', 'clearTimeout'] })
    const started: string[] = []
    let polls = 0
    const egress = {
      async fetch(url: string, init: RequestInit) {
        const response = await fetch(url, init)
        if (response.status === 202 && init.method !== 'GET') started.push(new URL(url).pathname.split('/')[4] ?? '')
        // No operation has ended five minutes after its start.
        if (response.status === 202) vi.setSystemTime(Date.now() + 301_000)
        if (url.includes('/operations/')) polls += 1
        return response
      },
    } as unknown as Fetcher
    const { backups, copy, pointInTime, replicas } = createHostEngine({
      ...{ hosts: oneHost(addressOf('held', host)), states: engineStates, egress },
    })
    // This lock keeps every new session waiting.
    const admin = await openAdmin(join(host.run, parent), 'postgres')
    await admin.rows('BEGIN; LOCK pg_catalog.pg_authid')
    const outcomes = Promise.allSettled([
      backups.make({ ref: saved, id: 1 }),
      backups.restore({ ref: restored, id: 1, restoreId: 'r', password: PASSWORD }),
      pointInTime?.begin({ ref: earlier, id: 'r', at: new Date(0) }),
      copy({ from: parent, fromRunnerPassword: '', to: specOf(branch), data: true }),
      replicas?.add(parent, `${parent}-rr-eu-central-1-abcde`),
    ])
    let isEnded = false
    outcomes.finally(() => {
      isEnded = true
    })
    await expect
      .poll(() => vi.advanceTimersByTimeAsync(5_000).then(() => isEnded || (started.length === 5 && polls >= 5)), WAIT)
      .toBe(true)
    vi.useRealTimers()
    await admin.end()
    bucket.resolve()
    const failed = { status: 'rejected', reason: { message: 'The host failed; its log says why' } }
    const done = { status: 'fulfilled' }
    expect(await outcomes).toMatchObject([failed, failed, failed, done, done])
    expect(started.sort()).toEqual([saved, restored, earlier, parent, branch].sort())
    server.close()
    for (const ref of refs) states.delete(ref)
  }, 120_000)

  it('does not take a project for removed because its host is silent', async () => {
    const lost = newRef()
    states.set(lost, { host: 'silent' })
    const found = await engine.refs()
    expect(found).toContain(lost)
    for (const ref of states.keys()) expect(found).toContain(ref)
    await expect(engine.remove(lost)).rejects.toThrow('the database host does not answer')
    expect(states.has(lost)).toBe(true)
    expect(await engine.health(lost, 2_000)).toEqual({ healthy: false, error: 'the database host does not answer' })
    expect((await engine.settings.sizesAtLeast(0)).size).toBe(states.size - 1)
    // The project was never made, so no silent host can have it.
    await engine.remove(newRef())
    addresses = [silent]
    await expect(engine.refs()).rejects.toThrow('the database host does not answer')
    await expect(engine.listRegions()).rejects.toThrow('no database host')
  })
})
