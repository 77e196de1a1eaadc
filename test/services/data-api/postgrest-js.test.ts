import { beforeAll, describe, expect, it } from 'vitest'
import { newDataApi, type TestDataApi } from '../../support/data-api.ts'

const SCHEMA = `
  create table teams (id int primary key, name text);
  create table players (id int primary key, name text, team_id int references teams, score int, tags text[], active daterange, data jsonb, bio text);
  create function double(n int) returns int language sql immutable as 'select n * 2';
  create function all_players() returns setof players language sql stable as 'select * from players';
  create schema other;
  create table other.secrets (id int);
  grant usage on schema other to service_role;
  grant all on other.secrets to service_role;
  insert into other.secrets values (7);
  insert into teams values (1, 'red'), (2, 'blue');
  insert into players values
    (1, 'Ada', 1, 10, '{a,b}', '[2024-01-01,2024-02-01)', '{"k": 1}', 'quick cats'),
    (2, 'Bo', 1, 20, '{b}', '[2024-03-01,2024-04-01)', null, 'slow dogs'),
    (3, 'Cy', 2, null, '{c}', null, '{"k": 2}', 'cats and dogs')`

let api: TestDataApi
let client: ReturnType<TestDataApi['clientOf']>
beforeAll(async () => {
  api = await newDataApi(SCHEMA)
  client = api.clientOf(api.keys.service)
  await api.organization.owner.patch(`/v1/projects/${api.ref}/postgrest`, { db_schema: 'public, other' })
})

const players = () => client.from('players').select('id').order('id')
async function dataOf(call: PromiseLike<{ data: unknown; error: unknown }>): Promise<unknown> {
  const { data, error } = await call
  expect(error).toBeNull()
  return data
}
const idsOf = async (call: PromiseLike<{ data: unknown; error: unknown }>) =>
  ((await dataOf(call)) as { id: number }[]).map(({ id }) => id)

describe('the filters of postgrest-js', () => {
  const cases: [name: string, call: () => ReturnType<typeof players>, found: number[]][] = [
    ['eq', () => players().eq('id', 1), [1]],
    ['neq', () => players().neq('id', 1), [2, 3]],
    ['gt', () => players().gt('score', 10), [2]],
    ['gte', () => players().gte('score', 10), [1, 2]],
    ['lt', () => players().lt('score', 20), [1]],
    ['lte', () => players().lte('score', 20), [1, 2]],
    ['like', () => players().like('name', '%d%'), [1]],
    ['ilike', () => players().ilike('name', 'a%'), [1]],
    ['likeAllOf', () => players().likeAllOf('name', ['A%', '%a']), [1]],
    ['likeAnyOf', () => players().likeAnyOf('name', ['A%', 'B%']), [1, 2]],
    ['ilikeAllOf', () => players().ilikeAllOf('name', ['a%', '%A']), [1]],
    ['ilikeAnyOf', () => players().ilikeAnyOf('name', ['a%', 'b%']), [1, 2]],
    ['is', () => players().is('score', null), [3]],
    ['in', () => players().in('name', ['Ada', 'x,"y"', 'Cy']), [1, 3]],
    ['contains a list', () => players().contains('tags', ['a']), [1]],
    ['contains an object', () => players().contains('data', { k: 2 }), [3]],
    ['containedBy', () => players().containedBy('tags', ['b', 'c']), [2, 3]],
    ['overlaps', () => players().overlaps('tags', ['a', 'c']), [1, 3]],
    ['rangeGt', () => players().rangeGt('active', '[2024-01-15,2024-02-15)'), [2]],
    ['rangeGte', () => players().rangeGte('active', '[2024-01-01,2024-01-02)'), [1, 2]],
    ['rangeLt', () => players().rangeLt('active', '[2024-03-01,2024-03-02)'), [1]],
    ['rangeLte', () => players().rangeLte('active', '[2024-01-01,2024-02-01)'), [1]],
    ['rangeAdjacent', () => players().rangeAdjacent('active', '[2024-02-01,2024-02-05)'), [1]],
    ['textSearch', () => players().textSearch('bio', 'cats & dogs', { config: 'english' }), [3]],
    [
      'textSearch as on the web',
      () => players().textSearch('bio', 'cats -dogs', { type: 'websearch', config: 'english' }),
      [1],
    ],
    ['match', () => players().match({ team_id: 1, name: 'Bo' }), [2]],
    ['not', () => players().not('id', 'in', '(1,2)'), [3]],
    ['or', () => players().or('id.eq.1,and(team_id.eq.2,score.is.null)'), [1, 3]],
    ['filter', () => players().filter('data->>k', 'eq', '1'), [1]],
  ]
  it.each(cases)('%s', async (_, call, found) => {
    expect(await idsOf(call())).toEqual(found)
  })
})

describe('the modifiers of postgrest-js', () => {
  it('order, limit, range, single, maybeSingle, csv, count and head', async () => {
    const all = client.from('players').select('id')
    expect(
      await idsOf(client.from('players').select('id').order('score', { ascending: false, nullsFirst: true })),
    ).toEqual([3, 2, 1])
    expect(await idsOf(players().limit(1))).toEqual([1])
    expect(await idsOf(players().range(1, 2))).toEqual([2, 3])
    expect(await dataOf(players().eq('id', 2).single())).toEqual({ id: 2 })
    expect(await dataOf(players().eq('id', 9).maybeSingle())).toBeNull()
    expect((await all.single()).error).toMatchObject({ code: 'PGRST116' })
    expect(await dataOf(players().csv())).toBe('id\n1\n2\n3')
    const counted = await client.from('players').select('*', { count: 'exact', head: true })
    expect([counted.status, counted.count, counted.data]).toEqual([200, 3, null])
  })

  it('embeds with filters, order and limits of referenced tables', async () => {
    const teams = client.from('teams').select('name, players(name)').order('id')
    const found = await dataOf(
      teams.order('name', { referencedTable: 'players', ascending: false }).limit(1, { referencedTable: 'players' }),
    )
    expect(found).toEqual([
      { name: 'red', players: [{ name: 'Bo' }] },
      { name: 'blue', players: [{ name: 'Cy' }] },
    ])
    const inner = client.from('players').select('id, teams!inner(name)').eq('teams.name', 'blue')
    expect(await dataOf(inner)).toEqual([{ id: 3, teams: { name: 'blue' } }])
  })

  it('explain shows the plan where the owner allows it', async () => {
    expect((await players().explain()).error).toMatchObject({ code: 'PGRST107' })
    await api.sql(`alter database postgres set pgrst.db_plan_enabled = 'true'`)
    expect(await dataOf(players().explain())).toMatch(/^Aggregate/)
    expect(await dataOf(players().explain({ format: 'json', analyze: true }))).toMatchObject([{ Plan: {} }])
  })
})

describe('the calls of postgrest-js', () => {
  it('insert, upsert, update and delete', async () => {
    const row = { id: 10, name: 'Di' }
    expect((await client.from('players').insert(row)).status).toBe(201)
    expect(
      await dataOf(
        client
          .from('players')
          .upsert({ ...row, name: 'Dee' })
          .select('name')
          .single(),
      ),
    ).toEqual({ name: 'Dee' })
    const ignored = client.from('players').upsert({ ...row, name: 'x' }, { onConflict: 'id', ignoreDuplicates: true })
    expect(await dataOf(ignored.select('name'))).toEqual([])
    expect(
      await dataOf(
        client
          .from('players')
          .insert([{ id: 11 }, { id: 12, name: 'Ed' }], { defaultToNull: false })
          .select('id'),
      ),
    ).toEqual([{ id: 11 }, { id: 12 }])
    expect(await dataOf(client.from('players').update({ score: 1 }).eq('id', 10).select('score'))).toEqual([
      { score: 1 },
    ])
    const first = client.from('players').update({ score: 2 }).gte('id', 10).order('id').select('id').limit(1)
    expect(await dataOf(first.single())).toEqual({ id: 10 })
    const removed = await client.from('players').delete({ count: 'exact' }).gte('id', 10)
    expect([removed.status, removed.count]).toEqual([204, 3])
  })

  it('rpc by POST, GET and HEAD, with filters', async () => {
    expect(await dataOf(client.rpc('double', { n: 4 }))).toBe(8)
    expect(await dataOf(client.rpc('double', { n: 5 }, { get: true }))).toBe(10)
    expect((await client.rpc('all_players', {}, { head: true, count: 'exact' })).count).toBe(3)
    expect(await idsOf(client.rpc('all_players').select('id').gt('id', 2))).toEqual([3])
  })

  it('schema, rollback, maxAffected and aggregates', async () => {
    expect(await dataOf(client.schema('other').from('secrets').select())).toEqual([{ id: 7 }])
    expect(await dataOf(client.from('players').delete().eq('id', 1).select('id').rollback())).toEqual([{ id: 1 }])
    // The types of the library know the version of the server only from generated types.
    const removal = client.from('players').delete().gt('id', 0) as unknown as {
      maxAffected(rows: number): PromiseLike<{ error: unknown }>
    }
    expect((await removal.maxAffected(1)).error).toMatchObject({ code: 'PGRST124' })
    await api.sql(`alter database postgres set pgrst.db_aggregates_enabled = 'true'`)
    const sums = client.from('players').select('team_id, score.sum(), n:id.count()').order('team_id')
    expect(await dataOf(client.from('players').select('count(), all:count()'))).toEqual([{ count: 3, all: 3 }])
    const perTeam = client.from('players').select('best:score.max(), ...teams(team:name)').order('teams(team)')
    expect(await dataOf(perTeam)).toEqual([
      { best: null, team: 'blue' },
      { best: 20, team: 'red' },
    ])
    expect(await dataOf(sums)).toEqual([
      { team_id: 1, sum: 30, n: 2 },
      { team_id: 2, sum: null, n: 1 },
    ])
  })
})
