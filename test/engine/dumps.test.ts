import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { runPgDump } from '../../host/upgrades/dump.ts'
import { failure, rows } from '../host/template-instance.ts'
import { type HostEngine, startHostEngine } from './host-engine.ts'

/** Patterns with which `supabase db dump` leaves out schemas of a dump of data, and roles. */
const LEFT_OUT_SCHEMAS =
  'information_schema|pg_*|graphql|graphql_public|pgsodium|pgsodium_masks|pgtle|repack|tiger|tiger_data|timescaledb_*|' +
  '_timescaledb_*|topology|vault|etl|extensions|pgbouncer|realtime|supabase_migrations|_analytics|_realtime|_supavisor'
const LEFT_OUT_ROLES =
  '^(pg_.*|anon|authenticated|authenticator|cli_login_.*|dashboard_user|pgbouncer|postgres|service_role|supabase_.*)$'
/** Settings of all roles that the dump of roles includes. */
const INCLUDED_SETTINGS = '^(pgaudit.*|pgrst.*|session_replication_role|statement_timeout|track_io_timing)='

const SCHEMA = `CREATE TABLE public.profiles (id uuid PRIMARY KEY REFERENCES auth.users (id), name text);
  CREATE TABLE public.orders (id int GENERATED ALWAYS AS IDENTITY, owner uuid REFERENCES public.profiles (id))`
const USER = '11111111-1111-4111-8111-111111111111'
const ROWS = `INSERT INTO auth.users (id, email) VALUES ('${USER}', 'ann@example.com');
  INSERT INTO public.profiles VALUES ('${USER}', 'Ann');
  INSERT INTO public.orders (owner) SELECT '${USER}' FROM generate_series(1, 3);
  INSERT INTO storage.buckets (id, name) VALUES ('b', 'b'); INSERT INTO storage.objects (bucket_id, name) VALUES ('b', 'o')`
const INTERNAL_ROWS = `INSERT INTO pgbouncer.used_tokens VALUES (gen_random_uuid(), now());
  INSERT INTO pgbouncer.removed_versions VALUES (gen_random_uuid())`

let host: HostEngine
beforeAll(async () => {
  host = await startHostEngine()
})
afterAll(() => host?.stop())

it('loads the data of a project, as the CLI dumps it, into another project', async () => {
  const [source, target] = [await host.create(), await host.create()]
  const from = await host.connect(source, 'postgres')
  await from.query(`${SCHEMA}; ${ROWS}`)
  const server = await host.connect(source, 'supabase_storage_admin')
  await server.query(INTERNAL_ROWS)
  const dump = await runPgDump(join(host.host.run, source), [
    ...['--dbname=user=postgres dbname=postgres', '--data-only', '--quote-all-identifier', '--role=postgres'],
    ...['--column-inserts', '--rows-per-insert=100000', '--schema=*', `--exclude-schema=${LEFT_OUT_SCHEMAS}`],
    ...['auth.schema_migrations', 'storage.migrations'].map((table) => `--exclude-table=${table}`),
  ])
  const to = await host.connect(target, 'postgres')
  await to.query(SCHEMA)
  const withoutCommands = dump.replaceAll(/^\\.*$/gm, '')
  await to.query(`SET session_replication_role = replica; ${withoutCommands}; RESET ALL`)
  const contents = `SELECT email, profiles.name, orders.id, objects.name AS object FROM auth.users JOIN public.profiles USING (id)
    JOIN public.orders ON owner = users.id, storage.objects ORDER BY orders.id`
  expect(await rows(to, contents)).toEqual(await rows(from, contents))
  expect(await rows(to, contents)).toHaveLength(3)
  expect(await rows(to, `INSERT INTO public.orders (owner) VALUES ('${USER}') RETURNING id`)).toEqual([{ id: 4 }])
  await Promise.all([from, to, server].map((client) => client.end()))
})

it('has no role or setting in a dump of the roles by the CLI that an owner may not create', async () => {
  const [source, target] = [await host.create(), await host.create()]
  const from = await host.connect(source, 'postgres')
  const to = await host.connect(target, 'postgres')
  expect(await rows(from, `SELECT rolname FROM pg_roles WHERE rolname !~ '${LEFT_OUT_ROLES}'`)).toEqual([])
  const settings = await rows(
    from,
    `SELECT format('ALTER ROLE %I SET %I TO %L', setrole::regrole, split_part(entry, '=', 1), split_part(entry, '=', 2)) AS sql
       FROM pg_db_role_setting, unnest(setconfig) AS entry WHERE setdatabase = 0 AND entry ~ '${INCLUDED_SETTINGS}'`,
  )
  expect(settings).toHaveLength(3)
  for (const { sql } of settings) expect(await failure(to, sql), sql).toBe('succeeded')
  await Promise.all([from, to].map((client) => client.end()))
})
