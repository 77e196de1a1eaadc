import type { Lint } from '../../src/management/database/advisors/schema.ts'

export interface Case {
  lint: string
  /** The end of the name of its test, after the name of the lint. */
  title: string
  /** SQL that causes the finding. */
  fault: string
  /** SQL that removes the finding. */
  repair: string
  found: Pick<Lint, 'detail' | 'metadata'> & { key: string }
  /** Whether a superuser must run the SQL. */
  admin?: true
}

const table = (name: string, more: object = {}) => ({ schema: 'public', name, type: 'table' as const, ...more })
const view = (name: string) => ({ ...table(name), type: 'view' as const })

/** A name that SQL, patterns and formats could misread. */
const ODD = `od"d .%I's \\ {a,b} $1`
const quoted = `"od""d .%I's \\ {a,b} $1"`

const secured = (name: string, policies: string) =>
  `create table ${name} (id int primary key, owner uuid, org int, "auth.uid()" text); alter table ${name} enable row level security; ${policies}`

export const CASES: readonly Case[] = [
  {
    lint: 'unindexed_foreign_keys',
    title: 'names the key and the numbers of its columns',
    fault: `create table parents (a int, b int, primary key (a, b));
      create table children (id int primary key, b int, a int, constraint of_parent foreign key (a, b) references parents);
      create index half on children (a); create index partly on children (a, b) where id > 0`,
    repair: 'create index whole on children (b, a) include (id)',
    found: {
      detail: 'The foreign key of_parent of the table public.children has no index that begins with its columns.',
      metadata: table('children', { fkey_name: 'of_parent', fkey_columns: [3, 2] }),
      key: 'unindexed_foreign_keys.public.children.of_parent',
    },
  },
  {
    lint: 'no_primary_key',
    title: 'copes with odd names',
    fault: `create table ${quoted} (id int)`,
    repair: `alter table ${quoted} add primary key (id)`,
    found: {
      detail: `The table public.${quoted} has no primary key.`,
      metadata: table(ODD),
      key: `no_primary_key.public.${quoted}`,
    },
  },
  {
    lint: 'no_primary_key',
    title: 'reports a partitioned table and not its partitions',
    fault:
      'create table measured (day int) partition by list (day); create table measured_1 partition of measured for values in (1)',
    repair: 'alter table measured add primary key (day)',
    found: {
      detail: 'The table public.measured has no primary key.',
      metadata: table('measured'),
      key: 'no_primary_key.public.measured',
    },
  },
  {
    lint: 'duplicate_index',
    title: 'includes the index of a constraint, and distinguishes orders and conditions',
    fault: `create table twice (id int primary key, n int, t text); create index twice_a on twice (n);
      create index "twice b" on twice (n); create index twice_c on twice (n desc); create index twice_d on twice (n) where n > 0`,
    repair: 'drop index twice_a',
    found: {
      detail: 'The indexes "twice b", twice_a of the table public.twice are equal. One of them is enough.',
      metadata: table('twice'),
      key: 'duplicate_index.public.twice."twice b".twice_a',
    },
  },
  {
    lint: 'multiple_permissive_policies',
    title: 'counts a policy for all roles for each role',
    fault: secured(
      'shared',
      `create policy everybody on shared using (true); create policy mine on shared for select to authenticated using (true);
       create policy narrow on shared as restrictive for select to authenticated using (true)`,
    ),
    repair: 'drop policy mine on shared',
    found: {
      detail:
        'The table public.shared has 2 permissive policies for SELECT of the role authenticated: everybody, mine.',
      metadata: table('shared'),
      key: 'multiple_permissive_policies.public.shared.authenticated.SELECT',
    },
  },
  {
    lint: 'multiple_permissive_policies',
    title: 'names the role public if the policies are for all roles',
    fault: `create policy one on storage.objects for insert with check (true);
      create policy two on storage.objects for insert with check (true);
      create policy other on storage.objects for select to anon using (true)`,
    repair: 'drop policy one on storage.objects',
    found: {
      detail: 'The table storage.objects has 2 permissive policies for INSERT of the role public: one, two.',
      metadata: { schema: 'storage', name: 'objects', type: 'table' },
      key: 'multiple_permissive_policies.storage.objects.public.INSERT',
    },
  },
  {
    lint: 'auth_rls_initplan',
    title: 'finds a call for each row beside calls that run once',
    fault: secured(
      'owned',
      'create policy own on owned using ((select auth.uid()) = owner and owner in (select auth.uid() from pg_class limit 1))',
    ),
    repair: 'alter policy own on owned using ((select auth.uid()) = owner)',
    found: {
      detail:
        'The policy own of the table public.owned calls current_setting() or a function of the schema auth for each row.',
      metadata: table('owned'),
      key: 'auth_rls_initplan.public.owned.own',
    },
  },
  {
    lint: 'auth_rls_initplan',
    title: 'finds current_setting(), and ignores text that only looks like a call',
    fault: secured('set', `create policy "by' setting" on set with check (org = current_setting('app.org')::int)`),
    repair: `alter policy "by' setting" on set with check (org = (select coalesce(nullif(current_setting('app.org', true), ''), ')')::int)
      and "auth.uid()" <> 'auth.uid() ( '' SELECT' and owner = (select (auth.jwt() ->> 'sub')::uuid))`,
    found: {
      detail: `The policy "by' setting" of the table public.set calls current_setting() or a function of the schema auth for each row.`,
      metadata: table('set'),
      key: `auth_rls_initplan.public.set."by' setting"`,
    },
  },
  {
    lint: 'policy_exists_rls_disabled',
    title: 'ends when row-level security is enabled',
    fault: 'create table unguarded (id int primary key); create policy idle on unguarded using (true)',
    repair: 'alter table unguarded enable row level security',
    found: {
      detail: 'The table public.unguarded has policies, but its row-level security is disabled.',
      metadata: table('unguarded'),
      key: 'policy_exists_rls_disabled.public.unguarded',
    },
  },
  {
    lint: 'rls_enabled_no_policy',
    title: 'ignores the tables of storage',
    fault: secured('sealed', ''),
    repair: 'create policy anyone on sealed using (true)',
    found: {
      detail: 'The table public.sealed has row-level security but no policy.',
      metadata: table('sealed'),
      key: 'rls_enabled_no_policy.public.sealed',
    },
  },
  {
    lint: 'rls_disabled_in_public',
    title: 'reports a table of which the API may read even one column',
    fault: `create table open (id int primary key, n int); revoke all on open from anon, authenticated;
      grant select (n) on open to anon;
      create table closed (id int primary key); revoke all on closed from anon, authenticated; create schema hidden; create table hidden.away (id int primary key);
      grant usage on schema hidden to anon; grant all on hidden.away to anon`,
    repair: 'revoke select (n) on open from anon',
    found: {
      detail: 'The table public.open is open to the API without row-level security.',
      metadata: table('open'),
      key: 'rls_disabled_in_public.public.open',
    },
  },
  {
    lint: 'security_definer_view',
    title: 'accepts every spelling of true',
    fault: `create view definers as select 1 as n; grant select on definers to authenticated;
      create view invokers with (security_invoker = on) as select 1 as n; grant select on invokers to anon`,
    repair: `alter view definers set (security_invoker = 'yes')`,
    found: {
      detail: "The view public.definers is open to the API and reads with its owner's rights.",
      metadata: view('definers'),
      key: 'security_definer_view.public.definers',
    },
  },
  {
    lint: 'materialized_view_in_api',
    title: 'ends when the API may no longer read it',
    fault: 'create materialized view kept as select 1 as n; grant select on kept to anon',
    repair: 'revoke select on kept from anon, authenticated',
    found: {
      detail: 'The materialized view public.kept is open to the API.',
      metadata: { ...table('kept'), type: 'materialized view' },
      key: 'materialized_view_in_api.public.kept',
    },
  },
  {
    lint: 'foreign_table_in_api',
    title: 'ends when the API may no longer reach it',
    fault: `create foreign data wrapper idle; create server nowhere foreign data wrapper idle;
      create foreign table public.afar (n int) server nowhere; grant select on public.afar to anon`,
    repair: 'revoke all on public.afar from anon, authenticated',
    found: {
      detail: 'The foreign table public.afar is open to the API.',
      metadata: { ...table('afar'), type: 'foreign table' },
      key: 'foreign_table_in_api.public.afar',
    },
    admin: true,
  },
  {
    lint: 'auth_users_exposed',
    title: 'finds auth.users behind other views',
    fault: `alter table auth.users disable row level security; create schema inner_part;
      create view inner_part.people as select email from auth.users;
      create view mails as select email from inner_part.people; grant select on mails to anon;
      create view invoked with (security_invoker) as select email from auth.users; grant select on invoked to anon`,
    repair: 'alter view inner_part.people set (security_invoker)',
    found: {
      detail: 'The view public.mails shows rows of auth.users to the roles of the API.',
      metadata: view('mails'),
      key: 'auth_users_exposed.public.mails',
    },
    admin: true,
  },
  {
    lint: 'auth_users_exposed',
    title: 'finds a view that uses the rights of a caller who may read the table',
    fault: 'grant select (email) on auth.users to anon; revoke select on mails from anon, authenticated',
    repair: 'alter table auth.users enable row level security',
    found: {
      detail: 'The view public.invoked shows rows of auth.users to the roles of the API.',
      metadata: view('invoked'),
      key: 'auth_users_exposed.public.invoked',
    },
    admin: true,
  },
  {
    lint: 'function_search_path_mutable',
    title: 'distinguishes overloads, and ignores functions with an SQL-standard body',
    fault: `create function doubled(n int) returns int language plpgsql as 'begin return n * 2; end';
      create function doubled(t text) returns text language plpgsql set search_path = '' as 'begin return t || t; end';
      create function bound(n int) returns int return n + 1`,
    repair: 'alter function doubled(int) set search_path = public',
    found: {
      detail: 'The function public.doubled(n integer) does not set search_path.',
      metadata: { schema: 'public', name: 'doubled', type: 'function' },
      key: 'function_search_path_mutable.public.doubled."n integer"',
    },
  },
  {
    lint: 'extension_in_public',
    title: 'ends when the extension moves to another schema',
    fault: 'alter extension pgcrypto set schema public',
    repair: 'alter extension pgcrypto set schema extensions',
    found: {
      detail: 'The extension pgcrypto is in the schema public.',
      metadata: { schema: 'public', name: 'pgcrypto', type: 'extension' },
      key: 'extension_in_public.pgcrypto',
    },
    admin: true,
  },
  {
    lint: 'rls_references_user_metadata',
    title: 'distinguishes the claim from a column of the same name',
    fault: secured(
      'teams',
      `create policy team on teams using (((select auth.jwt()) -> 'user_metadata' ->> 'org')::int = org)`,
    ),
    repair: `alter policy team on teams using (((select auth.jwt()) -> 'app_metadata' ->> 'org')::int = org);
      create policy own on storage.objects using (user_metadata ->> 'by' = (select auth.jwt()) ->> 'sub')`,
    found: {
      detail: 'The policy team of the table public.teams depends on user metadata.',
      metadata: table('teams'),
      key: 'rls_references_user_metadata.public.teams.team',
    },
  },
  {
    lint: 'unsupported_reg_types',
    title: 'finds domains of arrays, and accepts the types that pg_upgrade accepts',
    fault: `create domain parsers as regconfig[]; create table typed (id int primary key, fine regclass, whole regrole, p parsers)`,
    repair: 'alter table typed drop column p',
    found: {
      detail: 'The column p of the table public.typed is of the type public.parsers.',
      metadata: table('typed'),
      key: 'unsupported_reg_types.public.typed.p',
    },
  },
]
