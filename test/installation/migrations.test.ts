import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { drizzle } from 'drizzle-orm/node-postgres'
import { migrate } from 'drizzle-orm/node-postgres/migrator'
import pg from 'pg'
import { afterEach, expect, inject, it } from 'vitest'
import { migrateControlDatabase } from '../../dev/control-database.ts'
import { newDatabase } from '../support/control-databases.ts'

/** The migrations up to the last commit before they were squashed into one. */
const BEFORE = fileURLToPath(new URL('migrations-before-0043', import.meta.url))

const cleanups: (() => Promise<void> | void)[] = []
afterEach(async () => {
  for (const clean of cleanups.splice(0).reverse()) await clean()
})

/** Makes an empty database on the instance of the test run. */
async function emptyDatabase(): Promise<{ url: string; client: pg.Client }> {
  const { url, drop } = await newDatabase(inject('adminUrl'), 'migrations')
  const client = new pg.Client({ connectionString: url })
  await client.connect()
  cleanups.push(async () => {
    await client.end()
    await drop()
  })
  return { url, client }
}

/** Runs the first `count` migrations from before the squash. */
async function migrateAsBefore(client: pg.Client, count?: number): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'pilothouse-migrations-'))
  cleanups.push(() => rmSync(folder, { recursive: true }))
  cpSync(BEFORE, folder, { recursive: true })
  const file = join(folder, 'meta/_journal.json')
  const journal = JSON.parse(readFileSync(file, 'utf8'))
  writeFileSync(file, JSON.stringify({ ...journal, entries: journal.entries.slice(0, count) }))
  await migrate(drizzle(client), { migrationsFolder: folder })
}

/**
 * Returns columns, constraints, indexes, triggers and functions, each as one line. The order of columns may differ.
 */
async function schemaOf(client: pg.Client): Promise<string[]> {
  const { rows } = await client.query<{ line: string }>(`
    select format('%s.%s %s %s %s', attrelid::regclass, attname, format_type(atttypid, atttypmod), attnotnull,
        pg_get_expr(adbin, adrelid)) as line
      from pg_attribute join pg_class c on c.oid = attrelid left join pg_attrdef on adrelid = attrelid and adnum = attnum
      where relnamespace = 'public'::regnamespace and relkind = 'r' and attnum > 0 and not attisdropped
    union all select format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid))
      from pg_constraint where connamespace = 'public'::regnamespace
    union all select indexdef from pg_indexes where schemaname = 'public'
    union all select pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
    union all select pg_get_functiondef(p.oid) from pg_proc p
      where pronamespace = 'public'::regnamespace and prolang = (select oid from pg_language where lanname = 'plpgsql')
    union all select 'extension ' || extname from pg_extension`)
  return rows.map(({ line }) => line).sort()
}

it('a database of the last commit before the squash continues unchanged, and equals a new one', async () => {
  const old = await emptyDatabase()
  const fresh = await emptyDatabase()
  await migrateAsBefore(old.client)
  await old.client.query(`insert into users (username, primary_email) values ('kept', 'kept@example.com')`)
  await Promise.all([old, fresh].map(({ url }) => migrateControlDatabase(url)))
  const before = await schemaOf(old.client)
  expect(before.length).toBeGreaterThan(500)
  expect(await schemaOf(fresh.client)).toEqual(before)
  const { rows } = await old.client.query('select username from users')
  expect(rows).toEqual([{ username: 'kept' }])
})

it('an older database is refused with a reason, and stays unchanged', async () => {
  const { url, client } = await emptyDatabase()
  await migrateAsBefore(client, 42)
  const before = await schemaOf(client)
  await expect(migrateControlDatabase(url)).rejects.toThrow(
    'The control database is too old for this version: upgrade in two steps (docs/operations.md, Upgrade the software).',
  )
  expect(await schemaOf(client)).toEqual(before)
})

it('every foreign key whose row is deleted or changed with another has an index, so that no table is read whole', async () => {
  const { url, client } = await emptyDatabase()
  await migrateControlDatabase(url)
  const { rows } = await client.query<{ name: string }>(`
    select format('%s.%s', conrelid::regclass, attname) as name
    from pg_constraint join pg_attribute on attrelid = conrelid and attnum = conkey[1]
    where contype = 'f' and confdeltype in ('c', 'n') and connamespace = 'public'::regnamespace and not exists (
      select from pg_index where indrelid = conrelid and indkey[0] = conkey[1]
        and (indpred is null or pg_get_expr(indpred, indrelid) = format('(%I IS NOT NULL)', attname)))
    order by 1`)
  expect(rows.map(({ name }) => name)).toEqual([])
})

it('a new database may be migrated again', async () => {
  const { url, client } = await emptyDatabase()
  await migrateControlDatabase(url)
  const before = await schemaOf(client)
  await migrateControlDatabase(url)
  expect(await schemaOf(client)).toEqual(before)
})
