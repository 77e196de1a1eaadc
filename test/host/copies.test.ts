import { Client } from 'pg'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { copyFiles } from '../../host/copies/copy-files.ts'
import { prepareCopy } from '../../host/copies/prepare-copy.ts'
import { ACCOUNT, makeFolder, OWNER, type TestInstance, testInstance } from './instance.ts'

const made: TestInstance[] = []
let parent: TestInstance

beforeAll(async () => {
  parent = await testInstance()
  made.push(parent)
  await parent.admin.rows(OWNER)
})

afterAll(() => Promise.all(made.map((each) => each.remove())))

const as = async (instance: TestInstance, user: string, text: string) => {
  await instance.wake()
  const client = new Client({ host: instance.paths.socket, port: 5432, user, database: 'postgres' })
  await client.connect()
  try {
    return await client.query(text)
  } finally {
    await client.end()
  }
}

const rows = async (instance: TestInstance, text: string) => (await as(instance, 'supabase_admin', text)).rows

const copyOf = async (from: TestInstance) => {
  const folder = await makeFolder()
  await copyFiles(from, { data: `${folder}/data`, account: ACCOUNT })
  const copy = await testInstance({ folder, name: 'b'.repeat(20) })
  made.push(copy)
  return copy
}

test('a copy of a parent that is written to is consistent', async () => {
  await as(
    parent,
    'postgres',
    `CREATE TABLE counters (id int PRIMARY KEY, n int NOT NULL); CREATE TABLE log (id int, at timestamptz);
    INSERT INTO counters SELECT g, 0 FROM generate_series(1, 500) AS g; CREATE TABLE ballast AS SELECT g, repeat('x', 500) AS pad FROM generate_series(1, 100000) AS g;
    CREATE UNLOGGED TABLE fleeting AS SELECT 1`,
  )
  let isDone = false
  const write = async (seed: number) => {
    const client = new Client({ host: parent.paths.socket, port: 5432, user: 'postgres', database: 'postgres' })
    await client.connect()
    for (let i = seed; !isDone; i += 7) {
      await client.query(`BEGIN; UPDATE counters SET n = n + 1 WHERE id = ${(i % 500) + 1}; INSERT INTO log VALUES (${(i % 500) + 1}, now());
        CREATE TABLE t${seed} AS SELECT generate_series(1, 1000) AS g; DROP TABLE t${seed}; COMMIT`)
    }
    await client.end()
  }
  const writers = [1, 2].map(write)
  await expect.poll(() => rows(parent, 'SELECT FROM log LIMIT 1')).toHaveLength(1)
  const copy = await copyOf(parent)
  isDone = true
  await Promise.all(writers)
  const check = `SELECT (SELECT sum(n) FROM counters)::int AS counted, (SELECT count(*) FROM log)::int AS logged, (SELECT count(*) FROM ballast)::int AS ballast,
    (SELECT count(*) FROM counters AS c WHERE n <> (SELECT count(*) FROM log WHERE id = c.id))::int AS wrong, (SELECT count(*) FROM fleeting)::int AS fleeting`
  const [found] = await rows(copy, check)
  expect(found).toMatchObject({ wrong: 0, ballast: 100_000, fleeting: 0 })
  expect(found?.counted).toBe(found?.logged)
  expect(found?.counted).toBeGreaterThan(0)
  expect(await parent.admin.rows('SELECT FROM pg_replication_slots')).toEqual([])
})

test('a sleeping parent is woken for its copy', async () => {
  await parent.stop()
  const copy = await copyOf(parent)
  expect(await rows(copy, 'SELECT count(*)::int AS n FROM counters')).toEqual([{ n: 500 }])
})

test('a parent that allows no replication slots is copied', async () => {
  const without = await testInstance({ settings: { max_replication_slots: '0' } })
  made.push(without)
  await without.admin.rows(`${OWNER}; CREATE TABLE public.kept AS SELECT 1 AS n`)
  expect(await rows(await copyOf(without), 'SELECT n FROM public.kept')).toEqual([{ n: 1 }])
})

const STORAGE = `CREATE ROLE supabase_storage_admin LOGIN; CREATE SCHEMA storage AUTHORIZATION supabase_storage_admin; GRANT USAGE ON SCHEMA storage TO postgres; CREATE SCHEMA pgbouncer;
  CREATE TABLE storage.buckets (id text PRIMARY KEY); CREATE TABLE storage.objects (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), name text, bucket_id text REFERENCES storage.buckets);
  ALTER TABLE storage.objects ENABLE ROW LEVEL SECURITY;
  CREATE TABLE pgbouncer.used_tokens (id uuid); INSERT INTO pgbouncer.used_tokens VALUES (gen_random_uuid());
  INSERT INTO storage.buckets VALUES ('b'); INSERT INTO storage.objects (name, bucket_id) VALUES ('kept', 'b'), ('gone', 'b');
  CREATE FUNCTION public.no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''no''; END';
  CREATE TRIGGER never BEFORE DELETE ON storage.objects FOR EACH ROW EXECUTE FUNCTION public.no(); ALTER TABLE storage.objects ENABLE ALWAYS TRIGGER never;
  GRANT SELECT, REFERENCES ON storage.objects TO postgres; ALTER TABLE storage.objects OWNER TO supabase_storage_admin;
  CREATE ROLE cli_login_abcdefgh LOGIN IN ROLE postgres; CREATE ROLE jit_login_abcdefgh LOGIN;
  GRANT CREATE ON SCHEMA public TO cli_login_abcdefgh`

/** Records who runs it, wherever the preparation of a copy might call it. */
const SPIES = `CREATE TABLE public.seen (who text, su boolean);
  CREATE FUNCTION public.spy(x uuid) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    $$ BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN RAISE 'run by the superuser'; END IF; RETURN 1; END $$;
  CREATE TABLE public.avatars (id serial PRIMARY KEY, object uuid REFERENCES storage.objects);
  CREATE INDEX ON public.avatars (spy(object)); CREATE INDEX ON public.avatars ((spy('00000000-0000-0000-0000-000000000000'::uuid) + id));
  CREATE STATISTICS st ON (spy(object)), id FROM public.avatars;
  INSERT INTO public.avatars (object) SELECT id FROM storage.objects WHERE name = 'kept';
  CREATE FUNCTION public.emptied() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'truncated'; END $$;
  CREATE TRIGGER emptied BEFORE TRUNCATE ON public.avatars EXECUTE FUNCTION emptied(); ALTER TABLE public.avatars ENABLE ALWAYS TRIGGER emptied;
  CREATE VIEW public.names AS SELECT name FROM storage.objects; CREATE MATERIALIZED VIEW public.counted AS SELECT count(*) FROM avatars;
  CREATE TABLE public.parts (id int) PARTITION BY RANGE (id); CREATE TABLE public.parts_1 PARTITION OF public.parts FOR VALUES FROM (0) TO (10); INSERT INTO parts VALUES (1);
  ALTER TABLE public.parts ADD PRIMARY KEY (id); CREATE TABLE public.of_parts (id int REFERENCES parts); INSERT INTO of_parts VALUES (1);
  CREATE SCHEMA supabase_migrations; CREATE TABLE supabase_migrations.schema_migrations (version text); INSERT INTO supabase_migrations.schema_migrations VALUES ('1');
  SELECT lo_from_bytea(0, 'secret'); ANALYZE public.avatars`

test('a prepared copy loses what belongs to its parent, and runs no code of the owner as a superuser', async () => {
  const source = await testInstance()
  made.push(source)
  await source.admin.rows(OWNER)
  await as(source, 'supabase_admin', STORAGE)
  await as(source, 'postgres', 'CREATE DATABASE other')
  await as(source, 'postgres', `${SPIES}`)
  // An owner can put a foreign table where the storage server has its own.
  await rows(
    source,
    `CREATE EXTENSION postgres_fdw; CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '/nowhere');
     CREATE USER MAPPING FOR supabase_admin SERVER elsewhere;
     CREATE FOREIGN TABLE pgbouncer.removed_versions (version text) SERVER elsewhere`,
  )
  await rows(source, `CREATE SUBSCRIPTION s CONNECTION 'host=/nowhere' PUBLICATION p WITH (connect = false)`)
  await as(source, 'cli_login_abcdefgh', 'CREATE TABLE public.by_login (id int)')
  await rows(
    source,
    `ALTER DATABASE postgres SET default_transaction_read_only = on; ALTER ROLE postgres SET default_transaction_read_only = on;
     ALTER ROLE postgres SET lock_timeout = '7s'`,
  )

  const whole = await copyOf(source)
  await prepareCopy(whole, { data: true })
  await prepareCopy(whole, { data: true })
  expect(await rows(whole, 'SELECT name FROM storage.objects')).toEqual([{ name: 'kept' }])
  expect(await rows(whole, 'SELECT id FROM storage.buckets')).toEqual([{ id: 'b' }])
  expect(await rows(whole, 'SELECT FROM pgbouncer.used_tokens')).toEqual([])
  expect((await as(whole, 'postgres', 'SELECT FROM avatars')).rowCount).toBe(1)
  expect(await rows(whole, 'SELECT FROM pg_subscription')).toEqual([])
  expect(await rows(whole, `SELECT FROM pg_roles WHERE rolname ~ '_login_'`)).toEqual([])
  expect(await rows(whole, `SELECT tableowner FROM pg_tables WHERE tablename = 'by_login'`)).toEqual([
    { tableowner: 'postgres' },
  ])
  await as(whole, 'postgres', 'INSERT INTO public.of_parts VALUES (1)')
  await expect(rows(whole, 'DELETE FROM storage.objects')).rejects.toThrow('no')
  await expect(as(whole, 'postgres', 'TRUNCATE public.avatars')).rejects.toThrow('truncated')
  await expect(as(whole, 'postgres', 'DELETE FROM storage.objects')).rejects.toThrow('permission denied')

  const schema = await copyOf(source)
  await prepareCopy(schema, { data: false })
  await prepareCopy(schema, { data: false })
  const settings = `SELECT setconfig FROM pg_db_role_setting WHERE setrole = 'postgres'::regrole`
  for (const copy of [whole, schema]) expect(await rows(copy, settings)).toEqual([{ setconfig: ['lock_timeout=7s'] }])
  const count = `SELECT (SELECT count(*) FROM parts)::int + (SELECT count(*) FROM of_parts)::int
    + (SELECT count(*) FROM storage.objects)::int + (SELECT count(*) FROM storage.buckets)::int + (SELECT count(*) FROM pg_largeobject)::int
    + (SELECT count(*) FROM pg_stats WHERE schemaname = 'public')::int AS rows, (SELECT count(*) FROM supabase_migrations.schema_migrations)::int AS migrations,
    (SELECT count(*) FROM pg_database)::int AS databases, (SELECT bool_or(relispopulated) FROM pg_class WHERE relkind = 'm') AS populated,
    nextval('public.avatars_id_seq')::int AS next`
  expect((await as(schema, 'postgres', 'SELECT FROM avatars')).rowCount).toBe(0)
  expect(await rows(schema, count)).toEqual([{ rows: 0, migrations: 1, databases: 3, populated: false, next: 1 }])
  await expect(as(schema, 'postgres', 'INSERT INTO public.of_parts VALUES (1)')).rejects.toThrow('foreign key')
})
