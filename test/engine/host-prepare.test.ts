import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { API_ROLES } from '../../src/engine/roles.ts'
import { failure, rows } from '../host/template-instance.ts'
import { type HostEngine, startHostEngine } from './host-engine.ts'

let host: HostEngine
beforeAll(async () => {
  host = await startHostEngine()
})
afterAll(() => host?.stop())

const OUTDATED = `COMMENT ON SCHEMA storage IS 'Storage, schema 9'`

async function openProject() {
  const ref = await host.create()
  const open: pg.Client[] = []
  return {
    ref,
    connect: async (role: string, database?: string) => {
      const client = await host.connect(ref, role, database)
      open.push(client)
      return client
    },
    prepare: () => host.engine.prepare({ ref, runnerPassword: '' }),
    close: () => Promise.all(open.map((client) => client.end())),
  }
}

describe('an instance of an earlier version', () => {
  const GRANTEES = `postgres, ${API_ROLES.join(', ')}`
  /** The default privileges of earlier versions on everything that the superuser creates in `public`. */
  const EARLIER_DEFAULTS = ['TABLES', 'SEQUENCES', 'FUNCTIONS'].map(
    (kind) => `ALTER DEFAULT PRIVILEGES FOR ROLE supabase_admin IN SCHEMA public GRANT ALL ON ${kind} TO ${GRANTEES}`,
  )
  const DEFAULTS = `SELECT defaclobjtype FROM pg_default_acl WHERE defaclrole = 'supabase_admin'::regrole`
  /** The owner's and the API roles' rights on objects of extensions that neither the script nor the platform gave them. */
  const RIGHTS = `SELECT objid, privilege_type, grantee::regrole FROM pg_depend
      LEFT JOIN pg_proc ON classid = 'pg_proc'::regclass AND pg_proc.oid = objid
      LEFT JOIN pg_class ON classid = 'pg_class'::regclass AND pg_class.oid = objid, aclexplode(coalesce(proacl, relacl))
    WHERE deptype = 'e' AND grantee <> 0 AND grantor <> grantee AND grantee::regrole::text !~ '^pg_'
      AND NOT is_grantable AND privilege_type <> 'SELECT'`

  it('loses the rights on extensions that an owner could become a superuser with, in all its databases', async () => {
    const { connect, prepare, close } = await openProject()
    const [owner, admin] = [await connect('postgres'), await connect('supabase_admin')]
    await admin.query('CREATE DATABASE another OWNER postgres')
    const another = { owner: await connect('postgres', 'another'), admin: await connect('supabase_admin', 'another') }
    await another.admin.query(EARLIER_DEFAULTS.join(';'))
    await another.owner.query('CREATE EXTENSION dblink SCHEMA public')
    await admin.query([...EARLIER_DEFAULTS, OUTDATED].join(';'))
    await owner.query('CREATE EXTENSION dblink; CREATE EXTENSION ltree; CREATE TABLE mine (id int)')
    await admin.query(`CREATE TABLE public.places (id serial PRIMARY KEY);
      ALTER EXTENSION ltree ADD TABLE public.places; ALTER EXTENSION ltree ADD SEQUENCE public.places_id_seq;
      GRANT SELECT ON public.places TO postgres WITH GRANT OPTION`)
    const connectUnchecked = `SELECT public.dblink_connect_u('dbname=postgres')`
    expect(await failure(owner, connectUnchecked), 'else the test shows nothing').not.toMatch(/^42501/)
    expect(await rows(admin, RIGHTS)).not.toEqual([])

    await prepare()
    for (const session of [admin, another.admin]) {
      expect(await rows(session, RIGHTS)).toEqual([])
      expect(await rows(session, DEFAULTS)).toEqual([])
    }
    for (const session of [owner, another.owner]) {
      expect(await failure(session, connectUnchecked)).toMatch(/^42501 permission denied for function/)
    }
    for (const statement of ['INSERT INTO places DEFAULT VALUES', 'CREATE TABLE t (id int REFERENCES places)']) {
      expect(await failure(owner, statement), statement).toMatch(/^42501 permission denied for table places/)
    }
    await owner.query('SELECT * FROM places')
    await owner.query('SELECT extensions.pg_stat_statements_reset()')
    for (const role of API_ROLES) {
      await owner.query(`SET ROLE ${role}; SELECT * FROM mine; SELECT 'a.b'::ltree @> 'a'; RESET ROLE`)
    }
    await owner.query('CREATE TABLE later (id int); SET ROLE anon; SELECT * FROM later')
    await close()
  })
})

it('of an earlier version gets what the owner needs to change the settings of the roles of the API', async () => {
  const { connect, prepare, close } = await openProject()
  const [owner, admin] = [await connect('postgres'), await connect('supabase_admin')]
  const changes = [...API_ROLES, 'authenticator'].map((role) => `ALTER ROLE ${role} SET statement_timeout = '10s'`)
  await admin.query(`REVOKE ADMIN OPTION FOR ${API_ROLES}, authenticator FROM postgres;
    REVOKE SET OPTION FOR authenticator FROM postgres; ${OUTDATED}`)
  for (const change of changes) expect(await failure(owner, change), change).toMatch(/^42501/)
  await prepare()
  for (const change of changes) expect(await failure(owner, change), change).toBe('succeeded')
  await close()
})

const EARLIER_LAYOUT = `
  ALTER TABLE pgbouncer.removed_versions SET SCHEMA storage; ALTER TABLE pgbouncer.used_tokens SET SCHEMA storage;
  ALTER TABLE pgbouncer.resumable_parts SET SCHEMA storage; ALTER TABLE pgbouncer.resumable_uploads SET SCHEMA storage;
  ALTER TABLE pgbouncer.schema_changes SET SCHEMA storage; DROP SCHEMA pgbouncer;
  CREATE OR REPLACE FUNCTION storage.record_schema_changes() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS
    $$ BEGIN INSERT INTO storage.schema_changes DEFAULT VALUES; END $$;
  CREATE OR REPLACE FUNCTION storage.record_schema_drops() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN END $$;
  CREATE ROLE pilothouse_reader; GRANT SELECT ON storage.objects TO pilothouse_reader;
  CREATE ROLE pilothouse_storage; GRANT INSERT ON storage.used_tokens TO pilothouse_storage;
  GRANT pilothouse_storage TO supabase_storage_admin; REVOKE USAGE ON SCHEMA auth FROM supabase_storage_admin;
  ALTER ROLE supabase_admin SET statement_timeout = 0; ALTER ROLE supabase_storage_admin SET session_replication_role = origin;
  INSERT INTO storage.used_tokens VALUES ('00000000-0000-4000-8000-000000000001', now());
  ${OUTDATED}`

it('of an earlier version gets the internal tables and settings where dumps of the CLI leave them out', async () => {
  const { connect, prepare, close } = await openProject()
  const [owner, admin] = [await connect('postgres'), await connect('supabase_admin')]
  await admin.query(`SET event_triggers = off; ${EARLIER_LAYOUT}`)
  await owner.query('CREATE TABLE before ()')
  await prepare()
  await owner.query('CREATE TABLE after ()')
  expect(await rows(admin, 'SELECT id FROM pgbouncer.used_tokens')).toHaveLength(1)
  expect((await rows(admin, 'SELECT FROM pgbouncer.schema_changes')).length).toBeGreaterThan(1)
  const left = `SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'storage'::regnamespace ORDER BY 1`
  expect((await rows(admin, left)).map(({ relname }) => relname)).toEqual(['buckets', 'objects'])
  expect(await rows(admin, `SELECT rolname FROM pg_roles WHERE rolname ~ '^pilothouse_'`)).toEqual([])
  const server = await connect('supabase_storage_admin')
  expect(await rows(server, 'SHOW statement_timeout')).toEqual([{ statement_timeout: '30s' }])
  await server.query('INSERT INTO pgbouncer.used_tokens VALUES (gen_random_uuid(), now())')
  await server.query('SELECT auth.uid()')
  // An isolate of the earlier version may prepare the database again before it ends.
  await admin.query(`SET event_triggers = off; CREATE TABLE storage.used_tokens (id uuid PRIMARY KEY, expires_at timestamptz);
    INSERT INTO storage.used_tokens SELECT * FROM pgbouncer.used_tokens UNION ALL SELECT gen_random_uuid(), now();
    CREATE TABLE storage.schema_changes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, token uuid NOT NULL); ${OUTDATED}`)
  await prepare()
  expect(await rows(admin, 'SELECT id FROM pgbouncer.used_tokens')).toHaveLength(3)
  await close()
})

it('of an earlier version keeps roles of the owner whose names the platform used', async () => {
  const { connect, prepare, close } = await openProject()
  const [owner, admin] = [await connect('postgres'), await connect('supabase_admin')]
  await owner.query('CREATE ROLE pilothouse_reader')
  await admin.query(OUTDATED)
  await prepare()
  await owner.query('DROP ROLE pilothouse_reader')
  await close()
})

describe('a database that the owner has put in the place of the original', () => {
  it.each(['storage', 'pgbouncer'])(
    "is not prepared with objects of the owner's in the schema %s, whose code would run as the superuser",
    async (schema) => {
      const { connect, prepare, close } = await openProject()
      const owner = await connect('postgres')
      await owner.query('CREATE DATABASE another')
      await owner.query('CREATE DATABASE third')
      const another = await connect('postgres', 'another')
      await another.query(`CREATE SCHEMA ${schema};
      CREATE TABLE ${schema}.schema_changes (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, token uuid NOT NULL);
      CREATE FUNCTION public.escalate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        EXECUTE 'ALTER ROLE postgres SUPERUSER'; RETURN new; END $$;
      CREATE TRIGGER escalate BEFORE INSERT ON ${schema}.schema_changes FOR EACH ROW EXECUTE FUNCTION public.escalate()`)
      await Promise.all([owner.end(), another.end()])
      const third = await connect('postgres', 'third')
      const admin = await connect('supabase_admin', 'third')
      // The owner would wait for a moment without sessions, such as a restart.
      await admin.query(`SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'postgres'`)
      await third.query('ALTER DATABASE postgres RENAME TO original')
      await third.query('ALTER DATABASE another RENAME TO postgres')

      const refusal = await prepare().catch((error) => error.message)
      const superusers = 'SELECT rolname FROM pg_roles WHERE rolsuper'
      expect(await rows(third, superusers)).toEqual([{ rolname: 'supabase_admin' }])
      expect(refusal).toContain(`The schema "${schema}" belongs to the role "postgres"`)

      const swapped = await connect('postgres')
      await swapped.query(`DROP SCHEMA ${schema} CASCADE`)
      await prepare()
      expect(await failure(swapped, `CREATE TABLE ${schema}.mine ()`)).toMatch(/^42501/)
      expect(await rows(third, superusers)).toEqual([{ rolname: 'supabase_admin' }])
      await close()
    },
  )
})
