import { asc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog } from '../../../src/model/tables/index.ts'
import { onHost } from '../../instances.ts'
import {
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  type TestOrganization,
  unhurried,
} from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = unhurried(organization.owner)
})

const path = (project: string, version = '') => `/v1/projects/${project}/database/migrations${version && `/${version}`}`
const list = async (project = ref) => (await owner().get(path(project))).body as { version: string; name?: string }[]
const apply = (body: Record<string, unknown>, { project = ref, headers = {} as Record<string, string> } = {}) =>
  owner().post(path(project), body, { headers })
const value = async (expression: string, project = ref) =>
  (await runSql(owner(), project, `select ${expression} as v`)).body[0]?.v
const latest = async (project = ref) => (await list(project)).at(-1)?.version ?? ''
const detail = async (version: string, project = ref) => (await owner().get(path(project, version))).body
const connectTo = async (project: string) => {
  const client = ownerClient(project)
  await client.connect()
  return client
}

describe('POST /v1/projects/{ref}/database/migrations', () => {
  it('runs the query, records it with its actor, and answers with nothing', async () => {
    const before = new Date().toISOString().replace(/\D/g, '').slice(0, 14)
    const query = "create table notes (id int, text text);\n-- seeds\ninsert into notes values (1, 'a;b');"
    const reply = await apply({ query, name: 'make_notes', rollback: 'drop table notes' })
    expect(reply).toMatchObject({ status: 200, body: '' })
    expect(reply.headers.get('content-type')).toBeNull()
    expect(await value('(select text from notes)')).toBe('a;b')
    const version = await latest()
    expect(version).toMatch(/^20\d{12}$/)
    expect(version >= before).toBe(true)
    expect(await detail(version)).toEqual({
      version,
      name: 'make_notes',
      statements: ['create table notes (id int, text text)', "-- seeds\ninsert into notes values (1, 'a;b')"],
      rollback: ['drop table notes'],
      created_by: expect.stringMatching(/^user-.*@example\.com$/),
    })
  })

  it('assigns consecutive versions within one second, however many requests arrive at once', async () => {
    const project = await newProject(organization)
    const at = new Date(Date.now() + 3_600_000)
    const names = Array.from({ length: 6 }, (_, index) => `at once ${index}`)
    const replies = await Promise.all(
      names.map((name) => organization.owner.at(at).post(path(project), { query: 'select 1', name })),
    )
    expect(replies.map(({ status }) => status)).toEqual(names.map(() => 200))
    const history = await list(project)
    const versions = history.map(({ version }) => version)
    expect(new Set(versions).size).toBe(6)
    expect(versions).toEqual(versions.toSorted())
    expect(history.map(({ name }) => name).toSorted()).toEqual(names)
    await apply({ query: 'select 1', name: 'later by an earlier clock' }, { project })
    expect((await list(project)).at(-1)).toMatchObject({ name: 'later by an earlier clock' })
    await runSql(owner(), project, "insert into supabase_migrations.schema_migrations values ('20990231999999')")
    await apply({ query: 'select 1', name: 'after no date at all' }, { project })
    expect((await list(project)).at(-1)).toEqual({ version: '20990232000000', name: 'after no date at all' })
  })

  it('has the version of its time if an earlier one is named after the end of all times', async () => {
    const project = await newProject(organization)
    const last = '99999999999999'
    await apply({ query: 'select 1', name: 'first' }, { project })
    await runSql(owner(), project, `insert into supabase_migrations.schema_migrations values ('${last}', '{}', 'last')`)
    for (const name of ['second', 'third'])
      expect(await apply({ query: 'select 1', name }, { project })).toMatchObject({ status: 200 })
    expect((await list(project)).map(({ name }) => name)).toEqual(['first', 'second', 'third', 'last'])
  })

  it('keeps nothing of a migration that fails, and reports the position', async () => {
    const before = await list()
    const reply = await apply({ query: 'create table half (n int); insert into half values (1); select 1/nothing()' })
    expect(reply).toMatchObject({ status: 400, body: { code: '42883', position: 66 } })
    expect(await list()).toEqual(before)
    expect(await value("to_regclass('half')")).toBeNull()
  })

  it.each([
    ['create index concurrently', 'create index concurrently on notes (id)', '25001'],
    ['vacuum', 'vacuum notes', '25001'],
    ['a copy from the client', 'copy notes from stdin', '57014'],
    ['a deferred constraint', 'set constraints all deferred; insert into child values (1, 99)', '23503'],
    ['a block that commits', 'do $$ begin create table gone (); commit; end $$', '2D000'],
    ['no SQL', 'selec', '42601'],
  ])('records nothing of %s, which cannot run', async (_, query, code) => {
    await runSql(
      owner(),
      ref,
      `create table if not exists parent (id int primary key);
       create table if not exists child (id int, parent int references parent deferrable)`,
    )
    const before = await list()
    expect(await apply({ query })).toMatchObject({ status: 400, body: { code } })
    expect(await list()).toEqual(before)
  })

  it.each([
    ['commit', 'create table gone (); commit; select 1/0'],
    ['rollback', 'create table gone (); /* so */ rollback'],
    ['a block of its own', 'begin; create table gone (); end'],
    ['prepare transaction', "create table gone (); prepare /* a */ transaction 'x'"],
    ['a string that hides it', "set standard_conforming_strings = off; select 'a\\'; commit; select '"],
  ])('refuses a migration whose %s would end its transaction', async (_, query) => {
    const before = await list()
    expect(await apply({ query })).toMatchObject({ status: 400 })
    expect(await list()).toEqual(before)
    expect(await value("to_regclass('gone')")).toBeNull()
  })

  it('accepts routines and rules whose bodies have semicolons, savepoints, and a change of role and path', async () => {
    const query = `
      create function two() returns int begin atomic select 1; select case when true then 2 end; end;
      create table ruled (n int);
      create rule doubled as on insert to ruled do also (select 1; select 2);
      savepoint a;
      insert into ruled values (1);
      rollback to a;
      rollback transaction to savepoint a;
      set search_path = '';
      set role anon`
    expect(await apply({ query, name: 'bodies' })).toMatchObject({ status: 200 })
    expect(await value('two()')).toBe(2)
    expect(await value('(select count(*) from ruled)')).toBe(0)
    expect((await detail(await latest())).statements).toHaveLength(9)
  })

  it('runs a request repeated with the same key once, and refuses the key for another one', async () => {
    const headers = { 'idempotency-key': 'once' }
    const migration = { query: 'create table once (n int)', name: 'once' }
    expect(await apply(migration, { headers })).toMatchObject({ status: 200 })
    const after = await list()
    expect(await apply(migration, { headers })).toMatchObject({ status: 200 })
    expect(await apply({ ...migration, 'Idempotency-Key': 'once' })).toMatchObject({ status: 200 })
    expect(await list()).toEqual(after)
    expect(await detail(await latest())).toMatchObject({ idempotency_key: 'once' })
    expect(await apply({ query: 'create table other ()' }, { headers })).toMatchObject({
      status: 409,
      body: { message: expect.stringContaining('another migration') },
    })
    expect(await value("to_regclass('other')")).toBeNull()
  })

  it('runs a request that arrives several times at once only once', async () => {
    const migration = { query: 'create table race (n int)', 'Idempotency-Key': 'race' }
    const replies = await Promise.all(Array.from({ length: 5 }, () => apply(migration)))
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200])
  })

  it.each([
    [{ name: 'n' }, 'body.query'],
    [{ query: '' }, 'body.query'],
    [{ query: 'select 1', name: 'x'.repeat(257) }, 'body.name'],
    [{ query: 'select 1', rollback: 7 }, 'body.rollback'],
    [{ query: 'select 1', 'Idempotency-Key': '' }, 'body.Idempotency-Key'],
  ])('refuses %j and names the field', async (body, field) => {
    const before = await list()
    expect(await apply(body)).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    expect(await list()).toEqual(before)
  })

  it('refuses a key that is too long or differs from the one in the body', async () => {
    for (const key of ['x'.repeat(256), 'other']) {
      const body = { query: 'select 1', 'Idempotency-Key': 'one' }
      expect(await apply(body, { headers: { 'idempotency-key': key } })).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('header.idempotency-key') },
      })
    }
  })

  extended('accepts 7 MB of 2,000 statements', async () => {
    const query = `create table many (n int, t text);${`insert into many values (1, '${'x'.repeat(3_500)}');`.repeat(2_000)}`
    expect(await apply({ query, name: 'large' })).toMatchObject({ status: 200 })
    expect(await value('(select count(*) from many)')).toBe(2_000)
    expect((await detail(await latest())).statements).toHaveLength(2_001)
  })

  it('stops a migration that runs too long and records nothing', async () => {
    const before = await list()
    expect(await apply({ query: 'create table slow (); select pg_sleep(60)' })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('longer than allowed') },
    })
    expect(await list()).toEqual(before)
  })
})

describe('PUT /v1/projects/{ref}/database/migrations', () => {
  const put = (body: Record<string, unknown>, key?: string) =>
    owner().put(path(ref), body, { headers: key === undefined ? {} : { 'idempotency-key': key } })

  it('records without running, and replaces the record of a known key', async () => {
    const reply = await put({ query: 'create table never (); select 1', name: 'kept', rollback: 'select 2' }, 'kept')
    expect(reply).toMatchObject({ status: 200, body: '' })
    expect(await value("to_regclass('never')")).toBeNull()
    const version = await latest()
    expect(await detail(version)).toMatchObject({
      name: 'kept',
      statements: ['create table never ()', 'select 1'],
      rollback: ['select 2'],
    })
    const count = (await list()).length
    expect(await put({ query: 'select 3' }, 'kept')).toMatchObject({ status: 200 })
    const { created_by: _, ...replaced } = await detail(version)
    expect(replaced).toEqual({ version, statements: ['select 3'], idempotency_key: 'kept' })
    expect(await put({ query: 'not even SQL', name: 'another' })).toMatchObject({ status: 200 })
    expect(await list()).toHaveLength(count + 1)
  })

  it('refuses a body without a query', async () => {
    expect(await put({})).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.query') } })
  })
})

describe('GET and PATCH /v1/projects/{ref}/database/migrations/{version}', () => {
  it('changes the name or the rollback', async () => {
    await apply({ query: 'select 1', name: 'before' })
    const version = await latest()
    const change = (body: Record<string, unknown>) => owner().patch(path(ref, version), body)
    const reply = await change({ name: 'after' })
    expect(reply).toMatchObject({ status: 200, body: '' })
    expect(await change({ rollback: 'select 1; select 2;' })).toMatchObject({ status: 200 })
    expect(await change({})).toMatchObject({ status: 200 })
    expect(await detail(version)).toMatchObject({ name: 'after', rollback: ['select 1', 'select 2'] })
    expect(await change({ rollback: '' })).toMatchObject({ status: 200 })
    expect(await detail(version)).toMatchObject({ rollback: [] })
    expect(await change({ name: 7 })).toMatchObject({ status: 400 })
  })

  it('answers 404 for an unknown version and 400 for an invalid one', async () => {
    for (const call of [
      (version: string) => owner().get(path(ref, version)),
      (version: string) => owner().patch(path(ref, version), { name: 'n' }),
    ]) {
      expect(await call('1')).toMatchObject({ status: 404, body: { message: 'Migration not found' } })
      expect(await call('12x')).toMatchObject({ status: 400, body: { message: expect.stringContaining('version') } })
    }
  })
})

describe('DELETE /v1/projects/{ref}/database/migrations', () => {
  let project: string
  beforeAll(async () => {
    project = await newProject(organization)
  })
  const rollBack = (gte: string) => owner().delete(`${path(project)}?gte=${gte}`)
  const make = async (query: string, rollback?: string) => {
    await apply({ query, ...(rollback !== undefined && { rollback }) }, { project })
    return latest(project)
  }

  it('undoes the newest first, each with the settings of a fresh session, and deletes their records', async () => {
    await make('create table base (n int)')
    const first = await make('create table a (n int)', 'drop table a')
    await make('alter table a add column m int', "alter table a drop column m; set search_path = ''; set role anon")
    await make('create view v as select m from a', 'drop view v')
    const reply = await rollBack(first)
    expect(reply).toMatchObject({ status: 200, body: '' })
    expect(await list(project)).toHaveLength(1)
    expect(await value("to_regclass('a')", project)).toBeNull()
    expect(await rollBack(first)).toMatchObject({ status: 200 })
  })

  it('undoes nothing if one of them cannot be undone or has no rollback', async () => {
    const first = await make('create table b (n int)', 'drop table b')
    const silent = await make('select 1')
    const broken = await make('select 2', 'select 1/0')
    const before = await list(project)
    expect(await rollBack(first)).toMatchObject({ status: 400, body: { message: expect.stringContaining(silent) } })
    expect(await list(project)).toEqual(before)
    await owner().patch(path(project, silent), { rollback: '' })
    expect(await rollBack(first)).toMatchObject({ status: 400, body: { code: '22012' } })
    expect(await list(project)).toEqual(before)
    await owner().patch(path(project, broken), { rollback: 'commit' })
    expect(await rollBack(first)).toMatchObject({ status: 400, body: { code: '25001' } })
    expect(await list(project)).toEqual(before)
    await owner().patch(path(project, broken), { rollback: 'select 1' })
    expect(await rollBack(first)).toMatchObject({ status: 200 })
    expect(await value("to_regclass('b')", project)).toBeNull()
  })

  it('requires the first version', async () => {
    for (const query of ['', '?gte=', '?gte=x', '?gte=-1']) {
      expect(await owner().delete(path(project) + query)).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('query.gte') },
      })
    }
  })
})

describe('the audit log', () => {
  it('has one entry with the versions for each change of the history', async () => {
    const project = await newProject(organization)
    const entries = async () => {
      const { action, detail, actorUserId } = auditLog
      const rows = await control
        .select({ action, detail, actorUserId })
        .from(auditLog)
        .where(eq(auditLog.projectRef, project))
        .orderBy(asc(auditLog.createdAt), asc(auditLog.id))
      return rows.filter(({ action }) => action.startsWith('migration.'))
    }
    const by = { actorUserId: organization.userId }
    const keyed = { query: 'select 1', rollback: 'select 2', 'Idempotency-Key': 'one' }
    for (const repeated of [keyed, keyed]) expect((await apply(repeated, { project })).status).toBe(200)
    const version = await latest(project)
    const applied = { action: 'migration.apply', detail: { version }, ...by }
    expect(await entries()).toEqual([applied])

    const record = { query: 'select 3', rollback: 'select 4' }
    expect((await owner().put(path(project), record)).status).toBe(200)
    const second = await latest(project)
    expect((await owner().put(path(project), { ...record, 'Idempotency-Key': 'one' })).status).toBe(200)
    const recorded = { action: 'migration.record', ...by }
    const records = [
      { ...recorded, detail: { version: second } },
      { ...recorded, detail: { version } },
    ]
    expect(await entries()).toEqual([applied, ...records])

    expect((await owner().patch(path(project, version), { name: 'named' })).status).toBe(200)
    expect((await owner().patch(path(project, '1'), { name: 'named' })).status).toBe(404)
    const updated = { action: 'migration.update', detail: { version }, ...by }
    expect(await entries()).toEqual([applied, ...records, updated])

    for (const from of [version, version])
      expect((await owner().delete(`${path(project)}?gte=${from}`)).status).toBe(200)
    const rolledBack = { action: 'migration.rollback', detail: { from: version, count: 2 }, ...by }
    expect(await entries()).toEqual([applied, ...records, updated, rolledBack])
  })
})

describe('the history', () => {
  it('may be a table of an older tool, without names and without a key', async () => {
    const project = await newProject(organization)
    const made = await runSql(
      owner(),
      project,
      `create schema if not exists supabase_migrations; drop table if exists supabase_migrations.schema_migrations;
       create table supabase_migrations.schema_migrations (version text);
       insert into supabase_migrations.schema_migrations values ('20200102000000'), (null), ('20200101000000')`,
    )
    expect(made.status).toBe(201)
    expect(await owner().get(path(project))).toMatchObject({
      status: 200,
      body: [{ version: '20200101000000' }, { version: '20200102000000' }],
    })
  })

  it('is created again if its owner dropped it, and completed if another tool made it', async () => {
    const project = await newProject(organization)
    await runSql(owner(), project, 'drop schema supabase_migrations cascade')
    expect(await list(project)).toEqual([])
    expect((await owner().get(path(project, '1'))).status).toBe(404)
    expect((await owner().patch(path(project, '1'), { name: 'n' })).status).toBe(404)
    await runSql(owner(), project, 'drop schema supabase_migrations cascade')
    expect(await apply({ query: 'create table t ()', name: 'made' }, { project })).toMatchObject({ status: 200 })
    expect(await list(project)).toMatchObject([{ name: 'made' }])
    await runSql(
      owner(),
      project,
      `drop table supabase_migrations.schema_migrations;
       create table supabase_migrations.schema_migrations (version text primary key, name text);
       insert into supabase_migrations.schema_migrations values ('20200101000000')`,
    )
    expect(await list(project)).toEqual([{ version: '20200101000000' }])
    expect(await detail('20200101000000', project)).toEqual({ version: '20200101000000' })
    const reply = await apply({ query: 'select 1', 'Idempotency-Key': 'k' }, { project })
    expect(reply).toMatchObject({ status: 200 })
    expect(await detail(await latest(project), project)).toMatchObject({ statements: ['select 1'] })
  })

  it('reports what is wrong with it, whoever changed it', async () => {
    const project = await newProject(organization)
    const calls = [
      () => owner().get(path(project)),
      () => owner().get(path(project, '1')),
      () => owner().post(path(project), { query: 'select 1' }),
      () => owner().put(path(project), { query: 'select 1' }),
      () => owner().patch(path(project, '1'), { name: 'n' }),
      () => owner().delete(`${path(project)}?gte=1`),
    ]
    const client = await connectTo(project)
    await client.query('begin; lock table supabase_migrations.schema_migrations')
    for (const reply of await Promise.all(calls.map((call) => call()))) {
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('longer than allowed') } })
    }
    await client.query('rollback')
    await client.query(
      `insert into supabase_migrations.schema_migrations (version, statements, name)
       values ('1', array[repeat('x', 17000000)], repeat('x', 17000000))`,
    )
    for (const call of calls.slice(0, 2)) {
      expect(await call()).toMatchObject({ status: 400, body: { message: expect.stringContaining('too large') } })
    }
    await client.query(
      `drop table supabase_migrations.schema_migrations;
       create view supabase_migrations.schema_migrations as select 'x' as statements`,
    )
    await client.end()
    for (const call of calls) {
      expect(await call()).toMatchObject({ status: 400, body: { code: expect.stringMatching(/^(42|22)/) } })
    }
  })

  it('answers 409 for a paused project and 503 for an unreachable one', async () => {
    const project = await newProject(organization)
    const replies = () =>
      Promise.all([
        owner().get(path(project)),
        owner().get(path(project, '1')),
        owner().post(path(project), { query: 'select 1' }),
        owner().put(path(project), { query: 'select 1' }),
        owner().patch(path(project, '1'), { name: 'n' }),
        owner().delete(`${path(project)}?gte=1`),
      ])
    await onHost(project, 'pause')
    expect((await replies()).map(({ status }) => status)).toEqual([503, 503, 503, 503, 503, 503])
    await onHost(project, 'resume')
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    expect((await replies()).map(({ status }) => status)).toEqual([409, 409, 409, 409, 409, 409])
  })

  it('requires the rights to read and write the database', async () => {
    const reader = await newMember(organization, 'read-only')
    const { caller: readingApp } = await newApp(organization, ['database:read'])
    const { caller: otherApp } = await newApp(organization, ['projects:write'])
    const { owner: stranger } = await newOrganization()
    const callers = [reader, readingApp, otherApp, stranger]
    const read = await Promise.all(callers.map((caller) => caller.get(path(ref))))
    expect(read.map(({ status }) => status)).toEqual([200, 200, 403, 404])
    const before = await list()
    const written = await Promise.all(callers.map((caller) => caller.post(path(ref), { query: 'create table w ()' })))
    expect(written.map(({ status }) => status)).toEqual([403, 403, 403, 404])
    expect(await list()).toEqual(before)
  })

  extended('finds, follows and rolls back without reading 100,000 rows', async () => {
    const project = await newProject(organization)
    const client = await connectTo(project)
    await client.query(
      `insert into supabase_migrations.schema_migrations (version, name, statements)
         select (20000000000000 + n)::text, 'm' || n, array[repeat('x', 100)] from generate_series(1, 100000) as n;
       analyze supabase_migrations.schema_migrations;
       set enable_seqscan = on`,
    )
    const plan = async (query: string) =>
      (await client.query(`explain ${query}`)).rows.map((row) => row['QUERY PLAN']).join('\n')
    const table = 'supabase_migrations.schema_migrations'
    for (const query of [
      `select version from ${table} where version ~ '^[0-9]{14}$' order by version desc limit 1`,
      `select to_jsonb(found) from ${table} as found where version = '1'`,
      `select version from ${table} where idempotency_key = 'k'`,
      `delete from ${table} where version >= '20000000099990' and version ~ '^[0-9]+$'`,
      `select to_jsonb(found) from ${table} as found where found.version > '1' order by found.version limit 100`,
    ]) {
      expect(await plan(query)).not.toContain('Seq Scan')
    }
    await client.end()
    expect(await list(project)).toHaveLength(100_000)
  })
})
