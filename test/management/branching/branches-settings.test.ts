import { createHmac } from 'node:crypto'
import { and, asc, eq, like } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { openAuthSecret } from '../../../src/model/secrets/auth.ts'
import { auditLog, projectSettings } from '../../../src/model/tables/index.ts'
import { type Caller, control, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { act, newBranch, rows, untilBranch } from '../../support/branches.ts'
import { extended } from '../../support/extended.ts'
import { newProject } from '../../support/projects.ts'

let organization: TestOrganization
let owner: Caller
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
})

const hmac = (ref: string, secret: string) => createHmac('sha256', ref).update(secret).digest('hex')

const PATHS = {
  auth: 'config/auth',
  postgres: 'config/database/postgres',
  pooler: 'config/database/pgbouncer',
  ssl: 'ssl-enforcement',
  disk: 'config/disk',
  postgrest: 'postgrest',
  realtime: 'config/realtime',
  storage: 'config/storage',
}
type Area = keyof typeof PATHS

const read = async (ref: string, area: Area) => (await owner.get(`/v1/projects/${ref}/${PATHS[area]}`)).body
const effective = async (ref: string) => (await owner.get(`/v2/projects/${ref}/config`)).body.data.attributes

/** Changes each area through its endpoint. */
async function change(ref: string, changes: Partial<Record<Area, object>>, caller = owner): Promise<void> {
  const at = (path: string) => `/v1/projects/${ref}/${path}`
  for (const [area, body] of Object.entries(changes) as [Area, object][]) {
    const reply = await {
      postgres: () => caller.put(at(PATHS.postgres), body),
      pooler: () => caller.patch(at('config/database/pooler'), body),
      ssl: () => caller.put(at(PATHS.ssl), { requestedConfig: body }),
      disk: () =>
        caller.post(at(PATHS.disk), { attributes: { type: 'gp3', iops: 3_000, throughput_mibps: 125, ...body } }),
      auth: () => caller.patch(at(PATHS.auth), body),
      postgrest: () => caller.patch(at(PATHS.postgrest), body),
      realtime: () => caller.patch(at(PATHS.realtime), body),
      storage: () => caller.patch(at(PATHS.storage), body),
    }[area]()
    expect([area, reply.status, reply.status < 300 || reply.body]).toEqual([area, expect.any(Number), true])
  }
}

/** Returns the audit entries of the branch, without those of its requests. */
async function inherited(ref: string): Promise<Record<string, string[]>> {
  const entries = await control
    .select()
    .from(auditLog)
    .where(and(eq(auditLog.projectRef, ref), like(auditLog.action, 'project.%.inherit')))
    .orderBy(asc(auditLog.createdAt))
  expect(entries.every(({ organizationId, actorUserId }) => organizationId === organization.id && !actorUserId)).toBe(
    true,
  )
  await control.delete(auditLog).where(and(eq(auditLog.projectRef, ref), like(auditLog.action, 'project.%.inherit')))
  expect(JSON.stringify(entries)).not.toContain('sssh')
  const found = entries.map(({ action, detail }) => [action.split('.')[1], (detail.fields as string[]).toSorted()])
  expect(new Set(found.map(([area]) => area)).size).toBe(found.length)
  return Object.fromEntries(found)
}

async function reset(branch: Awaited<ReturnType<typeof newBranch>>): Promise<string> {
  expect(await act(owner, branch, 'reset')).toMatchObject({ configure: 'EXITED', deploy: 'EXITED' })
  await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
  const [run] = (await owner.get(`/v1/projects/${branch.project_ref}/actions`)).body
  return (await owner.get(`/v1/projects/${branch.project_ref}/actions/${run.id}/logs`)).body
}

describe('the settings of a branch', () => {
  let ref: string
  let own: string
  let branch: Awaited<ReturnType<typeof newBranch>>
  beforeAll(async () => {
    ref = await newProject(organization)
    await change(ref, {
      postgres: { work_mem: '8MB', statement_timeout: '9s' },
      pooler: { default_pool_size: 7 },
      ssl: { database: true },
      disk: { size_gb: 9 },
      auth: { jwt_exp: 70, disable_signup: true, site_url: 'https://one.example', external_x_secret: 'sssh' },
      postgrest: { max_rows: 7 },
      realtime: { max_joins_per_second: 7, suspend: true },
      storage: { fileSizeLimit: 7 },
    })
    branch = await newBranch(owner, ref)
    own = branch.project_ref
  })

  it("are its parent's in every area at first, with one entry in the audit log for each", async () => {
    const [theirs, ours] = await Promise.all([ref, own].map(effective))
    expect(ours).toEqual({ ...theirs, auth: { ...theirs.auth, external_x_secret: hmac(own, 'sssh') } })
    expect(await read(own, 'disk')).toMatchObject({ attributes: { size_gb: 9 } })
    for (const area of ['postgres', 'ssl', 'realtime', 'storage'] as const)
      expect([area, await read(own, area)]).toEqual([area, await read(ref, area)])
    expect(JSON.stringify(await Promise.all(Object.keys(PATHS).map((area) => read(own, area as Area))))).not.toContain(
      '"own"',
    )
    expect(await rows(owner, own, 'show work_mem')).toEqual([{ work_mem: '8MB' }])
    expect(await inherited(own)).toEqual({
      postgres: ['statement_timeout', 'work_mem'],
      pooler: ['default_pool_size'],
      ssl: ['database'],
      disk: ['size_gb'],
      auth: ['disable_signup', 'external_x_secret', 'jwt_exp', 'site_url'],
      postgrest: ['max_rows'],
      realtime: ['max_joins_per_second', 'suspend'],
      storage: ['fileSizeLimit'],
    })
  })

  it('keep its own changes at a reset, and all others follow the parent, secrets and defaults too', async () => {
    const digest = (await read(own, 'auth')).external_x_secret
    await change(own, {
      postgres: { work_mem: '16MB', statement_timeout: '9s' },
      pooler: { pool_mode: 'transaction' },
      auth: { jwt_exp: 71, disable_signup: null, external_github_secret: 'of the branch, sssh' },
      postgrest: { db_pool: 5 },
      realtime: { suspend: false },
    })
    await change(ref, {
      postgres: { work_mem: '10MB', maintenance_work_mem: '20MB' },
      pooler: { default_pool_size: 8, pool_mode: 'session' },
      ssl: { database: false },
      disk: { size_gb: 10 },
      auth: { jwt_exp: 72, site_url: null, external_x_secret: 'sssh, new', external_github_secret: 'sssh' },
      postgrest: { max_rows: 8, db_pool: 6 },
      realtime: { max_joins_per_second: 8 },
      storage: { fileSizeLimit: 8 },
    })
    await reset(branch)
    expect(await read(own, 'postgres')).toMatchObject({ work_mem: '16MB', maintenance_work_mem: '20MB' })
    expect(await rows(owner, own, 'show work_mem')).toEqual([{ work_mem: '16MB' }])
    expect(await rows(owner, own, 'show maintenance_work_mem')).toEqual([{ maintenance_work_mem: '20MB' }])
    expect(await read(own, 'disk')).toMatchObject({ attributes: { size_gb: 10 } })
    const config = await effective(own)
    expect(config).toMatchObject({
      database: { ssl_enforced: false },
      pooler: { default_pool_size: 8, pool_mode: 'transaction' },
      api: { max_rows: 8, db_pool: 5 },
      realtime: { max_joins_per_second: 8, suspend: false },
      storage: { file_size_limit: 8 },
    })
    const auth = await read(own, 'auth')
    expect(auth).toEqual({
      ...(await read(ref, 'auth')),
      jwt_exp: 71,
      disable_signup: false,
      external_x_secret: hmac(own, 'sssh, new'),
      external_github_secret: hmac(own, 'of the branch, sssh'),
    })
    expect(auth.site_url).toBe('http://localhost:3000')
    expect(await openedSecret(own, 'external_x_secret')).toBe('sssh, new')
    expect(await inherited(own)).toEqual({
      postgres: ['maintenance_work_mem', 'statement_timeout'],
      pooler: ['default_pool_size'],
      ssl: ['database'],
      disk: ['size_gb'],
      auth: ['external_x_secret', 'site_url'],
      postgrest: ['max_rows'],
      realtime: ['max_joins_per_second'],
      storage: ['fileSizeLimit'],
    })
    await change(own, { auth: { external_x_secret: digest } })
    expect(await read(own, 'auth')).toEqual(auth)
  })

  it('do not change with a merge', async () => {
    const before = await Promise.all([ref, own].map(effective))
    expect(await act(owner, branch, 'merge')).toMatchObject({ deploy: 'EXITED' })
    expect(await Promise.all([ref, own].map(effective))).toEqual(before)
    expect(await inherited(own)).toEqual({})
  })

  it('that are sent back as they were read do not become its own', async () => {
    for (const area of ['auth', 'storage', 'postgres'] as const) await change(own, { [area]: await read(own, area) })
    const { jwt_secret: _, ...postgrest } = await read(own, 'postgrest')
    const set = Object.entries(postgrest).filter(([, value]) => value !== null)
    await change(own, { postgrest: Object.fromEntries(set) })
    await change(ref, {
      postgres: { maintenance_work_mem: '30MB' },
      auth: { site_url: 'https://two.example' },
      postgrest: { max_rows: 9 },
      storage: { fileSizeLimit: 9 },
    })
    await reset(branch)
    expect(await read(own, 'postgres')).toMatchObject({ work_mem: '16MB', maintenance_work_mem: '30MB' })
    expect(await effective(own)).toMatchObject({
      auth: { site_url: 'https://two.example', jwt_exp: 71 },
      api: { max_rows: 9, db_pool: 5 },
      storage: { file_size_limit: 9 },
    })
    await inherited(own)
  })

  it('of Postgres that the branch has cleared stay cleared at a reset, although its data is that of the parent', async () => {
    await change(ref, { postgres: { work_mem: '10MB' } })
    await change(own, { postgres: {} })
    const cleared = await rows(owner, own, 'show work_mem')
    expect(cleared).not.toEqual(await rows(owner, ref, 'show work_mem'))
    await reset(branch)
    expect(await rows(owner, own, 'show work_mem')).toEqual(cleared)
    await inherited(own)
  })

  extended('keep the changes that are made during a reset', async () => {
    await change(ref, {
      pooler: { default_pool_size: 20 },
      auth: { jwt_exp: 90, mailer_otp_exp: 90 },
      postgrest: { max_rows: 90, db_pool: 90 },
      realtime: { max_joins_per_second: 90, max_channels_per_client: 90 },
      storage: { fileSizeLimit: 90 },
    })
    const other = await newMember(organization, 'administrator')
    const running = reset(branch).then(
      () => 'over',
      (error) => error,
    )
    let last = 100
    const going = async () => (await Promise.race([running, Promise.resolve('on')])) === 'on'
    for (; await going(); last++) {
      await change(
        own,
        {
          auth: { mailer_otp_exp: last },
          pooler: { default_pool_size: last },
          postgrest: { max_rows: last },
          realtime: { max_joins_per_second: last },
          storage: { fileSizeLimit: last },
        },
        other,
      )
      if (last === 115) await running
    }
    expect(await running).toBe('over')
    last -= 1
    expect(await effective(own)).toMatchObject({
      auth: { mailer_otp_exp: last, jwt_exp: 71 },
      pooler: { default_pool_size: last },
      api: { max_rows: last, db_pool: 5 },
      realtime: { max_joins_per_second: last, max_channels_per_client: 90 },
      storage: { file_size_limit: last },
    })
  })

  async function openedSecret(of: string, name: string): Promise<string> {
    const where = and(eq(projectSettings.projectRef, of), eq(projectSettings.area, 'auth'))
    const [row] = await control.select().from(projectSettings).where(where)
    const kept = row?.value as { secrets: Record<string, { sealed: string }> } | undefined
    return openAuthSecret(inject('encryptionKey'), of, name, kept?.secrets[name]?.sealed ?? '')
  }
})

describe('contradictory settings of a branch', () => {
  extended('are left unchanged, as few as possible, and the log of the run names them', async () => {
    const mail = {
      smtp_host: 'm.example',
      smtp_port: '25',
      smtp_user: 'u',
      smtp_pass: 'p',
      smtp_admin_email: 'a@m.example',
    }
    const ref = await newProject(organization)
    await change(ref, { auth: { ...mail, external_github_client_id: 'id', external_github_secret: 'sssh' } })
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    const before = await read(own, 'auth')
    await inherited(own)
    await change(own, { auth: { external_github_client_id: null, smtp_user: 'of the branch' } })
    const enabled = { external_github_enabled: true, external_github_secret: 'sssh 2', jwt_exp: 70 }
    await change(ref, { auth: { ...enabled, smtp_host: '', smtp_max_frequency: 5 } })
    const log = await reset(branch)
    expect(log).toMatch(
      /configure: .*contradict.*: external_github_enabled, smtp_host, smtp_port, smtp_pass, smtp_admin_email\n/,
    )
    expect(await read(own, 'auth')).toEqual({
      ...before,
      jwt_exp: 70,
      smtp_max_frequency: 5,
      smtp_user: 'of the branch',
      external_github_client_id: null,
      external_github_secret: hmac(own, 'sssh 2'),
    })
    expect(await inherited(own)).toEqual({ auth: ['external_github_secret', 'jwt_exp', 'smtp_max_frequency'] })
    await change(own, { auth: { external_github_client_id: 'of the branch' } })
    expect(await reset(branch)).toMatch(/contradict.*: smtp_host, smtp_port, smtp_pass, smtp_admin_email\n/)
    expect(await inherited(own)).toEqual({ auth: ['external_github_enabled'] })
    await change(own, { auth: { smtp_host: '' } })
    expect(await reset(branch)).not.toContain('contradict')
    expect(await read(own, 'auth')).toMatchObject({ external_github_enabled: true, smtp_host: null, smtp_user: null })
  })
})

describe('the disk attributes of a branch', () => {
  it('are its own', async () => {
    const ref = await newProject(organization)
    await change(ref, { disk: { size_gb: 9 } })
    const attributes = { name: 'larger', desired_disk_size_gb: 16 }
    const { body } = await owner.post(`/v2/projects/${ref}/branches`, { data: { type: 'branch', attributes } })
    const branch = { parent_project_ref: ref, ...body.data.attributes }
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    await change(ref, { disk: { size_gb: 10 } })
    await reset(branch)
    expect(await read(branch.project_ref, 'disk')).toMatchObject({ attributes: { size_gb: 16 } })
  })
})
