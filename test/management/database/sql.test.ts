import type pg from 'pg'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { adminRows } from '../../instances.ts'
import {
  type Caller,
  newMember,
  newOrganization,
  type TestOrganization,
  tokenOf,
  unhurried,
  workerLogs,
} from '../../support/api.ts'
import { newBranch } from '../../support/branches.ts'
import { newProject, ownerClient, runSql } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = unhurried(organization.owner)
})
let owner: () => Caller
const sql = (query: string, more: Record<string, unknown> = {}) => runSql(owner(), ref, query, more)
const value = async (expression: string) => (await sql(`select ${expression} as v`)).body[0]?.v
const readOnly = (query: string, more: Record<string, unknown> = {}) =>
  owner().post(`/v1/projects/${ref}/database/query/read-only`, { query, ...more })

describe('POST /v1/projects/{ref}/database/query', () => {
  it('answers 201 with the rows as objects', async () => {
    const reply = await sql("select 1 as a, 'two' as b union all select 3, null order by a")
    expect(reply).toMatchObject({
      status: 201,
      body: [
        { a: 1, b: 'two' },
        { a: 3, b: null },
      ],
    })
    expect(reply.headers.get('content-type')).toMatch(/^application\/json/)
  })

  it('runs several statements and answers with the rows of the last', async () => {
    const script = `
      create table notes (id serial primary key, text text);
      insert into notes (text) values ('semi;colon'), ($$dollar;quoted$$);
      select text from notes order by id;`
    expect((await sql(script)).body).toEqual([{ text: 'semi;colon' }, { text: 'dollar;quoted' }])
    expect((await sql('select 1 as a; update notes set text = text')).body).toEqual([])
  })

  it('keeps nothing of a script that fails in the middle', async () => {
    const reply = await sql('create table half (n int); insert into half values (1); select 1/0')
    expect(reply).toMatchObject({ status: 400, body: { code: '22012' } })
    expect(await value("to_regclass('half')")).toBeNull()
  })

  it.each([
    ['1::int8', 1],
    ['9007199254740993', '9007199254740993'],
    ['1.50::numeric', '1.50'],
    ["'NaN'::float8", 'NaN'],
    ['1.5::float4', 1.5],
    ['true', true],
    ["'2026-01-02 03:04:05.678+00'::timestamptz at time zone 'utc'", '2026-01-02 03:04:05.678'],
    ["'2026-01-02'::date", '2026-01-02'],
    ["'1 day 2 hours'::interval", '1 day 02:00:00'],
    ["'\\x00ff'::bytea", '\\x00ff'],
    [`'{"a": [1, {"b": null}]}'::jsonb`, { a: [1, { b: null }] }],
    ['array[1, null, 3]', [1, null, 3]],
    [
      "array[['a', 'b'], ['c,\"', null]]",
      [
        ['a', 'b'],
        ['c,"', null],
      ],
    ],
    ['array[\'{"x": 1}\'::json]', [{ x: 1 }]],
    ["'[1,5)'::int4range", '[1,5)'],
    ['row(1, 2)', '(1,2)'],
    ["'a\nb\u2028\"\\'", 'a\nb\u2028"\\'],
    ["'00000000-0000-0000-0000-000000000001'::uuid", '00000000-0000-0000-0000-000000000001'],
    ["'10.0.0.1'::inet", '10.0.0.1'],
  ])('sends %s in a form that clients can read', async (expression, expected) => {
    expect(await value(expression)).toEqual(expected)
  })

  it('keeps every digit of numbers within json', async () => {
    const response = await fetch(new URL(`/v1/projects/${ref}/database/query`, inject('baseUrl')), {
      method: 'POST',
      headers: { authorization: `Bearer ${organization.owner.token}`, 'content-type': 'application/json' },
      body: JSON.stringify({ query: `select '{"n": 12345678901234567890.12345}'::json as v` }),
    })
    expect(await response.text()).toBe('[{"v":{"n": 12345678901234567890.12345}}]')
  })

  it.each([
    ['select $1::int + $2::int as v', [2, '3'], 5],
    ['select $1::text as v', ["it's; drop table x"], "it's; drop table x"],
    ['select $1::jsonb as v', [{ a: [1, null] }], { a: [1, null] }],
    ['select $1::int[] as v', [[1, 2]], [1, 2]],
    ['select $1::text[] as v', [['a,b', '"', null]], ['a,b', '"', null]],
    ['select $1::bool as v', [true], true],
    ['select $1::text is null as v', [null], true],
  ])('accepts parameters: %s with %j', async (query, parameters, expected) => {
    expect((await sql(query, { parameters })).body).toEqual([{ v: expected }])
  })

  it.each([
    ['select * from nowhere', { code: '42P01', position: 15 }],
    ['selec 1', { code: '42601', position: 1 }],
    ["select '🚀', nothing()", { code: '42883', position: 13 }],
    ["select 'é', from_nothing()", { code: '42883', position: 13, hint: expect.any(String) }],
    ['select $1', { code: '42P02' }],
    ['select 1; select 2', { code: '42601' }, [1]],
    [
      "do $$ begin raise exception 'mine' using errcode = 'AB123', hint = 'try', detail = 'more'; end $$",
      { code: 'AB123', hint: 'try', detail: 'more' },
    ],
  ])("reports Postgres's error for %s", async (query, expected, parameters?: unknown[]) => {
    const reply = await sql(query, { parameters })
    expect(reply).toMatchObject({ status: 400, body: expected })
    expect(reply.body.message).toBe(
      `Failed to run sql query: ERROR:  ${reply.body.code}: ${reply.body.message.split(': ').slice(3).join(': ')}`,
    )
  })

  it.each([
    [{}, 'body.query'],
    [{ query: '' }, 'body.query'],
    [{ query: 1 }, 'body.query'],
    [{ query: 'select 1', parameters: 'x' }, 'body.parameters'],
    [{ query: 'select $1', parameters: [JSON.parse('['.repeat(2_500) + ']'.repeat(2_500))] }, 'body.parameters.0'],
    [{ query: 'select 1', read_only: 'yes' }, 'body.read_only'],
  ])('refuses an invalid body (%#) and names the field', async (body, field) => {
    const reply = await owner().post(`/v1/projects/${ref}/database/query`, body)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
  })

  it.each(['-- nothing', ' ; ', '/* */'])('returns nothing for %j', async (query) => {
    expect(await sql(query)).toMatchObject({ status: 201, body: [] })
  })

  it.each([
    "select repeat('x', 1000000) from generate_series(1, 40)",
    "select repeat('x', 40000000)",
    "select repeat('x', 200) from generate_series(1, 200000)",
  ])('refuses a result that is too large: %s', async (query) => {
    for (const run of [sql, readOnly]) {
      const result = await run(query)
      expect(result).toMatchObject({ status: 400, body: { message: expect.stringContaining('too large') } })
    }
    expect((await sql('select 1 as v')).body).toEqual([{ v: 1 }])
  })

  it('refuses a body that is too large', async () => {
    expect((await sql(`select '${'x'.repeat(8 * 1024 * 1024)}'`)).status).toBe(413)
    expect((await sql(`select length('${'x'.repeat(7 * 1024 * 1024)}') as v`)).body).toEqual([{ v: 7 * 1024 * 1024 }])
  })

  it('ends a script that runs too long, whatever it sets, and releases its locks', async () => {
    await sql('create table public.locked (n int)')
    const script = 'set statement_timeout = 0; begin; lock table public.locked; select pg_sleep(1000)'
    const [slow, reading] = await Promise.all([sql(script), readOnly('select pg_sleep(1000)')])
    for (const reply of [slow, reading]) {
      expect(reply).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('longer than allowed: 6 s') },
      })
    }
    expect((await sql('insert into public.locked values (1) returning n')).body).toEqual([{ n: 1 }])
  })

  it('reports a database that cannot be reached', async () => {
    const project = await newProject(organization)
    await adminRows(project, 'alter role postgres nologin; alter role supabase_read_only_user nologin')
    for (const path of ['query', 'query/read-only']) {
      const reply = await owner().post(`/v1/projects/${project}/database/${path}`, { query: 'select 1' })
      expect(reply).toMatchObject({ status: 503, body: { message: expect.stringContaining('cannot be reached') } })
    }
  })

  it('refuses a paused project', async () => {
    const project = await newProject(organization)
    await organization.owner.post(`/v1/projects/${project}/pause`)
    for (const path of ['query', 'query/read-only']) {
      expect((await owner().post(`/v1/projects/${project}/database/${path}`, { query: 'select 1' })).status).toBe(409)
    }
  })

  it.each([
    'copy (select 1) to stdout',
    'create table c (n int); copy c from stdin',
    "set client_encoding = 'LATIN1'; select 1",
  ])('refuses a result that does not fit in a JSON reply: %s', async (query) => {
    expect(await sql(query)).toMatchObject({ status: 400, body: { code: expect.any(String) } })
  })

  it('continues after a script changes the password of the role that runs it', async () => {
    const project = await newProject(organization)
    await runSql(owner(), project, `alter role postgres password 'changed by the owner'`)
    expect((await runSql(owner(), project, 'select 1 as v')).body).toEqual([{ v: 1 }])
    const client = ownerClient(project, { password: 'changed by the owner' })
    await client.connect()
    await client.end()
  })

  it('serves many requests at once on the few connections of a project', async () => {
    const replies = await Promise.all(Array.from({ length: 40 }, (_, n) => sql(`select ${n} as v, pg_sleep(0.05)`)))
    expect(replies.map(({ body }) => body[0]?.v)).toEqual(Array.from({ length: 40 }, (_, n) => n))
  })

  it('refuses requests past a limit, and takes no capacity from another organization', async () => {
    const theirs = await newOrganization()
    const theirProject = await newProject(theirs)
    const flood = Promise.all(Array.from({ length: 110 }, () => sql('select pg_sleep(4)')))
    const writes = []
    for (let n = 0; n < 10; n++)
      writes.push(await theirs.owner.patch(`/v1/projects/${theirProject}`, { name: `n-${n}` }))
    expect(writes.map(({ status }) => status)).toEqual(Array(10).fill(200))
    expect((await runSql(theirs.owner, theirProject, 'select 1 as v')).body).toEqual([{ v: 1 }])
    const replies = await flood
    const refused = replies.filter(({ status }) => status === 503)
    const taken = replies.filter(({ status }) => status !== 503)
    expect(Math.min(refused.length, taken.length)).toBeGreaterThan(0)
    // On a slow machine, four seconds of sleep may exceed a request's time.
    for (const { status, body } of taken.filter(({ status }) => status !== 201)) {
      expect([status, body.message]).toEqual([400, expect.stringContaining('longer than allowed')])
    }
    for (const reply of refused) {
      expect(reply.body).toMatchObject({ message: expect.stringContaining('try again') })
      expect(reply.headers.get('retry-after')).toBe('1')
    }
  })

  it('leaves neither the SQL nor its result in the log', async () => {
    const secret = `secret${crypto.randomUUID().replaceAll('-', '')}`
    await sql(`select '${secret}'`)
    await sql(`select ${secret} from nowhere`)
    expect((await workerLogs()).join('\n')).not.toContain(secret)
  })
})

describe('what owners set for their databases', () => {
  it.each(["local_preload_libraries = 'nowhere'", 'transaction_timeout = 1'])(
    'cannot lock out the API by %s',
    async (setting) => {
      const project = await newProject(organization)
      await runSql(owner(), project, 'create table public.kept as select 1 as n')
      expect((await runSql(owner(), project, `alter database postgres set ${setting}`)).status).toBe(201)
      const slow = 'select n, pg_sleep(0.05)::text from public.kept'
      expect(await runSql(owner(), project, slow)).toMatchObject({ status: 201, body: [{ n: 1 }] })
      const base = `/v1/projects/${project}`
      const reads = ['database/migrations', 'types/typescript', 'database/openapi', 'advisors/performance']
      for (const path of reads) expect([path, (await owner().get(`${base}/${path}`)).status]).toEqual([path, 200])
      expect((await owner().put(`${base}/ssl-enforcement`, { requestedConfig: { database: true } })).status).toBe(200)
      const branch = await newBranch(organization.owner, project, { with_data: true })
      expect((await runSql(owner(), branch.project_ref, 'select n from public.kept')).body).toEqual([{ n: 1 }])
      const name = setting.split(' ')[0]
      expect((await runSql(owner(), project, `alter database postgres reset ${name}`)).status).toBe(201)
      expect((await owner().get(`${base}/storage/buckets`)).status).toBe(200)
    },
  )

  it('is named in the error if a connection limit refuses a session of the API', async () => {
    const project = await newProject(organization)
    expect((await runSql(owner(), project, 'alter database postgres connection limit 0')).status).toBe(201)
    // A session of another role is open already.
    expect(await runSql(owner(), project, 'select 1 as v', { read_only: true })).toMatchObject({
      status: 503,
      body: {
        message:
          'The database of the project cannot be reached: too many connections for database "postgres": its CONNECTION LIMIT is reached; with the driver `host`, a restart of the project resets it',
      },
    })
  })
})

it('refuses text with lone surrogates, which would reach the database changed', async () => {
  for (const body of [{ query: "select '\ud800'" }, { query: 'select $1::text', parameters: ['\ud800'] }]) {
    const reply = await owner().post(`/v1/projects/${ref}/database/query`, body)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('lone surrogates') } })
  }
})

describe('reading only', () => {
  beforeAll(async () => {
    await sql(`create table public.facts (n int); insert into public.facts values (1), (2);
      create function public.sneak() returns int language sql security definer as 'insert into public.facts values (9) returning n'`)
  })

  it("reads the owner's rows, by both endpoints", async () => {
    const query = 'select sum(n)::int as v from public.facts'
    expect(await readOnly(query)).toMatchObject({ status: 201, body: [{ v: 3 }] })
    expect(await sql(query, { read_only: true })).toMatchObject({ status: 201, body: [{ v: 3 }] })
    expect((await readOnly('select n from public.facts where n = $1', { parameters: [2] })).body).toEqual([{ n: 2 }])
    expect((await readOnly('select 1 as v; select 2 as v')).body).toEqual([{ v: 2 }])
  })

  it.each([
    'insert into public.facts values (3)',
    'create table public.t (n int)',
    'create temp table t (n int)',
    'commit; insert into public.facts values (3)',
    'commit; select public.sneak()',
    'rollback; begin read write; select public.sneak()',
    'set transaction read write; select public.sneak()',
    'set session characteristics as transaction read write; commit; select public.sneak()',
    'set default_transaction_read_only = off; commit; select public.sneak()',
    'select public.sneak()',
    'select $a$;$a$; commit; select public.sneak()',
    "select E'\\';'; commit; select public.sneak(); --'",
    'select lo_create(0)',
    'set role postgres',
    'reset role; reset session authorization; insert into public.facts values (3)',
    'do $$ begin commit; perform public.sneak(); end $$',
    "copy public.facts to '/tmp/facts'",
  ])('cannot write by: %s', async (query) => {
    expect((await readOnly(query)).status).toBe(400)
    expect((await sql('select count(*)::int as v from public.facts')).body).toEqual([{ v: 2 }])
  })

  it('is all that the role read-only allows', async () => {
    const reader = await newMember(organization, 'read-only')
    const path = `/v1/projects/${ref}/database/query`
    expect((await reader.post(`${path}/read-only`, { query: 'select 1' })).status).toBe(201)
    expect((await reader.post(path, { query: 'select 1' })).status).toBe(403)
    const scoped = await tokenOf(organization.userId, { scopes: ['database:read'] })
    expect((await scoped.post(`${path}/read-only`, { query: 'select 1' })).status).toBe(201)
    expect((await scoped.post(path, { query: 'select 1', read_only: true })).status).toBe(403)
  })
})

describe('the roles of a project', () => {
  it('are those that policies are written for', async () => {
    const script = `
      create table public.mine (id int, owner text); insert into public.mine values (1, 'a'), (2, 'b');
      alter table public.mine enable row level security;
      create policy own on public.mine for select to authenticated using (owner = current_setting('request.jwt.claims', true)::json->>'sub');
      set local role authenticated; select set_config('request.jwt.claims', '{"sub":"a"}', true);
      select id from public.mine;`
    expect((await sql(script)).body).toEqual([{ id: 1 }])
    expect((await sql('set local role anon; select id from public.mine')).body).toEqual([])
    expect((await sql('set local role service_role; select id from public.mine order by id')).body).toHaveLength(2)
  })

  it('own schemas, migrations and the usual extensions', async () => {
    expect(await value('extensions.gen_random_bytes(4) is not null')).toBe(true)
    expect(
      (await sql('create extension if not exists citext; create schema app; create table app.t (c citext)')).status,
    ).toBe(201)
    expect((await sql('select * from supabase_migrations.schema_migrations')).body).toEqual([])
  })
})

describe('the isolation of a project', () => {
  let other: string
  beforeAll(async () => {
    const theirs = await newOrganization()
    other = await newProject(theirs)
    await runSql(
      theirs.owner,
      other,
      "create table public.treasure (n int); alter role current_user set app.secret = 'theirs'",
    )
  })

  it.each([
    "select pg_read_file('/etc/passwd')",
    "select pg_ls_dir('.')",
    "select lo_import('/etc/passwd')",
    "copy (select 1) to program 'id'",
    "create table p (l text); copy p from program 'id'",
    "create table p (l text); copy p from '/etc/passwd'",
    'create role intruder superuser',
    'alter role current_user superuser',
    'set role supabase_admin',
    'set role supabase_storage_admin',
    'set session authorization supabase_admin',
    'set session authorization anon',
    'grant supabase_admin to current_user',
    'grant postgres to anon',
    'alter system set fsync = off',
    'create extension file_fdw',
    'create extension pageinspect',
    "create function evil() returns int language c as '/tmp/evil.so', 'evil'",
    'create event trigger e on ddl_command_start execute function suppress_redundant_updates_trigger()',
    'create publication p for all tables',
    'create publication p for tables in schema public',
    'drop schema storage cascade',
    'begin; lock table pg_catalog.pg_authid',
    "select set_config('session_preload_libraries', 'evil', false); load '/tmp/evil.so'",
    'alter role anon superuser',
    'alter role supabase_storage_admin createrole',
    'drop role supabase_storage_admin',
  ])('refuses: %s', async (query) => {
    const reply = await sql(query)
    expect(reply).toMatchObject({
      status: 400,
      body: { code: expect.stringMatching(/^(42501|0A000|58P01|42704|22023|25001|55000)$/) },
    })
  })

  it.each([
    'pg_roles',
    'pg_user',
    'pg_group',
    'pg_database',
    'pg_stat_activity',
    'pg_locks',
    'pg_db_role_setting',
    'pg_stat_database',
    'pg_prepared_xacts',
    'pg_stat_replication',
    'pg_stat_ssl',
    'pg_shdepend',
  ])('shows no other project in %s', async (view) => {
    const { status, body } = await sql(`select json_agg(v)::text as v from pg_catalog.${view} v`)
    expect(status).toBe(201)
    expect(body[0].v ?? '').not.toContain(other)
    expect(body[0].v ?? '').not.toMatch(/theirs|"(datname|usename|rolname)":"pilothouse"/)
  })

  it('lets no project end the sessions of another', async () => {
    const client = await login(other)
    const { rows } = await client.query('select pg_backend_pid() as pid')
    expect(await value(`pg_terminate_backend(${rows[0].pid})`)).toBe(false)
    expect((await client.query('select 1 as v')).rows).toEqual([{ v: 1 }])
    await client.end()
  })

  it.each(['pilothouse', 'control'])('excludes its owner from the database %s', async (database) => {
    await expect(login(ref, { database })).rejects.toThrow(/does not exist/)
  })

  it.each(['pilothouse', 'postgres', 'supabase_admin'])(
    'excludes its owner from the control plane as %s',
    async (role) => {
      await expect(login(ref, { user: `${role}.control` })).rejects.toThrow(/password authentication failed/)
    },
  )

  it('excludes its owner from another project, whose database no name reaches', async () => {
    await expect(login(ref, { database: other })).rejects.toThrow(/does not exist/)
    for (const role of ['postgres', 'supabase_admin', 'supabase_storage_admin', 'authenticator']) {
      const attempt = login(ref, { user: `${role}.${other}`, password: 'of another project' })
      await expect(attempt).rejects.toThrow(/password authentication failed/)
    }
    await expect(login(ref, { options: `project=${other}` })).rejects.toThrow()
  })

  it('limits the connections of one project and leaves room for its services and the others', async () => {
    const open: pg.Client[] = []
    const refusals: unknown[] = []
    for (let round = 0; round < 12; round++) {
      // Fewer logins at a time than an address may have before they are authenticated.
      for (const result of await Promise.allSettled(Array.from({ length: 5 }, () => login(ref)))) {
        if (result.status === 'fulfilled') open.push(result.value)
        else refusals.push(result.reason)
      }
    }
    expect(open.length).toBeGreaterThan(20)
    expect(refusals.length).toBeGreaterThan(0)
    for (const refusal of refusals) expect(refusal).toMatchObject({ code: '53300' })
    expect((await sql('select 1 as v')).status).toBe(201)
    await (await login(other)).end()
    await Promise.all(open.map((client) => client.end()))
  })
})

async function login(project: string, more: pg.ClientConfig = {}): Promise<pg.Client> {
  const client = ownerClient(project, more)
  await client.connect()
  return client
}
