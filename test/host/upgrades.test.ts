import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdirSync, readFileSync } from 'node:fs'
import { mkdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import pg from 'pg'
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest'
import { startS3 } from '../../dev/s3.ts'
import { type Host, startHost } from '../../host/host.ts'
import type { PostgresInstance } from '../../host/instances/instance.ts'
import type { AdminSession } from '../../host/instances/types.ts'
import { dumpSchema } from '../../host/upgrades/dump.ts'
import { SCHEMA_CHANGES } from '../../src/engine/storage/schema-changes.ts'
import { WAIT_MS } from '../support/wait.ts'
import { callHost } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'
import { makeFolder } from './instance.ts'

const KEY = 'a key of the test, of enough letters'
const KEYS = { accessKeyId: 'archive', secretAccessKey: 'archive-secret' }
const FIXTURE = readFileSync(new URL('upgrade-fixture.sql', import.meta.url), 'utf8')
const refOf = (letter: string) => letter.repeat(20)

const callerOf = (url: string, ref: string) => async (method: string, path: string, body?: object) => {
  const response = await callHost({ url, key: KEY }, method, `/instances/${ref}${path}`, { body })
  const text = await response.text()
  return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
}

async function sql(port: number, user: string, text: string, database = 'postgres') {
  const client = new pg.Client({ host: '127.0.0.1', port, user, password: 'pw', database })
  client.on('error', () => {})
  await client.connect()
  try {
    return (await client.query(text)).rows
  } finally {
    await client.end()
  }
}

const RELATIONS = `select format('%I.%I', n.nspname, relname) as name, relkind = 'S' as "isSequence"
  from pg_class as c join pg_namespace as n on n.oid = relnamespace
  where relkind in ('r', 'S', 'm') and nspname !~ '^pg_' and nspname <> 'information_schema' and relispopulated`
const SHARED = [
  `select rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, rolreplication, rolconnlimit, rolpassword,
     rolvaliduntil, rolbypassrls, shobj_description(oid, 'pg_authid') as comment from pg_authid where rolname !~ '^pg_' order by 1`,
  `select roleid::regrole::text as role, member::regrole::text, grantor::regrole::text, admin_option, inherit_option, set_option
     from pg_auth_members order by 1, 2, 3`,
  `select setrole::regrole::text as role, setdatabase = 0 as "isEverywhere", setconfig from pg_db_role_setting order by 1, 2`,
  'select parname, paracl::text from pg_parameter_acl order by 1',
  'select datname, datdba::regrole::text as owner, datacl::text from pg_database order by 1',
  'select extname, extowner::regrole::text as owner from pg_extension order by 1',
  `select m.oid, lomowner::regrole::text as owner, lomacl::text, data::text, obj_description(m.oid, 'pg_largeobject') as comment
     from pg_largeobject_metadata as m left join pg_largeobject on loid = m.oid`,
]

/** Returns everything that an owner can see of a database, sorted. */
const contentsOf = (instance: PostgresInstance) =>
  instance.withAdmin('postgres', async (admin) => {
    await admin.rows('begin isolation level repeatable read')
    const [row] = await admin.rows<{ snapshot: string }>('select pg_export_snapshot() as snapshot')
    const place = { socket: instance.paths.socket, database: 'postgres', snapshot: row?.snapshot ?? '' }
    const dumps = [
      await dumpSchema({ ...place, section: 'pre-data' }),
      await dumpSchema({ ...place, section: 'post-data' }),
    ]
    const shared: unknown[] = []
    for (const query of SHARED) shared.push(await admin.rows(query))
    const statements = dumps.flatMap(({ database, entries }) => [
      ...database,
      ...entries.flatMap((entry) => entry.statements),
    ])
    return { statements: statements.sort(), rows: await rowsOf(admin), shared }
  })

async function rowsOf(admin: AdminSession): Promise<Record<string, unknown>> {
  const rows: Record<string, unknown> = {}
  for (const { name, isSequence } of await admin.rows<{ name: string; isSequence: boolean }>(RELATIONS)) {
    // An upgrade changes the schema, which this table records.
    if (name.startsWith(SCHEMA_CHANGES)) continue
    const columns = isSequence ? 'last_value, is_called' : '*'
    rows[name] = await admin.rows(
      `select count(*)::int as n, md5(string_agg(t::text, ' ' order by t::text)) from (select ${columns} from ${name}) as t`,
    )
  }
  return rows
}

/** Removes statements of extensions, which bring their own objects in the new version. */
const withoutExtensions = (statements: string[]) =>
  statements.filter((each) => !/ extensions\.pg_stat_statements/.test(each))

describe('an upgrade on a host with an archive', () => {
  let host: Host
  let folder: string
  const start = async (s3: { endpoint: string }) =>
    startHost({
      folder,
      key: KEY,
      isDurable: false,
      archive: { endpoint: s3.endpoint, region: 'auto', bucket: 'archive', key: 'x'.repeat(32), ...KEYS },
    })
  let s3: Awaited<ReturnType<typeof startS3>>
  beforeAll(async () => {
    folder = await newHostFolder()
    s3 = await startS3({ buckets: ['archive'], ...KEYS })
    host = await start(s3)
  })
  afterAll(async () => {
    await host.stop()
    await s3.stop()
    await rm(folder, { recursive: true, force: true })
  })

  const made = async (letter: string, version = '17') => {
    const ref = refOf(letter)
    const call = callerOf(host.url, ref)
    expect(await call('PUT', '', { password: 'pw', version })).toMatchObject({ status: 200 })
    return { ref, call, query: (text: string) => sql(host.gatewayPort, `postgres.${ref}`, text) }
  }
  const filesOf = (ref: string) => readdirSync(join(folder, 'instances', ref)).sort()
  const majorOf = async (query: (text: string) => Promise<{ major: number }[]>) =>
    (await query(`select current_setting('server_version_num')::int / 10000 as major`))[0]?.major

  it('keeps all data, and can be restored to a moment before it', async () => {
    const { ref, call, query } = await made('a')
    await query(FIXTURE)
    await query('create database "the other"')
    const queryOther = (text: string) => sql(host.gatewayPort, `postgres.${ref}`, text, 'the other')
    await queryOther('create schema storage; create table storage.schema_changes as select 7 as n')
    await call('PUT', '/settings', { set: { work_mem: '5MB' } })
    await call('PUT', '/size', { size: 'small' })
    const before = await contentsOf(host.pool.require(ref))
    expect(await call('GET', '/upgrade')).toMatchObject({ status: 200, body: { targets: ['18.4'], obstacles: [] } })
    expect(await call('POST', '/upgrade', { version: '18' })).toEqual({ status: 204, body: undefined })
    const after = await contentsOf(host.pool.require(ref))
    expect(withoutExtensions(after.statements)).toEqual(withoutExtensions(before.statements))
    expect(after.rows).toEqual(before.rows)
    expect(after.shared).toEqual(before.shared)
    expect(await majorOf(query)).toBe(18)
    expect(await queryOther('select n from storage.schema_changes')).toEqual([{ n: 7 }])
    expect(await query('show work_mem')).toEqual([{ work_mem: '5MB' }])
    expect(await call('GET', '')).toMatchObject({ body: { version: '18.4', size: 'small', state: 'running' } })
    await query('create table since ()')
    // The request is repeated, as after a lost reply.
    expect(await call('POST', '/upgrade', { version: '18' })).toMatchObject({ status: 204 })
    expect(await query(`select to_regclass('since')::text as name`)).toEqual([{ name: 'since' }])
    expect(await call('POST', '/undo-upgrade')).toMatchObject({ status: 204 })
    expect(await majorOf(query)).toBe(17)
    expect(await query(`select to_regclass('since') as name`)).toEqual([{ name: null }])
    expect(await contentsOf(host.pool.require(ref))).toEqual(before)
    expect(await call('POST', '/undo-upgrade')).toMatchObject({ status: 422 })
    expect(filesOf(ref)).toEqual(['data', 'instance.json', 'log', 'wal'])
  })

  it('can be undone if the new server does not start, with a password and without temporary logins', async () => {
    const { ref, call, query } = await made('u')
    await query(`create role cli_login_abcdefgh login password 'pw'`)
    expect(await call('POST', '/upgrade', { version: '18' })).toEqual({ status: 204, body: undefined })
    await host.pool.require(ref).stop()
    await rm(join(folder, 'instances', ref, 'data', 'global', 'pg_control'))
    expect(await call('POST', '/undo-upgrade', { password: 'another' })).toMatchObject({ status: 204 })
    const refused = { message: expect.stringContaining('password authentication failed') }
    await expect(query('select 1')).rejects.toMatchObject(refused)
    const logins = `select rolname as name, rolpassword is null as "isEnded" from pg_authid where rolname ~ '^cli_'`
    const ended = await host.pool.require(ref).withAdmin('postgres', (admin) => admin.rows(logins))
    expect(ended).toEqual([{ name: 'cli_login_abcdefgh', isEnded: true }])
  })

  it('archives on a timeline of its own, from the next backup on', async () => {
    const { call, query } = await made('b')
    await query('create table kept as select 17 as n')
    expect(await call('PUT', '/backups/1')).toMatchObject({ status: 200 })
    expect(await call('POST', '/upgrade', { version: '18' })).toEqual({ status: 204, body: undefined })
    expect(await call('GET', '/recovery-window')).toMatchObject({ status: 422 })
    expect(await call('GET', '/backups/1')).toMatchObject({ status: 422 })
    expect(await call('POST', '/restore', { backup: '1', id: 'zero' })).toMatchObject({
      status: 422,
      body: { error: { message: expect.stringContaining('is of Postgres 17') } },
    })
    expect(await call('PUT', '/backups/2')).toMatchObject({ status: 200 })
    await query('update kept set n = 18')
    const [row] = await query('select clock_timestamp() as at')
    await query('drop table kept')
    expect((await call('GET', '/recovery-window')).status).toBe(200)
    expect(await call('POST', '/restore', { at: row?.at, id: 'one' })).toMatchObject({ status: 204 })
    expect(await query('select n from kept')).toEqual([{ n: 18 }])
    // The first backup of the new version needs what came after the upgrade, and nothing from before.
    expect(await call('DELETE', '/backups/1')).toMatchObject({ status: 204 })
    expect(await call('POST', '/restore', { at: row?.at, id: 'two' })).toMatchObject({ status: 204 })
    expect(await query('select n from kept')).toEqual([{ n: 18 }])
  })

  it('archives on a timeline of its own after a restore whose timeline is not archived yet', async () => {
    const { ref, call, query } = await made('t')
    await query('create table kept as select 7 as n')
    expect(await call('PUT', '/backups/1')).toMatchObject({ status: 200 })
    // A history that cannot be read keeps all others from being archived.
    const unreadable = join(folder, 'instances', ref, 'wal', '00000000.history')
    await mkdir(unreadable)
    expect(await call('POST', '/restore', { backup: '1', id: 'one' })).toMatchObject({ status: 204 })
    const timeline = async () => {
      const read = (admin: AdminSession) => admin.rows('select timeline_id as n from pg_control_checkpoint()')
      return host.pool.require(ref).withAdmin('postgres', read)
    }
    expect(await timeline()).toEqual([{ n: 2 }])
    expect(await call('POST', '/upgrade', { version: '18' })).toEqual({ status: 204, body: undefined })
    expect(await timeline()).toEqual([{ n: 3 }])
    await rm(unreadable, { recursive: true })
    expect(await call('PUT', '/backups/2')).toMatchObject({ status: 200 })
    await query('update kept set n = 8')
    expect(await call('POST', '/restore', { backup: '2', id: 'two' })).toMatchObject({ status: 204 })
    expect(await query('select n from kept')).toEqual([{ n: 7 }])
  })

  it('builds replicas again, and keeps clients out meanwhile', async () => {
    const { ref, call, query } = await made('c')
    await query(`create table kept as select n from generate_series(1, 300000) as n`)
    const id = `${ref}-rr-us-east-1-fghij`
    expect((await call('PUT', `/replicas/${id}`)).status).toBe(204)
    const client = new pg.Client({
      host: '127.0.0.1',
      port: host.gatewayPort,
      user: `postgres.${ref}`,
      password: 'pw',
      database: 'postgres',
    })
    const lost = new Promise((resolve) => client.on('error', resolve))
    await client.connect()
    const upgraded = call('POST', '/upgrade', { version: '18' })
    await lost
    await vi.waitFor(
      () => expect(query('select 1')).rejects.toMatchObject({ message: expect.stringContaining('upgraded') }),
      { timeout: WAIT_MS },
    )
    expect(await upgraded).toMatchObject({ status: 204 })
    await vi.waitFor(
      async () =>
        expect(
          await sql(
            host.gatewayPort,
            `postgres.${id}`,
            `select count(*)::int as n, version() ~ ' 18' as new from kept`,
          ),
        ).toEqual([{ n: 300_000, new: true }]),
      { timeout: WAIT_MS },
    )
    await vi.waitFor(
      async () =>
        expect((await call('GET', '')).body).toMatchObject({ version: '18.4', replicas: [{ state: 'running' }] }),
      { timeout: WAIT_MS },
    )
  })

  it('runs nothing of the owner with the rights of a superuser', async () => {
    const { call, query } = await made('d')
    await query(`
      create function bad(n int) returns int language plpgsql immutable as $$ begin
        if (select bool_or(rolsuper) from pg_roles where rolname in (current_user, session_user)) then
          alter role postgres superuser; raise 'ran as a superuser';
        end if;
        return n;
      end $$;
      create domain checked as int check (bad(value) > 0);
      create type kind as enum ('a');
      create function kind_number(kind) returns int language plpgsql immutable as 'begin return bad(1); end';
      create cast (kind as int) with function kind_number(kind) as implicit;
      create table numbers (n int primary key);
      insert into numbers values (1);
      create table referring (k kind references numbers);
      create table parts (n checked) partition by list (n);
      create table part partition of parts for values in (3);
      create table victims (n int check (bad(n) > 0), d checked default bad(2), g int generated always as (bad(n) + bad(5)) stored);
      create index on victims (bad(n)) where bad(n) > 0;
      create materialized view seen as select bad(n) from victims;
      insert into victims values (1);
      insert into referring values ('a')`)
    expect(await call('POST', '/upgrade', { version: '18' })).toEqual({ status: 204, body: undefined })
    expect(await query(`select rolsuper from pg_roles where rolname = 'postgres'`)).toEqual([{ rolsuper: false }])
    expect(await query('select * from victims')).toEqual([{ n: 1, d: 2, g: 6 }])
    expect(await query(`select rolname from pg_roles where rolname ~ 'upgrade'`)).toEqual([])
  })

  it('leaves the old data in service if the new version refuses the rows', async () => {
    const { ref, call, query } = await made('e')
    await query(`create function old() returns boolean language sql as $$ select current_setting('server_version_num')::int < 180000 $$;
      create table kept (n int check (old())); insert into kept values (7)`)
    const reply = await call('POST', '/upgrade', { version: '18' })
    expect(reply).toMatchObject({
      status: 422,
      body: { error: { refusals: [{ setting: 'upgrade.copy', reason: expect.stringContaining('kept_check') }] } },
    })
    expect(await query('select n from kept')).toEqual([{ n: 7 }])
    expect(await majorOf(query)).toBe(17)
    expect(filesOf(ref)).toEqual(['data', 'instance.json', 'log', 'wal'])
  })

  it('keeps the old server awake while it copies', async () => {
    const { call, query } = await made('s')
    // The copy takes longer than the time after which an unused server sleeps.
    await query(`create function slow() returns boolean language plpgsql as $$ begin
        if current_setting('server_version_num')::int >= 180000 then perform pg_sleep(3); end if;
        return true;
      end $$;
      create table kept (n int check (slow())); insert into kept values (7)`)
    expect(await call('PUT', '/sleep', { after_seconds: 1 })).toMatchObject({ status: 204 })
    expect(await call('POST', '/upgrade', { version: '18' })).toEqual({ status: 204, body: undefined })
    expect(await query('select n from kept')).toEqual([{ n: 7 }])
    expect(await majorOf(query)).toBe(18)
  })

  it('names what prevents it', async () => {
    const { call, query } = await made('f')
    await query(`select pg_create_logical_replication_slot('mine', 'pgoutput')`)
    const obstacle = { type: 'active_replication_slot', slot_name: 'mine' }
    expect((await call('GET', '/upgrade')).body.obstacles).toMatchObject([obstacle])
    expect(await call('POST', '/upgrade', { version: '18' })).toMatchObject({ status: 422 })
    await query(`select pg_drop_replication_slot('mine')`)
    await query('create database closed')
    await query('alter database closed allow_connections false')
    expect((await call('GET', '/upgrade')).body.obstacles).toMatchObject([{ type: 'closed_database' }])
    await query('drop database closed')
    await query(
      `create subscription mine connection 'host=none password=none' publication p with (connect = false, slot_name = none)`,
    )
    expect((await call('GET', '/upgrade')).body.obstacles).toMatchObject([{ type: 'subscription' }])
    await query('drop subscription mine')
    expect((await call('GET', '/upgrade')).body.obstacles).toEqual([])
    await call('POST', '/pause')
    for (const version of ['9', '17x', '18']) {
      expect(await call('POST', '/upgrade', { version })).toMatchObject({
        status: 422,
        body: { error: { code: 'refused' } },
      })
    }
    expect(await call('POST', '/upgrade', {})).toMatchObject({ status: 400 })
    const newest = await made('g', '18')
    expect(await newest.call('POST', '/upgrade', { version: '17' })).toMatchObject({ status: 422 })
    expect((await newest.call('GET', '/upgrade')).body).toMatchObject({ version: '18.4', targets: [] })
  })
})

describe('a daemon that is killed during an upgrade', () => {
  let folder: string
  // A folder without the templates of the run: a killed daemon could leave unfinished files in them.
  beforeAll(async () => {
    folder = await makeFolder()
  })
  afterAll(() => rm(folder, { recursive: true, force: true }))
  const daemons: ChildProcess[] = []
  afterEach(async () => {
    for (const child of daemons.splice(0)) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGTERM')
      await once(child, 'exit')
    }
  })

  async function daemon() {
    const child = spawn('node', [fileURLToPath(new URL('daemon.ts', import.meta.url)), folder, KEY], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    daemons.push(child)
    const ended = once(child, 'exit').then(([code, signal]) => {
      throw new Error(`the daemon ended before it was ready: ${code ?? signal}`)
    })
    const [line] = (await Promise.race([once(child.stdout, 'data'), ended])) as [Buffer]
    return { child, ...(JSON.parse(String(line)) as { url: string; gatewayPort: number }) }
  }
  const servers = () =>
    execFileSync('ps', ['-eo', 'args'], { encoding: 'utf8' })
      .split('\n')
      .filter((line) => line.includes('postgres -D') && line.includes(folder)).length

  it.each(['launch', 'copy', 'switch'])('leaves one version or the other in the phase %s', async (phase) => {
    const ref = refOf(phase.charAt(2))
    const first = await daemon()
    const call = callerOf(first.url, ref)
    await call('PUT', '', { password: 'pw', version: '17' })
    await sql(
      first.gatewayPort,
      `postgres.${ref}`,
      `create table kept as select n from generate_series(1, 100000) as n`,
    )
    let isDone = false
    const done = () => {
      isDone = true
    }
    const upgraded = call('POST', '/upgrade', { version: '18' }).then(done, done)
    // The last phase is so short that it may end before it is seen.
    await vi.waitFor(async () => expect(isDone || (await call('GET', '')).body.upgrade === phase).toBe(true), {
      interval: 1,
      timeout: WAIT_MS,
    })
    first.child.kill('SIGKILL')
    await once(first.child, 'exit')
    await upgraded
    const second = await daemon()
    const query = (text: string) => sql(second.gatewayPort, `postgres.${ref}`, text)
    const [row] = await query(`select current_setting('server_version_num')::int / 10000 as major`)
    if (phase !== 'switch') expect(row).toEqual({ major: 17 })
    expect([17, 18]).toContain(row?.major)
    expect(await query('select count(*)::int as n from kept')).toEqual([{ n: 100_000 }])
    expect(readdirSync(join(folder, 'instances', ref)).filter((name) => /new|ready|reverting/.test(name))).toEqual([])
    expect(await callerOf(second.url, ref)('GET', '')).toMatchObject({
      body: { version: expect.stringMatching(`^${row?.major}`) },
    })
    expect(await callerOf(second.url, ref)('POST', '/upgrade', { version: '18' })).toMatchObject({ status: 204 })
    expect(await query('select count(*)::int as n from kept')).toEqual([{ n: 100_000 }])
    second.child.kill('SIGTERM')
    await once(second.child, 'exit')
    expect(servers()).toBe(0)
  })
})
