import { and, eq, sql } from 'drizzle-orm'
import pg from 'pg'
import { beforeAll, expect, it, vi } from 'vitest'
import { privateLinkAssociations, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { control, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { act, newBranch } from '../../support/branches.ts'
import { newProject, ownerClient, runSql } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

let organization: TestOrganization
let ref: string
const clock = () => organization.owner.at(new Date())
beforeAll(async () => {
  organization = await newOrganization()

  ref = await newProject(organization)
})

const replicas = (verb: string, body: object) => clock().post(`/v1/projects/${ref}/read-replicas/${verb}`, body)

async function listed() {
  const { body } = await clock().get(`/v1/organizations/${organization.slug}/projects?limit=100`)
  return body.projects.find((each: { ref: string }) => each.ref === ref).databases.slice(1)
}

it('a project has a read replica in its own region, which follows it', async () => {
  expect(await replicas('setup', { read_replica_region: 'eu-west-2' })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('body.read_replica_region: must be us-east-1') },
  })
  expect((await replicas('remove', { database_identifier: ref })).status).toBe(404)
  expect((await replicas('setup', { read_replica_region: 'us-east-1' })).status).toBe(201)
  const there = [{ type: 'READ_REPLICA', status: 'ACTIVE_HEALTHY' }]
  await vi.waitFor(async () => expect(await listed()).toMatchObject(there), { timeout: WAIT_MS, interval: 1_000 })
  const [{ identifier }] = await listed()
  const [, replica] = (await clock().get(`/v1/projects/${ref}/config/database/pooler`)).body
  expect(replica).toMatchObject({
    database_type: 'READ_REPLICA',
    identifier,
    db_user: `postgres.${identifier}`,
    db_name: 'postgres',
  })

  await runSql(clock(), ref, 'create table notes as select 7 as n')
  const { password } = ownerClient(ref)
  const connectionString = replica.connection_string.replace('[YOUR-PASSWORD]', password)
  const client = new pg.Client({ connectionString })
  await client.connect()
  const rows = async () => (await client.query('select n, pg_is_in_recovery() as follows from notes')).rows
  await vi.waitFor(async () => expect(await rows()).toEqual([{ n: 7, follows: true }]), { timeout: WAIT_MS })
  await expect(client.query('insert into notes values (8)')).rejects.toThrow(/read-only/)
  await client.end()

  const settings = `/v1/projects/${ref}/config/database/postgres`
  expect((await clock().put(settings, { max_wal_senders: 1, restart_database: true })).status).toBe(200)
  const setup = () => replicas('setup', { read_replica_region: 'us-east-1' })
  await vi.waitFor(async () => expect((await setup()).status).toBe(201), { timeout: WAIT_MS, interval: 1_000 })
  const second = async () => (await listed()).find((each: { identifier: string }) => each.identifier !== identifier)
  const failed = { status: 'INIT_READ_REPLICA_FAILED' }
  await vi.waitFor(async () => expect(await second()).toMatchObject(failed), { timeout: WAIT_MS, interval: 1_000 })
  const removal = { database_identifier: (await second()).identifier }
  expect((await replicas('remove', removal)).status).toBe(201)
  await vi.waitFor(async () => expect(await second()).toBe(undefined), { timeout: WAIT_MS, interval: 1_000 })

  const gone = () => replicas('remove', { database_identifier: identifier })
  await vi.waitFor(async () => expect((await gone()).status).toBe(201), { timeout: WAIT_MS, interval: 1_000 })
  // A change of the project waits for the removal, which must not wait for it.
  expect((await clock().patch(settings, { work_mem: '3MB' })).status).toBe(200)
  await vi.waitFor(async () => expect(await listed()).toEqual([]), { timeout: WAIT_MS, interval: 1_000 })
  await expect(new pg.Client({ connectionString }).connect()).rejects.toThrow(/not found/)
})

it('a replica whose consumer died in the last attempt has failed', async () => {
  const identifier = `${ref}-rr-us-east-1-abcde`
  const begun = JSON.stringify({ replicas: [{ identifier, isReady: false }] })
  await control
    .update(projects)
    .set({ engineState: sql`${projects.engineState} || ${begun}::jsonb` })
    .where(eq(projects.ref, ref))
  expect(await listed()).toMatchObject([{ identifier, status: 'INIT_READ_REPLICA' }])
  const died = { state: 'running', claim: crypto.randomUUID(), leaseUntil: new Date(0), dueAt: new Date(0) } as const
  const input = { replica: identifier }
  await control.insert(projectTasks).values({ projectRef: ref, kind: 'add_replica', input, attempts: 6, ...died })
  await tick()
  const failed = [{ identifier, status: 'INIT_READ_REPLICA_FAILED' }]
  await vi.waitFor(async () => expect(await listed()).toMatchObject(failed), { timeout: WAIT_MS, interval: 1_000 })
  expect((await replicas('remove', { database_identifier: identifier })).status).toBe(201)
  await vi.waitFor(async () => expect(await listed()).toEqual([]), { timeout: WAIT_MS, interval: 1_000 })
})

it('the replicas of a branch are removed when it is reset, with their private-link associations', async () => {
  const owner = clock()
  const branch = await newBranch(owner, ref)
  const { project_ref: own } = branch
  const databases = async () => (await clock().get(`/v1/projects/${own}/config/database/pooler`)).body
  const setup = await owner.post(`/v1/projects/${own}/read-replicas/setup`, { read_replica_region: 'us-east-1' })
  expect(setup.status).toBe(201)
  const addition = () =>
    control
      .select({ state: projectTasks.state })
      .from(projectTasks)
      .where(and(eq(projectTasks.projectRef, own), eq(projectTasks.kind, 'add_replica')))
  await vi.waitFor(async () => expect(await addition()).toEqual([{ state: 'done' }]), { timeout: WAIT_MS })
  const [, { identifier }] = await databases()
  const share = { projectRef: own, awsAccountId: '123456789012', dnsName: '', resourceConfigurationArn: '' } as const
  await control.insert(privateLinkAssociations).values([
    { ...share, databaseType: 'PRIMARY', databaseIdentifier: own, status: 'READY', createdAt: new Date() },
    { ...share, databaseType: 'READ_REPLICA', databaseIdentifier: identifier, status: 'READY', createdAt: new Date() },
  ])
  expect(await act(clock(), branch, 'reset')).toMatchObject({ clone: 'EXITED', deploy: 'EXITED' })
  expect(await databases()).toMatchObject([{ identifier: own }])
  const [run] = (await clock().get(`/v1/projects/${own}/actions`)).body
  const { body: log } = await clock().get(`/v1/projects/${own}/actions/${run.id}/logs`)
  expect(log).toContain(`removing the read replica ${identifier}`)
  const shared = () =>
    control
      .select({ identifier: privateLinkAssociations.databaseIdentifier })
      .from(privateLinkAssociations)
      .where(eq(privateLinkAssociations.projectRef, own))
  await vi.waitFor(async () => expect(await shared()).toEqual([{ identifier: own }]), { timeout: WAIT_MS })
})
