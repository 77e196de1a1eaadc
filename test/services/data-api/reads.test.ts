import { beforeAll, describe, expect, it } from 'vitest'
import { planRead } from '../../../src/services/data-api/plan/read-plan.ts'
import { parseQuery } from '../../../src/services/data-api/request/query-string.ts'
import type { Introspection } from '../../../src/services/data-api/schema/introspection.ts'
import { loadedSchemaOf } from '../../../src/services/data-api/schema/schema-cache.ts'
import { type Column, keyOf, type SchemaCache, type Table } from '../../../src/services/data-api/schema/types.ts'
import { VERSION } from '../../../src/services/data-api/schema/version.ts'
import { Parameters } from '../../../src/services/data-api/sql/builder.ts'
import { readSql } from '../../../src/services/data-api/sql/read-sql.ts'
import { newDataApi, type TestDataApi, writeOf } from '../../support/data-api.ts'
import { openSql } from '../../support/storage-http.ts'

const SCHEMA = `
  create table authors (id int primary key, name text not null, born date);
  create table books (id int primary key, title text not null, pages int, author_id int references authors, tags text[] default '{}', facts jsonb,
    words tsvector generated always as (to_tsvector('english', title)) stored);
  create table shelves (id int primary key, label text);
  create table shelved (shelf_id int references shelves, book_id int references books, primary key (shelf_id, book_id));
  create table parts (id int primary key, name text, part_of int references parts);
  create view long_books as select id, title, author_id from books where pages > 200;
  create function initials(authors) returns text language sql stable as $$ select left($1.name, 1) $$;
  create function first_book(authors) returns setof books rows 1 language sql stable as
    $$ select * from books where author_id = $1.id order by id limit 1 $$;
  create function numbers() returns setof int language sql stable as 'select generate_series(1, 1500)';
  insert into authors values (1, 'Ada', '1815-12-10'), (2, 'Bo, "the" one', null), (3, 'Cy', '1900-01-01');
  insert into books (id, title, pages, author_id, tags, facts) values
    (1, 'Engines', 300, 1, '{math,old}', '{"isbn": "x1", "sizes": [1, 2]}'), (2, 'Notes', 120, 1, '{old}', null),
    (3, 'The cats', 220, 2, '{}', '{"isbn": null}');
  insert into shelves values (1, 'top'), (2, 'low'), (3, 'empty');
  insert into shelved values (1, 1), (1, 3), (2, 1);
  insert into parts values (1, 'car', null), (2, 'wheel', 1), (3, 'tyre', 2)`

let api: TestDataApi
beforeAll(async () => {
  api = await newDataApi(SCHEMA)
})

const get = async (path: string, headers: Record<string, string> = {}) => (await api.json(path, { headers })).body
const ids = async (query: string) => ((await get(query)) as { id: number }[]).map(({ id }) => id)

describe('the selected columns', () => {
  it('are renamed, cast, read out of JSON, and computed', async () => {
    const select = 'n:name,born::text,initials'
    expect(await get(`/authors?select=${select}&id=eq.1`)).toEqual([{ n: 'Ada', born: '1815-12-10', initials: 'A' }])
    const casts = 'id::Double  Precision,at:born::timestamp without time zone,v:name::character varying'
    expect(await get(`/authors?select=${casts}&id=eq.1`)).toEqual([{ id: 1, at: '1815-12-10T00:00:00', v: 'Ada' }])
    const path = 'facts->>isbn,first:facts->sizes->0,facts->sizes->>-1'
    expect(await get(`/books?select=${path}&id=eq.1`)).toEqual([{ isbn: 'x1', first: 1, sizes: '2' }])
  })
})

it('reads fields of what a function of the row returns, be it a row or JSON', async () => {
  await api.sql(`create type place as (city text); create function place(authors) returns place language sql stable as
      $$ select row(upper($1.name))::place $$;
    create function about(authors) returns json language sql stable as $$ select json_build_object('name', $1.name) $$`)
  const query = 'select=place->>city,about->>name&place->>city=eq.ADA&order=place->>city'
  expect(await get(`/authors?${query}`)).toEqual([{ city: 'ADA', name: 'Ada' }])
})

it('selects as many columns as fit into an address', async () => {
  const fields = Array.from({ length: 900 }, (_, n) => `c${n}:id`)
  const [row] = await get(`/books?id=eq.1&select=${fields}`)
  expect(Object.keys(row).length).toBe(900)
  const failed = await api.json('/books?select=id,😀')
  expect(failed.body.details).toBe('unexpected "😀" expecting field name (* or [a..z0..9_$])')
  const values = Array.from({ length: 600 }, (_, n) => `"${n}"b`)
  expect(await get(`/books?select=id&title=in.(${encodeURI(values.join())})`)).toEqual([])
})

describe('filters', () => {
  it.each([
    ['id=eq.2', [2]],
    ['id=neq.2', [1, 3]],
    ['pages=gt.120&pages=lte.300', [1, 3]],
    ['title=like.*ot*', [2]],
    ['title=ilike.the*', [3]],
    ['title=match.^E', [1]],
    ['title=not.imatch.^e', [2, 3]],
    ['title=like(any).{E*,N*}', [1, 2]],
    ['id=eq(any).{1,3}', [1, 3]],
    ['id=in.(1,"3")', [1, 3]],
    ['id=in.()', []],
    ['facts=is.null', [2]],
    ['facts=is.not_null', [1, 3]],
    ['pages=isdistinct.120', [1, 3]],
    ['tags=cs.{old}', [1, 2]],
    ['tags=cd.{old,new}', [2, 3]],
    ['tags=ov.{math,x}', [1]],
    ['words=fts.cat', [3]],
    ['title=fts(english).engine', [1]],
    ['title=fts.engine', [1]],
    ['title=wfts(english).cats -notes', [3]],
    ['facts->>isbn=eq.x1', [1]],
    ['or=(id.eq.1,and(pages.gt.100,pages.lt.200))', [1, 2]],
    ['not.or=(id.eq.1,title.eq."The cats")', [2]],
    ['and=(id.in.(1,2),not.and(id.eq.1,pages.eq.300))', [2]],
  ])('%s finds %j', async (filter, found) => {
    expect(await ids(`/books?select=id&order=id&${encodeURI(filter)}`)).toEqual(found)
  })

  it('search in text of a domain, and of other types than text, as the query names the language', async () => {
    await api.sql(`create extension citext; create domain prose as text; create table essays (id int primary key, body prose, title citext);
      insert into essays values (1, 'Two cats', 'Two dogs')`)
    expect(await ids('/essays?select=id&body=fts(simple).cats')).toEqual([1])
    expect(await ids('/essays?select=id&title=phfts(simple).two dogs')).toEqual([1])
    expect(await ids('/essays?select=id&title=fts(simple).dog')).toEqual([])
  })

  it('take quoted values as they are', async () => {
    expect(await ids(`/authors?select=id&name=in.(${encodeURIComponent('"Bo, \\"the\\" one"')})`)).toEqual([2])
  })
})

describe('order, limit and count', () => {
  it('sorts by columns with nulls first or last, and by a related column', async () => {
    expect(await ids('/authors?select=id&order=born.desc.nullslast')).toEqual([3, 1, 2])
    expect(await ids('/authors?select=id&order=born.asc.nullsfirst')).toEqual([2, 1, 3])
    expect(await ids('/books?select=id,authors(name)&order=authors(name).desc,id.desc')).toEqual([3, 2, 1])
  })

  it('answers a part of a counted list with 206, its range, and the count', async () => {
    const reply = await api.json('/books?select=id&order=id&limit=2', { headers: { prefer: 'count=exact' } })
    expect([reply.status, reply.headers.get('content-range'), reply.body]).toEqual([
      206,
      '0-1/3',
      [{ id: 1 }, { id: 2 }],
    ])
    expect(reply.headers.get('preference-applied')).toBe('count=exact')
    const ranged = await api.json('/books?select=id&order=id', { headers: { range: '1-1' } })
    expect([ranged.status, ranged.headers.get('content-range'), ranged.body]).toEqual([200, '1-1/*', [{ id: 2 }]])
  })

  it('narrows a Range header to the limit, and refuses one that has no rows in common with it', async () => {
    const ranged = async (query: string, range: string) => {
      const { status, headers, body } = await api.json(`/books?select=id&order=id${query}`, { headers: { range } })
      return [status, body.code ?? headers.get('content-range')]
    }
    expect(await ranged('&limit=2', '1-5')).toEqual([200, '1-1/*'])
    expect(await ranged('&limit=1', '1-2')).toEqual([416, 'PGRST103'])
    expect(await ranged('&offset=2', '0-1')).toEqual([416, 'PGRST103'])
    expect(await ranged('&limit=0', '1-2')).toEqual([200, '*/*'])
    expect(await ranged('', '2000-2001')).toEqual([200, '*/*'])
    expect(await ranged('', 'items=0-0')).toEqual([200, '0-2/*'])
    expect((await api.json('/rpc/numbers', { headers: { range: '1200-1200' } })).body).toEqual([1201])
  })

  it('refuses an offset beyond the counted rows', async () => {
    const reply = await api.json('/books?offset=9', { headers: { prefer: 'count=exact' } })
    expect([reply.status, reply.headers.get('content-range')]).toEqual([416, '*/3'])
    expect(reply.body).toEqual({
      ...{ code: 'PGRST103', message: 'Requested range not satisfiable', hint: null },
      details: 'An offset of 9 was requested, but there are only 3 rows.',
    })
  })

  it('names one address for equal requests', async () => {
    const title = "eq.a b+c!'(é)~*-._/"
    const sorted = new URLSearchParams([
      ['id', 'gt.0'],
      ['id', 'lt.9'],
      ['title', title],
    ])
    const path = `/books?title=${encodeURIComponent(title)}&id=gt.0&id=lt.9`
    const reply = await api.json(`${path}&apikey=${api.keys.service}`)
    expect([reply.status, reply.headers.get('content-location')]).toEqual([200, `/books?${sorted}`])
    expect((await api.json('/books')).headers.get('content-location')).toBe('/books')
  })

  it('answers HEAD without a body', async () => {
    const response = await api.send(api.keys.service, '/books', { method: 'HEAD', headers: { prefer: 'count=exact' } })
    expect([response.status, response.headers.get('content-range'), await response.text()]).toEqual([200, '0-2/3', ''])
  })

  it('estimates a count by the plan', async () => {
    const reply = await api.json('/books?select=id&id=eq.1', { headers: { prefer: 'count=planned' } })
    expect(reply.headers.get('content-range')).toMatch(/^0-0\/\d+$/)
  })
})

describe('embedding', () => {
  it('follows foreign keys in both directions, over junctions and within a table', async () => {
    expect(await get('/books?select=id,author:authors(name)&id=eq.1')).toEqual([{ id: 1, author: { name: 'Ada' } }])
    expect(await get('/authors?select=id,books(id)&books.order=id.desc&order=id')).toEqual([
      { id: 1, books: [{ id: 2 }, { id: 1 }] },
      { id: 2, books: [{ id: 3 }] },
      { id: 3, books: [] },
    ])
    expect(await get('/shelves?select=label,books(id,authors(name))&books.order=id&id=eq.1')).toEqual([
      {
        label: 'top',
        books: [
          { id: 1, authors: { name: 'Ada' } },
          { id: 3, authors: { name: 'Bo, "the" one' } },
        ],
      },
    ])
    expect(await get('/parts?select=name,part_of(name),parts(name)&id=eq.2')).toEqual([
      { name: 'wheel', part_of: { name: 'car' }, parts: [{ name: 'tyre' }] },
    ])
  })

  it('follows the foreign key within a table that a junction links to itself', async () => {
    await api.sql(
      'create table fits (part int references parts, other int references parts, primary key (part, other))',
    )
    expect(await get('/parts?select=name,part_of(name),parts(name)&id=eq.2')).toEqual([
      { name: 'wheel', part_of: { name: 'car' }, parts: [{ name: 'tyre' }] },
    ])
    const linked = await api.json('/parts?select=name,parts!fits(name)')
    expect([linked.status, linked.body.code]).toEqual([400, 'PGRST200'])
  })

  it('takes no table for a junction if one of its keys is unique', async () => {
    await api.sql(`create table tenants (id int primary key);
      create table orders (tenant int references tenants, id int, primary key (tenant, id));
      create table order_details (tenant int references tenants, id int, primary key (tenant, id), foreign key (tenant, id) references orders);
      insert into tenants values (1); insert into orders values (1, 2); insert into order_details values (1, 2)`)
    const related = '/orders?select=id,tenants(id),order_details(id)'
    expect(await get(related)).toEqual([{ id: 2, tenants: { id: 1 }, order_details: { id: 2 } }])
  })

  it('filters, orders and limits embedded rows, and the rows that embed them', async () => {
    const nested = 'books.pages=gt.130&books.limit=1&order=id'
    expect(await get(`/authors?select=id,books(id)&${nested}`)).toEqual([
      { id: 1, books: [{ id: 1 }] },
      { id: 2, books: [{ id: 3 }] },
      { id: 3, books: [] },
    ])
    expect(await ids('/authors?select=id,books!inner(id)&order=id')).toEqual([1, 2])
    expect(await ids('/authors?select=id,books()&books=is.null')).toEqual([3])
    const reply = await api.json('/authors?select=id,books!inner(id)', { headers: { prefer: 'count=exact' } })
    expect(reply.headers.get('content-range')).toBe('0-1/2')
  })

  it('takes quoted names of embedded resources in all parameters', async () => {
    const named = (parameters: string) => get(`/authors?select=id,"b.x":books(id)&id=eq.1&${parameters}`)
    expect(await named('"b.x".order=id.desc')).toEqual([{ id: 1, 'b.x': [{ id: 2 }, { id: 1 }] }])
    expect(await named('"b.x".order=id&"b.x".limit=1&"b.x".offset=1')).toEqual([{ id: 1, 'b.x': [{ id: 2 }] }])
    expect(await named('"b.x".not.or=(id.eq.1,id.eq.9)')).toEqual([{ id: 1, 'b.x': [{ id: 2 }] }])
    expect(await ids('/books?select=id,not:authors(id)&not.and=(id.eq.9)&not.or=(id.eq.8)&order=id')).toEqual([1, 2, 3])
  })

  it('reads related tables whose names differ by a number', async () => {
    await api.sql(`create table items (id int primary key, name text); create table items_1 (id int primary key, item_id int references items);
      create table items_2 (id int primary key, item_1_id int references items_1);
      insert into items values (1, 'a'), (2, 'b'); insert into items_1 values (1, 2); insert into items_2 values (2, 1)`)
    const exact = { headers: { prefer: 'count=exact' } }
    const one = await api.json('/items_1?select=id,items!inner(name)&items.name=eq.b&order=items(name)', exact)
    expect([one.body, one.headers.get('content-range')]).toEqual([[{ id: 1, items: { name: 'b' } }], '0-0/1'])
    const two = await api.json('/items_2?select=id,items_1!inner(items!inner(name))', exact)
    expect([two.body, two.headers.get('content-range')]).toEqual([
      [{ id: 2, items_1: { items: { name: 'b' } } }],
      '0-0/1',
    ])
    expect(await get('/items?select=id,items_1(items_2(items_1(items(id))))&id=eq.2')).toEqual([
      { id: 2, items_1: [{ items_2: [{ items_1: { items: { id: 2 } } }] }] },
    ])
  })

  it('counts rows without reading what is embedded in them', async () => {
    await api.sql(`create function picky(authors) returns setof books rows 1 language plpgsql stable as $$ begin
      if $1.id > 1 then raise exception 'read'; end if; return query select * from books limit 1; end $$`)
    const countOf = async (query: string) => {
      const reply = await api.json(`/authors?select=id,${query}&order=id&limit=1`, {
        headers: { prefer: 'count=exact' },
      })
      return [reply.status, reply.headers.get('content-range')]
    }
    expect(await countOf('picky(id)&id=gte.1')).toEqual([206, '0-0/3'])
    expect(await countOf('books()&books=not.is.null')).toEqual([206, '0-0/2'])
    expect(await countOf('books(),picky(id)&or=(books.is.null,id.eq.1)')).toEqual([206, '0-0/2'])
    expect(await countOf('books!inner(),picky(id)&books.pages=lt.250&id=gte.1')).toEqual([206, '0-0/2'])
  })

  it('counts rows by many filters on embedded rows', async () => {
    const filters = (path: string, name: string) => `${path}and=(${Array(40).fill(`${name}.not.is.null`)})`
    const nested = [filters('', 'a'), filters('a.', 'b'), filters('a.b.', 'c'), filters('a.b.c.', 'd')].join('&')
    const select = 'id,a:authors!inner(b:books(c:authors(d:books(id))))'
    const reply = await api.json(`/books?select=${select}&${nested}`, { headers: { prefer: 'count=exact' } })
    expect([reply.status, reply.headers.get('content-range')]).toEqual([200, '0-2/3'])
    const opposite = await api.json('/authors?select=books()&or=(books.is.null,books.not.is.null)', {
      headers: { prefer: 'count=exact' },
    })
    expect(opposite.headers.get('content-range')).toBe('0-2/3')
  })

  it('spreads related rows, reads views by the keys of their tables, and calls computed relationships', async () => {
    expect(await get('/books?select=id,...authors(writer:name)&id=eq.1')).toEqual([{ id: 1, writer: 'Ada' }])
    expect(await get('/authors?select=id,...books(titles:title)&id=eq.2')).toEqual([{ id: 2, titles: ['The cats'] }])
    expect(await get('/long_books?select=title,authors(name)&id=eq.3')).toEqual([
      { title: 'The cats', authors: { name: 'Bo, "the" one' } },
    ])
    expect(await get('/authors?select=id,first_book(title)&id=eq.1')).toEqual([
      { id: 1, first_book: { title: 'Engines' } },
    ])
  })

  it('reads columns and aliases that have the names that the SQL gives to rows', async () => {
    await api.sql(`create table crates (id int primary key, one int, crates text); create table lines (id int primary key, crate int references crates, rows text);
      create function lines_of(crates) returns setof lines language sql stable as 'select * from lines where crate = $1.id';
      insert into crates values (1, 7, 'c'); insert into lines values (2, 1, 'r')`)
    for (const spread of ['rows', '*', 'rows:rows', 'pgrst_row:rows']) {
      const [row] = await get(`/crates?select=n:id,...lines(${spread})`)
      expect(row).toMatchObject({ n: 1, [spread.startsWith('pgrst') ? 'pgrst_row' : 'rows']: ['r'] })
    }
    expect(await get('/crates?select=n:id,...lines!inner(rows)&lines=not.is.null')).toEqual([{ n: 1, rows: ['r'] }])
    expect(await get('/crates?select=id,lines_of(id)')).toEqual([{ id: 1, lines_of: [{ id: 2 }] }])
    const written = await api.json('/crates?select=id,lines_of(id)&id=eq.1', writeOf('PATCH', { one: 8 }))
    expect(written.body).toEqual([{ id: 1, lines_of: [{ id: 2 }] }])
    expect(await get('/crates?select=pgrst_row:id')).toEqual([{ pgrst_row: 1 }])
    for (const name of ['one', 'pgrst_row']) {
      const csv = await api.send(api.keys.service, `/crates?select=${name}:one,id`, { headers: { accept: 'text/csv' } })
      expect(await csv.text()).toBe(`${name},id\n8,1`)
    }
  })

  it('refuses to spread more columns over many levels than its SQL should have', async () => {
    const spread = (columns: number) => {
      const levels = Array.from({ length: 9 }, () => '...authors(...books(').join('')
      return api.json(`/books?select=${levels}${Array(columns).fill('*')}${'))'.repeat(9)}&id=eq.1`)
    }
    expect((await spread(1)).status).toBe(200)
    const { status, body } = await spread(600)
    expect([status, body.code, body.message]).toEqual([500, '54000', 'the request selects more than 20000 columns'])
    await api.sql(`do $$ begin execute (select 'create table wide (book int references books, ' ||
      string_agg('c' || n || ' int', ', ') || ')' from generate_series(1, 400) as n); end $$`)
    const unnamed = Array.from({ length: 60 }, (_, n) => `a${n}:wide()`)
    expect((await api.json(`/books?select=${unnamed}&id=eq.1`)).body.code).toBe('54000')
    const many = await api.json(`/books?select=${Array(501).fill('authors()')}`)
    expect([many.status, many.body.code, many.body.message]).toEqual([
      ...[500, '54000', 'the request embeds more than 500 resources'],
    ])
  })

  it('compiles a long request in as many steps as it has parts', () => {
    const steps = { relationships: 0, filters: 0 }
    class Columns extends Map<string, Column> {
      override has(name: string) {
        steps.filters += 1
        return super.has(name)
      }
    }
    const table = { schema: 'public', name: 't', columns: new Columns() } as Partial<Table> as Table
    const related = Array.from({ length: 1_000 }, (_, n) => ({
      get kind() {
        steps.relationships += 1
        return 'computed' as const
      },
      ...{ source: table, target: table, routine: { schema: 'public', name: `f${n}` }, isToOne: true },
    }))
    const cache = { tables: new Map(), relationships: new Map([[keyOf(table), related]]) } as Partial<SchemaCache>
    const select = Array.from({ length: 200 }, (_, n) => `*,f${n}()`).join()
    const query = parseQuery([
      ['select', select],
      ['and', `(${Array(200).fill('a.eq.1')})`],
    ])
    const limits = { range: undefined, rowsMax: undefined, allowsAggregates: false }
    readSql(new Parameters(), planRead(cache as SchemaCache, query, { relation: table, table }, limits))
    expect(steps.filters).toBeLessThan(1_000)
    expect(steps.relationships).toBeLessThan(5_000)
  })

  it('groups the rows by what a spread row has, and refuses aggregates of spread lists', async () => {
    await api.sql('alter database postgres set pgrst.db_aggregates_enabled = true')
    const perAuthor = 'select=pages.sum(),...authors(writer:name)&order=authors(writer)'
    expect(await get(`/books?${perAuthor}`)).toEqual([
      { sum: 420, writer: 'Ada' },
      { sum: 220, writer: 'Bo, "the" one' },
    ])
    const spread = '...books(title,facts,...authors(born.max()::text,count()))&order=books(title)'
    expect(await get(`/shelved?select=${spread}`)).toEqual([
      { title: 'Engines', facts: { isbn: 'x1', sizes: [1, 2] }, max: '1815-12-10', count: 2 },
      { title: 'The cats', facts: { isbn: null }, max: null, count: 1 },
    ])
    const whole = 'select=*,...books(count(),authors(name))&order=book_id,shelf_id&limit=1'
    expect(await get(`/shelved?${whole}`)).toEqual([{ shelf_id: 1, book_id: 1, count: 1, authors: { name: 'Ada' } }])
    expect(await get('/authors?select=id,...first_book(pages.avg()::int)&order=id')).toEqual([
      { id: 1, avg: 300 },
      { id: 2, avg: 220 },
      { id: 3, avg: null },
    ])
    const many = await api.json('/authors?select=id,...books(pages.sum())')
    expect([many.status, many.body.code]).toEqual([400, 'PGRST127'])
    await api.sql('alter database postgres reset pgrst.db_aggregates_enabled')
  })

  it('names the relationships among which the caller must choose', async () => {
    await api.sql('create table loans (id int primary key, book int references books, spare int references books)')
    const reply = await api.json('/loans?select=id,books(id)')
    expect([reply.status, reply.body.code]).toEqual([300, 'PGRST201'])
    expect(reply.body.hint).toContain("'books!loans_book_fkey', 'books!loans_spare_fkey'")
    expect(await get('/loans?select=id,books!spare(id)')).toEqual([])
    const none = await api.json('/authors?select=id,shelves(id)')
    expect([none.status, none.body.code]).toEqual([400, 'PGRST200'])
  })
})

describe('media types', () => {
  it('writes one object, rows without nulls, and CSV', async () => {
    expect(await get('/books?select=id&id=eq.1', { accept: 'application/vnd.pgrst.object+json' })).toEqual({ id: 1 })
    const many = await api.json('/books', { headers: { accept: 'application/vnd.pgrst.object+json' } })
    expect([many.status, many.body]).toEqual([
      406,
      {
        ...{ code: 'PGRST116', message: 'Cannot coerce the result to a single JSON object', hint: null },
        details: 'The result contains 3 rows',
      },
    ])
    for (const [type, body] of [
      ['application/vnd.pgrst.array+json;nulls=stripped', [{ id: 2 }]],
      ['application/vnd.pgrst.object+json;nulls=stripped', { id: 2 }],
    ]) {
      const stripped = await api.json('/books?select=id,facts&id=eq.2', { headers: { accept: String(type) } })
      expect([stripped.body, stripped.headers.get('content-type')]).toEqual([body, `${type}; charset=utf-8`])
    }
    const csv = await api.send(api.keys.service, '/authors?select=id,name&order=id', {
      headers: { accept: 'text/csv' },
    })
    expect(await csv.text()).toBe('id,name\n1,Ada\n2,"Bo, ""the"" one"\n3,Cy')
    expect((await api.json('/books', { headers: { accept: 'image/png' } })).body.code).toBe('PGRST107')
  })
})

describe('media types of the project', () => {
  beforeAll(async () => {
    await api.sql(`create domain "text/tab-separated-values" as text; create domain "x/rows" as text; create domain "*/*" as bytea;
      create function to_lines(state text, next authors) returns "text/tab-separated-values" language sql as
        $$ select state || next.id || E'\\t' || next.name || E'\\n' $$;
      create aggregate lines(authors) (initcond = '', stype = "text/tab-separated-values", sfunc = to_lines);
      create function add_row(state text, next anyelement) returns "x/rows" language sql as $$ select concat(state, next::text, ';') $$;
      create aggregate rows_of(anyelement) (initcond = '', stype = "x/rows", sfunc = add_row);
      create function add_byte(state bytea, next shelves) returns "*/*" language sql as
        $$ select state || set_byte('\\x00', 0, next.id) $$;
      create aggregate bytes_of(shelves) (initcond = '', stype = "*/*", sfunc = add_byte);
      create function all_authors() returns setof authors language sql stable as 'select * from authors order by id';
      create function last_id() returns int language sql stable as 'select max(id) from authors'`)
  })

  const read = async (path: string, accept: string) => {
    const response = await api.send(api.keys.service, path, { headers: { accept } })
    return [response.status, response.headers.get('content-type')?.split(';')[0], await response.text()]
  }

  it('are written by the aggregate that takes the rows of the relation', async () => {
    const tsv = 'text/tab-separated-values'
    expect(await read('/authors?id=in.(1,3)&order=id', tsv)).toEqual([200, tsv, '1\tAda\n3\tCy\n'])
    expect(await read('/rpc/all_authors?limit=1', `x/none, ${tsv}`)).toEqual([200, tsv, '1\tAda\n'])
    expect(await read('/authors?id=eq.99', tsv)).toEqual([200, tsv, ''])
    expect((await read('/authors?select=id', tsv))[0]).toBe(406)
    expect((await read('/books', tsv))[0]).toBe(406)
  })

  it('are written by an aggregate that takes any rows, of what is selected', async () => {
    expect(await read('/books?select=id,title&order=id&limit=2', 'x/rows')).toEqual([
      200,
      'x/rows',
      '(1,Engines);(2,Notes);',
    ])
    expect(await read('/rpc/last_id', 'x/rows')).toEqual([200, 'x/rows', '3;'])
  })

  it('are all written by an aggregate for any media type', async () => {
    const response = await api.send(api.keys.service, '/shelves?order=id', { headers: { accept: 'image/png' } })
    expect(response.headers.get('content-type')).toBe('application/octet-stream')
    expect([...new Uint8Array(await response.arrayBuffer())]).toEqual([1, 2, 3])
    expect(await get('/shelves?select=id&id=eq.1')).toEqual([{ id: 1 }])
  })

  it('are binary whatever form the role of the caller gives to bytes', async () => {
    await api.sql(`alter role service_role set bytea_output = 'escape'; create domain "image/png" as bytea;
      create function image() returns "image/png" language sql stable as $$ select '\\x89504e470d'::"image/png" $$`)
    const bytesOf = async (path: string) => {
      const response = await api.send(api.keys.service, path, { headers: { accept: 'image/png' } })
      return [...new Uint8Array(await response.arrayBuffer())]
    }
    expect(await bytesOf('/shelves?order=id')).toEqual([1, 2, 3])
    expect(await bytesOf('/rpc/image')).toEqual([0x89, 0x50, 0x4e, 0x47, 0x0d])
    await api.sql('alter role service_role reset bytea_output')
  })
})

describe('the schema', () => {
  it('is seen as it is after a change, with the next request', async () => {
    expect((await api.json('/later')).status).toBe(404)
    await api.sql('create table later (id int)')
    expect(await get('/later')).toEqual([])
    await api.sql('alter table later add column more text')
    expect((await api.json('/later', writeOf('POST', { id: 1, more: 'x' }))).status).toBe(201)
    await api.sql('drop table later')
    expect((await api.json('/later')).body.code).toBe('PGRST205')
  })

  it('is not read again after a refresh of a materialized view, or a comment', async () => {
    const { sql, close } = await openSql(api.project)
    const version = () => sql(`select ${VERSION} as version`)
    await api.sql('create materialized view shown as select id from books')
    const before = await version()
    await api.sql(`refresh materialized view shown; comment on materialized view shown is 'old'`)
    expect(await version()).toEqual(before)
    await api.sql(`comment on materialized view shown is 'both'; alter materialized view shown rename id to book`)
    expect(await version()).not.toEqual(before)
    await api.sql('drop materialized view shown')
    await close()
  })

  it('may give a column another type, which the same query then has', async () => {
    await api.sql('create table typed (id uuid, at timestamp)')
    const found = (id: unknown) => get(`/typed?id=eq.${id}`)
    expect(await found('01234567-89ab-cdef-0123-456789abcdef')).toEqual([])
    await api.sql('drop table typed; create table typed (id bigint, at timestamp)')
    await api.sql(`insert into typed values (1, '2024-01-01T00:00:00')`)
    expect(await found(1)).toEqual([{ id: 1, at: '2024-01-01T00:00:00' }])
    const at = '/typed?select=id&at=eq.2024-01-01T02:00:00%2B02:00'
    expect(await get(at)).toEqual([])
    await api.sql('alter table typed alter column at type timestamptz')
    expect(await get(at)).toEqual([{ id: 1 }])
  })

  it('is seen after a change during which many others were made', async () => {
    const { sql, close } = await openSql(api.project)
    await sql('delete from pgbouncer.schema_changes')
    await sql('begin')
    await sql('set local role postgres')
    await sql('create table slow_1 (id int)')
    for (let n = 0; n < 8; n += 1) await api.sql(`create or replace view quick as select ${n} as id`)
    expect((await api.json('/slow_1')).status).toBe(404)
    await sql('create table slow_2 (id int)')
    await sql('commit')
    await close()
    expect(await get('/slow_1')).toEqual([])
  })

  it('may change all the time', async () => {
    let isChanging = true
    const change = async () => {
      for (let n = 0; n < 40; n += 1) await api.sql(`create or replace view changing as select ${n} as id`)
      isChanging = false
    }
    const statuses = new Set<number>()
    const read = async () => {
      while (isChanging) statuses.add((await api.json('/shelves?select=id')).status)
    }
    await Promise.all([change(), ...Array.from({ length: 8 }, read)])
    expect([...statuses]).toEqual([200])
  })

  it('is read in a project that was made before the Data API', async () => {
    const { sql, close } = await openSql(api.project)
    await sql('drop event trigger record_schema_changes')
    await sql('drop event trigger record_schema_drops')
    await sql('drop table pgbouncer.schema_changes')
    await sql('revoke usage on schema storage from authenticator')
    await sql(`comment on schema storage is 'Storage, schema 7'`)
    await close()
    expect(await get('/parts?select=id&order=id&limit=1')).toEqual([{ id: 1 }])
    await api.sql('create table newer (id int)')
    expect(await get('/newer')).toEqual([])
  })

  it('may have a view that was replaced by a query of itself', async () => {
    await api.sql(`create view circular as select id from parts;
      create or replace view circular as select id from circular`)
    expect(await get('/parts?select=id&order=id&limit=1')).toEqual([{ id: 1 }])
    expect((await api.json('/circular')).body.code).toBe('42P17')
    await api.sql('drop view circular')
  })

  it('embeds nothing if its views have too many relationships, and is read otherwise', async () => {
    const viewsOf = (table: string, name: string) =>
      `do $$ begin for n in 1..160 loop execute format('create view ${name}_%s as select * from ${table}', n); end loop; end $$`
    const other = await newDataApi(`create table sites (id int primary key);
      create table pages (id int primary key, site_id int references sites);
      ${viewsOf('sites', 'site')}; ${viewsOf('pages', 'page')}`)
    const embed = await other.json('/page_7?select=id,site_9(id)')
    expect([embed.status, embed.body.code, embed.body.message]).toEqual([
      ...[500, '54000', 'Views and junctions add more than 50000 relationships: nothing can be embedded'],
    ])
    expect((await other.json('/page_7?select=id')).body).toEqual([])
  })

  it('may have many foreign keys of a table, and many views of it and of one another', () => {
    const numbers = Array.from({ length: 20_000 }, (_, at) => at + 10)
    const found: Introspection = {
      ...{ version: '', keys: [{ o: 2, primary: true, c: ['id'] }], routines: [], handlers: [], casts: [] },
      tables: [2, ...numbers].map((o) => ({ o, s: 'public', n: `t${o}`, k: 'v', w: 0, c: [] })),
      foreignKeys: numbers.map((at) => ({ n: `key_${at}`, o: 1, f: 2, c: ['user_id'], fc: ['id'] })),
      // Each view has one column of the table that has the keys, and one of the view before it.
      origins: numbers.flatMap((at) => [
        [at, 1, 1, 2] as const,
        [at, 2, at === 10 ? 1 : at - 1, at === 10 ? 3 : 2] as const,
      ]),
      names: [
        [1, 'hidden', 'posts', ['user_id', 'text', 'at']],
        [2, 'public', 't2', ['id']],
        ...numbers.map((at) => [at, 'public', `t${at}`, ['text', 'at']] as const),
      ],
      ...{ timezones: [], settings: {}, roleSettings: {}, hasGeoJson: false },
    }
    const loaded = loadedSchemaOf(JSON.stringify(found)) as SchemaCache
    expect(loaded.relationships?.get(keyOf({ schema: 'public', name: 't2' }))).toEqual([])
  })

  it('may have many views of the target of a key of one table', async () => {
    const other = await newDataApi(`create table users (id int primary key);
      create table profiles (id int primary key references users);
      do $$ begin for n in 1..320 loop execute format('create view users_%s as select * from users', n); end loop; end $$`)
    expect((await other.json('/profiles?select=id,users_7(id)')).body).toEqual([])
  })

  it('is read once if it is too large, until it changes', async () => {
    const other = await newDataApi(`create table small (id int); do $$ begin execute (select 'create table huge (' ||
      string_agg(format('c%s text default %L', n, repeat('x', 1000000)), ', ') || ')' from generate_series(1, 13) as n); end $$`)
    const { sql, close } = await openSql(other)
    const sessions = () => sql(`select pid from pg_stat_activity where usename = 'authenticator' order by pid`)
    const refused = async () => {
      const { status, body } = await other.json('/small')
      expect([status, body.code, body.message]).toEqual([500, '54000', 'The exposed schemas are too large'])
    }
    await refused()
    await refused()
    const before = await sessions()
    await refused()
    expect((await other.json('/small', { method: 'OPTIONS' })).body.code).toBe('54000')
    // Each read of the schema opens a session.
    expect(await sessions()).toEqual(before)
    await close()
    await other.sql('drop table huge')
    expect((await other.json('/small')).body).toEqual([])
  })

  it('is the one that the settings expose, with no more rows than they allow', async () => {
    await api.sql(`create schema other; create table other.things (id int); insert into other.things select generate_series(1, 5);
      grant usage on schema other to anon; grant select on other.things to anon`)
    const hidden = await api.json('/things', { headers: { 'accept-profile': 'other' } })
    expect([hidden.status, hidden.body.code]).toEqual([406, 'PGRST106'])
    const settings = { db_schema: 'public, other', max_rows: 2 }
    expect((await api.organization.owner.patch(`/v1/projects/${api.ref}/postgrest`, settings)).status).toBe(200)
    const shown = await api.json('/things', { headers: { 'accept-profile': 'other' } }, api.keys.anon)
    expect([shown.status, shown.body, shown.headers.get('content-profile')]).toEqual([
      200,
      [{ id: 1 }, { id: 2 }],
      'other',
    ])
    await api.organization.owner.patch(`/v1/projects/${api.ref}/postgrest`, { db_schema: 'public', max_rows: 1_000 })
  })
})

describe('refusals', () => {
  it.each([
    ['/books?id=foo.1', 400, 'PGRST100'],
    ['/books?select=id,', 400, 'PGRST100'],
    ['/books?order=id.up', 400, 'PGRST100'],
    ['/books?nope=eq.1', 400, '42703'],
    ['/books?id=eq.x', 400, '22P02'],
    ['/books?id=eq.pilothouse:rows:0', 400, '22P02'],
    ['/books?id=eq.pilothouse:schema:', 400, '22P02'],
    ['/books?select="":id', 400, 'PGRST100'],
    ['/books?select=id::select', 400, '42704'],
    ['/books?select=id::int int', 400, '42704'],
    ['/books?select=title::unknown', 400, 'PGRST100'],
    ['/books?title=fts(1).x', 400, '42704'],
    ['/books?title=fts("-").x', 400, '42704'],
    ['/book', 404, 'PGRST205'],
    ['/books?authors.name=eq.x', 400, 'PGRST108'],
    ['/books?select=id.sum()', 400, 'PGRST123'],
    ['/a/b', 404, 'PGRST125'],
    ['/rpc/nothing', 404, 'PGRST202'],
  ])('%s is answered with %d and %s', async (path, status, code) => {
    const reply = await api.json(path)
    expect([reply.status, reply.body.code, reply.headers.get('proxy-status')]).toEqual([
      status,
      code,
      `PostgREST; error=${code}`,
    ])
  })

  it('suggest a similar name, also if another one has a longer part in common', async () => {
    await api.sql('create table articles (id int); create table garden_furniture_makers (id int)')
    expect((await api.json('/garlic')).body.hint).toBe("Perhaps you meant the table 'public.articles'")
  })

  it('suggest nothing among more than 500 names', async () => {
    const other = await newDataApi(
      `do $$ begin for n in 1..501 loop execute format('create table shelf_%s (id int)', n); end loop; end $$`,
    )
    const hint = async () => (await other.json('/shelf_x')).body.hint
    expect(await hint()).toBeNull()
    await other.sql('drop table shelf_7')
    expect(await hint()).toMatch(/^Perhaps you meant the table 'public.shelf_\d+'$/)
  })

  it('suggest nothing for a list of parameters that is too long', async () => {
    const parameters = Array.from({ length: 5 }, (_, n) => `${'p'.repeat(50)}${n}`)
    await api.sql(
      `create function lengthy(${parameters.map((name) => `${name} int`)}) returns int language sql as 'select 1'`,
    )
    const call = await api.json(
      '/rpc/lengthy',
      writeOf('POST', Object.fromEntries(parameters.slice(1).map((p) => [p, 1]))),
    )
    expect([call.status, call.body.hint]).toEqual([404, null])
  })

  it('shorten long names, and suggest nothing for them', async () => {
    const name = `book${'s'.repeat(10_000)}`
    const body = writeOf('POST', { [name]: 1 })
    const refused: [path: string, init: RequestInit, status: number][] = [
      [`/${name}`, {}, 404],
      [`/rpc/${name}`, {}, 404],
      ['/rpc/initials', body, 404],
      ['/books', body, 400],
      [`/books?select=${name}(id)`, {}, 400],
    ]
    for (const [path, init, status] of refused) {
      const reply = await api.json(path, init)
      expect([reply.status, reply.body.hint]).toEqual([status, null])
      expect(reply.body.message).toMatch(/^Could not find .*….* in the schema cache$/)
      expect(JSON.stringify(reply.body).length).toBeLessThan(5_000)
    }
  })

  it('suggest no other table for one whose relationships are all hidden', async () => {
    await api.sql(`create schema hidden; create table hidden.notes (id int primary key);
      create table bookss (id int references hidden.notes)`)
    expect((await api.json('/bookss?select=shelves(id)')).body).toMatchObject({ code: 'PGRST200', hint: null })
  })

  it('tells that GraphQL is not installed', async () => {
    const response = await fetch(api.url.replace('/rest/v1', '/graphql/v1'), { headers: { apikey: api.keys.anon } })
    expect([response.status, await response.json()]).toMatchObject([
      404,
      { message: 'GraphQL is not available: the extension pg_graphql is not installed' },
    ])
  })
})
