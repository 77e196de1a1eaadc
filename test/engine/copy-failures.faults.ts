import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import type { ProjectEngine } from '../../src/engine/engine.ts'
import { readRows } from './copy-catalogue.ts'
import {
  asAdmin,
  asOwner,
  clusterAddress,
  countsOf,
  leftOf,
  newParent,
  newRef,
  RUNNER_PASSWORD,
  specOf,
  startEngine,
  untilIdle,
  withClient,
} from './copy-projects.ts'
import { startRelay } from './copy-relay.ts'

/** `mortal` is reached through the relay, which can end it; `engine` stands for the next process. */
let engine: ProjectEngine
let mortal: ProjectEngine
let relay: Awaited<ReturnType<typeof startRelay>>
let stop: () => Promise<unknown>
beforeAll(async () => {
  relay = await startRelay(clusterAddress())
  const engines = [await startEngine(), await startEngine(relay.address)] as const
  engine = engines[0].engine
  mortal = engines[1].engine
  stop = () => Promise.all(engines.map((each) => each.stop()))
})
afterAll(async () => {
  await stop()
  relay.stop()
})

const SCHEMA = `
  create table public.authors (id int generated always as identity primary key, name text);
  create table public.books (id int primary key, author int references public.authors, pages int generated always as (id * 2) stored);
  create materialized view public.counts as select count(*) as n from public.books;
  insert into public.authors (name) select 'a' || g from generate_series(1, 100) g;
  insert into public.books select g, g from generate_series(1, 100) g; refresh materialized view public.counts;
  create policy p on public.books to anon using (true)`

const rowsOf = (ref: string) => withClient(asAdmin(`p_${ref}`), readRows)

const copyBy = (by: ProjectEngine, from: string, to: string, data = true) =>
  by.copy({ from, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data })

/** Spread over all that is sent in a whole copy. */
const DEATHS = 16

describe('a process that dies in the midst of a copy', () => {
  it.each(['idle', 'used'])(
    'of an %s parent leaves what the next one or a removal puts right, wherever it dies',
    async (kind) => {
      const ref = await newParent(engine, SCHEMA)
      const held = kind === 'used' ? await asOwner(ref) : undefined
      const rows = await rowsOf(ref)
      const whole = newRef()
      relay.allow(Infinity)
      // The first session of all asks for the version of the cluster, and is opened twice for it.
      await mortal.health(ref, 60_000)
      relay.allow(Infinity)
      await copyBy(mortal, ref, whole)
      const steps = relay.sent()
      const deaths = Array.from({ length: DEATHS }, (_, n) => Math.ceil(((n + 0.5) / DEATHS) * steps))
      for (const [n, step] of deaths.entries()) {
        const to = newRef()
        if (!held) await untilIdle(ref)
        relay.allow(step)
        await expect(copyBy(mortal, ref, to), `step ${step} of ${steps}`).rejects.toThrow()
        if (n % 2 === 0) {
          await copyBy(engine, ref, to)
          expect(await rowsOf(to), `step ${step} of ${steps}`).toEqual(rows)
        }
        await engine.remove(to)
        expect(await leftOf(to), `step ${step} of ${steps}`).toEqual([])
      }
      await held?.end()
    },
    240_000,
  )
})

describe('a copy that fails', () => {
  /** What runs into the end of the disk in the copy alone: a row, an index, a view. */
  const FULL = (parent: string) => `
    create function public.fill() returns int language plpgsql immutable as $$
      begin
        if current_database() <> '${parent}' then raise 'no space left on device' using errcode = 'disk_full'; end if;
        return 1;
      end $$;`
  const PLACES = {
    'the rows of a table': 'create table public.t (id int, n int generated always as (public.fill()) stored)',
    'an index': 'create table public.t (id int); create index on public.t ((id + public.fill()))',
    'a materialized view': `create table public.t (id int);
      create materialized view public.v as select id + public.fill() as n from public.t`,
  }

  it.each(Object.entries(PLACES))('as the disk is full at %s leaves neither a database nor a role', async (_, sql) => {
    const ref = await newParent(engine, '')
    await withClient(asOwner(ref), async (owner) => {
      await owner.query(`${FULL(`p_${ref}`)} ${sql}; insert into public.t (id) select generate_series(1, 100)`)
      const to = newRef()
      await expect(copyBy(engine, ref, to)).rejects.toMatchObject({ code: '53100', message: 'no space left on device' })
      expect(await leftOf(to)).toEqual([])
      await owner.query('create or replace function public.fill() returns int language sql immutable return 1')
      await copyBy(engine, ref, to)
      expect(await countsOf(to, ['public.t'])).toEqual([100])
    })
  })

  it('as there is no such parent leaves nothing either', async () => {
    const to = newRef()
    await expect(copyBy(engine, newRef(), to)).rejects.toMatchObject({ name: 'EngineUnavailable', code: '3D000' })
    expect(await leftOf(to)).toEqual([])
  })
})

describe('a parent that refuses connections', () => {
  it('is cloned as it is, with its rows, and stays closed', async () => {
    const ref = await newParent(engine, SCHEMA)
    const rows = await rowsOf(ref)
    await engine.pause(ref)
    const to = newRef()
    await copyBy(engine, ref, to)
    expect(await rowsOf(to)).toEqual(rows)
    await withClient(asOwner(to), async (owner) => {
      expect((await owner.query('select count(*)::int as n from public.books')).rows).toEqual([{ n: 100 }])
    })
    expect(await engine.health(ref, 5_000)).toMatchObject({ healthy: false })
    await engine.resume(ref)
  })

  it('gives no schema alone: the copy fails, leaves nothing, and succeeds once the parent is open', async () => {
    const ref = await newParent(engine, SCHEMA)
    await engine.pause(ref)
    const to = newRef()
    await expect(copyBy(engine, ref, to, false)).rejects.toMatchObject({ name: 'EngineUnavailable', code: '55000' })
    expect(await leftOf(to)).toEqual([])
    await engine.resume(ref)
    await copyBy(engine, ref, to, false)
    expect(await countsOf(to, ['public.books'])).toEqual([0])
  })

  it('as it has no connection left is copied when it has one again', async () => {
    const ref = await newParent(engine, SCHEMA)
    const held = await asOwner(ref)
    await engine.settings.configure(ref, { set: {}, reset: [], connectionsMax: 1 })
    const to = newRef()
    await expect(copyBy(engine, ref, to)).rejects.toMatchObject({ message: expect.stringContaining('connection') })
    expect(await leftOf(to)).toEqual([])
    await engine.settings.configure(ref, { set: {}, reset: [], connectionsMax: null })
    await copyBy(engine, ref, to)
    expect(await countsOf(to, ['public.books'])).toEqual([100])
    await held.end()
  })
})

describe('two copies to one target', () => {
  it('wait for each other, and the second leaves the first as it is', async () => {
    const ref = await newParent(engine, SCHEMA)
    const to = newRef()
    await Promise.all([copyBy(engine, ref, to), copyBy(engine, ref, to)])
    expect(await rowsOf(to)).toEqual(await rowsOf(ref))
  })

  it('is given up before anything is done when its fence refuses', async () => {
    const ref = await newParent(engine, SCHEMA)
    const to = newRef()
    const fence = vi.fn(async () => false)
    await expect(
      engine.copy({ from: ref, fromRunnerPassword: RUNNER_PASSWORD, to: specOf(to), data: true }, fence),
    ).rejects.toMatchObject({
      name: 'Superseded',
    })
    expect(fence).toHaveBeenCalledOnce()
    expect(await leftOf(to)).toEqual([])
  })
})
