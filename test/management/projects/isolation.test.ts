import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type pg from 'pg'
import { afterEach, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { ROWS_OF_TEXT } from '../../host/call-host.ts'
import { adminRows } from '../../instances.ts'
import { type Caller, newOrganization, type TestOrganization, unhurried } from '../../support/api.ts'
import { newPerson, remove } from '../../support/members.ts'
import {
  createProject,
  hasEnded,
  newProject,
  ownerClient,
  PASSWORD,
  runSql,
  untilGone,
  untilStatus,
} from '../../support/projects.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { WAIT_MS } from '../../support/wait.ts'

const THEIR_PASSWORD = 'the neighbour has another one'
const REFUSED = /password authentication failed/

let mine: TestOrganization
let ref: string
let owner: () => Caller
let theirs: TestOrganization
let neighbour: string
let them: () => Caller
beforeAll(async () => {
  ;[mine, theirs] = await Promise.all([newOrganization(), newOrganization()])
  ;[ref, neighbour] = await Promise.all([newProject(mine), newProject(theirs, { db_pass: THEIR_PASSWORD })])
  ;[owner, them] = [unhurried(mine.owner), unhurried(theirs.owner)]
  await runSql(them(), neighbour, 'create table public.treasure as select 7 as n')
})

const open: pg.Client[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((client) => client.end().catch(() => {})))
})

async function login(project: string, config: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = ownerClient(project, config)
  await client.connect()
  open.push(client)
  return client
}
const ask = async (client: pg.Client, text: string) => (await client.query(text)).rows

/** Returns the status for a client without the host's key over HTTP. */
async function overHttp(user: string, password: string): Promise<number> {
  const place = new URL('postgresql://any.host/postgres')
  place.username = user
  place.password = password
  const headers = { 'neon-connection-string': place.href, ...ROWS_OF_TEXT }
  const body = JSON.stringify({ query: 'select 1', params: [] })
  return (await fetch(`${inject('host').url}/sql`, { method: 'POST', headers, body })).status
}

/** Checks that the neighbour's own work goes on, by the API and by a client of its own. */
async function expectNeighbourServed(): Promise<void> {
  const query = 'select n from public.treasure'
  expect(await runSql(them(), neighbour, query)).toMatchObject({ status: 201, body: [{ n: 7 }] })
  expect(await ask(await login(neighbour, { password: THEIR_PASSWORD }), query)).toEqual([{ n: 7 }])
}

describe('the owner of another project', () => {
  it('gains no access by what the owner of the project runs', async () => {
    const opened = `create role visitor login password '${PASSWORD}'; revoke visitor from postgres`
    const careless = `grant connect, create, temporary on database postgres to public; grant all on schema public to public;
      grant all on all tables in schema public to public; create role application; grant application to postgres;
      create table public.of_application (n int); alter table public.of_application owner to application;
      reassign owned by application to postgres`
    expect((await runSql(them(), neighbour, careless)).status).toBe(201)
    expect((await runSql(owner(), ref, opened)).status).toBe(201)
    for (const role of ['postgres', 'visitor', 'application', 'anon', 'authenticator', 'supabase_admin']) {
      await expect(login(neighbour, { user: `${role}.${neighbour}` }), role).rejects.toThrow(REFUSED)
    }
    await expect(login(ref, { database: neighbour })).rejects.toThrow(/does not exist/)
    await expect(login(ref, { options: `project=${neighbour}` })).rejects.toThrow()
    expect(await overHttp(`postgres.${neighbour}`, PASSWORD)).not.toBe(200)
  })

  it('changes nothing there by an object of its own that changes owners', async () => {
    const project = await newProject(mine)
    const client = await login(project)
    await client.query('create role heir; grant heir to postgres; create table public.treasure (n int)')
    await client.query('reassign owned by postgres to heir; drop owned by heir cascade').catch(() => {})
    const tables = `select tableowner as owner from pg_tables where tablename = 'treasure'`
    expect((await runSql(them(), neighbour, tables)).body).toEqual([{ owner: 'postgres' }])
    await expectNeighbourServed()
  })

  it('opens no connection from inside a database server', async () => {
    const client = await login(ref)
    for (const extension of ['file_fdw', 'plpython3u', 'plperlu']) {
      await expect(client.query(`create extension ${extension}`), extension).rejects.toThrow()
    }
    await client.query('create extension if not exists dblink; create extension if not exists postgres_fdw')
    const { run } = inject('host')
    const sockets = [`host=${run}/${neighbour} user=postgres`, `host=${run}/${ref} user=supabase_admin`]
    for (const address of sockets.map((socket) => `${socket} dbname=postgres password=none`)) {
      const subscription = `create subscription spy connection '${address}' publication p with (create_slot = false)`
      await expect(client.query(subscription), address).rejects.toThrow()
      await expect(client.query(`select dblink_connect('${address}')`), address).rejects.toThrow()
      await expect(
        client.query(`select * from dblink('${address}', 'select 1') as t (n int)`),
        address,
      ).rejects.toThrow()
      const unchecked = client.query(`select dblink_connect_u('${address}')`)
      await expect(unchecked, address).rejects.toThrow(/permission denied for function/)
    }
    await client.query(`create server near foreign data wrapper postgres_fdw options (host '${run}/${ref}', dbname 'postgres');
      create user mapping for postgres server near options (user 'supabase_admin', password 'none');
      create foreign table public.near (rolname text) server near options (schema_name 'pg_catalog', table_name 'pg_authid')`)
    await expect(client.query('select * from public.near')).rejects.toThrow()
    await expect(
      client.query(`alter user mapping for postgres server near options (add password_required 'false')`),
    ).rejects.toThrow()
    for (const text of [
      `copy (select 1) to program 'true'`,
      `select pg_read_file('../../${neighbour}/instance.json')`,
    ]) {
      await expect(client.query(text), text).rejects.toThrow(/permission denied/)
    }
  })
})

describe('the role of a service', () => {
  let storage: TestStorage
  beforeAll(async () => {
    storage = await newStorage(mine)
  })

  it('admits nobody from outside, even if code of the owner has given it a password', async () => {
    const script = `create function public.open_up() returns trigger language plpgsql as $$ begin
        perform set_config('role', 'none', true);
        execute format('alter role %I password %L', session_user, 'known outside');
        return new;
      end $$;
      create trigger open_up before insert on storage.buckets for each row execute function public.open_up()`
    expect((await runSql(owner(), storage.ref, script)).status).toBe(201)
    await newBucket(storage)
    const known = 'select rolname as role from pg_authid where rolpassword is not null and rolname <> $1'
    const opened = await adminRows<{ role: string }>(storage.ref, known, ['postgres'])
    expect(opened, 'the attack must set a password, or the test shows nothing').toEqual([
      { role: 'supabase_storage_admin' },
    ])
    for (const { role } of opened) {
      const user = `${role}.${storage.ref}`
      await expect(login(storage.ref, { user, password: 'known outside' })).rejects.toThrow(REFUSED)
      expect(await overHttp(user, 'known outside')).not.toBe(200)
    }
    await newBucket(storage)
  })

  it('admits nobody from outside with a password that the owner has set', async () => {
    const project = await newProject(mine)
    const client = await login(project)
    for (const role of ['anon', 'authenticated', 'service_role', 'authenticator']) {
      await client.query(`alter role ${role} login password 'mine'`)
      const user = `${role}.${project}`
      await expect(login(project, { user, password: 'mine' }), role).rejects.toThrow(REFUSED)
      expect(await overHttp(user, 'mine'), role).not.toBe(200)
    }
  })

  it('accepts no password from the owner, and gives nobody its powers', async () => {
    const client = await login(storage.ref)
    for (const role of ['supabase_storage_admin', 'supabase_auth_admin', 'supabase_read_only_user']) {
      await expect(client.query(`alter role ${role} password 'mine'`), role).rejects.toThrow(/permission denied/)
      await expect(client.query(`set role ${role}`), role).rejects.toThrow(/permission denied/)
      await expect(client.query(`grant ${role} to anon`), role).rejects.toThrow(/permission denied/)
    }
  })
})

describe('a temporary login', () => {
  const temporary = async (caller: Caller, project: string) => {
    const reply = await caller.post(`/v1/projects/${project}/cli/login-role`, { read_only: false })
    expect(reply).toMatchObject({ status: 201 })
    const { role, password } = reply.body as { role: string; password: string }
    return { user: `${role}.${project}`, password }
  }
  const granted = async (project: string) => {
    const person = await newPerson(mine, 'developer')
    await mine.owner.put(`/v1/projects/${project}/jit-access`, { state: 'enabled' })
    const grant = { user_id: person.id, roles: [{ role: 'postgres' }] }
    expect((await mine.owner.put(`/v1/projects/${project}/database/jit`, grant)).status).toBe(200)
    const path = `/v1/projects/${project}/database/jit`
    const reply = await person.caller.post(path, { role: 'postgres', rhost: '127.0.0.1' })
    expect(reply).toMatchObject({ status: 200 })
    return { person, login: { user: reply.body.login.user as string, password: person.caller.token ?? '' } }
  }
  const expectOver = async (session: pg.Client, project: string, { user, password }: pg.ClientConfig) => {
    await hasEnded(session)
    const meanwhile: pg.Client[] = []
    const comeAgain = async () => void meanwhile.push(await login(project, { user, password }))
    await vi.waitFor(() => expect(comeAgain()).rejects.toThrow(REFUSED), { timeout: WAIT_MS })
    // Its sessions are ended once more when it is closed.
    for (const client of meanwhile) await hasEnded(client)
    expect(await overHttp(user ?? '', String(password))).not.toBe(200)
  }

  it('ends with the membership, together with its sessions and the owner password that it set', async () => {
    const project = await newProject(mine)
    const { person, login: jit } = await granted(project)
    const cli = await temporary(person.caller, project)
    const [session, other] = [await login(project, jit), await login(project, cli)]
    expect(await overHttp(jit.user, jit.password)).toBe(200)
    await session.query(`alter role postgres password 'known to the member'`)
    const asOwner = await login(project, { password: 'known to the member' })
    expect(await overHttp(`postgres.${project}`, 'known to the member')).toBe(200)
    expect((await remove(mine.owner, mine.slug, person.id)).status).toBe(204)
    await expectOver(session, project, jit)
    await expectOver(other, project, cli)
    await expectOver(asOwner, project, { user: `postgres.${project}`, password: 'known to the member' })
    expect(await ask(await login(project), 'select 1 as n')).toEqual([{ n: 1 }])
  })

  it('ends with the grant, and with the access of the project', async () => {
    const first = await granted(ref)
    const session = await login(ref, first.login)
    const path = `/v1/projects/${ref}/database/jit/${first.person.id}`
    expect((await mine.owner.delete(path)).status).toBe(200)
    await expectOver(session, ref, first.login)
    const second = await granted(ref)
    const another = await login(ref, second.login)
    await mine.owner.put(`/v1/projects/${ref}/jit-access`, { state: 'disabled' })
    await expectOver(another, ref, second.login)
  })

  it('is excluded by the networks of its project, also after it connected', async () => {
    const project = await newProject(mine)
    const cli = await temporary(mine.owner, project)
    const session = await login(project, cli)
    const path = `/v1/projects/${project}/network-restrictions/apply`
    expect((await mine.owner.post(path, { dbAllowedCidrs: ['10.0.0.0/8'], dbAllowedCidrsV6: [] })).status).toBe(201)
    await hasEnded(session)
    await expect(login(project, cli)).rejects.toThrow(/not in tenant allow_list/)
    await expect(login(project)).rejects.toThrow(/not in tenant allow_list/)
    expect(await overHttp(cli.user, cli.password)).not.toBe(200)
  })

  it('requires TLS if its project does, also after it connected without', async () => {
    const project = await newProject(mine)
    const cli = await temporary(mine.owner, project)
    const ssl = { rejectUnauthorized: false }
    const [plain, secure] = [await login(project, cli), await login(project, { ...cli, ssl })]
    const path = `/v1/projects/${project}/ssl-enforcement`
    expect((await mine.owner.put(path, { requestedConfig: { database: true } })).status).toBe(200)
    await hasEnded(plain)
    await expect(login(project, cli)).rejects.toThrow(/SSL connection is required/)
    expect(await overHttp(cli.user, cli.password)).not.toBe(200)
    expect(await ask(secure, 'select 1 as n')).toEqual([{ n: 1 }])
  })
})

describe('locks', () => {
  /** Locks everything that an owner can lock among the objects that operations on a project need. */
  async function lock(project: string): Promise<void> {
    const first = await login(project)
    await first.query(`begin; create table public.held (n int); comment on database postgres is 'held';
      alter database postgres set work_mem = '5MB'; alter role postgres set work_mem = '5MB';
      lock table supabase_migrations.schema_migrations in access exclusive mode;
      select pg_advisory_xact_lock(n) from generate_series(0, 500) as n`)
    const second = await login(project)
    await second
      .query('begin; lock table storage.objects, storage.buckets, auth.users in access exclusive mode')
      .catch(() => {})
  }

  it('of the owner delay neither operations on the same project nor on another', async () => {
    const project = await newProject(mine)
    await lock(project)
    await lock(ref)
    expect((await mine.owner.post(`/v1/projects/${project}/pause`)).status).toBe(200)
    await untilStatus(mine.owner, project, 'INACTIVE')
    expect((await mine.owner.post(`/v1/projects/${project}/restore`)).status).toBe(200)
    await untilStatus(mine.owner, project, 'ACTIVE_HEALTHY')
    await lock(project)
    expect((await theirs.owner.post(`/v1/projects/${neighbour}/pause`)).status).toBe(200)
    await untilStatus(theirs.owner, neighbour, 'INACTIVE')
    expect((await theirs.owner.post(`/v1/projects/${neighbour}/restore`)).status).toBe(200)
    await untilStatus(theirs.owner, neighbour, 'ACTIVE_HEALTHY')
    await expectNeighbourServed()
    expect((await mine.owner.delete(`/v1/projects/${project}`)).status).toBe(200)
    await untilGone(mine.owner, project)
  })
})

describe('a flood', () => {
  const FLOOD = 150

  it('of unauthenticated connections takes no place of others', async () => {
    const sockets: Socket[] = []
    for (let n = 0; n < FLOOD; n++) {
      // The addresses belong to this machine: those of one client are counted together.
      const socket = connect({ host: inject('databaseHost'), port: inject('databasePort'), localAddress: '127.0.0.2' })
      sockets.push(socket.on('error', () => {}))
      await once(socket, 'connect')
      if (n % 50 === 0) await expectNeighbourServed()
    }
    await expectNeighbourServed()
    for (const socket of sockets) socket.destroy()
  })

  it('of authenticated connections ends at the limit of their project', async () => {
    const refusals: unknown[] = []
    for (let round = 0; round < FLOOD / 5; round++) {
      for (const result of await Promise.allSettled(Array.from({ length: 5 }, () => login(ref)))) {
        if (result.status === 'rejected') refusals.push(result.reason)
      }
    }
    expect(open.length).toBeGreaterThan(0)
    expect(refusals.length).toBe(FLOOD - open.length)
    for (const refusal of refusals) expect(refusal).toMatchObject({ code: '53300' })
    const working = open.slice(0, 20).map((client) => client.query('select pg_sleep(1)'))
    expect((await runSql(owner(), ref, 'select 1 as n')).body).toEqual([{ n: 1 }])
    await expectNeighbourServed()
    await Promise.all(working)
  })

  it('of SQL in 16 projects of one organization takes no capacity from another', async () => {
    const refs: string[] = []
    for (let n = 0; n < 16; n++) refs.push(await createProject(mine))
    for (const each of refs) await untilStatus(mine.owner, each, 'ACTIVE_HEALTHY')
    const callers = Array.from({ length: 4 }, () => owner())
    const work = Promise.all(
      callers.flatMap((caller) => refs.map((each) => runSql(caller, each, 'select pg_sleep(2)::text as slept'))),
    )
    for (let n = 0; n < 5; n++) await expectNeighbourServed()
    for (const { status, body } of await work) {
      if (status === 201) continue
      // On a slow machine, two seconds of sleep may exceed a request's time.
      expect(JSON.stringify([status, body])).toMatch(/^\[(503,.*try again|400,.*longer than allowed)/)
    }
  })

  it('of large results is served or refused with an error, and takes no capacity from another', async () => {
    const work = Promise.all(
      Array.from({ length: 30 }, async () => {
        const response = await fetch(new URL(`/v1/projects/${ref}/database/query`, mine.owner.base), {
          method: 'POST',
          headers: { authorization: `Bearer ${owner().token}`, 'content-type': 'application/json' },
          body: JSON.stringify({ query: `select repeat('x', 15000000) as v` }),
        })
        return { status: response.status, length: (await response.arrayBuffer()).byteLength }
      }),
    )
    for (let n = 0; n < 5; n++) await expectNeighbourServed()
    const results = await work
    expect(results.filter(({ status }) => status === 201).length).toBeGreaterThan(0)
    for (const { status, length } of results) {
      if (status === 201) expect(length).toBeGreaterThan(15_000_000)
      else expect([400, 503]).toContain(status)
    }
  })
})
