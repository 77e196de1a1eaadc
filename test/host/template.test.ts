import { execFileSync } from 'node:child_process'
import { chmod, mkdir, mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nextAccount } from '../../host/accounts.ts'
import type { Programs } from '../../host/instances/types.ts'
import { installedPrograms } from '../../host/programs.ts'
import { ensureTemplate } from '../../host/template/template.ts'
import { API_ROLES } from '../../src/engine/roles.ts'
import { failure, rows, startCopy, type TestInstance } from './template-instance.ts'

let root = ''
const versions = await installedPrograms(nextAccount([]))
const newest = versions[0] as Programs

beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), 'pilothouse-templates-'))
})
afterAll(() => rm(root, { recursive: true, force: true }))

const template = (programs: Programs) => ensureTemplate({ root, programs, isDurable: false })

async function size(folder: string): Promise<number> {
  const entries = await readdir(folder, { withFileTypes: true, recursive: true })
  const files = entries.filter((entry) => entry.isFile())
  const sizes = await Promise.all(files.map(async (file) => (await stat(join(file.parentPath, file.name))).size))
  return sizes.reduce((sum, bytes) => sum + bytes, 0)
}

it('finds the programs of both versions, the newest first', () => {
  expect(versions.map(({ major }) => major)).toEqual(['18', '17'])
  expect(newest.version).toMatch(/^18\.\d+$/)
})

it("prefers the operator's programs to those of npm", async () => {
  const using = async (setting: string) => {
    process.env.POSTGRES_PROGRAMS = setting
    return installedPrograms().finally(() => delete process.env.POSTGRES_PROGRAMS)
  }
  const copy = join(root, 'programs')
  await mkdir(join(copy, 'bin'), { recursive: true })
  for (const name of ['postgres', 'initdb']) {
    const script = `#!/bin/sh\necho "${name} (PostgreSQL) 17.99 (Debian)"\n`
    await writeFile(join(copy, 'bin', name), script, { mode: 0o755 })
  }
  const found = await using(`17=${join(copy, 'bin')}`)
  expect(found[1]).toEqual({ major: '17', version: '17.99', bin: join(copy, 'bin') })
  await expect(using(`16=${join(copy, 'bin')}`)).rejects.toThrow('it is version 17.99')
  await expect(using('17=relative/bin')).rejects.toThrow('Invalid POSTGRES_PROGRAMS')
  await expect(using('17=/nowhere')).rejects.toThrow('cannot run initdb and postgres there')
})

it('builds a template once, also for two concurrent callers, and removes leftovers', async () => {
  const major = newest.major
  const gone = execFileSync('sh', ['-c', 'echo $$']).toString().trim()
  const leftovers = [`${major}-0000000000000000`, `${major}-0123456789abcdef.draft-${gone}-x0`]
  for (const name of leftovers) await mkdir(join(root, 'templates', name), { recursive: true })
  const [first, second] = await Promise.all([template(newest), template(newest)])
  expect(first).toBe(second)
  const made = await stat(first)
  expect(await template(newest)).toBe(first)
  expect((await stat(first)).ino).toBe(made.ino)
  expect(await readdir(join(root, 'templates'))).toEqual([expect.stringMatching(/^18-[0-9a-f]{16}$/)])
})

it('leaves nothing of a template whose build fails', async () => {
  const broken = await mkdtemp('/tmp/pilothouse-broken-')
  await chmod(broken, 0o755)
  await writeFile(join(broken, 'initdb'), '#!/bin/sh\nmkdir base; echo broken >&2; exit 1\n', {
    mode: 0o755,
  })
  const other = join(root, 'other')
  const attempt = ensureTemplate({ root: other, programs: { ...newest, bin: broken }, isDurable: true })
  await expect(attempt).rejects.toThrow('initdb failed (exit code 1): broken')
  expect(await readdir(join(other, 'templates'))).toEqual([])
  await rm(broken, { recursive: true })
  const complete = await ensureTemplate({ root: other, programs: newest, isDurable: true })
  expect(await readdir(join(other, 'templates'))).toEqual([complete.split('/').at(-1)])
})

describe.each(versions)('an instance of Postgres $major', (programs) => {
  let instance: TestInstance
  let owner: pg.Client
  let admin: pg.Client

  beforeAll(async () => {
    instance = await startCopy(await template(programs), programs)
    owner = await instance.session('postgres')
    admin = await instance.session('supabase_admin')
  })
  afterAll(() => instance?.stop())

  it('begins with less than 24 MB', async () => {
    const bytes = await size(await template(programs))
    expect(bytes).toBeLessThan(24_000_000)
  })

  it('has the names that clients expect', async () => {
    const found = await rows(
      owner,
      `SELECT rolname, concat_ws(' ', CASE WHEN rolcanlogin THEN 'login' END, CASE WHEN rolsuper THEN 'super' END,
         CASE WHEN rolcreaterole THEN 'createrole' END, CASE WHEN rolcreatedb THEN 'createdb' END,
         CASE WHEN rolreplication THEN 'replication' END, CASE WHEN rolbypassrls THEN 'bypassrls' END,
         CASE WHEN NOT rolinherit THEN 'noinherit' END) AS attributes FROM pg_roles WHERE rolname !~ '^pg_'`,
    )
    expect(Object.fromEntries(found.map(({ rolname, attributes }) => [rolname, attributes]))).toEqual({
      supabase_admin: 'login super createrole createdb replication bypassrls',
      postgres: 'login createrole createdb replication bypassrls',
      anon: '',
      authenticated: '',
      service_role: 'bypassrls',
      authenticator: 'login noinherit',
      dashboard_user: 'createrole createdb replication',
      supabase_storage_admin: 'login',
      supabase_auth_admin: 'login noinherit',
      supabase_read_only_user: 'login bypassrls',
      supabase_realtime_admin: 'noinherit',
      supabase_replication_admin: 'login replication',
    })
    const [database] = await rows(
      owner,
      `SELECT pg_get_userbyid(datdba) AS owner, pg_encoding_to_char(encoding) AS encoding, datlocale AS locale,
         current_setting('search_path') AS path, current_setting('data_checksums') AS checksums,
         (SELECT array_agg(nspname || ' ' || pg_get_userbyid(nspowner) ORDER BY nspname) FROM pg_namespace
           WHERE nspname !~ '^(pg_|information_schema)') AS schemas,
         (SELECT array_agg(extname || ' ' || extnamespace::regnamespace ORDER BY extname) FROM pg_extension) AS extensions
        FROM pg_database WHERE datname = 'postgres'`,
    )
    expect(database).toEqual({
      owner: 'postgres',
      encoding: 'UTF8',
      locale: 'C.UTF-8',
      path: '"$user", public, extensions',
      checksums: 'on',
      schemas: [
        'auth supabase_admin',
        'extensions postgres',
        'pgbouncer supabase_admin',
        'public pg_database_owner',
        'storage supabase_admin',
        'supabase_migrations postgres',
      ],
      extensions: [
        'pg_stat_statements extensions',
        'pgcrypto extensions',
        'plpgsql pg_catalog',
        'uuid-ossp extensions',
      ],
    })
    const storage = await instance.session('supabase_storage_admin')
    expect(await rows(storage, 'SHOW search_path')).toEqual([{ search_path: 'pg_catalog' }])
    const reader = await instance.session('supabase_read_only_user')
    expect(await failure(reader, 'CREATE TABLE public.t ()')).toMatch(/^25006/)
    expect(await rows(reader, 'SELECT count(*)::int FROM auth.users')).toEqual([{ count: 0 }])
  })

  it('lets the owner work as on the hosted service', async () => {
    for (const statement of [
      'CREATE TABLE public.notes (id int PRIMARY KEY, owner uuid REFERENCES auth.users (id))',
      'SELECT extensions.uuid_generate_v4(), extensions.gen_salt($$bf$$), calls FROM pg_stat_statements LIMIT 1',
      'SELECT extensions.pg_stat_statements_reset()',
      'CREATE POLICY mine ON storage.objects FOR SELECT TO authenticated USING (owner_id = auth.uid()::text)',
      'ALTER POLICY mine ON storage.objects USING (true)',
      'DROP POLICY mine ON storage.objects',
      'CREATE POLICY users ON auth.users FOR SELECT TO authenticated USING (id = auth.uid())',
      'CREATE FUNCTION public.handle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$',
      'CREATE TRIGGER handle AFTER INSERT ON auth.users FOR EACH ROW EXECUTE FUNCTION public.handle()',
      'CREATE TRIGGER handle AFTER INSERT ON storage.objects FOR EACH ROW EXECUTE FUNCTION public.handle()',
      'DROP TRIGGER handle ON storage.objects',
      `COMMENT ON TABLE storage.objects IS 'files'`,
      'CREATE ROLE reporter LOGIN',
      'GRANT SELECT ON storage.objects TO reporter',
      'GRANT USAGE ON SCHEMA storage TO reporter',
      'REVOKE SELECT ON storage.objects FROM reporter',
      'REVOKE ALL ON storage.buckets FROM anon',
      'GRANT reporter TO authenticator',
      'GRANT authenticated TO reporter',
      'GRANT anon TO postgres',
      ...[...API_ROLES, 'authenticator'].flatMap((role) => [
        `ALTER ROLE ${role} SET statement_timeout = '10s'`,
        `ALTER ROLE ${role} IN DATABASE postgres SET work_mem = '8MB'`,
        `ALTER ROLE ${role} IN DATABASE postgres RESET work_mem`,
        `ALTER ROLE ${role} RESET statement_timeout`,
      ]),
      ...['db_pre_request', 'db_aggregates_enabled', 'db_plan_enabled', 'openapi_mode'].flatMap((name) => [
        `ALTER ROLE authenticator SET pgrst.${name} = 'true'`,
        `ALTER ROLE authenticator RESET pgrst.${name}`,
      ]),
      `NOTIFY pgrst, 'reload config'`,
      `INSERT INTO storage.buckets (id, name) VALUES ('a', 'a')`,
      `INSERT INTO auth.users (id) VALUES ('00000000-0000-0000-0000-000000000001')`,
      'ALTER TABLE public.notes ADD COLUMN file uuid REFERENCES storage.objects (id) ON DELETE SET NULL',
      'CREATE VIEW public.files AS SELECT name FROM storage.objects',
      'ALTER PUBLICATION supabase_realtime ADD TABLE public.notes',
      'ALTER PUBLICATION supabase_realtime ADD TABLE storage.objects',
      'ALTER PUBLICATION supabase_realtime DROP TABLE storage.objects',
      'ALTER TABLE public.notes DROP COLUMN file',
      'DROP TABLE public.notes',
      'DROP FUNCTION public.handle() CASCADE',
      'DROP EXTENSION "uuid-ossp"',
      'CREATE SCHEMA app',
      'CREATE DATABASE another',
      `ALTER DATABASE postgres SET timezone = 'UTC'`,
      'SET session_replication_role = replica',
      'RESET session_replication_role',
      'SET ROLE service_role; RESET ROLE',
      `SET ROLE anon; ALTER ROLE anon SET statement_timeout = '10s'; RESET ROLE`,
      'TRUNCATE storage.objects',
      'DROP SCHEMA public CASCADE',
      'CREATE SCHEMA public',
    ]) {
      await owner.query(statement).catch((error) => expect.soft(`${statement}: ${error.message}`).toBe(''))
    }
  })

  it('grants the API roles what the owner creates, and notifies PostgREST', async () => {
    const heard: unknown[] = []
    const listener = await instance.session('authenticator')
    listener.on('notification', ({ channel, payload }) => heard.push(`${channel} ${payload}`))
    await listener.query('LISTEN pgrst')
    const fresh = await startCopy(await template(programs), programs)
    try {
      const client = await fresh.session('postgres')
      await client.query('CREATE TABLE given (id int)')
      for (const role of API_ROLES) {
        expect(await rows(client, `SELECT has_table_privilege('${role}', 'given', 'INSERT') AS may`)).toEqual([
          { may: true },
        ])
      }
    } finally {
      await fresh.stop()
    }
    await owner.query('CREATE TABLE app.watched (id int); DROP TABLE app.watched')
    await expect.poll(() => heard.length).toBeGreaterThan(0)
    expect(new Set(heard)).toEqual(new Set(['pgrst reload schema']))
  })

  it('lets the owner create the trusted extensions', async () => {
    const available = await rows(
      admin,
      `SELECT name FROM pg_available_extensions WHERE installed_version IS NULL ORDER BY name`,
    )
    const created: string[] = []
    for (const { name } of available) {
      const found = await failure(owner, `BEGIN; CREATE EXTENSION "${name}" CASCADE`)
      if (found === 'succeeded') created.push(name)
    }
    expect(created).toEqual([
      'btree_gin',
      'btree_gist',
      'citext',
      'cube',
      'dict_int',
      'fuzzystrmatch',
      'hstore',
      'intarray',
      'isn',
      'lo',
      'ltree',
      'pg_trgm',
      'pltcl',
      'seg',
      'tablefunc',
      'tcn',
      'tsm_system_rows',
      'tsm_system_time',
      'unaccent',
      'uuid-ossp',
    ])
  })
})
