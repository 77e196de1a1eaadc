import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { expect, onTestFinished, test, vi } from 'vitest'
import { startNeonProxy } from '../../dev/neon-proxy.ts'
import { startPostgres } from '../../dev/postgres.ts'
import { createPostgresEngine } from '../../src/engine/postgres.ts'
import { TEMPLATE } from '../../src/engine/template.ts'
import { PASSWORD } from '../projects.ts'
import { asAdmin, asOwner, leftOf, newRef, specOf, useEngine, withClient } from './copy-projects.ts'

const { engine, cluster } = await useEngine()

test('a project is created while others rename and drop databases of theirs', async () => {
  const ref = newRef()
  const [open, renamed] = [`of_others_${newRef()}`, `of_others_${newRef()}`]
  const other = await asAdmin('postgres')
  onTestFinished(async () => {
    await other.end()
    await engine.remove(ref)
    await cluster.query(`drop database if exists ${renamed}`)
  })
  // Other tests create projects too, which close what they find open: they wait.
  const turn = `hashtextextended('${TEMPLATE}', 0)`
  await cluster.query(`select pg_advisory_lock(${turn})`)
  await cluster.query(`create database ${open}`)
  await other.query(`begin; alter database ${open} rename to ${renamed}`)
  await cluster.query(`select pg_advisory_unlock(${turn})`)

  const creating = engine.create(specOf(ref))
  creating.catch(() => {})
  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and query ~ '^REVOKE ALL ON DATABASE ${open}'`
  await vi.waitFor(async () => expect((await cluster.query(waiting)).rows).toHaveLength(1), { timeout: 60_000 })
  await other.query('commit')

  await creating
  expect(await leftOf(ref)).not.toEqual([])
})

interface Step {
  'Node Type': string
  'Relation Name'?: string
  'Actual Loops': number
  Plans?: Step[]
}

const stepsOf = (step: Step): Step[] => [step, ...(step.Plans ?? []).flatMap(stepsOf)]

test('a project’s roles are looked up one by one without reading those of all projects each time', async () => {
  const ref = newRef()
  onTestFinished(() => engine.remove(ref))
  await engine.create(specOf(ref))
  const inside = await asAdmin(`p_${ref}`)
  onTestFinished(() => inside.end())
  await inside.query('begin')
  await inside.query(`do $$ begin for n in 1..2000 loop execute format('create role ${ref}_%s', n); end loop; end $$`)
  const { rows } = await inside.query(`
    explain (analyze, format json)
    select (select string_agg(rolname, ',') from aclexplode(acldefault('f', proowner)) left join pg_roles as role on role.oid = grantee)
      from (select proowner from pg_proc limit 50) as function`)
  const read = stepsOf(rows[0]['QUERY PLAN'][0].Plan).filter((step) => step['Relation Name'] === 'pg_authid')
  expect(read).not.toEqual([])
  for (const step of read.filter((step) => step['Node Type'] === 'Seq Scan')) expect(step['Actual Loops']).toBe(1)
})

test('the sweep of SQL sessions ends none that is young', async () => {
  expect(await engine.sweep()).toBe(0)
})

test('a database that its owner gave away with all that he had comes back to him', async () => {
  const ref = newRef()
  onTestFinished(() => engine.remove(ref))
  await engine.create(specOf(ref))
  const ownerOf = async () =>
    (await cluster.query(`select datdba::regrole::text as owner from pg_database where datname = 'p_${ref}'`)).rows
  await withClient(asOwner(ref), (owner) => owner.query(`reassign owned by p_${ref} to postgres`))
  expect(await ownerOf()).toEqual([{ owner: 'postgres' }])
  await engine.sweep()
  expect(await ownerOf()).toEqual([{ owner: `p_${ref}` }])
})

test('where `postgres` is the superuser no project may act for it', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-superuser-'))
  const postgres = await startPostgres({ folder: join(folder, 'postgres'), durable: false })
  const adminUrl = new URL(postgres.url)
  const made = new pg.Client({ connectionString: adminUrl.href })
  await made.connect()
  await made.query(`create role other superuser login password 'x'`)
  await made.end()
  adminUrl.username = 'other'
  const { password } = adminUrl
  adminUrl.password = 'x'
  const other = new pg.Client({ connectionString: adminUrl.href })
  await other.connect()
  await other.query('alter role pilothouse_admin rename to postgres')
  await other.end()
  Object.assign(adminUrl, { username: 'postgres', password })
  const address = { host: '127.0.0.1', port: postgres.port }
  const proxy = await startNeonProxy({ postgres: address })
  onTestFinished(async () => {
    await proxy.stop()
    await postgres.stop()
    await rm(folder, { recursive: true, force: true })
  })
  const own = createPostgresEngine({ adminUrl: adminUrl.href, proxy: proxy.url, ...address })
  const ref = newRef()
  await own.create(specOf(ref))
  const client = new pg.Client({ ...address, user: `p_${ref}`, password: PASSWORD, database: `p_${ref}` })
  await client.connect()
  onTestFinished(() => client.end())
  await client.query('create table public.t (n int); grant select on public.t to postgres, supabase_auth_admin')
  await expect(client.query('alter table public.t owner to postgres')).rejects.toMatchObject({ code: '42501' })
  await expect(client.query('set role postgres')).rejects.toMatchObject({ code: '42501' })
  await client.query('select from auth.users')
})
