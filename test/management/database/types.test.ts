import { execFile } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { adminClient } from '../../instances.ts'
import {
  type Caller,
  newApp,
  newMember,
  newOrganization,
  type Reply,
  type TestOrganization,
  unhurried,
} from '../../support/api.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'
import { SCHEMA } from '../../support/types-schema.ts'

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = unhurried(organization.owner)
  expect(await runSql(owner(), ref, SCHEMA)).toMatchObject({ status: 201 })
})

const path = (query = '', project = ref) => `/v1/projects/${project}/types/typescript${query}`
const OVERLOADS = `do $$ begin for i in 1..300 loop
  execute format('create domain public.d%1$s as int', i);
  execute format('create function public.alike(a public.d%1$s) returns int language sql as ''select 1''', i);
end loop; end $$`

const context = (project = ref) => `/v1/projects/${project}/database/context`
const types = async (query = '', project = ref): Promise<string> => (await owner().get(path(query, project))).body.types

/** Returns tsc's errors about the types and code that uses them; empty if there are none. */
async function complaints(generated: string, use = ''): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-types-'))
  writeFileSync(join(folder, 'database.ts'), generated)
  writeFileSync(join(folder, 'use.ts'), use)
  const compiler = resolve('node_modules/.bin/tsc')
  const options = [
    '--strict',
    '--noEmit',
    '--ignoreConfig',
    '--allowImportingTsExtensions',
    '--target',
    'es2022',
    '--types',
    '',
  ]
  const files = [join(folder, 'database.ts'), join(folder, 'use.ts')]
  const { stdout } = await promisify(execFile)(compiler, [...options, ...files]).catch((error) => error)
  rmSync(folder, { recursive: true })
  return stdout
}

const USE = `
import { type CompositeTypes, Constants, type Database, type Enums, type Json, type Tables, type TablesInsert, type TablesUpdate } from './database.ts'

type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false
type Alike<A, B> = [A, B] extends [B, A] ? true : false
const is = <T extends true>(): T | undefined => undefined

type User = Tables<'users'>
is<Same<User['id'], number>>()
is<Same<User['email'], string>>()
is<Same<User['mood'], 'sad' | 'ok' | 'happy' | null>>()
is<Same<User['moods'], ('sad' | 'ok' | 'happy')[]>>()
is<Same<User['hidden'], 'x' | 'y' | null>>()
is<Same<User['tags'], string[] | null>>()
is<Same<User['must'], number>>()
is<Same<User['full_name'], string | null>>()
is<Same<User['name'], string>>()
is<Same<User['home'], CompositeTypes<'address'> | null>>()
is<Same<Tables<'every_type'>['j_json'], NonNullable<Json>>>()
is<Same<Tables<'every_type'>['k_jsonb'], Json | null>>()
is<Same<Tables<'every_type'>['zc_user'], User | null>>()
is<Same<Tables<'every_type'>['ze_secret'], unknown>>()
is<Same<Tables<'names'>['loud'], string | null>>()
is<Same<Tables<'names_kept'>, { name: string | null }>>()
is<Same<Enums<'hostile'>, '' | 'a"b' | 'back\\\\slash' | 'new\\nline' | 'a|b' | '__proto__'>>()
is<Same<typeof Constants.public.Enums.mood, readonly ['sad', 'ok', 'happy']>>()

const least: TablesInsert<'users'> = { email: 'a@b', must: 1 }
// @ts-expect-error the database makes it
const made: TablesInsert<'users'> = { email: 'a@b', must: 1, id: 1 }
// @ts-expect-error the database generates it
const generated: TablesUpdate<'users'> = { shout: 'A' }
// @ts-expect-error it is not null and has no default
const incomplete: TablesInsert<'users'> = { email: 'a@b' }
const byDefault: TablesInsert<'posts'> = { author_id: 1 }
const change: TablesUpdate<'posts'> = {}
// @ts-expect-error there is no such table
type Missing = Tables<'missing'>
const throughView: Database['public']['Views']['names']['Insert'] = { name: 'n' }
// @ts-expect-error a column that is computed
const loud: Database['public']['Views']['names']['Update'] = { loud: 'N' }
// @ts-expect-error nothing can be written into an aggregate
type Counted = Database['public']['Views']['counts']['Insert']
const instead: Database['public']['Views']['written']['Insert'] = { n: 1 }

type Functions = Database['public']['Functions']
is<Same<Functions['defaults']['Args'], { a?: number; b: string; c?: 'sad' | 'ok' | 'happy' }>>()
is<Same<Functions['defaults']['Returns'], undefined>>()
is<Same<Functions['as_table']['Returns'], { a: number; b: string }[]>>()
is<Same<Functions['outs'], { Args: { a: number; n: number }; Returns: { a: number; b: string } }>>()
is<Same<Functions['scalars']['Returns'], ('sad' | 'ok' | 'happy')[]>>()
is<Same<Functions['variadic_one'], { Args: { numbers: number[] }; Returns: number[] }>>()
is<Same<Functions['many_rows']['Returns'][number]['id'], number>>()
is<Same<Functions['single_row']['SetofOptions']['isOneToOne'], true>>()
is<Same<Functions['posts_of']['SetofOptions']['from'], 'users'>>()
is<Same<Functions['overloaded'], { Args: { a: number }; Returns: number } | { Args: { a: number; b: string }; Returns: string }>>()
is<Functions['rivals']['Returns'] extends { error: true } ? true : false>()
is<Same<Extract<keyof Functions, 'a_procedure' | 'total' | 'ignore' | 'nothing_named'>, never>>()

type Keys<Table extends keyof Database['public']['Tables']> = Database['public']['Tables'][Table]['Relationships']
is<Same<Keys<'profiles'>[number]['isOneToOne'], true>>()
is<Same<Keys<'posts'>[number]['isOneToOne'], false>>()
is<Same<Keys<'pair_notes'>[0]['columns'], ['a', 'b']>>()
is<Same<Keys<'to_far'>, []>>()
is<Alike<Database['public']['Views']['pets']['Relationships'], [Key<'pets_owner_fkey', ['owned_by'], 'owners', ['id']>]>>()

type Views = Database['public']['Views']
type ViewKeys<View extends keyof Views> = Views[View]['Relationships']
interface Key<Name, Columns, Relation, Referenced, OneToOne = false> {
  foreignKeyName: Name
  columns: Columns
  isOneToOne: OneToOne
  referencedRelation: Relation
  referencedColumns: Referenced
}
type Author<Columns, Relation, Referenced> = Key<'posts_author_id_fkey', Columns, Relation, Referenced>
type Authors<Column> = [
  Author<[Column], 'authors', ['again']>, Author<[Column], 'authors', ['author']>,
  Author<[Column], 'names', ['id']>, Author<[Column], 'users', ['id']>,
]
is<Alike<ViewKeys<'drafts'>, Authors<'author_id'>>>()
is<Alike<ViewKeys<'drafts_again'>, Authors<'by {whom} (\\\\)'>>>()
is<Alike<ViewKeys<'posts_kept'>, Authors<'author_id'>>>()
is<Alike<ViewKeys<'whole_key'>, [Key<'pair_notes_a_b_fkey', ['a', 'b'], 'pairs', ['a', 'b'], true>]>>()
is<Alike<[ViewKeys<'half_key'>, ViewKeys<'a_union'>, ViewKeys<'inner_ids'>, ViewKeys<'two_of_two'>], [[], [], [], []]>>()
is<Same<Keys<'profiles'>[number]['referencedRelation'], 'authors' | 'drafts' | 'names' | 'posts' | 'posts_kept' | 'users'>>()
is<Same<Tables<'class'>['new\\nline'], number | null>>()
is<Same<Tables<'Weird Table; --'>, { id: number | null }>>()
export { byDefault, change, generated, incomplete, instead, least, loud, made, throughView, type Counted, type Missing }
`

describe('GET /v1/projects/{ref}/types/typescript', () => {
  it('returns types that compile and match the database', async () => {
    const reply = await owner().get(path())
    expect([reply.status, Object.keys(reply.body)]).toEqual([200, ['types']])
    expect(await complaints(reply.body.types, USE)).toBe('')
  })

  it('writes them in the form of the public generators', async () => {
    const generated = await types()
    expect(generated).toMatch(/^export type Json =\n {2}\| string\n/)
    expect(generated).toContain(`export type Database = {
  __InternalSupabase: {
    PostgrestVersion: "14.0"
  }
  `)
    expect(generated).toContain(`      profiles: {
        Row: {
          picture: string | null
          post_id: string | null
          user_id: number
        }
        Insert: {
          picture?: string | null
          post_id?: string | null
          user_id: number
        }
        Update: {
          picture?: string | null
          post_id?: string | null
          user_id?: number
        }
        Relationships: [
          {
            foreignKeyName: "profiles_post_id_fkey"
            columns: ["post_id"]
            isOneToOne: true
            referencedRelation: "drafts"
            referencedColumns: ["id"]
          },
          {
            foreignKeyName: "profiles_post_id_fkey"
            columns: ["post_id"]
            isOneToOne: true
            referencedRelation: "posts"
            referencedColumns: ["id"]
          },
`)
    expect(generated).toContain(`      mood: "sad" | "ok" | "happy"\n`)
    expect(generated).toContain(`      many_rows: {
        Args: Record<PropertyKey, never>
        Returns: {
`)
    expect(generated).toContain(`        }[]
        SetofOptions: {
          from: "*"
          to: "users"
          isOneToOne: false
          isSetofReturn: true
        }
`)
    expect(generated).toContain(`export const Constants = {
  public: {
    Enums: {
`)
    for (const name of ['Tables', 'TablesInsert', 'TablesUpdate', 'Enums', 'CompositeTypes']) {
      expect(generated).toContain(`export type ${name}<`)
    }
  })

  it('covers the requested schemas, and skips unknown ones', async () => {
    const both = await types('?included_schemas=other,%20public,nowhere,pg_catalog,information_schema')
    expect(both).toContain(`hidden: Database["other"]["Enums"]["hidden"] | null`)
    expect(both).not.toMatch(/nowhere|pg_catalog|information_schema/)
    const use = `
      import type { Enums, Tables } from './database.ts'
      export const far: Tables<{ schema: 'other' }, 'far'> = { id: null, near: 1 }
      export const x: Enums<{ schema: 'other' }, 'hidden'> = 'x'
      export const user: Tables<'users'>['hidden'] = 'y'`
    expect(await complaints(both, use)).toBe('')
  })

  it.each([
    '?included_schemas=nowhere',
    '?included_schemas=',
    '?included_schemas=empty',
    '?included_schemas=extensions',
  ])('compiles for %s, without a public schema', async (query) => {
    await runSql(owner(), ref, 'create schema if not exists empty')
    expect(await complaints(await types(query))).toBe('')
  })

  it('includes a foreign table whose wrapper does nothing', async () => {
    const project = await newProject(organization)
    const admin = await adminClient(project)
    await admin.query(`create foreign data wrapper idle; create server nowhere foreign data wrapper idle;
      create foreign table public.afar (n int) server nowhere`)
    await admin.end()
    expect(await types('', project)).toContain('      afar: {\n        Row: {\n          n: number | null\n')
  })

  it('names a few of many functions that no call can distinguish', async () => {
    const project = await newProject(organization)
    expect(await runSql(owner(), project, OVERLOADS)).toMatchObject({ status: 201 })
    const ambiguities = (await types('', project)).match(/A call cannot tell .*?: rename/g) ?? []
    expect(ambiguities).toHaveLength(300)
    expect(ambiguities[0]?.match(/alike/g)).toHaveLength(10)
    expect(ambiguities.every((text) => text.includes(' and from 290 more: rename'))).toBe(true)
  })

  it('has 16 of the relationships of a view that shows one key in more ways', async () => {
    const project = await newProject(organization)
    const columns = Array.from({ length: 16 }, (_, n) => `c${n} int`).join(', ')
    const names = Array.from({ length: 16 }, (_, n) => `c${n}`)
    const twice = names.map((name) => `${name}, ${name} as again_${name}`).join(', ')
    await runSql(
      owner(),
      project,
      `create table wide (${columns}, primary key (${names}));
       create table wider (${columns}, foreign key (${names}) references wide);
       create view shown_twice as select ${twice} from wider`,
    )
    const [, view = ''] = (await types('', project)).split('      shown_twice: {\n')
    expect(view.match(/foreignKeyName: /g)).toHaveLength(16)
  })

  it('refuses views that have too many relationships', async () => {
    const project = await newProject(organization)
    const viewsOf = (table: string) =>
      `do $$ begin for n in 1..145 loop execute format('create view ${table}_%s as select * from ${table}', n); end loop; end $$`
    await runSql(
      owner(),
      project,
      `create table sites (id int primary key); create table pages (site_id int references sites);
       ${viewsOf('sites')}; ${viewsOf('pages')}`,
    )
    const reply = await owner().get(path('', project))
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('20000 relationships') } })
  })

  it('treats names as values and never as SQL', async () => {
    const query = `?included_schemas=${encodeURIComponent(`public'); drop schema other cascade; --,{a,"b"},"`)}`
    expect(await complaints(await types(query))).toBe('')
    expect(await types('?included_schemas=other')).toContain('near')
  })

  it('refuses names that are too long', async () => {
    expect(await owner().get(path(`?included_schemas=${'x'.repeat(10_001)}`))).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('query.included_schemas') },
    })
  })

  it('reports a table that is locked for long, and types that are too large', async () => {
    const project = await newProject(organization)
    await runSql(owner(), project, 'create view locked as select 1 as n')
    const client = ownerClient(project)
    await client.connect()
    await client.query('begin; lock table locked')
    const locked = await owner().get(path('', project))
    expect(locked).toMatchObject({ status: 400, body: { message: expect.stringContaining('longer than allowed') } })
    await client.query('rollback')
    await client.query(`do $$ begin
      for t in 1..90 loop
        execute (select format('create table wide_%s (%s)', t, string_agg('a_name_of_a_column_that_is_rather_long_' || n || ' int', ', '))
          from generate_series(1, 1500) as n);
      end loop; end $$`)
    await client.end()
    const tooLarge = { status: 400, body: { message: expect.stringContaining('too large') } }
    // On a busy machine, reading so many columns may take longer than allowed.
    await expect.poll(() => owner().get(path('', project))).toMatchObject(tooLarge)
  })

  it.each([
    [
      'a row that many functions return',
      `execute (select format('create table wide (%s)', string_agg('c' || n || ' int', ', ')) from generate_series(1, 1600) as n);
       for n in 1..500 loop execute format('create function f%s() returns setof wide language sql as ''select * from wide''', n); end loop;`,
    ],
    [
      'an enum of another schema that many columns have',
      `create schema far;
       execute (select format('create type far.kind as enum (%s)', string_agg(quote_literal('a rather long value ' || n), ', '))
         from generate_series(1, 1000) as n);
       execute (select format('create table many (%s)', string_agg('c' || n || ' far.kind', ', ')) from generate_series(1, 600) as n);`,
    ],
    [
      'a long default in the arguments of many overloads',
      `for n in 1..300 loop
         execute format('create domain d%1$s as int', n);
         execute format('create function alike(a d%1$s default length(%2$L)) returns int language sql as ''select 1''', n, repeat('x', 10000));
       end loop;`,
    ],
  ])('refuses to repeat %s', async (_, statements) => {
    const project = await newProject(organization)
    const client = ownerClient(project)
    await client.connect()
    await client.query(`do $$ begin ${statements} end $$`)
    await client.end()
    const large = await owner().get(path('', project))
    expect(large).toMatchObject({ status: 400, body: { message: expect.stringContaining('at most 16777216') } })
  })

  it('requires the right to read the database', async () => {
    const reader = await newMember(organization, 'read-only')
    const { caller } = await newApp(organization, ['projects:read'])
    const { owner: stranger } = await newOrganization()
    const replies = await Promise.all([reader, caller, stranger].map((one) => one.get(path())))
    expect(replies.map(({ status }) => status)).toEqual([200, 403, 404])
  })
})

describe('GET /v1/projects/{ref}/database/context', () => {
  it('lists the schemas of the database, without those of Postgres', async () => {
    const { status, body } = await owner().get(context())
    const names = ['extensions', 'other', 'public', 'storage', 'supabase_migrations']
    expect([status, Object.keys(body)]).toEqual([200, ['databases']])
    const [database] = body.databases
    expect(database.name).toBe('postgres')
    expect(database.schemas.map(({ name }: { name: string }) => name)).toEqual(expect.arrayContaining(names))
    expect(JSON.stringify(body)).not.toMatch(/pg_|information_schema/)
  })

  it('reports the errors of a view that hides the catalogue', async () => {
    const project = await newProject(organization)
    const client = ownerClient(project)
    await client.connect()
    await client.query('alter database postgres set search_path = public, pg_catalog')
    const replies: Reply[] = []
    for (const name of ['(1 / 0)::text', `repeat('x', 17000000)`, 'pg_sleep(60)::text']) {
      await client.query(`create or replace view public.pg_namespace as select ${name} as nspname`)
      replies.push(await owner().get(context(project)))
    }
    await client.end()
    const messages = ['division by zero', 'too large', 'longer than allowed']
    expect(replies.map(({ status, body }) => [status, body.message])).toEqual(
      messages.map((message) => [400, expect.stringContaining(message)]),
    )
    for (const at of [path('', project), `/v1/projects/${project}/database/openapi`]) {
      expect(await owner().get(at)).toMatchObject({ status: 400, body: { message: expect.stringContaining('"oid"') } })
    }
  })

  it('is limited to 10 requests a minute and one a second', async () => {
    const member = await newMember(organization, 'developer')
    const start = Math.ceil(Date.now() / 60_000) * 60_000
    const at = (ms: number) => member.at(new Date(start + ms)).get(context())
    expect((await at(0)).status).toBe(200)
    expect((await at(500)).status).toBe(429)
    for (let second = 2; second < 11; second++) expect((await at(second * 1_001)).status).toBe(200)
    expect((await at(15_000)).status).toBe(429)
    expect((await at(61_000)).status).toBe(200)
  })
})

it('answers 409 for a paused project and 503 for an unreachable one', async () => {
  const project = await newProject(organization)
  const replies = () => Promise.all([owner().get(path('', project)), owner().get(context(project))])
  const admin = await adminClient(project)
  await admin.query(`alter role supabase_read_only_user nologin`)
  await admin.end()
  expect((await replies()).map(({ status }) => status)).toEqual([503, 503])
  await organization.owner.post(`/v1/projects/${project}/pause`)
  await untilStatus(organization.owner, project, 'INACTIVE')
  expect((await replies()).map(({ status }) => status)).toEqual([409, 409])
})
