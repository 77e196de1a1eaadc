import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { seedOwner } from '../dev/seed.ts'
import { type Services, startServices } from '../dev/services.ts'
import { as, type Caller } from './api.ts'
import { API_KEY, type NeonServer, startNeonServer } from './neon-server/server.ts'
import { createProject, runSql, untilGone, untilStatus } from './projects.ts'
import { serveInstallation } from './serve.ts'
import type { Server } from './worker.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-neon-worker-'))
let neon: NeonServer
let services: Services
let worker: Server
let owner: Caller
let place: { owner: Caller; slug: string }

/** An installation of its own whose projects are at Neon. */
beforeAll(async () => {
  neon = await startNeonServer()
  services = await startServices({ folder, baseUrl: 'https://api.example.com', durable: false })
  const { ENGINE: _, DATABASE_HOST: __, DATABASE_PORT: ___, ...vars } = services.vars
  const { ENGINE_URL: ____, ...secrets } = services.secrets
  const neonVars = { ENGINE: 'neon', NEON_API_URL: neon.url, ENGINE_NEON_PROXY: neon.proxy, CLIENT_ADDRESS_HEADER: '' }
  worker = await serveInstallation(
    { vars: { ...vars, ...neonVars }, secrets: { ...secrets, NEON_API_KEY: API_KEY } },
    folder,
  )
  const { access_token, organization_slug: slug } = await seedOwner({ controlUrl: services.controlUrl })
  owner = as(access_token, {}, worker.origin)
  place = { owner, slug }
}, 120_000)
afterAll(async () => {
  await worker.stop()
  await services.stop()
  await neon.stop()
  rmSync(folder, { recursive: true, force: true })
})

test('projects and branches live at Neon from their creation to their end', { timeout: 120_000 }, async () => {
  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const { database } = (await owner.get(`/v1/projects/${ref}`)).body
  expect(database).toMatchObject({ host: neon.branches()[0]?.endpoint?.host, postgres_engine: '18' })
  const [pooler] = (await owner.get(`/v1/projects/${ref}/config/database/pooler`)).body
  expect(pooler.connection_string).toContain(`p_${ref}:[YOUR-PASSWORD]@${database.host}:5432/p_${ref}`)

  const migration = { query: 'create table people as select 1 as n', name: 'people' }
  expect((await owner.post(`/v1/projects/${ref}/database/migrations`, migration)).status).toBe(200)
  expect((await runSql(owner, ref, 'select n from people', { read_only: true })).body).toEqual([{ n: 1 }])
  expect((await owner.get(`/v1/projects/${ref}/storage/buckets`)).body).toEqual([])

  const branch = (await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'dev', with_data: true })).body
  await vi.waitFor(
    async () => {
      const { status } = (await owner.get(`/v1/projects/${ref}/branches/dev`)).body
      expect(status).toBe('FUNCTIONS_DEPLOYED')
    },
    { timeout: 60_000, interval: 1_000 },
  )
  expect((await runSql(owner, branch.project_ref, 'select n from people')).body).toEqual([{ n: 1 }])

  expect((await owner.post(`/v1/projects/${ref}/pause`)).status).toBe(200)
  await untilStatus(owner, ref, 'INACTIVE')
  expect((await runSql(owner, ref, 'select 1')).status).toBe(409)
  expect((await runSql(owner, branch.project_ref, 'select 1 as n')).body).toEqual([{ n: 1 }])
  expect((await owner.post(`/v1/projects/${ref}/restore`, {})).status).toBe(200)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')

  expect((await owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
  await untilGone(owner, ref)
  await vi.waitFor(
    async () => {
      await worker.tick()
      expect(neon.projects.size).toBe(0)
    },
    { timeout: 60_000, interval: 1_000 },
  )
  expect(neon.violations).toEqual([])
})

test('the mode of the pooler chooses the address that is shown', { timeout: 60_000 }, async () => {
  const password = 'Long-enough_1'
  const ref = await createProject(place, { db_pass: password })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const { host } = (await owner.get(`/v1/projects/${ref}`)).body.database
  const [id, ...domain] = host.split('.')
  const pooled = [`${id}-pooler`, ...domain].join('.')
  const shown = async () => {
    const [pooler] = (await owner.get(`/v1/projects/${ref}/config/database/pooler`)).body
    const legacy = (await owner.get(`/v1/projects/${ref}/config/database/pgbouncer`)).body
    return [pooler, legacy]
  }
  const at = (name: string) => expect.stringContaining(`p_${ref}:[YOUR-PASSWORD]@${name}:5432/p_${ref}`)
  expect(await shown()).toMatchObject([
    { pool_mode: 'session', db_host: host, connection_string: at(host), connectionString: at(host) },
    { pool_mode: 'session', connection_string: at(host) },
  ])
  expect((await owner.patch(`/v1/projects/${ref}/config/database/pooler`, { pool_mode: 'transaction' })).status).toBe(
    200,
  )
  expect(await shown()).toMatchObject([
    { pool_mode: 'transaction', db_host: pooled, connection_string: at(pooled), connectionString: at(pooled) },
    { pool_mode: 'transaction', connection_string: at(pooled) },
  ])
  const branch = (await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'pooled' })).body.project_ref
  await untilStatus(owner, branch, 'ACTIVE_HEALTHY')
  const [inherited] = (await owner.get(`/v1/projects/${branch}/config/database/pooler`)).body
  expect(inherited.db_host).toMatch(/^[^.]+-pooler\./)

  const port = await neon.port(pooled)
  const client = new pg.Client({ host: '127.0.0.1', port, user: `p_${ref}`, password, database: `p_${ref}` })
  await client.connect()
  expect((await client.query('select 1 as n')).rows).toEqual([{ n: 1 }])
  await client.end()
  await owner.patch(`/v1/projects/${ref}/config/database/pooler`, { pool_mode: 'session' })
  expect((await shown())[0]).toMatchObject({ db_host: host })
  expect((await owner.get(`/v1/projects/${ref}`)).body.database.host).toBe(host)
})

test('what the driver cannot do is refused with its name', { timeout: 60_000 }, async () => {
  const region = { region: 'eu-north-1' }
  const refused = await owner.post('/v1/projects', {
    name: 'north',
    organization_slug: place.slug,
    db_pass: 'Long-enough_1',
    ...region,
  })
  expect(refused.status).toBe(400)
  expect(refused.body.message).toContain('the driver neon has no region eu-north-1')
  const { body } = await owner.get(`/v1/projects/available-regions?organization_slug=${place.slug}`)
  expect(body.all.specific.map(({ code }: { code: string }) => code)).not.toContain('eu-north-1')

  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const login = await owner.post(`/v1/projects/${ref}/cli/login-role`, { read_only: true })
  expect(login).toMatchObject({ status: 403, body: { message: expect.stringContaining('driver neon') } })
  for (const [method, path, sent] of [
    ['post', 'restore-point', { name: 'now' }],
    ['patch', 'schedule', { schedule_for: '04:30' }],
  ] as const) {
    const reply = await owner[method](`/v1/projects/${ref}/database/backups/${path}`, sent)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('driver neon') } })
  }
  const jit = { state: 'unavailable', unavailableReason: 'platform_unsupported' }
  expect((await owner.get(`/v1/projects/${ref}/jit-access`)).body).toEqual(jit)
  expect((await owner.put(`/v1/projects/${ref}/jit-access`, { state: 'enabled' })).body).toEqual(jit)
  const ssl = `/v1/projects/${ref}/ssl-enforcement`
  expect((await owner.get(ssl)).body.currentConfig).toEqual({ database: true })
  const plain = await owner.put(ssl, { requestedConfig: { database: false } })
  const elsewhere = await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'far', region: 'eu-west-2' })
  const fromV2 = await owner.post(`/v2/projects/${ref}/branches`, {
    data: { type: 'branch', attributes: { name: 'far', region: 'eu-west-2' } },
  })
  expect(fromV2).toMatchObject({ status: 400, body: { error: { code: 'bad_request.driver' } } })
  for (const reply of [plain, elsewhere])
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('driver neon') } })
  neon.fault({ operation: 'restartProjectEndpoint', status: 422 })
  const restart = await owner.patch(`/v1/projects/${ref}/config/database/postgres`, { restart_database: true })
  expect(restart).toMatchObject({ status: 503, body: { message: 'The database of the project cannot be reached' } })
  const kept = await sealedPasswordOf(ref)
  const weak = await owner.patch(`/v1/projects/${ref}/database/password`, { password: 'aaaaaaaa' })
  expect(weak).toMatchObject({ status: 400, body: { message: expect.stringContaining('password') } })
  expect(await sealedPasswordOf(ref)).toBe(kept)
  await owner.delete(`/v1/projects/${ref}`)
})

test('a project whose password Neon refuses fails at once, and says why', { timeout: 60_000 }, async () => {
  const ref = await createProject(place, { db_pass: 'aaaaaaaa' })
  await untilStatus(owner, ref, 'INIT_FAILED')
  const control = new pg.Client({ connectionString: services.controlUrl })
  await control.connect()
  const { rows } = await control.query('select attempts, last_error from project_tasks where project_ref = $1', [ref])
  await control.end()
  const last_error = expect.stringContaining('password: password must contain both letters and nonletters')
  expect(rows).toEqual([{ attempts: 1, last_error }])
})

async function sealedPasswordOf(ref: string): Promise<string> {
  const control = new pg.Client({ connectionString: services.controlUrl })
  await control.connect()
  const { rows } = await control.query('select sealed_password from projects where ref = $1', [ref])
  await control.end()
  return rows[0]?.sealed_password
}
