import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import pg from 'pg'
import { afterAll, beforeAll, expect, inject, test, vi } from 'vitest'
import { seedOwner } from '../../dev/seed.ts'
import { type Services, startServices } from '../../dev/services.ts'
import { runAdvisors } from '../support/advisors.ts'
import { as, type Caller } from '../support/api.ts'
import { extended } from '../support/extended.ts'
import { copyInstallation } from '../support/installations.ts'
import { API_KEY, type NeonServer, startNeonServer } from '../support/neon-server/server.ts'
import { createProject, runSql, untilGone, untilStatus } from '../support/projects.ts'
import { serveInstallation } from '../support/serve.ts'
import { WAIT_MS } from '../support/wait.ts'
import type { Server } from '../support/worker.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-neon-worker-'))
let neon: NeonServer
let services: Services
let worker: Server
let owner: Caller
let token: string
let control: pg.Client
let place: { owner: Caller; slug: string }

/** Starts an installation of its own whose projects are at Neon. */
beforeAll(async () => {
  neon = await startNeonServer()
  copyInstallation(inject('begun'), folder)
  services = await startServices({ folder, baseUrl: 'https://api.example.com', durable: false })
  const { ENGINE: _, HOST_URL: __, DATABASE_HOST: ___, DATABASE_PORT: ____, ...vars } = services.vars
  const { HOST_KEY: _____, ...secrets } = services.secrets
  const neonVars = { ENGINE: 'neon', NEON_API_URL: neon.url, ENGINE_NEON_PROXY: neon.proxy, CLIENT_ADDRESS_HEADER: '' }
  worker = await serveInstallation(
    { vars: { ...vars, ...neonVars }, secrets: { ...secrets, NEON_API_KEY: API_KEY } },
    folder,
  )
  const { access_token, organization_slug: slug } = await seedOwner({ controlUrl: services.controlUrl })
  token = access_token
  control = new pg.Client({ connectionString: services.controlUrl })
  await control.connect()
  owner = as(access_token, {}, worker.origin)
  place = { owner, slug }
})
afterAll(async () => {
  await control.end()
  await worker.stop()
  await services.stop()
  await neon.stop()
  rmSync(folder, { recursive: true, force: true })
})

test('projects and branches live at Neon from their creation to their end', async () => {
  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const { database } = (await owner.get(`/v1/projects/${ref}`)).body
  expect(database).toMatchObject({ host: neon.branches()[0]?.endpoint?.host, postgres_engine: '18' })
  const [pooler] = (await owner.get(`/v1/projects/${ref}/config/database/pooler`)).body
  expect(pooler.connection_string).toContain(`p_${ref}:[YOUR-PASSWORD]@${database.host}:5432/p_${ref}`)

  expect((await owner.get(`/v1/projects/${ref}/upgrade/eligibility`)).body).toMatchObject({ eligible: false })
  expect(await owner.post(`/v1/projects/${ref}/upgrade`, { target_version: '18' })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('the driver neon cannot upgrade Postgres') },
  })

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
    { timeout: WAIT_MS, interval: 1_000 },
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
    { timeout: WAIT_MS, interval: 1_000 },
  )
  expect(neon.violations).toEqual([])
})

extended('the mode of the pooler decides which address is shown', async () => {
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

test('temporary logins open the database, and end when they expire, are revoked or the project is paused', {
  timeout: WAIT_MS,
}, async () => {
  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const connect = async (user: string, password: string, host: string) => {
    const client = new pg.Client({
      ...{ host: '127.0.0.1', port: await neon.port(host), user, password, database: `p_${ref}` },
    })
    client.on('error', () => {})
    await client.connect()
    return client
  }
  const { host } = (await owner.get(`/v1/projects/${ref}`)).body.database

  const cli = await owner.post(`/v1/projects/${ref}/cli/login-role`, { read_only: false })
  expect(cli).toMatchObject({
    status: 201,
    body: { role: expect.stringMatching(/^cli_login_[a-z]{8}$/), ttl_seconds: 1800 },
  })
  const client = await connect(cli.body.role, cli.body.password, host)
  const { rows } = await client.query('select current_user::text as acts')
  expect(rows).toEqual([{ acts: `p_${ref}` }])
  const cut = new Promise((resolve) => client.once('end', resolve))
  expect(await owner.delete(`/v1/projects/${ref}/cli/login-role`)).toMatchObject({ status: 200 })
  await cut

  const jit = `/v1/projects/${ref}/jit-access`
  expect((await owner.get(jit)).body).toEqual({ state: 'disabled', appliedSuccessfully: true })
  expect((await owner.put(jit, { state: 'enabled' })).body).toEqual({ state: 'enabled', appliedSuccessfully: true })
  const { user_id } = (await owner.get(`/v1/projects/${ref}/database/jit`)).body
  await owner.put(`/v1/projects/${ref}/database/jit`, { user_id, roles: [{ role: 'postgres' }] })
  const authorize = () => owner.post(`/v1/projects/${ref}/database/jit`, { role: 'postgres', rhost: '203.0.113.7' })
  const authorized = await authorize()
  expect(authorized).toMatchObject({ status: 200, body: { login: { host, port: 5432, database: `p_${ref}` } } })
  const { user, password } = authorized.body.login
  expect(password).not.toBe(token)
  await expect(connect(user, token, host)).rejects.toMatchObject({ code: '28P01' })
  const member = await connect(user, password, host)
  const memberCut = new Promise((resolve) => member.once('end', resolve))

  expect((await owner.post(`/v1/projects/${ref}/pause`)).status).toBe(200)
  await untilStatus(owner, ref, 'INACTIVE')
  await memberCut
  // The revocation holds while the database is out of reach: the role is removed once the database is open again.
  expect((await owner.delete(`/v1/projects/${ref}/database/jit/${user_id}`)).status).toBe(200)
  await worker.tick()
  expect((await owner.post(`/v1/projects/${ref}/restore`, {})).status).toBe(200)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  await worker.tick()
  await expect(connect(user, password, host)).rejects.toMatchObject({ code: '28P01' })
  const roles = await runSql(owner, ref, `select rolname from pg_roles where rolname like 'jit\\_login\\_%'`)
  expect(roles.body).toEqual([])
  await owner.delete(`/v1/projects/${ref}`)
})

/** A poll until the next second: moments are given in whole seconds. */
const NEXT_SECOND = { timeout: WAIT_MS, interval: 10 }

extended('a database is restored to a moment of its history', async () => {
  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  await runSql(owner, ref, `create table people as select 'Ada' as name`)
  const login = (await owner.post(`/v1/projects/${ref}/cli/login-role`, { read_only: true })).body
  const path = (rest = '') => `/v1/projects/${ref}/database/backups${rest}`
  const secondsNow = () => Math.floor(Date.now() / 1000)
  const madeIn = secondsNow()
  await vi.waitFor(() => expect(secondsNow()).toBeGreaterThan(madeIn), NEXT_SECOND)
  const target = secondsNow()
  await runSql(owner, ref, `insert into people values ('Grace'); alter database p_${ref} set work_mem to '7MB'`)

  const listed = await owner.get(path())
  expect(listed).toMatchObject({ status: 200, body: { pitr_enabled: true, backups: [] } })
  const { earliest_physical_backup_date_unix: earliest, latest_physical_backup_date_unix: latest } =
    listed.body.physical_backup_data
  expect([earliest <= target, target <= latest, latest <= secondsNow()]).toEqual([true, true, true])
  for (const outside of [earliest - 1, secondsNow() + 60]) {
    expect(await owner.post(path('/restore-pitr'), { recovery_time_target_unix: outside })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`body.recovery_time_target_unix: must be from ${earliest} to `) },
    })
  }
  neon.fault({ operation: 'getProject', status: 400, times: 2 })
  const body = { message: 'The database of the project cannot be reached' }
  expect(await owner.get(path())).toMatchObject({ status: 503, body })
  const goBack = () => owner.post(path('/restore-pitr'), { recovery_time_target_unix: target })
  expect(await goBack()).toMatchObject({ status: 503, body })

  expect(await goBack()).toMatchObject({ status: 201 })
  const again = await goBack()
  expect(again).toMatchObject({ status: 409, body: { message: expect.stringContaining('RESTORING') } })
  expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('RESTORING')
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  expect((await runSql(owner, ref, 'select name from people')).body).toEqual([{ name: 'Ada' }])
  const roles = await runSql(owner, ref, `select rolname from pg_roles where rolname = '${login.role}'`)
  expect(roles.body).toEqual([])
  // There is no window until the second in which the restore has ended is over.
  const after = await vi.waitFor(async () => {
    const { physical_backup_data: window } = (await owner.get(path())).body
    expect(window.earliest_physical_backup_date_unix).toBeGreaterThan(target)
    return window
  }, NEXT_SECOND)

  // Neon itself may have less history than it reports; then nothing has happened.
  neon.fault({ operation: 'restoreProjectBranch', status: 400 })
  await vi.waitFor(() => expect(secondsNow()).toBeGreaterThan(after.earliest_physical_backup_date_unix), NEXT_SECOND)
  const refused = await owner.post(path('/restore-pitr'), {
    recovery_time_target_unix: after.earliest_physical_backup_date_unix,
  })
  expect(refused.status).toBe(201)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const { rows } = await control.query(
    `select kind, state, attempts, last_error from project_tasks where project_ref = $1 and kind = 'restore_moment' order by created_at`,
    [ref],
  )
  expect(rows).toMatchObject([
    { state: 'done', attempts: 1 },
    { state: 'failed', attempts: 1, last_error: expect.stringContaining('Neon answered 400: injected 400') },
  ])

  // A restore also opens a project that could not be resumed.
  await owner.post(`/v1/projects/${ref}/pause`)
  await untilStatus(owner, ref, 'INACTIVE')
  const settings = `/v1/projects/${ref}/config/database/postgres`
  expect(await owner.patch(settings, { work_mem: '7MB' })).toMatchObject({ status: 409 })
  await control.query(`update projects set status = 'RESTORE_FAILED' where ref = $1`, [ref])
  const reopened = await owner.post(path('/restore-pitr'), {
    recovery_time_target_unix: after.earliest_physical_backup_date_unix,
  })
  expect(reopened.status).toBe(201)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  await owner.delete(`/v1/projects/${ref}`)
})

extended('a project has read replicas in its own region', async () => {
  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const replicas = (verb: string, body: object) => owner.post(`/v1/projects/${ref}/read-replicas/${verb}`, body)
  expect(await replicas('setup', { read_replica_region: 'eu-west-2' })).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('body.read_replica_region: must be us-east-1') },
  })
  expect((await replicas('remove', { database_identifier: ref })).status).toBe(404)
  expect((await replicas('setup', { read_replica_region: 'us-east-1' })).status).toBe(201)
  const listed = async () => {
    const { body } = await owner.get(`/v1/organizations/${place.slug}/projects?limit=100`)
    const found = body.projects.find((each: { ref: string }) => each.ref === ref)
    return found.databases.slice(1)
  }
  const status = 'ACTIVE_HEALTHY'
  await vi.waitFor(async () => expect(await listed()).toMatchObject([{ type: 'READ_REPLICA', status }]), {
    timeout: WAIT_MS,
    interval: 1_000,
  })
  const [{ identifier }] = await listed()
  expect(identifier).toMatch(new RegExp(`^${ref}-rr-us-east-1-[a-z]{5}$`))
  const [primary, replica] = (await owner.get(`/v1/projects/${ref}/config/database/pooler`)).body
  expect(primary).toMatchObject({ database_type: 'PRIMARY', identifier: ref })
  expect(replica).toMatchObject({ database_type: 'READ_REPLICA', identifier, db_user: `p_${ref}` })
  await control.query(
    `insert into private_link_associations
      (project_ref, aws_account_id, database_type, database_identifier, dns_name, resource_configuration_arn, status, created_at)
    select $1, '123456789012', type, identifier, '', '', 'CREATION_FAILED', now()
    from (values ('PRIMARY', $1), ('READ_REPLICA', $2)) as shared (type, identifier)`,
    [ref, identifier],
  )
  const login = { user: `p_${ref}`, password: 'Long-enough_1', database: `p_${ref}` }
  const client = new pg.Client({ host: '127.0.0.1', port: await neon.port(replica.db_host), ...login })
  await client.connect()
  expect((await client.query('select pg_is_in_recovery() as follows')).rows).toEqual([{ follows: true }])
  await client.end()
  await vi.waitFor(
    async () => expect((await replicas('remove', { database_identifier: identifier })).status).toBe(201),
    { timeout: WAIT_MS, interval: 500 },
  )
  await vi.waitFor(async () => expect(await listed()).toEqual([]), { timeout: WAIT_MS, interval: 1_000 })
  const shared = async () => (await owner.get(`/v2/projects/${ref}/private-link/associations`)).body.data
  await vi.waitFor(async () => expect(await shared()).toMatchObject([{ attributes: { database_identifier: ref } }]), {
    timeout: WAIT_MS,
    interval: 1_000,
  })
  expect((await replicas('remove', { database_identifier: identifier })).status).toBe(404)
  await owner.post(`/v1/projects/${ref}/pause`)
  await untilStatus(owner, ref, 'INACTIVE')
  expect((await replicas('setup', { read_replica_region: 'us-east-1' })).status).toBe(409)
  await owner.delete(`/v1/projects/${ref}`)
})

extended('a project gets the requested size', async () => {
  const fields = { name: 'sized', organization_slug: place.slug, db_pass: 'Long-enough_1' }
  const huge = await owner.post('/v1/projects', { ...fields, desired_instance_size: '48xlarge' })
  const said = expect.stringContaining('body.desired_instance_size: 48xlarge is not available')
  expect(huge).toMatchObject({ status: 400, body: { message: said } })
  const ref = await createProject(place, { db_pass: 'Long-enough_1', desired_instance_size: 'small' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  const { host } = (await owner.get(`/v1/projects/${ref}`)).body.database
  const unitsNow = () =>
    neon.branches().find(({ endpoint }) => endpoint?.host === host)?.endpoint?.autoscaling_limit_max_cu
  expect(unitsNow()).toBe(0.5)
  const branch = { branch_name: 'huge', desired_instance_size: '48xlarge' }
  expect(await owner.post(`/v1/projects/${ref}/branches`, branch)).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('body.desired_instance_size: 48xlarge is not available') },
  })

  const addons = `/v1/projects/${ref}/billing/addons`
  const apply = (size: string) => owner.patch(addons, { addon_type: 'compute_instance', addon_variant: `ci_${size}` })
  const sizeShown = async () => (await owner.get(addons)).body.selected_addons[0]?.variant.id
  const [offered] = (await owner.get(addons)).body.available_addons
  expect(offered).toMatchObject({ type: 'compute_instance' })
  expect(offered.variants.map(({ id }: { id: string }) => id).slice(-2)).toEqual(['ci_8xlarge', 'ci_12xlarge'])
  const { entitlements } = (await owner.get(`/v1/organizations/${place.slug}/entitlements`)).body
  const has = (key: string, config: object) =>
    expect.objectContaining({ feature: expect.objectContaining({ key }), config })
  expect(entitlements).toContainEqual(has('instances.read_replicas', { enabled: true }))
  expect(entitlements).toContainEqual(has('backup.schedule', { enabled: false }))
  const set = offered.variants.map(({ id }: { id: string }) => id)
  expect(entitlements).toContainEqual(has('instances.compute_update_available_sizes', { enabled: true, set }))
  expect(await apply('16xlarge')).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('the driver neon has no size 16xlarge') },
  })
  neon.fault({ operation: 'updateProjectEndpoint', status: 423 })
  expect((await apply('medium')).status).toBe(200)
  expect((await owner.get(`/v1/projects/${ref}`)).body.status).toBe('RESIZING')
  for (const reply of [await apply('large'), await owner.delete(`${addons}/ci_small`)]) {
    expect(reply).toMatchObject({ status: 409, body: { message: expect.stringContaining('RESIZING') } })
  }
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  expect([unitsNow(), await sizeShown()]).toEqual([1, 'ci_medium'])

  neon.fault({ operation: 'updateProjectEndpoint', status: 422 })
  expect((await apply('large')).status).toBe(200)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  expect([unitsNow(), await sizeShown()]).toEqual([1, 'ci_medium'])
  expect((await owner.delete(`${addons}/ci_medium`)).status).toBe(200)
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  expect([unitsNow(), await sizeShown()]).toEqual([0.25, undefined])
  await owner.delete(`/v1/projects/${ref}`)
})

test("an operation that the driver cannot do is refused with the driver's name", async () => {
  const region = { region: 'eu-north-1' }
  const refused = await owner.post('/v1/projects', {
    name: 'north',
    organization_slug: place.slug,
    db_pass: 'Long-enough_1',
    ...region,
  })
  expect(refused.status).toBe(400)
  expect(refused.body.message).toContain('body.region: eu-north-1 is not available')
  const { body } = await owner.get(`/v1/projects/available-regions?organization_slug=${place.slug}`)
  expect(body.all.specific.map(({ code }: { code: string }) => code)).not.toContain('eu-north-1')

  const ref = await createProject(place, { db_pass: 'Long-enough_1' })
  await untilStatus(owner, ref, 'ACTIVE_HEALTHY')
  for (const [method, path, sent] of [
    ['post', 'restore-point', { name: 'now' }],
    ['patch', 'schedule', { schedule_for: '04:30' }],
  ] as const) {
    const reply = await owner[method](`/v1/projects/${ref}/database/backups/${path}`, sent)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('driver neon') } })
  }
  const { user_id } = (await owner.get(`/v1/projects/${ref}/database/jit`)).body
  const networks = { role: 'postgres', allowed_networks: { allowed_cidrs: [{ cidr: '192.0.2.0/24' }] } }
  const bound = await owner.put(`/v1/projects/${ref}/database/jit`, { user_id, roles: [networks] })
  expect(bound).toMatchObject({
    status: 400,
    body: { message: expect.stringMatching(/body\.roles\.0\.allowed_networks.*driver neon/) },
  })
  const ssl = `/v1/projects/${ref}/ssl-enforcement`
  expect((await owner.get(ssl)).body.currentConfig).toEqual({ database: true })
  const lints = ['ssl_not_enforced', 'pitr_not_enabled', 'db_connection_limit_reached', 'no_primary_key']
  expect(await runAdvisors(owner, ref, 'network_restrictions_not_set')).toEqual([])
  expect((await runAdvisors(owner, ref, ...lints)).map(({ name }) => name)).toEqual([])
  const plain = await owner.put(ssl, { requestedConfig: { database: false } })
  const elsewhere = await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'far', region: 'eu-west-2' })
  const fromV2 = await owner.post(`/v2/projects/${ref}/branches`, {
    data: { type: 'branch', attributes: { name: 'far', region: 'eu-west-2' } },
  })
  expect(fromV2).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed' } } })
  const vanity = (rest: string) =>
    owner.post(`/v1/projects/${ref}/vanity-subdomain/${rest}`, { vanity_subdomain: 'acme' })
  expect(await vanity('check-availability')).toMatchObject({ status: 201, body: { available: false } })
  expect(await vanity('activate')).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('has no PROJECT_DOMAIN') },
  })
  const restrictions = `/v1/projects/${ref}/network-restrictions`
  expect((await owner.get(restrictions)).body.entitlement).toBe('disallowed')
  const applied = await owner.post(`${restrictions}/apply`, { dbAllowedCidrs: ['192.0.2.0/24'] })
  const patched = await owner.patch(restrictions, { add: { dbAllowedCidrs: ['192.0.2.0/24'] } })
  expect(elsewhere).toMatchObject({
    status: 400,
    body: { message: expect.stringContaining('body.region: eu-west-2 is not available') },
  })
  for (const reply of [plain, applied, patched])
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

test('a project whose password Neon refuses fails at once, with the reason', async () => {
  const ref = await createProject(place, { db_pass: 'aaaaaaaa' })
  await untilStatus(owner, ref, 'INIT_FAILED')
  const { rows } = await control.query('select attempts, last_error from project_tasks where project_ref = $1', [ref])
  const last_error = expect.stringContaining('password: password must contain both letters and nonletters')
  expect(rows).toEqual([{ attempts: 1, last_error }])
})

async function sealedPasswordOf(ref: string): Promise<string> {
  const { rows } = await control.query('select sealed_password from projects where ref = $1', [ref])
  return rows[0]?.sealed_password
}
