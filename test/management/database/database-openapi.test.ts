import { Validator } from '@seriousme/openapi-schema-validator'
import { beforeAll, describe, expect, it } from 'vitest'
import { adminClient } from '../../instances.ts'
import { type Caller, newApp, newMember, newOrganization, type TestOrganization, unhurried } from '../../support/api.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'
import { SCHEMA } from '../../support/types-schema.ts'

const path = (ref: string, query = '') => `/v1/projects/${ref}/database/openapi${query}`

const SHOP = `
  create schema shop;
  comment on schema shop is E'The shop\\n\\nAll that is sold';
  create type shop.size as enum ('small', 'large');
  create domain shop.code as varchar(5) default 'none';
  create domain shop.short_code as shop.code;
  create table shop.brands (id int primary key, name text not null);
  create table shop.goods (
    id bigint generated always as identity primary key,
    brand int references shop.brands,
    name varchar(80) not null default 'it''s new',
    size shop.size not null default 'small',
    sizes shop.size[],
    code shop.short_code,
    price numeric default 9.5,
    stock int not null default -1,
    huge bigint default 9223372036854775807,
    sold boolean default false,
    tags text[] default '{}',
    more jsonb default '{"a": [1]}',
    at timestamptz not null default now(),
    upper text generated always as (upper(name)) stored
  );
  comment on table shop.goods is E'Goods\\nWhat is for sale';
  comment on column shop.goods.brand is 'Who makes it';
  comment on column shop.goods.price is 'In euros';
  create view shop.offers as select id as offer, brand, name from shop.goods;
  create materialized view shop.counts as select brand, count(*) as n from shop.goods group by brand;
  create table shop.sales (at date not null) partition by range (at);
  create table shop.sales_2026 partition of shop.sales for values from ('2026-01-01') to ('2027-01-01');
  create function shop.find(part text, most int default 10, variadic sizes shop.size[] default '{}') returns setof shop.goods
    language sql stable as 'select * from shop.goods';
  comment on function shop.find is E'Find goods\\nBy a part of the name';
  create function shop.buy(good bigint, note json) returns void language sql as '';
  create function shop.take(jsonb) returns void language sql stable as '';
  create function shop.nothing() returns int language sql immutable as 'select 1';
  create function shop.unnamed(int, int) returns int language sql as 'select 1';
  create function shop.computed(shop.goods) returns text language sql as 'select 1';
  create function shop.on_change() returns trigger language plpgsql as 'begin return new; end';
  create procedure shop.do_it() language sql as '';
  create aggregate shop.total(int) (sfunc = int4pl, stype = int)`

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = unhurried(organization.owner)
  expect(await runSql(owner(), ref, SHOP)).toMatchObject({ status: 201 })
})

const refs = (...names: string[]) => names.map((name) => ({ $ref: `#/parameters/${name}` }))
const documentOf = async (schema: string, project = ref) => {
  const reply = await owner().get(path(project, `?schema=${encodeURIComponent(schema)}`))
  expect(reply).toMatchObject({ status: 200 })
  return reply.body
}

describe('GET /v1/projects/{ref}/database/openapi', () => {
  it('accepts domains over arrays of types of its own', async () => {
    await runSql(
      owner(),
      ref,
      `create schema moody; create type moody.mood as enum ('a'); create domain moody.moods as moody.mood[];
       create table moody.days (moods moody.moods);
       create function moody.find(wanted moody.moods) returns int language sql as 'select 1'`,
    )
    const { definitions, paths } = await documentOf('moody')
    expect(definitions.days.properties).toEqual({ moods: { format: 'moody.moods', type: 'string' } })
    const [body] = paths['/rpc/find'].post.parameters
    expect(body.schema.properties).toEqual({ wanted: { format: 'moody.moods', type: 'string' } })
  })

  it('describes a schema as PostgREST does', async () => {
    await runSql(owner(), ref, `create schema small; create table small.notes (id int primary key, text text not null)`)
    const { paths, parameters, ...document } = await documentOf('small')
    const media = [
      'application/json',
      'application/vnd.pgrst.object+json;nulls=stripped',
      'application/vnd.pgrst.object+json',
    ]
    expect(document).toEqual({
      swagger: '2.0',
      info: { title: 'small schema', description: '', version: '1.0' },
      consumes: [...media, 'text/csv'],
      produces: [...media, 'text/csv'],
      definitions: {
        notes: {
          required: ['id', 'text'],
          type: 'object',
          properties: {
            id: { description: 'Note:\nThis is a Primary Key.<pk/>', format: 'integer', type: 'integer' },
            text: { format: 'text', type: 'string' },
          },
        },
      },
      externalDocs: { description: 'PostgREST Documentation', url: expect.stringContaining('postgrest.org') },
    })
    const filters = ['rowFilter.notes.id', 'rowFilter.notes.text']
    const rows = { description: 'OK', schema: { type: 'array', items: { $ref: '#/definitions/notes' } } }
    expect(Object.keys(paths)).toEqual(['/', '/notes'])
    expect(paths['/notes']).toEqual({
      get: {
        tags: ['notes'],
        parameters: refs(...filters, 'select', 'order', 'range', 'rangeUnit', 'offset', 'limit', 'preferCount'),
        responses: { 200: rows, 206: { description: 'Partial Content' } },
      },
      post: {
        tags: ['notes'],
        parameters: refs('body.notes', 'select', 'preferPost'),
        responses: { 201: { description: 'Created' } },
      },
      delete: {
        tags: ['notes'],
        parameters: refs(...filters, 'preferReturn'),
        responses: { 204: { description: 'No Content' } },
      },
      patch: {
        tags: ['notes'],
        parameters: refs(...filters, 'body.notes', 'preferReturn'),
        responses: { 204: { description: 'No Content' } },
      },
    })
    expect(parameters).toMatchObject({
      'body.notes': { name: 'notes', in: 'body', required: false, schema: { $ref: '#/definitions/notes' } },
      'rowFilter.notes.id': { name: 'id', required: false, in: 'query', type: 'string' },
      select: { name: 'select', in: 'query' },
      rangeUnit: { name: 'Range-Unit', in: 'header', default: 'items' },
    })
  })

  it('describes columns as the database does', async () => {
    const { definitions, info, parameters, paths } = await documentOf('shop')
    expect(info).toEqual({ title: 'The shop', description: 'All that is sold', version: '1.0' })
    expect(paths['/goods'].get).toMatchObject({ summary: 'Goods', description: 'What is for sale' })
    expect(parameters['rowFilter.goods.price']).toMatchObject({ name: 'price', description: 'In euros' })
    expect(definitions.goods).toEqual({
      description: 'Goods\nWhat is for sale',
      required: ['id', 'name', 'size', 'stock', 'at'],
      type: 'object',
      properties: {
        id: { description: 'Note:\nThis is a Primary Key.<pk/>', format: 'bigint', type: 'integer' },
        brand: {
          description: "Who makes it\n\nNote:\nThis is a Foreign Key to `brands.id`.<fk table='brands' column='id'/>",
          ...{ format: 'integer', type: 'integer' },
        },
        name: { default: "it's new", format: 'character varying', type: 'string', maxLength: 80 },
        size: { default: 'small', enum: ['small', 'large'], format: 'shop.size', type: 'string' },
        sizes: { format: 'shop.size[]', type: 'array', items: { type: 'string' } },
        code: { default: 'none', format: 'character varying', type: 'string', maxLength: 5 },
        price: { default: 9.5, description: 'In euros', format: 'numeric', type: 'number' },
        stock: { default: -1, format: 'integer', type: 'integer' },
        huge: { format: 'bigint', type: 'integer' },
        sold: { default: false, format: 'boolean', type: 'boolean' },
        tags: { format: 'text[]', type: 'array', items: { type: 'string' } },
        more: { default: { a: [1] }, format: 'jsonb' },
        at: { default: 'now()', format: 'timestamp with time zone', type: 'string' },
        upper: { format: 'text', type: 'string' },
      },
    })
  })

  it('gives views the keys of their tables, and the write methods only if they can be written', async () => {
    const { definitions, paths } = await documentOf('shop')
    const tables = Object.keys(paths).filter((name) => !name.startsWith('/rpc'))
    expect(tables).toEqual(['/', '/brands', '/counts', '/goods', '/offers', '/sales'])
    expect(Object.keys(paths['/counts'])).toEqual(['get'])
    expect(Object.keys(paths['/offers'])).toEqual(['get', 'post', 'delete', 'patch'])
    expect(definitions.offers).not.toHaveProperty('required')
    expect(definitions.offers.properties).toMatchObject({
      offer: { description: 'Note:\nThis is a Primary Key.<pk/>' },
      brand: { description: expect.stringContaining("<fk table='brands' column='id'/>") },
    })
  })

  it('has the functions that can be called, by GET if they change nothing', async () => {
    const { paths } = await documentOf('shop')
    const functions = Object.entries(paths as Record<string, object>).filter(([name]) => name.startsWith('/rpc/'))
    expect(functions.map(([name, methods]) => [name, Object.keys(methods)])).toEqual([
      ['/rpc/buy', ['post']],
      ['/rpc/find', ['get', 'post']],
      ['/rpc/nothing', ['get', 'post']],
      ['/rpc/take', ['post']],
    ])
    const sizes = { format: 'shop.size[]', type: 'array', items: { type: 'string' } }
    expect(paths['/rpc/find']).toMatchObject({
      get: {
        ...{ tags: ['(rpc) find'], summary: 'Find goods', description: 'By a part of the name' },
        parameters: [
          { name: 'part', in: 'query', required: true, type: 'string', format: 'text' },
          { name: 'most', in: 'query', required: false, type: 'integer', format: 'integer' },
          { name: 'sizes', in: 'query', required: false, ...sizes, collectionFormat: 'multi' },
        ],
      },
      post: {
        parameters: [
          {
            ...{ name: 'args', in: 'body', required: true },
            schema: {
              required: ['part'],
              type: 'object',
              properties: {
                part: { format: 'text', type: 'string' },
                most: { format: 'integer', type: 'integer' },
                sizes,
              },
            },
          },
        ],
        responses: { 200: { description: 'OK' } },
      },
    })
    expect(paths['/rpc/take'].post.parameters[0].schema).toEqual({ format: 'jsonb' })
    expect(paths['/rpc/buy'].post.parameters[0].schema.properties.note).toEqual({ format: 'json' })
  })

  it('is a valid document, of the schema public unless another is requested, whatever the names', async () => {
    const project = await newProject(organization)
    expect(await runSql(owner(), project, SCHEMA)).toMatchObject({ status: 201 })
    await runSql(owner(), project, `create table public.odd ("__proto__" int, "a/b~c %" text)`)
    const { body } = await owner().get(path(project))
    expect(await new Validator().validate(structuredClone(body))).toEqual({ valid: true })
    expect(Object.keys(body.definitions)).toEqual(expect.arrayContaining(['__proto__', 'users', 'Weird Table; --']))
    expect(Object.keys(body.definitions.odd.properties)).toEqual(['__proto__', 'a/b~c %'])
    expect(body.paths['/odd'].get.parameters).toEqual(
      expect.arrayContaining(refs('rowFilter.odd.__proto__', 'rowFilter.odd.a~1b~0c%20%25')),
    )
    expect(await documentOf('public', project)).toEqual(body)
  })

  it.each(['nowhere', 'pg_catalog', 'information_schema', "public'; drop schema shop cascade; --"])(
    'refuses %s, which is not a schema of the database',
    async (schema) => {
      expect(await owner().get(path(ref, `?schema=${encodeURIComponent(schema)}`))).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('query.schema: must be a schema of the database') },
      })
    },
  )

  it.each(['', 'x'.repeat(257)])('refuses an impossible name (%#)', async (schema) => {
    const reply = await owner().get(path(ref, `?schema=${schema}`))
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('query.schema') } })
  })

  it('reports a table that is locked for long, and a description that is too large', async () => {
    const project = await newProject(organization)
    const client = ownerClient(project)
    await client.connect()
    await client.query('create view locked as select 1 as n')
    await client.query('begin; lock table locked')
    const locked = await owner().get(path(project))
    expect(locked).toMatchObject({ status: 400, body: { message: expect.stringContaining('longer than allowed') } })
    await client.query('rollback')
    await client.query(`do $$ begin
      execute (select format('create type wide as enum (%s)', string_agg(quote_literal('a value that is rather long ' || n), ', '))
        from generate_series(1, 1500) as n);
      execute (select format('create table many (%s)', string_agg('c' || n || ' wide', ', ')) from generate_series(1, 1000) as n);
    end $$`)
    await client.end()
    const large = await owner().get(path(project))
    expect(large).toMatchObject({ status: 400, body: { message: expect.stringContaining('at most 16777216') } })
  })

  it('requires the right to read the database', async () => {
    const reader = await newMember(organization, 'read-only')
    const { caller } = await newApp(organization, ['projects:read'])
    const { owner: stranger } = await newOrganization()
    const replies = await Promise.all([reader, caller, stranger].map((one) => one.get(path(ref))))
    expect(replies.map(({ status }) => status)).toEqual([200, 403, 404])
  })

  it('answers 409 for a paused project and 503 for an unreachable one', async () => {
    const project = await newProject(organization)
    const admin = await adminClient(project)
    await admin.query(`alter role supabase_read_only_user nologin`)
    await admin.end()
    expect((await owner().get(path(project))).status).toBe(503)
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    expect((await owner().get(path(project))).status).toBe(409)
  })
})
