import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, inject, it } from 'vitest'
import { freePort } from '../../dev/ports.ts'
import { as, type Caller } from '../support/api.ts'
import { newCli } from '../support/cli.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import { newProject, runSql } from '../support/projects.ts'

const isFree = (port: number) =>
  freePort(port, 'postgres').then(
    () => true,
    () => false,
  )
/** The CLI always connects to 5432, which a start opens beside its usual port. */
const arePortsFree = (await isFree(5432)) && (await isFree(54_322))

let machine: Machine
let owner: Caller
let cli: ReturnType<typeof newCli>
beforeAll(async () => {
  if (!arePortsFree) return
  machine = await newMachine({ POSTGRES_PORT: '' }, inject('begun'))
  await machine.started()
  const { base_url, access_token } = machine.credentials()
  owner = as(access_token, {}, base_url)
  cli = newCli({ token: access_token }, base_url, join(machine.folder, 'supabase-profile.yaml'))
})
afterAll(async () => {
  cli?.remove()
  await machine?.dispose()
})

it.skipIf(!arePortsFree)(
  'link, then db push, migration and inspect work with the profile that the start wrote',
  async () => {
    const ref = await newProject({ owner, slug: machine.credentials().organization_slug })
    const migration = (name: string, sql: string) => {
      mkdirSync(join(cli.home, 'supabase/migrations'), { recursive: true })
      writeFileSync(join(cli.home, `supabase/migrations/${name}.sql`), sql)
    }
    await cli.run('link', '--project-ref', ref, '--yes')
    migration('20260101000000_first', 'create table first (n int);')
    await cli.run('db', 'push', '--remote', '--yes')
    migration('20260102000000_second', 'create table second (n int);')
    await cli.run('migration', 'up', '--remote', '--yes')
    expect(await cli.run('migration', 'list', '--remote')).toMatch(/`20260102000000` \| `20260102000000`/)
    expect(
      (await runSql(owner, ref, 'select (select count(*) from first) + (select count(*) from second) as n')).body,
    ).toEqual([{ n: 0 }])
    await cli.run('migration', 'repair', '20260102000000', '--status', 'reverted', '--remote', '--yes')
    expect((await owner.get(`/v1/projects/${ref}/database/migrations`)).body).toMatchObject([{ name: 'first' }])
    expect(await cli.run('inspect', 'db', 'outliers', '--remote')).toContain('schema_migrations')
    expect(await cli.run('inspect', 'db', 'table-stats', '--remote')).toContain('public.second')
    expect(await cli.run('inspect', 'db', 'db-stats', '--remote')).toContain('Index Hit Rate')
  },
)

it.skipIf(!arePortsFree)('an MCP client gets its configuration in a file that only the user can read', async () => {
  const file = join(machine.folder, 'mcp.json')
  expect(statSync(file).mode & 0o777).toBe(0o600)
  const { base_url, access_token } = machine.credentials()
  const { args, env } = JSON.parse(readFileSync(file, 'utf8')).mcpServers.pilothouse
  expect(args.at(-1)).toBe(base_url)
  expect(env).toEqual({ SUPABASE_ACCESS_TOKEN: access_token })
})
