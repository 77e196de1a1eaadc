import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from '../../src/engine/storage/schema.ts'
import { listObjects } from '../../src/services/storage/statements/lists.ts'
import { canWrite, deleteObjects, insertObject, upsertObject } from '../../src/services/storage/statements/objects.ts'
import { type HostEngine, startHostEngine } from './host-engine.ts'
import { anon, newObject, newStorageDatabase, type StorageDatabase, service, user } from './storage-database.ts'

let host: HostEngine
let storage: StorageDatabase
let owner: pg.Client
beforeAll(async () => {
  host = await startHostEngine()
  storage = await newStorageDatabase(host)
  owner = await storage.asOwner()
})
afterAll(async () => {
  await owner.end()
  await storage.close()
  await host.stop()
})

describe("the project's owner", () => {
  it.each([
    'create policy mine on storage.objects for select using (true)',
    'create policy mine on storage.buckets for select using (true)',
    'create function public.noted() returns trigger language plpgsql as $$ begin return null; end $$; ' +
      'create trigger mine after insert on storage.objects for each row execute function public.noted()',
    'select * from storage.objects, storage.buckets',
    "select * from storage.search('', 'a')",
  ])('may: %s', async (sql) => {
    await owner.query(sql)
  })

  it.each([
    ['create table storage.mine (n int)', '42501'],
    ['alter table storage.objects disable row level security', '42501'],
    ['alter table storage.objects add column mine int', '42501'],
    ['create index mine on storage.objects (owner_id)', '42501'],
    ['alter table storage.objects rename to other', '42501'],
    ['alter schema storage owner to current_user', '42501'],
    ['grant create on schema storage to public', null],
    ['drop schema storage cascade', '42501'],
    ["comment on schema storage is 'x'", '42501'],
    ['create or replace function storage.folded(text) returns text language sql return $1', '42501'],
    ['drop function storage.remember_deleted() cascade', '42501'],
    ['alter function storage.remember_deleted() owner to current_user', '42501'],
    ['set role supabase_storage_admin', '42501'],
    ['grant supabase_storage_admin to current_user', '42501'],
    ["alter role supabase_storage_admin password 'x'", '42501'],
    [
      'create function public.mine() returns int language sql as $$ select 1 $$ ; alter function public.mine() owner to supabase_storage_admin',
      '42501',
    ],
  ])('may not: %s', async (sql, code) => {
    const rights = () =>
      storage.sql(`select nspowner::regrole, nspacl::text from pg_namespace where nspname = 'storage'`)
    const before = await rights()
    expect(
      await owner.query(sql).then(
        () => null,
        (error) => error.code,
      ),
    ).toBe(code)
    expect(await rights()).toEqual(before)
  })
})

describe("the role that runs the tenant's triggers and policies", () => {
  it('is the role of the caller or of the server, which opens no other role', async () => {
    const victim = await newStorageDatabase(host)
    const tenant = await victim.asOwner()
    await tenant.query(`
      create table public.seen (who name, what text);
      grant all on public.seen to public;
      create function public.attempt(command text) returns text language plpgsql as
        $$ begin execute command; return 'done'; exception when others then return sqlstate; end $$;
      create function public.spy() returns trigger language plpgsql as $$ begin
        insert into public.seen values
          (current_user, public.attempt('set local role postgres')),
          (current_user, public.attempt('set local session authorization postgres')),
          (current_user, public.attempt('create role intruder')),
          (current_user, public.attempt('alter role authenticator password ''x''')),
          (current_user, public.attempt('grant supabase_storage_admin to postgres')),
          (current_user, public.attempt('alter table pgbouncer.removed_versions disable trigger all')),
          (current_user, public.attempt('copy (select 1) to program ''true''')),
          (current_user, public.attempt('create function storage.mine() returns int language sql return 1'));
        return new; end $$;
      create trigger spy before insert on storage.objects for each row execute function public.spy()`)
    const bucket = await victim.bucket({ names: ['a'] })
    await victim.policies(`on storage.objects for insert to anon with check (bucket_id = '${bucket}')`)
    await victim.as(anon, insertObject(newObject(bucket, 'b')))
    const { rows } = await tenant.query('select distinct who, what from public.seen order by 1, 2')
    const whos = new Set(rows.map(({ who }) => who))
    expect(whos).toEqual(new Set(['anon', 'supabase_storage_admin']))
    expect(rows.filter(({ what }) => what !== '42501')).toEqual([])
    await tenant.end()
    await victim.close()
  })
})

describe('roles of the API', () => {
  it.each([
    'select * from pgbouncer.removed_versions',
    "select storage.remember_removed(array['x'])",
    'truncate storage.objects',
    'create trigger t after insert on storage.objects execute function storage.update_updated_at_column()',
    'create table storage.mine (n int)',
  ])('may not: %s', async (text) => {
    for (const caller of [anon, user()]) {
      await expect(storage.as(caller, { text, params: [] })).rejects.toMatchObject({ code: '42501' })
    }
  })

  it('find names and prefixes by index, whatever the policy says', async () => {
    const bucket = await storage.bucket()
    await storage.policies(
      `on storage.objects for select to anon using ((storage.foldername(name))[1] = auth.uid()::text)`,
    )
    for (const key of ['name', 'storage.folded(name)']) {
      const text = `explain select * from storage.objects where bucket_id = '${bucket}'
        and ${key} >= 'a/' and ${key} < 'b' order by ${key} limit 1`
      const plan = await storage.as<Record<string, string>>(anon, { text, params: [] })
      const condition = plan.map((line) => line['QUERY PLAN']).find((line) => line?.includes('Index Cond'))
      expect(condition).toContain(`${key} >= 'a/'::text`)
      expect(condition).toContain(`${key} < 'b'::text`)
    }
  })
})

describe('the schema', () => {
  const make = async (client: pg.Client) => {
    await client.query('set search_path = pg_catalog')
    await client.query(storageSchema('services').join(';\n'))
  }
  const works = async (database: StorageDatabase) => {
    const bucket = await database.bucket({ names: ['a/b', 'c'] })
    const listing = { prefix: '', search: '', limit: 9, offset: 0, column: 'name', order: 'asc' } as const
    const seen = await database.as<{ name: string }>(service, listObjects({ bucketId: bucket, ...listing }))
    expect(seen.map(({ name }) => name)).toEqual(['a', 'c'])
    const upserted = upsertObject(newObject(bucket, 'c'))
    expect(await database.as(service, upserted)).toMatchObject([{ version: expect.any(String) }])
    expect(await database.as(service, canWrite(newObject(bucket, 'c'), { upsert: false }))).toEqual([
      { outcome: 'exists' },
    ])
    expect(await database.as(service, deleteObjects(bucket, ['c']))).toMatchObject([{ name: 'c' }])
  }

  it('can be created again over an existing one, which keeps its rows, rights and policies', async () => {
    const bucket = await storage.bucket({ names: ['kept'] })
    await owner.query('revoke insert on storage.objects from anon')
    const admin = await storage.asSuperuser()
    await make(admin)
    const [row] =
      await storage.sql(`select (select count(*)::int from storage.objects where bucket_id = '${bucket}') as objects,
      has_table_privilege('anon', 'storage.objects', 'insert') as granted,
      (select count(*)::int from pg_policies where policyname = 'mine') as policies`)
    expect(row).toEqual({ objects: 1, granted: false, policies: 2 })
    expect((await admin.query(STORAGE_VERSION_QUERY)).rows).toEqual([{ version: STORAGE_VERSION }])
    await admin.end()
    await works(storage)
  })

  it('is created if it is missing or incomplete, and leaves a schema auth of the tenant alone', async () => {
    const older = await newStorageDatabase(host)
    const admin = await older.asSuperuser()
    await admin.query('drop schema storage cascade; drop schema auth cascade; create schema storage')
    expect((await admin.query(STORAGE_VERSION_QUERY)).rows).toEqual([{ version: null }])
    const tenant = await older.asOwner()
    await tenant.query('create schema auth; create function auth.uid() returns text language sql return 42')
    await make(admin)
    expect((await tenant.query('select auth.uid() as id')).rows).toEqual([{ id: '42' }])
    const owners = `select rolname from pg_roles where oid = (select nspowner from pg_namespace where nspname = 'storage')`
    expect((await tenant.query(owners)).rows).toEqual([{ rolname: 'supabase_admin' }])
    await works(older)
    await admin.query('drop table storage.objects')
    await make(admin)
    await works(older)
    await Promise.all([tenant.end(), admin.end()])
    await older.close()
  })

  it("calls nothing of the tenant's with the rights of its creator", async () => {
    const victim = await newStorageDatabase(host)
    await victim.bucket({ names: ['a', 'b'] })
    const tenant = await victim.asOwner()
    await tenant.query(`
      create table public.seen (who name);
      grant all on public.seen to public;
      create function public.spy(text) returns text language plpgsql as
        $$ begin insert into public.seen values (current_user); return $1; end $$;
      create function public.spy() returns trigger language plpgsql as
        $$ begin insert into public.seen values (current_user); return new; end $$;
      create function public.same(text, text) returns boolean language plpgsql as
        $$ begin insert into public.seen values (current_user); return true; end $$;
      create operator public.= (leftarg = text, rightarg = text, function = public.same);
      create function public.lower(text) returns text language sql return public.spy($1);
`)
    const admin = await victim.asSuperuser()
    await admin.query(`
      alter table storage.objects add constraint spied check (public.spy(name) is not null);
      alter table storage.objects add column spied text default public.spy('x');
      create trigger spied before insert or update or delete on storage.objects for each row execute function public.spy();
      create policy spied on storage.objects using (public.spy(name) = name);
      alter table storage.objects force row level security;
      drop index storage.objects_folded_name; drop index storage.objects_version;
      drop trigger remember_deleted on storage.objects;
      alter database postgres set search_path = public, pg_catalog;
      truncate public.seen`)
    await make(admin)
    const superuser = 'select who from public.seen where who in (select rolname from pg_roles where rolsuper)'
    expect((await tenant.query(superuser)).rows).toEqual([])
    // The traps work: a careless statement would have run into them.
    await admin.query(`update storage.objects set owner_id = 'x'`)
    expect((await tenant.query(superuser)).rows).not.toEqual([])
    await admin.end()
    await tenant.end()
    await victim.close()
  })
})
