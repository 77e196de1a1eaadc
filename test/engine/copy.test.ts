import { beforeAll, describe, expect, it, vi } from 'vitest'
import { grants } from '../../src/engine/copy/schema/access.ts'
import { projectNames } from '../../src/engine/names.ts'
import { PASSWORD } from '../projects.ts'
import { difference, readCatalogue, readRows } from './copy-catalogue.ts'
import {
  asAdmin,
  asOwner,
  catalogueOf,
  countsOf,
  everyKind,
  newParent,
  newRef,
  RUNNER_PASSWORD,
  specOf,
  untilIdle,
  useEngine,
  withClient,
} from './copy-projects.ts'
import { connect } from './storage-database.ts'

const { engine, cluster, copyOf, copyOfUsed } = await useEngine()

const rowsOf = (ref: string) => withClient(asAdmin(`p_${ref}`), readRows)

/** Numbers of objects are their own in every database, and a clone is told by keeping the parent's. */
const numberOf = (ref: string, table: string) =>
  withClient(
    asAdmin(`p_${ref}`),
    async (client) => (await client.query(`select '${table}'::regclass::oid as oid`)).rows[0].oid,
  )

describe('a copy', () => {
  let parent: string
  let catalogue: Awaited<ReturnType<typeof catalogueOf>>
  beforeAll(async () => {
    parent = await newParent(engine, await everyKind())
    catalogue = await catalogueOf(parent)
  })

  /** Places of columns that are no more, and a flag that Postgres sets on keys which were made before they were attached. */
  const WITHOUT_MEANING =
    /pg\.dropped|"contype":"p".*"conparentid":"(events_pkey on app\.events|events_2024_pkey on app\.events_2024)"/
  const meant = (found: ReturnType<typeof difference>) =>
    Object.values(found)
      .flat()
      .filter((row) => !WITHOUT_MEANING.test(row))

  it('of an idle parent is the same in every row of every catalogue, and of every table', async () => {
    await untilIdle(parent)
    const copy = await copyOf(parent, true)
    expect(await numberOf(copy, 'app.people')).toBe(await numberOf(parent, 'app.people'))
    expect(difference(catalogue, await catalogueOf(copy))).toEqual({})
    expect(await rowsOf(copy)).toEqual(await rowsOf(parent))
  })

  it('of a parent in use is the same too', async () => {
    const copy = await copyOfUsed(parent, true)
    expect(await numberOf(copy, 'app.people')).not.toBe(await numberOf(parent, 'app.people'))
    expect(meant(difference(catalogue, await catalogueOf(copy)))).toEqual([])
    expect(await rowsOf(copy)).toEqual(await rowsOf(parent))
  })

  it('of the schema alone has the history of migrations and no other row', async () => {
    const copy = await copyOf(parent, false)
    const found = meant(difference(catalogue, await catalogueOf(copy)))
    expect(found).toEqual([expect.stringContaining('lomowner')])
    const tables = [
      'app.people',
      'public.orders',
      'storage.buckets',
      'storage.objects',
      'supabase_migrations.schema_migrations',
    ]
    expect(await countsOf(copy, tables)).toEqual([0, 0, 0, 0, 1])
  })

  it.each(['idle', 'used'])(
    'of an %s parent has its buckets, and of its objects those that a table points at',
    async (kind) => {
      await untilIdle(parent)
      const copy = await (kind === 'idle' ? copyOf : copyOfUsed)(parent, true)
      expect(await countsOf(copy, ['storage.buckets', 'storage.objects', 'storage.removed_versions'])).toEqual([
        2, 1, 0,
      ])
      await withClient(asOwner(copy), async (owner) => {
        expect((await owner.query('select name from storage.objects')).rows).toEqual([{ name: 'kept' }])
      })
    },
  )

  it.each(['idle', 'used'])('of an %s parent belongs to nobody else and lets nobody else in', async (kind) => {
    await untilIdle(parent)
    const copy = await (kind === 'idle' ? copyOf : copyOfUsed)(parent, true)
    const { rows } = await cluster.query(
      `select classid::regclass::text, objid, refobjid::regrole from pg_shdepend
        where dbid = (select oid from pg_database where datname = $1) and starts_with(pg_get_userbyid(refobjid), $2)`,
      [`p_${copy}`, `p_${parent}`],
    )
    expect(rows).toEqual([])
    for (const [database, user] of [
      [copy, parent],
      [parent, copy],
    ] as const) {
      const client = connect(`p_${database}`, { user: `p_${user}`, password: PASSWORD })
      await expect(client).rejects.toMatchObject({ code: '42501' })
    }
    await withClient(asOwner(copy), async (owner) => {
      await owner.query(
        'create table app.mine (); alter table app.people add column more int; drop function app.of_people(app.people)',
      )
      await owner.query(
        'create policy more on storage.objects for select using (true); drop table supabase_migrations.schema_migrations',
      )
      await expect(owner.query('create table storage.mine ()')).rejects.toMatchObject({ code: '42501' })
    })
    const left = await cluster.query(`select rolname from pg_roles where starts_with(rolname, $1) order by 1`, [
      `p_${copy}`,
    ])
    expect(left.rows.map(({ rolname }) => rolname)).toEqual(
      ['', '_read', '_sql', '_storage'].map((end) => `p_${copy}${end}`),
    )
    await withClient(asAdmin(`p_${copy}`), async (inside) => {
      expect((await inside.query(`select from pg_namespace where nspname ~ '^pilothouse'`)).rows).toEqual([])
    })
  })

  it('by rows leaves out a column that the owner added to a table of the template', async () => {
    const ref = await newParent(
      engine,
      `alter table storage.buckets add column colour text not null default 'red' check (colour <> '');
       insert into storage.buckets (id, name) values ('a', 'a')`,
    )
    const copy = await copyOfUsed(ref, true)
    await withClient(asOwner(copy), async (owner) => {
      expect((await owner.query('select * from storage.buckets')).rows).toMatchObject([{ id: 'a', name: 'a' }])
    })
    expect(await countsOf(copy, ['storage.buckets'])).toEqual([1])
  })

  it('gives a role all its rights on an object in one statement', async () => {
    const ref = await newParent(
      engine,
      `create table public.t (n int, "M" int); grant select on public.t to anon with grant option;
       revoke all on public.t from authenticated; grant select ("M"), update ("M") on public.t to authenticated`,
    )
    const names = projectNames(ref)
    const { rows } = await withClient(asAdmin(`p_${ref}`), (client) => client.query(grants({ from: names, to: names })))
    const of = (role: string) =>
      rows.map(({ statement }) => statement).filter((text) => text.includes(` ON TABLE public.t TO ${role}`))
    const all = 'INSERT, SELECT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER, MAINTAIN'
    expect(of('service_role')).toEqual([`GRANT ${all} ON TABLE public.t TO service_role`])
    expect(of('anon')).toEqual([
      `GRANT ${all.replace('SELECT, ', '')} ON TABLE public.t TO anon`,
      'GRANT SELECT ON TABLE public.t TO anon WITH GRANT OPTION',
    ])
    expect(of('authenticated')).toEqual(['GRANT SELECT ("M"), UPDATE ("M") ON TABLE public.t TO authenticated'])
  })

  it('stays as it is when the work is done again', async () => {
    const copy = await copyOf(parent, true)
    await withClient(asOwner(copy), (owner) => owner.query('create table public.since ()'))
    await engine.copy({ from: parent, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(copy), data: true })
    await withClient(asOwner(copy), (owner) => owner.query('select from public.since'))
  })
})

describe('settings', () => {
  it.each(['idle', 'used'])(
    'of an %s parent are those of its database and its owner, save that the copy can be written',
    async (kind) => {
      const ref = newRef()
      await engine.create(specOf(ref))
      await cluster.query(`alter database p_${ref} set app.greeting = 'it''s, "me"'`)
      await withClient(asOwner(ref), (owner) =>
        owner.query(`
        alter database p_${ref} set search_path = "$user", public, "Odd, name";
        alter database p_${ref} set default_transaction_read_only = on;
        alter database p_${ref} set statement_timeout = '1ms';
        alter database p_${ref} set transaction_timeout = '1ms';
        alter database p_${ref} set datestyle = 'German';
        alter role p_${ref} in database p_${ref} set work_mem = '7MB';
        alter role p_${ref} set lock_timeout = '5s'`),
      )
      await untilIdle(ref)
      const held = kind === 'used' ? await asAdmin(`p_${ref}`) : undefined
      const copy = await copyOf(ref, true)
      await held?.end()
      const settings = async (of: string) => {
        const { rows } = await cluster.query(
          `select replace(setrole::regrole::text, $2, '') as role, array(select unnest(setconfig) order by 1) as settings from pg_db_role_setting
          where setdatabase = (select oid from pg_database where datname = $1) or (setdatabase = 0 and setrole::regrole::text = $2) order by 1, 2`,
          [`p_${of}`, `p_${of}`],
        )
        return rows.map(({ role, settings }) => ({
          role,
          settings: settings.filter((each: string) => !each.includes('read_only')),
        }))
      }
      expect(await settings(copy)).toEqual(await settings(ref))
      expect(await settings(copy)).toHaveLength(3)
      const { rows } = await cluster.query(`select from pg_db_role_setting, unnest(setconfig) as entry
      where setdatabase = (select oid from pg_database where datname = 'p_${copy}') and entry ~ 'read_only'`)
      expect(rows).toEqual([])
    },
  )

  it.each(['idle', 'used'])(
    'of an %s parent keep out whom the parent keeps out, from the first moment',
    async (kind) => {
      const ref = await newParent(engine, 'create table public.t ()')
      await engine.settings.setLoginRules(ref, { networks: ['10.0.0.0/8'] })
      await untilIdle(ref)
      const held = kind === 'used' ? await asAdmin(`p_${ref}`) : undefined
      const copy = await copyOf(ref, true)
      await held?.end()
      await expect(asOwner(copy)).rejects.toMatchObject({
        code: '28000',
        message: expect.stringContaining('not reached'),
      })
    },
  )

  it('that rule how values are written and read mislead no copy by rows', async () => {
    const ref = await newParent(
      engine,
      String.raw`create table public.values (
         text text default 'a\b''c', at timestamptz, day date, span interval, number float8, bytes bytea, many text[], money money);
       insert into public.values values ('x\y', '2024-02-03 04:05:06.789+02', '2024-02-03', '1 day 02:03:04', 0.1::float8 + 0.2::float8,
         '\x00ff5c', array['null', null, 'a\b'], 12.34);
       create view public.written as select 'a\b' as text, date '2024-02-03' as day`,
    )
    await withClient(asOwner(ref), (owner) =>
      owner.query(`
        alter database p_${ref} set standard_conforming_strings = off;
        alter database p_${ref} set datestyle = 'SQL, DMY';
        alter database p_${ref} set intervalstyle = 'sql_standard';
        alter database p_${ref} set extra_float_digits = -5;
        alter database p_${ref} set bytea_output = 'escape';
        alter database p_${ref} set array_nulls = off;
        alter database p_${ref} set quote_all_identifiers = on;
        alter database p_${ref} set timezone = 'Asia/Kathmandu'`),
    )
    const copy = await copyOfUsed(ref, true)
    const contents = (of: string) =>
      withClient(asAdmin(`p_${of}`), async (client) => {
        const { rows } = await client.query('select v::text, w::text from public.values as v, public.written as w')
        return [rows, await readCatalogue(client, `p_${of}`)]
      })
    expect(await contents(copy)).toEqual(await contents(ref))
  })
})

describe('the parent', () => {
  it('goes on working: one moment of it is copied and no session of it is cut', async () => {
    const ref = await newParent(
      engine,
      `create table public.left_side (id int primary key, n int); create table public.right_side (id int primary key, n int);
       insert into public.left_side select g, 500 from generate_series(1, 20000) g;
       insert into public.right_side select g, 500 from generate_series(1, 20000) g`,
    )
    const writers = await Promise.all([asOwner(ref), asOwner(ref), asOwner(ref)])
    const sleeper = await asOwner(ref)
    let done = false
    let written = 0
    let longestMs = 0
    const work = writers.map(async (writer, n) => {
      for (let id = n + 1; !done; id = ((id + 6) % 20000) + 1) {
        const startedAt = performance.now()
        await writer.query(
          `begin; update public.left_side set n = n - 1 where id = ${id}; update public.right_side set n = n + 1 where id = ${id}; commit`,
        )
        longestMs = Math.max(longestMs, performance.now() - startedAt)
        written += 1
      }
    })
    const slept = sleeper.query('begin; update public.left_side set n = n where id = 20000; select pg_sleep(1); commit')
    const copy = await copyOf(ref, true)
    done = true
    await Promise.all(work)
    await slept
    const sum =
      'select sum(n)::int as sum, count(*)::int as count from (select n from public.left_side union all select n from public.right_side) t'
    await withClient(asOwner(copy), async (owner) => {
      expect((await owner.query(sum)).rows[0]).toEqual({ sum: 20_000_000, count: 40_000 })
    })
    console.log(`${written} transactions meanwhile, the longest ${Math.round(longestMs)} ms`)
    expect(written).toBeGreaterThan(10)
    await Promise.all([...writers, sleeper].map((client) => client.end()))
  })

  /** Until the copy is at the rows of a table. */
  const untilRead = (ref: string, table: string, to: string) =>
    vi.waitFor(
      async () => {
        const { rows } = await cluster.query(
          `select from pg_locks where mode = 'AccessShareLock' and relation = $1 and pid in
        (select pid from pg_stat_activity where usename = $2)`,
          [await numberOf(ref, table), `p_${to}_copy`],
        )
        expect(rows).toHaveLength(1)
      },
      { timeout: 60_000, interval: 5 },
    )

  it('may alter what its views and policies name while rows of another table are read', async () => {
    const ref = await newParent(
      engine,
      `create table public.a as select generate_series(1, 300000) as n; create table public.b as select 1 as n;
       create view public.v as select n from public.b;
       create policy p on public.a using (exists (select from public.b where b.n = a.n))`,
    )
    const owner = await asOwner(ref)
    const to = newRef()
    const copying = engine.copy({ from: ref, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data: true })
    await untilRead(ref, 'public.a', to)
    await owner.query(`set lock_timeout = '200ms'; alter table public.b add column more int`)
    await owner.end()
    await copying
    expect(await countsOf(to, ['public.a', 'public.b'])).toEqual([300_000, 1])
  })

  it('that is altered while its rows are read makes the copy fail, not lie', async () => {
    const ref = await newParent(
      engine,
      'create table public.a as select generate_series(1, 300000) as n; create table public.b as select 1 as n',
    )
    const owner = await asOwner(ref)
    const to = newRef()
    const copying = engine.copy({ from: ref, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data: true }).then(
      () => 'whole',
      ({ code }) => code,
    )
    await untilRead(ref, 'public.a', to)
    await owner.query('truncate public.b')
    expect(await copying).toBe('40001')
    await owner.end()
    await engine.copy({ from: ref, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data: true })
    expect(await countsOf(to, ['public.a', 'public.b'])).toEqual([300_000, 0])
  })
})
