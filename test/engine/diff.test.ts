import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { diff } from '../../src/engine/diff/diff.ts'
import type { DiffRequest } from '../../src/engine/engine.ts'
import { extended, isExtended } from '../support/extended.ts'
import { WAIT_MS } from '../support/wait.ts'
import { groupsInSchemas, pairsOfWholeDatabases } from './diff-cases.ts'
import { newSide, type Side } from './diff-databases.ts'
import { type HostEngine, startHostEngine } from './host-engine.ts'

let host: HostEngine
beforeAll(async () => {
  host = await startHostEngine()
})
afterAll(() => host.stop())

async function createSide(...statements: string[]): Promise<Side> {
  const made = await newSide(host)
  onTestFinished(() => made.remove())
  for (const sql of statements.filter(Boolean)) await made.sql(sql)
  return made
}

const between = (from: Side, to: Side, more: Partial<DiffRequest> = {}) =>
  diff(host.clusterOf, { from: from.login, to: to.login, ...more })

/** Pairs that users seldom write; only `npm run test:faults` runs them. */
const RARE_PAIRS = [
  'what needs a function that is made anew',
  'rights that default privileges would give',
  'how columns are stored and sampled',
  'constraints of later versions',
  'a type of an extension',
  'default privileges of every kind',
  'comments on everything else',
]
const pairs = pairsOfWholeDatabases.filter(([name]) => isExtended || !RARE_PAIRS.includes(name))

describe('the difference of two schemas, run in the first, turns it into the second', () => {
  const applyDifference = async (subject: Side, goal: Side): Promise<string> => {
    const sql = await between(subject, goal)
    expect(sql).not.toBe('')
    await subject.sql(sql)
    expect(await subject.definitions()).toEqual(await goal.definitions())
    if (isExtended) expect(await between(subject, goal)).toBe('')
    return sql
  }

  test.for(pairs)('%s', async ([, { both = '', from = '', to = '' }]) => {
    const [subject, target] = await Promise.all([createSide(both, from), createSide(both, to)])
    await applyDifference(subject, target)
  })

  test.for(groupsInSchemas)('and in both directions: %s', async ([, { schemas, from, to }]) => {
    const [subject, target, origin] = await Promise.all([createSide(...from), createSide(...to), createSide(...from)])
    const forth = await applyDifference(subject, target)
    const back = await applyDifference(subject, origin)
    expect(schemas.filter((schema) => !(forth.includes(schema) && back.includes(schema)))).toEqual([])
  })
})

describe('a difference', () => {
  test('is empty between two new projects', async () => {
    const [a, b] = await Promise.all([createSide(), createSide()])
    expect(await between(a, b)).toBe('')
  })

  test('names no role that exists in only one of the two projects', async () => {
    const [a, b] = await Promise.all([
      createSide(),
      createSide(`create schema s; create table s.t (a int); create table t (a int); create view v as select * from t;
            create function f() returns int language sql as 'select 1'; create policy p on t to current_user using (true);
            grant select on s.t to anon; alter default privileges in schema s grant select on tables to anon`),
    ])
    const sql = await between(a, b)
    expect(sql).not.toMatch(/owner-/)
    await a.sql(sql)
    expect(await a.definitions()).toEqual(await b.definitions())
  })

  test('keeps rows whose columns do not change', async () => {
    const [a, b] = await Promise.all([
      createSide(`create type kind as enum ('a', 'b', 'gone'); create table t (id int primary key, k kind default 'a', n int);
            insert into t values (1, 'b', 5), (2, default, null)`),
      createSide(
        `create type kind as enum ('b', 'a'); create table t (id bigint primary key, k kind default 'b', n text, fresh int default 3)`,
      ),
    ])
    await a.sql(await between(a, b))
    expect(await a.sql('select * from t order by id')).toEqual([
      { id: '1', k: 'b', n: '5', fresh: 3 },
      { id: '2', k: 'a', n: null, fresh: 3 },
    ])
  })

  test('commits early only if a new value of an enum is used', async () => {
    const [a, used, unused] = await Promise.all([
      createSide(`create type mood as enum ('sad', 'ok'); create table t (m mood)`),
      createSide(`create type mood as enum ('sad', 'ok', 'happy'); create table t (m mood default 'happy')`),
      createSide(`create type mood as enum ('sad', 'ok', 'happy'); create table t (m mood default 'ok')`),
    ])
    expect(await between(a, used)).toContain('COMMIT;')
    expect(await between(a, unused)).not.toContain('COMMIT;')
  })

  test('covers only the named schemas', async () => {
    const [a, b] = await Promise.all([
      createSide('create schema "a*"; create schema ab; create schema other'),
      createSide(`create schema "a*"; create schema ab; create schema other; create schema "o'ther,";
            create table other.t (id int primary key); create table ab.t (id int); create table "o'ther,".t (id int);
            create statistics other.s on id, (id + 1) from other.t; create publication p for table ab.t`),
    ])
    const only = await between(a, b, { schemas: ['ab'] })
    expect(only).toContain('"ab"."t"')
    expect(only).not.toMatch(/other|o'ther|PUBLICATION/)
    expect(await between(a, b, { schemas: ["o'ther,"] })).toContain(`CREATE TABLE "o'ther,"."t"`)
    expect(await between(a, b, { schemas: ['nowhere'] })).toBe('')
    await a.sql(only)
    expect(await between(a, b, { schemas: ['ab'] })).toBe('')
  })

  test('reports what it cannot write as SQL', async () => {
    const [a, b] = await Promise.all([
      createSide('create domain d as int; create table t (a d)'),
      createSide('create domain d as bigint; create table t (a d)'),
    ])
    await expect(between(a, b)).rejects.toMatchObject({
      code: '0A000',
      message: expect.stringContaining('"public"."d"'),
    })
  })

  test('ends at its time limit', async () => {
    const [a, b] = await Promise.all([createSide(), createSide()])
    await expect(between(a, b, { timeoutMs: 1 })).rejects.toMatchObject({ name: 'SqlTimeout' })
  })

  test('runs no code of the user', async () => {
    const bait = `create function trap() returns int language plpgsql immutable as $$ begin return 1; end $$;
      create function obj_description(oid, name) returns text language plpgsql as $$ begin return trap()::text; end $$;
      create function same(text, text) returns boolean language plpgsql as $$ begin return trap() = 1; end $$;
      create operator = (leftarg = text, rightarg = text, function = same);
      create table pg_class (oid oid default trap()); create view pg_roles as select trap();
      create table t (a int default trap(), b int generated always as (trap()) stored, check (trap() > a));
      create index i on t ((trap() + a)); create policy p on t using (trap() = 1); create rule r as on delete to t do instead select trap()`
    const [a, b] = await Promise.all([createSide(bait), createSide(bait, 'alter table t add c int')])
    for (const { admin } of [a, b]) {
      await admin(`alter database postgres set track_functions = 'all'`)
      await admin(`alter database postgres set search_path = public, pg_catalog`)
    }
    expect(await between(a, b)).toBe('ALTER TABLE "public"."t" ADD COLUMN "c" integer;\n')
    // A session's calls are counted once it has ended; the host keeps other sessions that nobody has used yet.
    const others = `select pid from pg_catalog.pg_stat_activity 
        where datname = current_database() and usename = 'postgres' and query <> ''`
    const calls = async (of: Side) => {
      await vi.waitFor(async () => expect(await of.admin(others)).toEqual([]), { timeout: WAIT_MS })
      return of.admin(`select funcname from pg_catalog.pg_stat_user_functions where schemaname = 'public'`)
    }
    expect([await calls(a), await calls(b)]).toEqual([[], []])
    await a.admin('set search_path = public; select public.same($$x$$, $$y$$)')
    await vi.waitFor(async () => expect(await calls(a)).not.toEqual([]), { timeout: WAIT_MS })
  })

  extended('of more than a hundred tables is complete', async () => {
    const tables = (count: number, type: string) => `do $do$ begin for i in 1..${count} loop
      execute format('create table t%s (id %s primary key, parent int, note text default ''n%s'')', i, ${type}, i);
      execute format('alter table t%s enable row level security; create policy p on t%s using (id > 0); create index on t%s (note)', i, i, i);
      execute format('create view v%s as select id, note from t%s; comment on view v%s is ''v%s''', i, i, i, i);
    end loop; end $do$`
    const [subject, target] = await Promise.all([
      createSide(tables(120, `'bigint'`)),
      createSide(tables(150, `case when i % 3 = 0 then 'int' else 'bigint' end`)),
    ])
    await subject.sql(await between(subject, target))
    expect(await subject.definitions()).toEqual(await target.definitions())
    expect(await between(subject, target)).toBe('')
  })

  test('is refused if it has more tables than a Worker can hold, and made for some of their schemas', async () => {
    const many = `do $do$ begin create schema many; create schema few; create table few.t ();
      for i in 1..1501 loop execute format('create view many.v%s as select', i); end loop; end $do$`
    const [a, b] = await Promise.all([createSide(), createSide(many)])
    await expect(between(a, b)).rejects.toMatchObject({
      code: '54000',
      message: expect.stringContaining('1504 tables'),
    })
    expect(await between(a, b, { schemas: ['few'] })).toContain('CREATE TABLE "few"."t"')
  })

  test('reports which table is recreated without its rows', async () => {
    const [a, b] = await Promise.all([
      createSide('create table t (a int); create table kept (a int)'),
      createSide('create table t (a int) partition by range (a)'),
    ])
    expect(await between(a, b)).toMatch(
      /-- Recreated below: the rows of this table are lost.\nDROP TABLE "public"."t";/,
    )
    expect(await between(a, b)).not.toMatch(/lost.\nDROP TABLE "public"."kept"/)
  })
})
