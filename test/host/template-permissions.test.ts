import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { nextAccount } from '../../host/accounts.ts'
import { installedPrograms } from '../../host/programs.ts'
import { ensureTemplate } from '../../host/template/template.ts'
import { API_ROLES } from '../../src/engine/roles.ts'
import { STORAGE_VERSION, STORAGE_VERSION_QUERY, storageSchema } from '../../src/engine/storage/schema.ts'
import { failure, rows, startCopy, type TestInstance } from './template-instance.ts'

const STATE = `SELECT
  (SELECT jsonb_agg(jsonb_build_array(relname, relkind, relowner::regrole, relrowsecurity, relforcerowsecurity, relpersistence) ORDER BY relname)
     FROM pg_class WHERE relnamespace IN ('storage'::regnamespace, 'auth'::regnamespace, 'pgbouncer'::regnamespace)) AS relations,
  (SELECT jsonb_agg(jsonb_build_array(attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull, atthasdef) ORDER BY attrelid, attnum)
     FROM pg_attribute JOIN pg_class ON oid = attrelid WHERE relnamespace IN ('storage'::regnamespace, 'auth'::regnamespace, 'pgbouncer'::regnamespace)) AS columns,
  (SELECT jsonb_agg(jsonb_build_array(oid::regprocedure, proowner::regrole, md5(prosrc), proconfig, prosecdef, proacl) ORDER BY oid)
     FROM pg_proc WHERE pronamespace IN ('storage'::regnamespace, 'auth'::regnamespace, 'pgbouncer'::regnamespace)) AS functions,
  (SELECT jsonb_agg(jsonb_build_array(tgname, tgrelid::regclass, tgfoid::regprocedure, tgenabled) ORDER BY tgname)
     FROM pg_trigger WHERE NOT tgisinternal) AS triggers,
  (SELECT jsonb_agg(jsonb_build_array(evtname, evtowner::regrole, evtfoid::regproc, evtenabled) ORDER BY evtname) FROM pg_event_trigger) AS event_triggers,
  (SELECT jsonb_agg(jsonb_build_array(nspname, nspowner::regrole) ORDER BY nspname) FROM pg_namespace WHERE nspname IN ('storage', 'auth', 'pgbouncer')) AS schemas,
  (SELECT jsonb_agg(jsonb_build_array(conname, pg_get_constraintdef(oid)) ORDER BY conname) FROM pg_constraint
    WHERE connamespace IN ('storage'::regnamespace, 'auth'::regnamespace, 'pgbouncer'::regnamespace)) AS constraints`

const DENIED = /^(42501|2BP01) /
const TABLE = /^42501 must be owner of table (objects|buckets|users)$/

describe.each(await installedPrograms(nextAccount([])))('an instance of Postgres $major', (programs) => {
  let root: string
  let template: string
  let instance: TestInstance
  let owner: pg.Client
  let admin: pg.Client

  beforeAll(async () => {
    root = await mkdtemp(join(tmpdir(), 'pilothouse-templates-'))
    template = await ensureTemplate({ root, programs, isDurable: false })
    instance = await startCopy(template, programs)
    owner = await instance.session('postgres')
    admin = await instance.session('supabase_admin')
  })
  afterAll(async () => {
    await instance?.stop()
    await rm(root, { recursive: true, force: true })
  })

  it('keeps the objects of the services from the owner', async () => {
    const before = await rows(admin, STATE)
    await owner.query('CREATE SCHEMA IF NOT EXISTS evil; CREATE ROLE evil_role')
    await owner.query(`CREATE FUNCTION evil.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN null; END $$;
      CREATE FUNCTION evil.text(storage.buckettype) RETURNS text LANGUAGE sql RETURN 'evil'`)
    for (const statement of [
      'ALTER TABLE storage.objects DISABLE ROW LEVEL SECURITY',
      'ALTER TABLE storage.objects FORCE ROW LEVEL SECURITY',
      'ALTER TABLE storage.objects DISABLE TRIGGER USER',
      'ALTER TABLE storage.objects RENAME COLUMN name TO other',
      'ALTER TABLE storage.objects ADD COLUMN evil int',
      'ALTER TABLE storage.objects DROP COLUMN metadata CASCADE',
      'ALTER TABLE storage.objects ADD CONSTRAINT evil CHECK (false)',
      `ALTER TABLE storage.objects ALTER COLUMN name SET DEFAULT 'evil'`,
      'ALTER TABLE storage.objects SET UNLOGGED',
      'ALTER TABLE auth.users DISABLE ROW LEVEL SECURITY',
      'DROP TABLE storage.objects CASCADE',
      'DROP TABLE auth.users CASCADE',
      'CREATE RULE evil AS ON INSERT TO storage.objects DO INSTEAD NOTHING',
      'SET session_replication_role = replica; ALTER TABLE storage.objects DISABLE ROW LEVEL SECURITY',
      'DO $$ BEGIN ALTER TABLE storage.objects DISABLE ROW LEVEL SECURITY; END $$',
      'BEGIN; CREATE POLICY p ON storage.objects; ALTER TABLE storage.objects DISABLE ROW LEVEL SECURITY',
    ]) {
      expect.soft(await failure(owner, statement), statement).toMatch(TABLE)
    }
    for (const statement of [
      'ALTER TABLE storage.objects SET SCHEMA evil',
      'ALTER FUNCTION auth.uid() SET SCHEMA evil',
      'ALTER TYPE storage.buckettype SET SCHEMA evil',
      'ALTER TABLE storage.objects RENAME TO other',
      'ALTER TABLE storage.objects DISABLE TRIGGER ALL',
      'CREATE INDEX evil ON storage.objects (owner_id)',
      'ALTER TABLE storage.objects OWNER TO postgres',
      'ALTER TABLE storage.objects OWNER TO evil_role',
      'DROP TABLE pgbouncer.used_tokens',
      'DROP SCHEMA storage CASCADE',
      'DROP SCHEMA pgbouncer CASCADE',
      'ALTER SCHEMA pgbouncer RENAME TO other',
      'CREATE TABLE pgbouncer.evil ()',
      'ALTER TABLE pgbouncer.used_tokens SET SCHEMA evil',
      'ALTER TABLE pgbouncer.schema_changes ADD COLUMN evil int',
      'CREATE TRIGGER evil AFTER INSERT ON pgbouncer.schema_changes FOR EACH ROW EXECUTE FUNCTION evil.nothing()',
      'ALTER SCHEMA storage RENAME TO other',
      'CREATE TABLE storage.evil ()',
      'CREATE FUNCTION storage.evil() RETURNS int LANGUAGE sql RETURN 1',
      'CREATE OR REPLACE FUNCTION storage.filename(name text) RETURNS text LANGUAGE sql RETURN name',
      'ALTER FUNCTION storage.filename(text) SET search_path = evil',
      'ALTER FUNCTION auth.uid() SECURITY DEFINER',
      'DROP FUNCTION auth.uid() CASCADE',
      'DROP FUNCTION storage.remember_deleted() CASCADE',
      'DROP FUNCTION storage.guard_commands() CASCADE',
      'DROP TYPE storage.buckettype CASCADE',
      `ALTER TYPE storage.buckettype ADD VALUE 'EVIL'`,
      'DROP INDEX storage.objects_folded_name',
      'ALTER INDEX storage.objects_folded_name RENAME TO other',
      'ALTER INDEX storage.objects_folded_name SET (fillfactor = 10)',
      'DROP TRIGGER remember_deleted ON storage.objects',
      'ALTER TRIGGER remember_deleted ON storage.objects RENAME TO other',
      'CREATE OR REPLACE TRIGGER remember_replaced AFTER UPDATE ON storage.objects FOR EACH ROW EXECUTE FUNCTION evil.nothing()',
      'DROP EVENT TRIGGER guard_commands',
      'ALTER EVENT TRIGGER guard_drops DISABLE',
      'SET event_triggers = off',
      'ALTER DATABASE postgres SET event_triggers = off',
      'REASSIGN OWNED BY supabase_storage_admin TO postgres',
      'REASSIGN OWNED BY supabase_auth_admin TO postgres',
      'REASSIGN OWNED BY supabase_storage_admin TO evil_role',
      'REASSIGN OWNED BY supabase_storage_admin TO supabase_auth_admin',
      'DROP OWNED BY supabase_storage_admin CASCADE',
      'DROP OWNED BY supabase_auth_admin CASCADE',
      'DROP OWNED BY supabase_admin',
      'REVOKE ALL ON storage.objects FROM supabase_storage_admin',
      'REVOKE ALL ON ALL FUNCTIONS IN SCHEMA storage FROM supabase_storage_admin, PUBLIC',
      'CREATE TABLE evil.child () INHERITS (storage.objects)',
      'CREATE SCHEMA more CREATE TABLE child () INHERITS (auth.users)',
      'CREATE TABLE evil.child (LIKE storage.buckets INCLUDING ALL); ALTER TABLE evil.child INHERIT storage.buckets',
      `CREATE TABLE evil.parent (id uuid NOT NULL, expires_at timestamptz NOT NULL) PARTITION BY RANGE (id);
       ALTER TABLE evil.parent ATTACH PARTITION pgbouncer.used_tokens DEFAULT`,
      'ALTER TRIGGER remember_deleted ON storage.objects DEPENDS ON EXTENSION pgcrypto',
      'CREATE CAST (storage.buckettype AS text) WITH FUNCTION evil.text(storage.buckettype) AS IMPLICIT',
      'CREATE EXTENSION citext SCHEMA storage',
      'CREATE EXTENSION citext SCHEMA evil; ALTER EXTENSION citext SET SCHEMA auth',
      'CREATE EXTENSION citext SCHEMA evil; ALTER EXTENSION citext ADD TABLE storage.objects',
      'CREATE EXTENSION citext SCHEMA evil; ALTER EXTENSION citext ADD FUNCTION auth.uid()',
      'SET ROLE supabase_storage_admin',
      'SET ROLE supabase_auth_admin',
      'SET ROLE supabase_admin',
      'SET SESSION AUTHORIZATION supabase_storage_admin',
      `ALTER ROLE supabase_storage_admin PASSWORD 'evil'`,
      `ALTER ROLE supabase_auth_admin PASSWORD 'evil'`,
      `ALTER ROLE supabase_read_only_user PASSWORD 'evil'`,
      `ALTER ROLE anon SUPERUSER`,
      'GRANT postgres TO anon',
      'ALTER ROLE supabase_read_only_user SET default_transaction_read_only = off',
      'GRANT pg_use_reserved_connections TO evil_role',
      `ALTER ROLE supabase_admin PASSWORD 'evil'`,
      'ALTER ROLE supabase_storage_admin SET search_path = evil',
      'ALTER ROLE postgres SUPERUSER',
      'DROP ROLE anon',
      'GRANT supabase_storage_admin TO evil_role',
      'REVOKE anon FROM supabase_storage_admin GRANTED BY supabase_admin',
      'GRANT pg_write_all_data TO postgres',
      'GRANT pg_execute_server_program TO evil_role',
      `COPY (SELECT 1) TO PROGRAM 'true'`,
      `SELECT pg_read_file('PG_VERSION')`,
      'ALTER SYSTEM SET event_triggers = off',
      'CREATE EVENT TRIGGER evil ON ddl_command_end EXECUTE FUNCTION storage.guard_commands()',
      `COMMENT ON SCHEMA storage IS 'evil'`,
      'DROP DATABASE postgres WITH (FORCE)',
    ]) {
      const found = await failure(owner, statement)
      // A database cannot be dropped by a session in it.
      expect.soft(found, statement).toMatch(statement.startsWith('DROP DATABASE') ? /^55006/ : DENIED)
    }
    await owner.query('CREATE DATABASE elsewhere')
    const elsewhere = await instance.session('postgres', 'elsewhere')
    await elsewhere.query('REASSIGN OWNED BY supabase_storage_admin TO postgres; DROP OWNED BY supabase_storage_admin')
    expect(await failure(elsewhere, 'DROP DATABASE postgres WITH (FORCE)')).toMatch(DENIED)
    expect(await rows(admin, STATE)).toEqual(before)
    expect(await rows(admin, `SELECT rolname FROM pg_authid WHERE rolpassword IS NOT NULL`)).toEqual([])
  })

  it("refuses the same to the sessions of the services, which run the owner's triggers", async () => {
    await owner.query(`CREATE SCHEMA IF NOT EXISTS evil; CREATE FUNCTION evil.escalate() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN ALTER TABLE storage.objects DISABLE ROW LEVEL SECURITY; RETURN new; END $$;
      CREATE TRIGGER escalate AFTER INSERT ON storage.buckets FOR EACH ROW EXECUTE FUNCTION evil.escalate()`)
    const service = await instance.session('supabase_storage_admin')
    const insert = `INSERT INTO storage.buckets (id, name) VALUES ('b', 'b')`
    expect(await failure(service, insert)).toMatch(TABLE)
    await owner.query('DROP TRIGGER escalate ON storage.buckets')
    await service.query(insert)
    for (const role of API_ROLES) await service.query(`SET ROLE ${role}; RESET ROLE`)
    expect(await failure(service, 'SET ROLE postgres')).toMatch(/^42501/)
  })

  it('keeps settings of the database and of roles from the sessions of the superuser and of the storage server', async () => {
    const settings = {
      role: 'anon',
      search_path: 'evil',
      statement_timeout: '1ms',
      default_transaction_read_only: 'on',
    }
    for (const [name, value] of Object.entries(settings))
      await owner.query(`ALTER DATABASE postgres SET ${name} = '${value}'`)
    await owner.query('ALTER DATABASE postgres SET session_replication_role = replica')
    for (const role of [...API_ROLES, 'authenticator']) {
      await owner.query(
        `ALTER ROLE ${role} SET search_path = 'evil'; ALTER ROLE ${role} SET session_replication_role = replica`,
      )
    }
    try {
      for (const role of ['supabase_admin', 'supabase_storage_admin']) {
        const client = await instance.session(role)
        const [found] = await rows(
          client,
          `SELECT current_user AS role, current_setting('search_path') AS path, current_setting('statement_timeout') <> '1ms' AS time,
             current_setting('transaction_read_only') AS read_only, current_setting('session_replication_role') AS replication`,
        )
        expect(found).toEqual({ role, path: 'pg_catalog', time: true, read_only: 'off', replication: 'origin' })
      }
    } finally {
      await admin.query('ALTER DATABASE postgres RESET ALL')
    }
  })

  it('guards every trigger and index that it creates, and can be updated', async () => {
    const pristine = await startCopy(template, programs)
    try {
      const client = await pristine.session('postgres')
      const own = await rows(
        client,
        `SELECT format('DROP TRIGGER %I ON %s', tgname, tgrelid::regclass) AS drop FROM pg_trigger WHERE NOT tgisinternal
         UNION ALL SELECT format('DROP INDEX %s', indexrelid::regclass) FROM pg_index JOIN pg_class ON oid = indexrelid
          WHERE relnamespace IN ('storage'::regnamespace, 'auth'::regnamespace, 'pgbouncer'::regnamespace)`,
      )
      expect(own.length).toBeGreaterThan(15)
      for (const { drop } of own) expect.soft(await failure(client, drop), drop).toMatch(DENIED)
      const superuser = await pristine.session('supabase_admin')
      const before = await rows(superuser, STATE)
      await superuser.query(`COMMENT ON SCHEMA storage IS 'older'`)
      await superuser.query(storageSchema('services').join(';\n'))
      expect(await rows(superuser, STORAGE_VERSION_QUERY)).toEqual([{ version: STORAGE_VERSION }])
      expect(await rows(superuser, STATE)).toEqual(before)
    } finally {
      await pristine.stop()
    }
  })
})
