import { beforeAll, describe, expect, it, vi } from 'vitest'
import { chooseRoutine } from '../../../src/services/data-api/plan/choose-routine.ts'
import { keyOf, type Routine, type SchemaCache } from '../../../src/services/data-api/schema/types.ts'
import { baseUrl } from '../../support/api.ts'
import { newDataApi, type TestDataApi, writeOf } from '../../support/data-api.ts'
import { exchange } from '../../support/storage.ts'
import { openSql, signerOf } from '../../support/storage-http.ts'

const SCHEMA = `
  create table things (id int primary key, name text);
  insert into things values (1, 'one'), (2, 'two'), (3, 'three');
  create function add(a int, b int default 10) returns int language sql immutable as 'select a + b';
  create function add(a text) returns text language sql immutable as $$ select a || '!' $$;
  create function total(variadic numbers int[]) returns int language sql immutable as 'select sum(n)::int from unnest(numbers) n';
  create function find_things(first int) returns setof things language sql stable as 'select * from things where id >= first';
  create function thing() returns things language sql stable as 'select * from things where id = 1';
  create function pairs() returns table (n int, t text) language sql stable as $$ values (1, 'a'), (2, 'b') $$;
  create function numbers() returns setof int language sql stable as 'values (1), (2)';
  create function many() returns setof int language sql stable as 'select generate_series(1, 1500)';
  create function touch() returns void language sql as $$ update things set name = name $$;
  create function isolated() returns text language sql set default_transaction_isolation = 'Repeatable Read' as
    $$ select current_setting('transaction_isolation') $$;
  create function whole(json) returns json language sql immutable as 'select $1';
  create function whole_text(text) returns text language sql immutable as 'select $1';
  create function whole_bytes(bytea) returns text language sql immutable as $$ select encode($1, 'hex') $$;
  create function refuse(code text) returns void language plpgsql stable as $$ begin
    raise exception using errcode = code, message = 'no', detail = 'why', hint = 'how'; end $$;
  create function answer() returns json language plpgsql stable as $$ begin
    perform set_config('response.status', '418', true);
    perform set_config('response.headers', 
      '[{"x-pot": "tea"}, {"cache-control": "no-store"}, {"Access-Control-Allow-Origin": "https://a.example"}, {"content-length": "3"}]', true);
    return '{"short": true}'; end $$;
  create function raise_all() returns void language plpgsql stable as $$ begin
    raise sqlstate 'PGRST' using message = '{"code":"123","message":"paid","details":"d","hint":"h"}',
      detail = '{"status":402,"status_text":"Pay First","headers":{"x-price":"7"}}'; end $$;
  create domain "text/html" as text;
  create function page() returns "text/html" language plpgsql stable as $$ begin
    perform set_config('response.headers', '[{"service-worker-allowed": "/"}, {"set-cookie": "a=b; Path=/"}]', true);
    return '<script>1</script>'; end $$;
  create domain "application/x,text/html;+json" as text;
  create domain "application/json;,text/html" as text;
  create function list_types1() returns "application/x,text/html;+json" language sql stable as $$ select '<script>1</script>' $$;
  create function list_types2() returns "application/json;,text/html" language sql stable as $$ select '<script>1</script>' $$;
  create function raise_page() returns void language plpgsql stable as $$ begin
    raise sqlstate 'PGRST' using message = '{"code":"1","message":"<script>1</script>"}', detail =
      '{"status":402,"headers":{"content-type":"text/html","service-worker-allowed":"/","set-cookie":"a=b; Path=/"}}'; end $$;
  create function next_thing(things) returns setof things rows 1 language sql stable as 'select * from things where id = $1.id + 1';
  create function label(things) returns text language sql stable as $$ select 'thing ' || $1.id $$;
  create function request() returns json language sql stable as $$ select json_build_object(
    'role', current_user, 'method', current_setting('request.method', true), 'path', current_setting('request.path', true),
    'agent', current_setting('request.headers', true)::json ->> 'x-agent',
    'credentials', (select count(*) from json_object_keys(current_setting('request.headers', true)::json) as name
      where name in ('apikey', 'authorization', 'cookie')),
    'cookie', current_setting('request.cookies', true)::json ->> 'a',
    'timeout', current_setting('statement_timeout')) $$;
  create function long(times int) returns text language sql immutable as $$ select repeat('é"', times) $$;
  create function privileged() returns setof things language sql stable set role = 'service_role' as 'select * from things';
  revoke execute on function privileged() from public, anon;
  create function pathless() returns setof things language sql stable set search_path = '' as 'select * from public.things';
  create domain label as text;
  create table marks (n int, level text default current_setting('transaction_isolation'));
  create function mark(n int, level text default current_setting('transaction_isolation')) returns int language sql as
    'insert into marks values ($1, $2) returning $1';
  create function mark_row(n int) returns setof marks language sql as 'insert into marks values ($1) returning *';
  create function optional(a text default 'none', b int default 1) returns text language sql immutable as $$ select a || b $$;
  create function either(text) returns text language sql immutable as $$ select 'body: ' || $1 $$;
  create function either(a int default 1) returns text language sql immutable as $$ select 'argument: ' || $1 $$;
  create function wait() returns void language sql set statement_timeout = '60s' as 'select pg_advisory_xact_lock_shared(1)'`

let api: TestDataApi
beforeAll(async () => {
  api = await newDataApi(SCHEMA)
})

const call = async (path: string, body?: unknown) =>
  (await api.json(`/rpc/${path}`, body === undefined ? {} : writeOf('POST', body, ''))).body

describe('a function', () => {
  it('is chosen by its arguments, of the query string or of the body', async () => {
    expect(await call('add?a=1&b=2')).toBe(3)
    expect(await call('add', { a: 1, b: 5 })).toBe(6)
    expect((await api.json('/rpc/add?a=1')).body.code).toBe('PGRST203')
    expect(await call('total?numbers=1&numbers=2&numbers=3')).toBe(6)
    expect(await call('total', { numbers: [4, 5] })).toBe(9)
    const wrong = await api.json('/rpc/add?c=1')
    expect([wrong.status, wrong.body.code]).toEqual([404, 'PGRST202'])
    expect(wrong.body.message).toBe('Could not find the function public.add(c) in the schema cache')
  })

  it('is chosen without reading a long list of arguments for each overload', () => {
    let reads = 0
    class Names extends Array<string> {
      override [Symbol.iterator]() {
        reads += 1
        return super[Symbol.iterator]()
      }
    }
    const argumentNames = Names.from({ length: 200 }, (_, n) => `a${n}`)
    const parameter = { name: 'a0', type: 'text', isOptional: true, isVariadic: false }
    const routine = { schema: 'public', name: 'f', parameters: [parameter] } as Partial<Routine> as Routine
    const cache = { functions: new Map([[keyOf(routine), Array(50).fill(routine)]]) } as Partial<SchemaCache>
    const choose = () => chooseRoutine(cache as SchemaCache, { ...routine, argumentNames, payload: undefined })
    expect(choose).toThrow('Could not find the function public.f')
    expect(reads).toBeLessThan(5)
  })

  it('is not chosen without its variadic parameter, unless it has a default', async () => {
    await api.sql(`create function tag(a int) returns text language sql as $$ select 'one' $$;
      create function tag(a int, variadic rest text[]) returns text language sql as $$ select 'list' $$;
      create function tags(variadic rest text[] default '{}') returns text language sql as $$ select 'default' $$`)
    expect(await call('tag?a=1')).toBe('one')
    expect(await call('tag?a=1&rest=x')).toBe('list')
    expect(await call('tags')).toBe('default')
    expect((await api.json('/rpc/total')).body.code).toBe('PGRST202')
  })

  it('returns a value, a row, rows, or nothing', async () => {
    expect(await call('thing')).toEqual({ id: 1, name: 'one' })
    expect(await call('numbers')).toEqual([1, 2])
    expect(await call('pairs?select=t&n=eq.2')).toEqual([{ t: 'b' }])
    const nothing = await api.json('/rpc/touch', { method: 'POST' })
    expect([nothing.status, nothing.body]).toEqual([204, undefined])
  })

  it('that returns the rows of a table is read like one', async () => {
    const reply = await api.json('/rpc/find_things?first=2&select=name&order=id.desc&limit=1', {
      headers: { prefer: 'count=exact' },
    })
    expect([reply.status, reply.headers.get('content-range'), reply.body]).toEqual([206, '0-0/2', [{ name: 'three' }]])
    const labelled = await api.send(api.keys.service, '/rpc/find_things?first=3&select=*,label')
    expect((await labelled.text()).match(/"label":"thing 3"/g)).toHaveLength(1)
  })

  it('that returns rows can select, filter by and order by functions of its row, beside rows related by such a function', async () => {
    const query = 'select=id,label,next_thing!inner(name)&or=(label.eq.thing 1,name.eq.two)&order=label.desc'
    const { status, headers, body } = await api.json(`/rpc/find_things?first=1&${query}`, {
      headers: { prefer: 'count=exact' },
    })
    expect([status, headers.get('content-range')]).toEqual([200, '0-1/2'])
    expect(body).toEqual([
      { id: 2, label: 'thing 2', next_thing: { name: 'three' } },
      { id: 1, label: 'thing 1', next_thing: { name: 'two' } },
    ])
    expect(await call('find_things?first=3&select=name&order=label')).toEqual([{ name: 'three' }])
    const unknown = await api.json('/rpc/find_things?first=1&select=nope')
    expect([unknown.status, unknown.body.message]).toEqual([400, 'column find_things.nope does not exist'])
  })

  it('that returns rows of a table counts them as the table does', async () => {
    for (const path of ['/things', '/rpc/find_things?first=1']) {
      const url = `${path}${path.includes('?') ? '&' : '?'}select=count`
      const { status, body } = await api.json(url)
      expect([path, status, body]).toEqual([path, 200, [{ count: 3 }]])
    }
  })

  it('that returns a set of values is read in parts', async () => {
    const exact = { prefer: 'count=exact' }
    const limited = await api.json('/rpc/many?limit=2&offset=1', { headers: exact })
    expect([limited.status, limited.headers.get('content-range'), limited.body]).toEqual([206, '1-2/1500', [2, 3]])
    const ranged = await api.json('/rpc/many', { headers: { range: '5-6' } })
    expect([ranged.status, ranged.headers.get('content-range'), ranged.body]).toEqual([200, '5-6/*', [6, 7]])
    const all = await api.json('/rpc/many', writeOf('POST', {}, 'count=exact'))
    expect([all.status, all.headers.get('content-range'), all.body.length]).toEqual([206, '0-999/1500', 1_000])
    const beyond = await api.json('/rpc/many?offset=2000', { headers: exact })
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, '*/1500'])
    expect(await call('many?pgrst_scalar=gte.1499')).toEqual([1499, 1500])
  })

  it('with one unnamed parameter takes the body as it is', async () => {
    expect(await call('whole', { any: [1] })).toEqual({ any: [1] })
    const text = { method: 'POST', body: 'as is', headers: { 'content-type': 'text/plain' } }
    expect((await api.json('/rpc/whole_text', text)).body).toBe('as is')
    const bytes = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte))
    const binary = { method: 'POST', body: bytes, headers: { 'content-type': 'application/octet-stream' } }
    expect((await api.json('/rpc/whole_bytes', binary)).body).toBe(bytes.toString('hex'))
  })

  it('is called once with the first of several objects, whose keys must match', async () => {
    expect(await call('mark', [{ n: 1 }, { n: 2 }])).toBe(1)
    expect(await call('mark_row?select=n', [{ n: 3 }, { n: 4 }])).toEqual([{ n: 3 }])
    expect((await api.json('/marks?select=n&order=n')).body).toEqual([{ n: 1 }, { n: 3 }])
    for (const body of [[{ n: 5 }, { n: 6, level: 'x' }], [{ n: 5 }, 6], [5]]) {
      const refused = await api.json('/rpc/mark', writeOf('POST', body))
      expect([refused.status, refused.body.code, refused.body.message]).toEqual([
        ...[400, 'PGRST102'],
        'All object keys must match',
      ])
    }
    expect(await call('mark?columns=n', [{ n: 7, level: 'ignored' }, { n: 8 }])).toBe(7)
    expect((await api.json('/marks?n=gt.4')).body).toEqual([{ n: 7, level: 'read committed' }])
  })

  it('whose parameters are all optional can be called with any body', async () => {
    const send = async (path: string) =>
      (await api.json(path, { method: 'POST', body: 'as is', headers: { 'content-type': 'text/plain' } })).body
    expect(await send('/rpc/optional')).toBe('none1')
    expect(await send('/rpc/either')).toBe('argument: 1')
    expect((await send('/rpc/numbers')).code).toBe('PGRST202')
  })

  it('with a body that is too large for the database is refused', async () => {
    const send = (type: string, path: string, body: Buffer | string) =>
      api.json(path, { method: 'POST', body, headers: { 'content-type': type } })
    const refused = [
      413,
      'PGRST102',
      'The body is larger than the database takes: 16 MiB with its values as JSON texts',
    ]
    // Each byte is sent as two digits, and each quote as two characters.
    const binary = await send('application/octet-stream', '/rpc/whole_bytes', Buffer.alloc(9 * 1024 * 1024))
    expect([binary.status, binary.body.code, binary.body.message]).toEqual(refused)
    const text = await send('text/plain', '/rpc/whole_text', '"'.repeat(9 * 1024 * 1024))
    expect([text.status, text.body.code, text.body.message]).toEqual(refused)
  })

  it.each([10, 500_000])('returns a text of two characters, %i times, with its length', async (times) => {
    const reply = await api.send(api.keys.service, `/rpc/long?times=${times}`)
    const bytes = Buffer.from(await reply.arrayBuffer())
    expect(reply.headers.get('content-length')).toBe(String(bytes.length))
    expect(JSON.parse(bytes.toString()) === 'é"'.repeat(times)).toBe(true)
  })

  it('that may write needs a POST', async () => {
    const reply = await api.json('/rpc/touch')
    expect([reply.status, reply.body.code]).toEqual([405, '25006'])
    expect((await api.json('/rpc/touch', { method: 'DELETE' })).body.code).toBe('PGRST101')
  })

  it('can set the status, headers and body of the response, also by an error', async () => {
    const response = await api.send(api.keys.anon, '/rpc/answer')
    expect([response.status, response.headers.get('x-pot'), response.headers.get('cache-control')]).toEqual([
      418,
      'tea',
      'no-store',
    ])
    expect(response.headers.get('access-control-allow-origin')).toBe('*')
    expect(await response.json()).toEqual({ short: true })
    const raised = await api.json('/rpc/raise_all')
    expect([raised.status, raised.statusText, raised.headers.get('x-price')]).toEqual([402, 'Pay First', '7'])
    expect(raised.body).toEqual({ code: '123', message: 'paid', details: 'd', hint: 'h' })
    const custom = await api.json('/rpc/refuse?code=PT409')
    expect([custom.status, custom.body]).toEqual([409, { code: 'PT409', message: 'no', details: 'why', hint: 'how' }])
  })

  it('cannot answer with a page of the origin that all projects share', async () => {
    const isSandboxed = (headers: Headers) => {
      expect(headers.get('content-type')).not.toContain('html')
      expect(headers.get('content-security-policy')).toBe("default-src 'none'; sandbox")
      expect(headers.get('x-content-type-options')).toBe('nosniff')
      expect(headers.get('service-worker-allowed')).toBeNull()
      expect(headers.getSetCookie()).toEqual([`a=b; Path=/p/${api.ref}/`])
    }
    const accept = { headers: { accept: 'text/html' } }
    const page = await api.send(api.keys.anon, '/rpc/page', accept)
    isSandboxed(page.headers)
    expect([page.status, await page.text()]).toEqual([200, '<script>1</script>'])
    for (const n of [1, 2]) {
      // Browsers take the last type of a list.
      const listed = await api.send(api.keys.anon, `/rpc/list_types${n}`, { headers: { accept: '*/*' } })
      expect(listed.headers.get('content-type')).not.toContain('html')
      expect(listed.headers.get('content-security-policy')).toBe("default-src 'none'; sandbox")
    }
    const raised = await api.send(api.keys.anon, '/rpc/raise_page')
    isSandboxed(raised.headers)
    expect(raised.status).toBe(402)
    const { headers } = await exchange(new URL('/rest/v1/rpc/page', baseUrl).href, {
      headers: { host: `${api.ref}.projects.example.com`, apikey: api.keys.anon, ...accept.headers },
    })
    expect(headers).toMatchObject({ 'content-type': 'text/html; charset=utf-8', 'service-worker-allowed': '/' })
    expect(headers).not.toHaveProperty('content-security-policy')
  })

  it('sees the caller and the request, but no credentials', async () => {
    const headers = { 'x-agent': 'me', cookie: 'a=1; b=2', authorization: `Bearer ${api.keys.anon}` }
    const { body } = await api.json('/rpc/request', { headers }, api.keys.anon)
    expect(body).toEqual({
      role: 'anon',
      method: 'GET',
      path: '/rpc/request',
      agent: 'me',
      credentials: 0,
      cookie: '1',
      timeout: '3s',
    })
  })
})

it('keeps the role and the search path that a function sets inside the function', async () => {
  const closed = await api.json('/rpc/privileged', {}, api.keys.anon)
  expect([closed.status, closed.body.code]).toEqual([401, '42501'])
  const cast = await api.json('/rpc/pathless?select=name::label&limit=1')
  expect([cast.status, cast.body]).toEqual([200, [{ name: 'one' }]])
})

it('calls a function at the isolation level that it or the role of the caller sets', async () => {
  await api.sql(`create role careful; grant careful to authenticator; grant all on marks to careful;
    alter role careful set default_transaction_isolation = 'serializable'`)
  const token = await (await signerOf(api.project)).sign({ role: 'careful' })
  const reply = await api.json('/marks?select=level', writeOf('POST', { n: 9 }), token)
  expect(reply.body).toEqual([{ level: 'serializable' }])
  for (const key of [token, api.keys.anon]) {
    expect((await api.json('/rpc/isolated', { method: 'POST' }, key)).body).toBe('repeatable read')
  }
})

it('refuses calls that too many slow ones of the project are before, and answers other projects meanwhile', async () => {
  const other = await newDataApi('create table things (id int)')
  const gate = await openSql(api)
  await gate.sql('select pg_advisory_lock(1)')
  const answered: Response[] = []
  const calls = Array.from({ length: SLOW_MAX + 20 }, async () => {
    const response = await api.send(api.keys.service, '/rpc/wait', { method: 'POST' })
    answered.push(response)
    return response.status
  })
  await vi.waitFor(() => expect(answered.length).toBeGreaterThanOrEqual(20), 30_000)
  const [refused] = answered
  expect([refused?.status, refused?.headers.get('retry-after')]).toEqual([503, '1'])
  expect(await refused?.json()).toMatchObject({ code: 'PGRST003' })
  expect((await other.json('/things')).body).toEqual([])
  await gate.close()
  const statuses = await Promise.all(calls)
  expect(new Set(statuses)).toEqual(new Set([204, 503]))
})

/** Calls that the database host runs at once, and calls that wait there. */
const SLOW_MAX = 20 + 200

it('runs the function that the settings name before each request', async () => {
  await api.sql(`create function check_request() returns void language plpgsql as $$ begin
      if current_setting('request.headers')::json ->> 'x-stop' is not null then raise sqlstate 'PT403' using message = 'stopped'; end if; end $$;
    alter database postgres set pgrst.db_pre_request = 'public.check_request'`)
  expect((await api.json('/things?select=id&id=eq.1')).body).toEqual([{ id: 1 }])
  const stopped = await api.json('/things', { headers: { 'x-stop': '1' } })
  expect([stopped.status, stopped.body.message]).toEqual([403, 'stopped'])
  await api.sql('alter database postgres reset pgrst.db_pre_request')
  expect((await api.json('/things', { headers: { 'x-stop': '1' } })).status).toBe(200)
})
