import { createHash } from 'node:crypto'
import { expect, test, vi } from 'vitest'
import { closedCatalogue } from '../../src/engine/catalogue.ts'
import { LOGIN_CHECK } from '../../src/engine/login-check.ts'
import { STORAGE_VERSION, storageSchema } from '../../src/engine/storage/schema.ts'
import { projectSchemas, TEMPLATE } from '../../src/engine/template.ts'
import { asAdmin, asOwner, newRef, RUNNER_PASSWORD, specOf, useEngine, withClient } from './copy-projects.ts'

const { engine, cluster } = await useEngine()

const upgrade = (ref: string) => engine.upgrade({ ref, runnerPassword: RUNNER_PASSWORD })
const inside = (ref: string, sql: string) =>
  withClient(asAdmin(`p_${ref}`), async (admin) => {
    await admin.query('set role none; set default_transaction_read_only = off; set allow_system_table_mods = on')
    return (await admin.query(sql)).rows
  })
const ask = (ref: string, sql: string) => withClient(asOwner(ref), async (owner) => (await owner.query(sql)).rows)

async function newProject(): Promise<string> {
  const ref = newRef()
  await engine.create(specOf(ref))
  return ref
}

/** All of `pg_catalog` that can be defined, granted or described, and the login check. */
const SYSTEM = `
  SELECT concat('relation ', relname) AS name, concat_ws(E'\\n', relkind::text, relowner::regrole, relacl::text, reloptions::text, oid < 16384,
      obj_description(oid, 'pg_class'), CASE WHEN relkind = 'v' THEN pg_get_viewdef(oid) END) AS definition
    FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace
  UNION ALL
  SELECT concat('column ', attrelid::regclass, ' ', attnum), concat_ws(' ', attname, atttypid::regtype, attacl::text)
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind = 'v'
  UNION ALL
  SELECT concat('function ', oid::regprocedure), concat_ws(E'\\n', proowner::regrole, proacl::text, obj_description(oid, 'pg_proc'),
      CASE WHEN prokind <> 'a' THEN pg_get_functiondef(oid) END)
    FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
  UNION ALL
  SELECT concat('initial rights ', pg_describe_object(classoid, objoid, objsubid)), concat(privtype, initprivs::text) FROM pg_init_privs
  UNION ALL
  SELECT concat('trigger ', evtname), concat_ws(' ', evtevent, evtenabled::text, evtfoid::regproc, evtowner::regrole,
      (SELECT pg_describe_object(refclassid, refobjid, 0) FROM pg_depend
        WHERE classid = 'pg_event_trigger'::regclass AND objid = t.oid AND deptype = 'e'))
    FROM pg_event_trigger AS t
  ORDER BY 1`

interface Row {
  name: string
  definition: string
}

const systemOf = async (ref: string): Promise<Row[]> =>
  withClient(asAdmin(`p_${ref}`), async (admin) => (await admin.query<Row>(SYSTEM)).rows)

const system = await systemOf(await newProject())

const unfiltered = (view: string) => `do $$ begin
  execute 'create or replace view pg_catalog.${view} as ' || regexp_replace(pg_get_viewdef('${view}'::regclass), '\\) stock.*$', ') stock');
  end $$`

/** As of older versions, since which each of these pieces has changed or come. */
const OLDER = `
  comment on view pg_catalog.pg_database is 'pilothouse_template_v0';
  create or replace view pg_catalog.pg_database as select *, tableoid from pg_database_of_cluster;
  ${unfiltered('pg_roles')}; ${unfiltered('pg_user')};
  create or replace function pg_catalog.pg_stat_activity_of_database() returns setof pg_stat_activity_of_cluster
    language sql volatile security definer parallel restricted begin atomic select * from pg_stat_activity_of_cluster; end;
  do $$ begin execute 'create or replace view pg_catalog.pg_locks as ' || pg_get_viewdef('pg_locks_of_cluster'::regclass); end $$;
  drop function pg_catalog.pg_locks_of_database(); drop view pg_catalog.pg_locks_of_cluster;
  grant select on pg_catalog.pg_prepared_xacts, pg_catalog.pg_auth_members_of_cluster to public;
  grant execute on function pg_catalog.pg_lock_status() to public;
  delete from pg_init_privs where classoid = 'pg_proc'::regclass;
  create or replace function pg_catalog.shobj_description(oid, name) returns text language sql stable strict parallel safe
    return null::text;
  alter extension plpgsql drop event trigger pilothouse_login_check;
  drop event trigger pilothouse_login_check;
  create or replace function pg_catalog.pilothouse_login_check() returns event_trigger language plpgsql as 'begin end'`

const NEIGHBOURS = `select
  (select count(*)::int from pg_database where datname ~ '^p_[a-z]{20}$' and datname <> current_database()) as databases,
  (select count(*)::int from pg_roles where rolname ~ '^p_[a-z]{20}$' and rolname <> current_user) as roles,
  (select count(*)::int from pg_user where usename ~ '^p_[a-z]{20}$' and usename <> current_user) as users,
  (select count(*)::int from pg_stat_activity where datname <> current_database()) as sessions`
const NONE = { databases: 0, roles: 0, users: 0, sessions: 0 }

async function newOlderProject(): Promise<string> {
  const ref = await newProject()
  await inside(ref, OLDER)
  return ref
}

/**
 * If you're here because this failed: give TEMPLATE the next number, and STORAGE_VERSION if the storage schema has changed, or
 * databases that exist never get it. Then the digest that is received here is the one expected.
 */
test('what is in a database has a name that changes with it', () => {
  const stock = Object.assign(new Map<string, string>(), { get: (view: string) => view })
  const parts = [closedCatalogue(stock), LOGIN_CHECK, storageSchema('pg_database_owner', true), projectSchemas([])]
  const digest = createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 16)
  expect({ TEMPLATE, STORAGE_VERSION, digest }).toEqual({
    TEMPLATE: 'pilothouse_template_v10',
    STORAGE_VERSION: 'Storage, schema 4',
    digest: 'd4a7945de6ecc70f',
  })
})

test.each([
  ['has the same version', (ref: string) => inside(ref, 'comment on view pg_catalog.pg_database is null')],
  ['is older', (ref: string) => inside(ref, OLDER)],
  [
    'has the catalogue of Postgres itself',
    async (ref: string) => {
      await cluster.query(`drop database p_${ref} with (force)`)
      await cluster.query(`create database p_${ref} template template0 owner p_${ref}`)
    },
  ],
])('makes a database that %s as a new one is', async (_, change) => {
  const ref = await newProject()
  await change(ref)
  expect(await systemOf(ref)).not.toEqual(system)
  // A stock catalogue has tables of the cluster to rename, and gives up while somebody creates a database there.
  await vi.waitFor(() => upgrade(ref), { timeout: 120_000, interval: 500 })
  expect(await systemOf(ref)).toEqual(system)
})

test('builds up the wall between projects', async () => {
  const ref = await newOlderProject()
  await withClient(asOwner(await newProject()), async () => {
    for (const count of Object.values((await ask(ref, NEIGHBOURS))[0])) expect(count).toBeGreaterThan(0)
    await upgrade(ref)
    expect(await ask(ref, NEIGHBOURS)).toEqual([NONE])
  })
  await expect(ask(ref, 'select from pg_database_of_cluster')).rejects.toMatchObject({ code: '42501' })
  await expect(ask(ref, 'select pg_lock_status()')).rejects.toMatchObject({ code: '42501' })
  await expect(ask(ref, `comment on view pg_catalog.pg_database is 'x'`)).rejects.toMatchObject({ code: '42501' })
})

test('leaves alone what is as in a new project, and waits for nobody there', async () => {
  const ref = await newProject()
  await withClient(asOwner(ref), async (owner) => {
    await owner.query('begin; select from pg_roles; select from pg_database; select from storage.objects')
    await upgrade(ref)
  })
  expect(await systemOf(ref)).toEqual(system)
})

test('changes nothing where somebody holds a part of it, and all once he is gone', async () => {
  const ref = await newOlderProject()
  const before = await systemOf(ref)
  await withClient(asOwner(ref), async (owner) => {
    await owner.query('begin; select from pg_user')
    await expect(upgrade(ref)).rejects.toMatchObject({ code: '55P03' })
    expect(await systemOf(ref)).toEqual(before)
    await owner.query('commit')
    await upgrade(ref)
  })
  expect(await systemOf(ref)).toEqual(system)
})

test('lets others in again and again while it waits for a table of the cluster', async () => {
  const ref = await newProject()
  await cluster.query(`drop database p_${ref} with (force)`)
  await cluster.query(`create database p_${ref} template template0 owner p_${ref}`)
  const reader = await asAdmin('postgres')
  await reader.query('begin; select from pg_database')
  const upgraded = upgrade(ref)
  for (const waits of [true, false, true]) {
    const waiting = `select from pg_locks where relation = 'pg_database'::regclass and not granted`
    await vi.waitFor(async () => expect((await cluster.query(waiting)).rowCount).toBe(Number(waits)), {
      timeout: 60_000,
      interval: 10,
    })
  }
  await reader.end()
  await upgraded
  expect(await systemOf(ref)).toEqual(system)
})

test('builds up the wall also where storage cannot be brought up to date', async () => {
  const ref = await newOlderProject()
  await inside(
    ref,
    `comment on schema storage is 'Storage, schema 1'; alter table storage.objects drop column version cascade`,
  )
  await expect(upgrade(ref)).rejects.toMatchObject({ code: '42703' })
  expect(await systemOf(ref)).toEqual(system)
})

test('locks nothing of the cluster that others wait for', async () => {
  const ref = await newOlderProject()
  const { rows } = await cluster.query(
    `select oid::regclass::text as name from pg_class where relisshared and relkind = 'r'`,
  )
  const reader = await asAdmin('postgres')
  await reader.query('begin')
  for (const { name } of rows) await reader.query(`lock table ${name} in row exclusive mode`)
  await upgrade(ref)
  await reader.end()
  expect(await systemOf(ref)).toEqual(system)
})

test("goes by no setting of the owner's and calls nothing of his", async () => {
  const ref = await newOlderProject()
  const spy = (signature: string, returns: string, value: string) =>
    `create function public.${signature} returns ${returns} language plpgsql as
       $$ begin insert into public.seen values (current_user); return ${value}; end $$`
  await withClient(asOwner(ref), (owner) =>
    owner.query(
      [
        'create table public.seen (who name); grant all on public.seen to public',
        spy('pg_get_viewdef(oid)', 'text', `'select 1'`),
        spy('to_regclass(text)', 'regclass', 'null'),
        spy('to_regnamespace(text)', 'regnamespace', 'null'),
        spy('obj_description(oid, name)', 'text', `'pilothouse_template_v10'`),
        spy('set_config(text, text, boolean)', 'text', 'null'),
        spy('format(text, text, text)', 'text', `'select 1'`),
        spy('same(name, name)', 'boolean', 'true'),
        spy('same(oid, oid)', 'boolean', 'true'),
        'create operator public.= (leftarg = name, rightarg = name, function = public.same)',
        'create operator public.= (leftarg = oid, rightarg = oid, function = public.same)',
        'create table public.pg_class as select * from pg_catalog.pg_class limit 0',
        ...[
          'search_path = public, pg_catalog',
          'standard_conforming_strings = off',
          'quote_all_identifiers = on',
          'check_function_bodies = off',
          `restrict_nonsystem_relation_kind = 'view, foreign-table'`,
          `"plpgsql.extra_errors" = 'all'`,
          `role = 'anon'`,
          'statement_timeout = 1',
          'lock_timeout = 1',
          'transaction_timeout = 1',
          'default_transaction_read_only = on',
        ].map((setting) => `alter database p_${ref} set ${setting}`),
      ].join('; '),
    ),
  )
  await upgrade(ref)
  expect(await systemOf(ref)).toEqual(system)
  const seen = () => inside(ref, 'select who from public.seen')
  expect(await seen()).toEqual([])
  // The traps are live: this is what a careless statement would have met.
  await inside(
    ref,
    `set default_transaction_read_only = off; set search_path = public, pg_catalog;
    select pg_get_viewdef('pg_user'::regclass::oid)`,
  )
  expect(await seen()).toEqual([{ who: 'pilothouse_admin' }])
})

/** As version 3 of the schema left it. */
const WITHOUT_APPS = (ref: string) => `
  comment on schema storage is 'Storage, schema 3'; drop table auth.identities, auth.users; drop publication supabase_realtime;
  revoke all on schema public, auth, extensions, storage from postgres; revoke all on database p_${ref} from postgres;
  alter default privileges for role p_${ref} revoke all on tables from postgres; revoke postgres from p_${ref}`

const FOR_APPS = `select to_regclass('auth.users') is not null as users, to_regclass('auth.identities') is not null as identities,
  (select pubowner::regrole::text from pg_publication where pubname = 'supabase_realtime') as published,
  pg_has_role('postgres', 'set') as owner, has_schema_privilege('postgres', 'public', 'create') as public,
  has_database_privilege('postgres', current_database(), 'create') as schemas,
  (select count(*)::int from pg_default_acl where defaclrole = 'postgres'::regrole) as rights`

test('gives a database what migrations of apps count on', async () => {
  const ref = await newProject()
  const [asNew] = await ask(ref, FOR_APPS)
  expect(asNew).toMatchObject({
    users: true,
    identities: true,
    published: `p_${ref}`,
    owner: true,
    public: true,
    schemas: true,
  })
  await inside(ref, WITHOUT_APPS(ref))
  expect((await ask(ref, FOR_APPS))[0]).toMatchObject({ users: false, published: null, owner: false, public: false })
  await upgrade(ref)
  expect(await ask(ref, FOR_APPS)).toEqual([asNew])
  await ask(ref, 'create table public.later (); alter table public.later owner to postgres')
})

test('makes no tables in a schema that its owner has made himself', async () => {
  const ref = await newProject()
  await inside(ref, WITHOUT_APPS(ref))
  await inside(ref, 'drop schema auth cascade')
  await ask(ref, 'create schema auth; create table auth.mine (n int)')
  await upgrade(ref)
  expect((await ask(ref, FOR_APPS))[0]).toMatchObject({ users: false, owner: true })
})
