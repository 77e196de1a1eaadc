import { describe, expect, it } from 'vitest'
import { difference } from './copy-catalogue.ts'
import { catalogueOf, countsOf, newParent, untilIdle, useEngine } from './copy-projects.ts'

interface Size {
  tables: number
  /** In one table more, to which all others point. */
  rows: number
}

/** Each way of copying a large database. */
export async function copiesOfLarge({ tables, rows }: Size): Promise<void> {
  const { engine, copyOf, copyOfUsed } = await useEngine()
  describe('a large database', () => {
    it(`of ${tables} tables, beside one of ${rows} rows, is copied whole`, async () => {
      const others = Array.from(
        { length: tables },
        (
          _,
          n,
        ) => `create table public.t${n} (id serial primary key, name text default 'x', other int references public.large (id));
        create index on public.t${n} (name); alter table public.t${n} enable row level security; create policy p on public.t${n} using (true);`,
      )
      const ref = await newParent(
        engine,
        `create table public.large (id int primary key, name text, at timestamptz default now());
        insert into public.large select g, 'row ' || g from generate_series(1, ${rows}) g; ${others.join('')}`,
      )
      const catalogue = await catalogueOf(ref)
      for (const [kind, copy, data] of [
        ['used', copyOfUsed, true],
        ['idle', copyOf, true],
        ['schema', copyOf, false],
      ] as const) {
        await untilIdle(ref)
        const startedAt = performance.now()
        const to = await copy(ref, data)
        console.log(`${kind}: ${Math.round(performance.now() - startedAt)} ms`)
        expect(await countsOf(to, ['public.large'])).toEqual([data ? rows : 0])
        expect(difference(catalogue, await catalogueOf(to))).toEqual({})
      }
    })
  })
}
