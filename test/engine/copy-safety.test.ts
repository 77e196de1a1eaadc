import { beforeAll, describe, expect, it } from 'vitest'
import {
  asAdmin,
  asOwner,
  clusterAddress,
  leftOf,
  newParent,
  newRef,
  RUNNER_PASSWORD,
  specOf,
  untilIdle,
  useEngine,
  withClient,
} from './copy-projects.ts'

const { engine, cluster } = await useEngine()

const OBJECT = crypto.randomUUID()

/** Notes who runs it, and takes the cluster if it can. */
const EVIL = `
  create table public.seen (place text, login text, role text, super text);
  grant all on public.seen to public;
  create function public.note(place text) returns void language plpgsql as $$
    begin
      if session_user = 'pilothouse_admin' then raise 'taken over by %', place; end if;
      if exists (select from public.seen as s where s.place = note.place and s.login = session_user and s.role = current_user) then return; end if;
      begin insert into public.seen values (place, session_user, current_user, current_setting('is_superuser')); exception when read_only_sql_transaction then null; end;
      begin execute 'reset role'; exception when others then null; end;
      begin execute 'set session authorization default'; exception when others then null; end;
      begin execute format('alter role %I superuser', current_database()); exception when others then null; end;
      begin execute 'set role pilothouse_admin'; execute format('alter role %I superuser', current_database()); exception when others then null; end;
    end $$;
  create function public.evil(place text) returns int language plpgsql immutable as $$ begin perform public.note(place); return 1; end $$;
  create function public.evil_ok(place text) returns boolean language plpgsql immutable as $$ begin perform public.note(place); return true; end $$;
  create function public.evil_trigger() returns trigger language plpgsql as $$ begin perform public.note('trigger'); return coalesce(new, old); end $$;
  create domain public.checked as int check (public.evil_ok('domain'));
  -- Called while an index's page is locked, which the end of a block with exceptions would let go.
  create function public.note_range() returns void language sql as $$
    insert into public.seen select 'range', session_user, current_user, current_setting('is_superuser') where not exists (select from public.seen where place = 'range') $$;
  create function public.difference(a text, b text) returns float8 language plpgsql immutable as $$ begin perform public.note_range(); return 1; end $$;
  create type public.texts as range (subtype = text, subtype_diff = public.difference);
  create table public.traps (
    id int primary key, defaulted int default public.evil('default'), generated int generated always as (public.evil('generated')) stored,
    domain public.checked, many public.checked[], checked int check (public.evil_ok('check')), span public.texts
  );
  create index on public.traps (public.evil('index')) where public.evil_ok('index predicate');
  create index on public.traps using gist (span);
  create statistics public.trap_statistics on (id + public.evil('statistics')), id from public.traps;
  create view public.trap_view as select public.evil('view') as n;
  create materialized view public.trap_matview as select public.evil('matview') as n from public.traps;
  create table public.parted (n int) partition by list ((n * public.evil('partition')));
  create table public.part partition of public.parted for values in (1);
  alter table public.traps enable row level security;
  alter table public.traps force row level security;
  create policy trap on public.traps using (public.evil_ok('policy')) with check (public.evil_ok('policy'));
  create trigger trap after insert or update or delete on public.traps for each row execute function public.evil_trigger();
  alter table public.traps enable always trigger trap;
  create rule trap as on update to public.seen where false do also select public.evil('rule');
  create trigger trap after insert or update or delete or truncate on storage.buckets for each statement execute function public.evil_trigger();
  create trigger trap after insert or update or delete or truncate on storage.objects for each statement execute function public.evil_trigger();
  create trigger trap_row before delete on storage.objects for each row execute function public.evil_trigger();
  alter table storage.objects enable always trigger trap;
  alter table storage.objects enable always trigger trap_row;
  alter table storage.buckets enable always trigger trap;
  create rule trap as on delete to storage.objects do also select public.note('rule');
  alter table storage.objects add constraint trap check (public.evil_ok('stored check'));
  create policy trap on storage.objects using (public.evil_ok('policy'));
  create function public.format(text, variadic text[]) returns text language plpgsql as $$ begin perform public.note('path'); return ''; end $$;
  create function public.format_type(oid, integer) returns text language plpgsql as $$ begin perform public.note('path'); return ''; end $$;
  create function public.pg_get_expr(pg_node_tree, oid) returns text language plpgsql as $$ begin perform public.note('path'); return ''; end $$;
  create function public.same(a name, b text) returns boolean language plpgsql as $$ begin perform public.note('path'); return true; end $$;
  create operator public.= (leftarg = name, rightarg = text, function = public.same);
  create function public.quote_ident(name) returns text language plpgsql as $$ begin perform public.note('path'); return ''; end $$;
  create type public.object_id as enum ('none');
  create function public.to_uuid(public.object_id) returns uuid language plpgsql immutable as $$ begin perform public.note('cast'); return '${OBJECT}'; end $$;
  create cast (public.object_id as uuid) with function public.to_uuid(public.object_id) as implicit;
  create table public.object_ids (id public.object_id references storage.objects (id));
  create table public.object_files (id uuid references storage.objects (id));
  create index on public.object_files (id, public.evil('object index')) where public.evil_ok('object predicate');
  insert into storage.buckets (id, name) values ('a', 'a');
  insert into storage.objects (id, bucket_id, name) values ('${OBJECT}', 'a', 'a');
  alter table public.traps no force row level security;
  insert into public.traps (id, domain, many, checked, span) select g, 1, '{1}', 1, public.texts('a' || g, 'b' || g) from generate_series(1, 400) g;
  alter table public.traps force row level security;
  insert into public.parted values (1); insert into public.object_ids values ('none');
  refresh materialized view public.trap_matview;
  select lo_from_bytea(0, 'x');`

const SETTINGS = (ref: string) => `
  alter database p_${ref} set search_path = public, pg_catalog;
  alter database p_${ref} set role = p_${ref};
  alter role p_${ref} set search_path = public, pg_catalog;
  alter database p_${ref} set check_function_bodies = on`

/** What does run, with the rights of the copy's owner, in the order of names: so it is seen that the traps work. */
const IN_CLONE = ['cast', 'object index', 'object predicate']
const IN_SCHEMA = [
  ...['generated', 'index', 'index predicate', 'matview', 'object index', 'object predicate'],
  ...['partition', 'policy', 'statistics'],
]

describe("what a parent's owner wrote", () => {
  let parent: string
  beforeAll(async () => {
    parent = await newParent(engine, `${EVIL}; truncate public.seen`)
    await withClient(asOwner(parent), (owner) => owner.query(SETTINGS(parent)))
    await untilIdle(parent)
  })

  it('is taken for an event trigger or the input of a type from nobody but a superuser', async () => {
    await withClient(asOwner(parent), async (owner) => {
      await owner.query('create function public.on_event() returns event_trigger language plpgsql as $$ begin end $$')
      await expect(
        owner.query('create event trigger e on ddl_command_start execute function public.on_event()'),
      ).rejects.toMatchObject({
        code: '42501',
      })
      await expect(owner.query('create type public.raw')).rejects.toMatchObject({ code: '42501' })
    })
  })

  it.each([
    ['a clone', false, true, IN_CLONE],
    ['a copy by rows', true, true, [...IN_SCHEMA, 'range']],
    ['a copy of the schema', true, false, IN_SCHEMA],
  ])('never runs with the rights of a superuser, in %s', async (_, used, data, ran) => {
    await untilIdle(parent)
    const copy = newRef()
    const copying = () => engine.copy({ from: parent, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(copy), data })
    await (used ? withClient(asAdmin(`p_${parent}`), copying) : copying())

    const { rows: roles } = await cluster.query(
      `select rolname from pg_roles where rolsuper and rolname ~ '^p_[a-z]{20}'`,
    )
    expect(roles).toEqual([])
    const seenIn = (ref: string) =>
      withClient(asAdmin(`p_${ref}`), async (client) => (await client.query('select * from public.seen')).rows)
    const ofParent = [`p_${parent}`]
    const ofCopy = [`p_${copy}`, `p_${copy}_sql`]
    for (const { login, role, super: isSuper } of [...(await seenIn(parent)), ...(await seenIn(copy))]) {
      expect([...ofParent, ...ofCopy]).toContain(login)
      expect(login.startsWith(`p_${copy}`) ? ofCopy : ofParent).toContain(role)
      expect(isSuper).toBe('off')
    }
    const seen = (await seenIn(copy)).flatMap(({ place, login }) => (ofCopy.includes(login) ? [place] : []))
    expect([...new Set(seen)].sort()).toEqual([...ran].sort())
  })

  it('finds no way from the session that loads rows into what belongs to somebody else', async () => {
    const victim = await newParent(engine, 'create table public.secret as select 1 as n')
    const { host, port } = clusterAddress()
    const address = `host=${host} port=${port} dbname=p_${victim} user=postgres password=postgres`
    const inParent = (sql: string) => `select r from pilothouse_link.fetch('${sql}') as r (r text)`
    const attempts = [
      `select pilothouse_link.connect('${address}')`,
      `select pilothouse_link.execute('${address}', 'select 1')`,
      `select r from pilothouse_link.fetch('${address}', 'select 1') as r (r text)`,
      inParent('select rolpassword from pg_catalog.pg_authid limit 1'),
      inParent('set session authorization postgres'),
      inParent('set role pilothouse_admin'),
      inParent(`set role p_${victim}`),
      'set session authorization postgres',
      'set role pilothouse_admin',
      `set role p_${victim}`,
    ]
    const thief = await newParent(
      engine,
      `create function public.steal() returns int language plpgsql as $$
         declare attempt text; loot text[] := '{}'; what text;
         begin
           if to_regnamespace('pilothouse_link') is null then return 1; end if;
           foreach attempt in array array[${attempts.map((attempt) => `$a$${attempt}$a$`).join(', ')}] loop
             begin
               -- Out of the transaction that reads the parent, which the one before may have broken.
               perform pilothouse_link.execute('rollback');
               execute attempt into what;
               loot := loot || ('taken ' || attempt);
             exception when others then loot := loot || ('refused ' || sqlstate);
             end;
           end loop;
           raise 'loot: %', array_to_string(loot, '; ');
         end $$;
       create function public.once() returns int language plpgsql immutable as $$ begin return public.steal(); end $$;
       create table public.bait (id int, n int generated always as (public.once()) stored);
       insert into public.bait values (1)`,
    )
    const copying = withClient(asOwner(thief), () =>
      engine
        .copy({ from: thief, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(newRef()), data: true })
        .catch(({ message }) => message),
    )
    const outcomes = [...Array(3).fill('42883'), ...Array(7).fill('42501')].map((code) => `refused ${code}`)
    expect(await copying).toBe(`loot: ${outcomes.join('; ')}`)
  })

  it('ends where the definitions are larger than what reads them may hold, and leaves nothing', async () => {
    const parent = await newParent(
      engine,
      `create table public.told ();
       do $do$ begin execute format('comment on table public.told is %L', repeat('x', 40000000)); end $do$`,
    )
    const copy = newRef()
    await expect(
      engine.copy({ from: parent, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(copy), data: false }),
    ).rejects.toMatchObject({ code: '54000', message: expect.stringContaining('definitions and comments') })
    expect(await leftOf(copy)).toEqual([])
  })

  it('cannot keep the way in open: a role that it made something with is left without a login', async () => {
    const thief = await newParent(
      engine,
      `create function public.settle() returns int language plpgsql as $$
         begin
           if to_regnamespace('pilothouse_link') is null then return 1; end if;
           perform pilothouse_link.execute('rollback; begin read write; create table public.settled (); commit');
           raise 'settled';
         end $$;
       create function public.once() returns int language plpgsql immutable as $$ begin return public.settle(); end $$;
       create table public.bait (id int, n int generated always as (public.once()) stored);
       insert into public.bait values (1)`,
    )
    const copy = newRef()
    await withClient(asOwner(thief), async (owner) => {
      await expect(
        engine.copy({ from: thief, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(copy), data: true }),
      ).rejects.toThrow('settled')
      const role = await cluster.query(
        `select rolcanlogin, rolbypassrls, array(select roleid from pg_auth_members where member = pg_roles.oid) as member_of
           from pg_roles where rolname = $1`,
        [`p_${copy}_copy`],
      )
      expect(role.rows).toEqual([{ rolcanlogin: false, rolbypassrls: false, member_of: [] }])
      await owner.query('create or replace function public.settle() returns int language sql return 1')
      await engine.copy({ from: thief, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(copy), data: true })
      await engine.remove(copy)
      expect(await leftOf(copy)).toEqual([`p_${copy}_copy`])
    })
  })
})
