import { readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Host, startHost } from '../../host/host.ts'
import { callHost } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'

const KEY = 'a key of the test, of enough letters'

/** Everything that acts with the rights of a superuser or of a service, and does not belong to an extension. */
const PRIVILEGED = [
  `select format('%s %s %s %s', proowner::regrole, oid::regprocedure, prosecdef, md5(prosrc)) as each from pg_proc
     where (proowner in (select oid from pg_roles where rolsuper) or pronamespace::regnamespace::text in ('storage', 'auth'))
       and pronamespace::regnamespace::text not in ('pg_catalog', 'information_schema')
       and not exists (select from pg_depend where classid = 'pg_proc'::regclass and objid = pg_proc.oid and deptype = 'e') order by 1`,
  `select format('%s %s %s', tgrelid::regclass, tgname, tgfoid::regproc) as each from pg_trigger join pg_class as c on c.oid = tgrelid
     where not tgisinternal and (relowner in (select oid from pg_roles where rolsuper)
       or (select pronamespace::regnamespace::text from pg_proc where oid = tgfoid) in ('storage', 'auth')) order by 1`,
  `select format('%s %s %s', evtname, evtenabled, evtfoid::regproc) as each from pg_event_trigger order by 1`,
  'select rolname as each from pg_roles where rolsuper order by 1',
  'select version as each from pgbouncer.removed_versions',
]

/** A function for checks that leaves a line in the log of the server if it runs with the rights of a superuser or of a service. */
const WITNESS = `
  CREATE FUNCTION public.witness(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    IF (SELECT bool_or(rolsuper OR rolname = 'supabase_storage_admin') FROM pg_roles
        WHERE rolname IN (session_user, current_user)) THEN
      RAISE LOG 'the attack ran as % in a session of %', current_user, session_user;
    END IF;
    RETURN $1;
  END $$;
  CREATE DOMAIN public.d AS int CHECK (public.witness(VALUE) > 0);`

const ROOT = `CREATE FUNCTION public.root(text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$BEGIN EXECUTE $1; END$$`

/** A table whose rows run `attack` while they are copied. */
const inUpgrade = (attack: string) => `
  CREATE FUNCTION public.attack(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
    IF session_user LIKE 'pilothouse_upgrade_%' THEN ${attack}; END IF;
    RETURN $1;
  END $$;
  CREATE TABLE public.v (n int CHECK (public.attack(n) > 0)); INSERT INTO public.v VALUES (1);`

const EVENT_TRIGGER = `RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER AS 'BEGIN PERFORM public.witness(1); END'`
/** Ignores errors, so that the rest of the upgrade goes on. */
const tolerant = (attack: string) => `BEGIN ${attack}; EXCEPTION WHEN OTHERS THEN RAISE LOG 'failed: %', SQLERRM; END`

const ATTACKS: Record<string, string> = {
  'a line of a comment that resembles a command of psql': `
    CREATE TABLE public.t (a int); COMMENT ON TABLE public.t IS E'abc\\n\\\\restrict';
    COMMENT ON COLUMN public.t.a IS '; ${ROOT}; --'`,
  'such a line in the comment of the database': `
    COMMENT ON DATABASE postgres IS E'abc\\n\\\\restrict';
    ALTER DATABASE postgres SET application_name = '; CREATE ROLE attacker SUPERUSER; --'`,
  'a trigger on a table of the superuser': `
    CREATE FUNCTION public.own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      PERFORM public.witness(1); RETURN new;
    END $$;
    ${inUpgrade(tolerant('CREATE TRIGGER own BEFORE INSERT ON pgbouncer.schema_changes FOR EACH ROW EXECUTE FUNCTION public.own()'))}`,
  'a trigger on a table of the storage server': `
    INSERT INTO storage.buckets (id, name) VALUES ('a', 'a');
    CREATE FUNCTION public.own() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
      PERFORM public.witness(1); RETURN new;
    END $$;
    CREATE FUNCTION public.attack(int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
      IF session_user LIKE 'pilothouse_upgrade_%' THEN
        CREATE TRIGGER own BEFORE INSERT ON storage.buckets FOR EACH ROW EXECUTE FUNCTION public.own();
      END IF;
      RETURN $1;
    END $$;
    CREATE DOMAIN public.attacking AS int CHECK (public.attack(VALUE) > 0);
    CREATE FUNCTION public.f(x public.attacking[] DEFAULT '{1}'::public.attacking[]) RETURNS int LANGUAGE sql AS 'select 1'`,
  'another function for an event trigger': inUpgrade(
    tolerant(`DROP FUNCTION extensions.grant_extension_access() CASCADE;
      CREATE FUNCTION extensions.grant_extension_access() ${EVENT_TRIGGER}`),
  ),
  'another function of the storage schema': inUpgrade(
    tolerant(`CREATE OR REPLACE FUNCTION storage.update_updated_at_column() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
      AS 'BEGIN PERFORM public.witness(1); RETURN new; END'`),
  ),
  'a session as the storage server': inUpgrade(
    tolerant(`PERFORM set_config('role', 'supabase_storage_admin', false), public.witness(1);
      INSERT INTO pgbouncer.removed_versions (version) VALUES ('00000000-0000-4000-8000-000000000000')`),
  ),
  'a domain in the default of an argument': `
    CREATE FUNCTION public.f(x public.d[] DEFAULT '{1}'::public.d[]) RETURNS int LANGUAGE sql AS 'select 1'`,
  'a domain in the body of a function': `
    CREATE PROCEDURE public.f() LANGUAGE sql BEGIN ATOMIC SELECT '{1}'::public.d[]; END`,
  'a function with the name begin': `
    CREATE FUNCTION public.begin() RETURNS int LANGUAGE sql AS 'select 1';
    CREATE TABLE public.parts (n public.d) PARTITION BY LIST (n);
    CREATE TABLE public.part PARTITION OF public.parts FOR VALUES IN (3)`,
  'the name of a role that resembles an owner': `
    CREATE ROLE "x; Owner: supabase_admin"; GRANT "x; Owner: supabase_admin" TO postgres WITH SET TRUE;
    GRANT CREATE ON SCHEMA public TO "x; Owner: supabase_admin";
    CREATE VIEW public.f AS SELECT '{1}'::public.d[] AS n; ALTER VIEW public.f OWNER TO "x; Owner: supabase_admin"`,
  'the name of an object that resembles an owner': `
    CREATE VIEW public."f; Type: VIEW; Schema: storage; Owner: supabase_admin" AS SELECT '{1}'::public.d[] AS n`,
}

describe('an owner who prepares an upgrade', () => {
  let host: Host
  let folder: string
  let created = 0
  beforeAll(async () => {
    folder = await newHostFolder()
    host = await startHost({ folder, key: KEY, isDurable: false })
  })
  afterAll(async () => {
    await host.stop()
    await rm(folder, { recursive: true, force: true })
  })

  const send = (method: string, path: string, body: object) =>
    callHost({ url: host.url, key: KEY }, method, path, { body })

  async function sql(ref: string, text: string) {
    const client = new pg.Client({
      ...{ host: '127.0.0.1', port: host.gatewayPort, user: `postgres.${ref}`, password: 'pw', database: 'postgres' },
    })
    await client.connect()
    await client.query(text).finally(() => client.end())
  }

  it.each(Object.entries(ATTACKS))('gains nothing by %s', async (_, attack) => {
    const ref = String.fromCharCode('a'.charCodeAt(0) + created++).repeat(20)
    await send('PUT', `/instances/${ref}`, { password: 'pw', version: '17' })
    await sql(ref, WITNESS)
    await sql(ref, attack)
    const instance = host.pool.require(ref)
    const privileged = () =>
      instance.withAdmin('postgres', async (admin) => {
        const found: string[] = []
        for (const query of PRIVILEGED)
          for (const { each } of await admin.rows<{ each: string }>(query)) found.push(each)
        return found
      })
    const before = await privileged()
    const logged = readFileSync(instance.paths.log, 'utf8').length
    const reply = await send('POST', `/instances/${ref}/upgrade`, { version: '18' })
    expect([204, 422]).toContain(reply.status)
    await sql(ref, `CREATE TABLE public.later (); CREATE EXTENSION IF NOT EXISTS hstore`)
    await sql(ref, `INSERT INTO storage.buckets (id, name) VALUES ('b', 'b')`)
    const text = readFileSync(instance.paths.log, 'utf8').slice(logged)
    expect(text.split('\n').filter((line) => line.includes('the attack ran'))).toEqual([])
    expect((await privileged()).filter((each) => !before.includes(each))).toEqual([])
  })
})
