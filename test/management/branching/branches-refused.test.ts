import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import {
  backups,
  branches,
  organizations,
  type ProjectStatus,
  projects,
  projectTasks,
} from '../../../src/model/tables/index.ts'
import { adminClient, adminRows, onHost } from '../../instances.ts'
import { control, newOrganization, setName, type TestOrganization, tick } from '../../support/api.ts'
import { untilBlocked } from '../../support/blocked.ts'
import { act, type BranchReply, migrate, newBranch } from '../../support/branches.ts'
import { newProject, runSql } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

let organization: TestOrganization
let ref: string
let branch: BranchReply
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  branch = await newBranch(organization.owner, ref)
})

const setStatus = (of: string, status: ProjectStatus) =>
  control.update(projects).set({ status }).where(eq(projects.ref, of))

async function whileStatus<Value>(of: string, status: ProjectStatus, work: () => Promise<Value>): Promise<Value> {
  await setStatus(of, status)
  try {
    return await work()
  } finally {
    await setStatus(of, 'ACTIVE_HEALTHY')
  }
}

/** Sends the creation of a branch to both versions of the API. */
const creations = (name: string, more: Record<string, unknown> = {}, of = ref) => [
  organization.owner.post(`/v1/projects/${of}/branches`, { branch_name: name, ...more }),
  organization.owner.post(`/v2/projects/${of}/branches`, {
    data: { type: 'branch', attributes: { name, ...more } },
  }),
]

async function statusesOf(replies: readonly Promise<{ status: number }>[]): Promise<number[]> {
  return (await Promise.all(replies)).map(({ status }) => status)
}

describe('a branch is not created', () => {
  it('on the free plan', async () => {
    const plan = (name: 'free' | 'enterprise') =>
      control.update(organizations).set({ plan: name }).where(eq(organizations.id, organization.id))
    await plan('free')
    expect(await statusesOf(creations('paid'))).toEqual([402, 402])
    await plan('enterprise')
  })

  it('of a parent that is not active', async () => {
    expect(await whileStatus(ref, 'INACTIVE', () => statusesOf(creations('paused')))).toEqual([409, 409])
  })

  it('of a branch', async () => {
    expect(await statusesOf(creations('nested', {}, branch.project_ref))).toEqual([422, 400])
  })

  it('for a git branch without a name, which v1 treats as none', async () => {
    expect(await statusesOf(creations('nameless', { git_branch: '' }))).toEqual([201, 400])
  })

  it('with a name that is in use', async () => {
    expect(await statusesOf(creations(branch.name))).toEqual([409, 409])
  })

  it('while the name of its notify_url cannot be resolved', async () => {
    const host = `${crypto.randomUUID()}.receivers.dev`
    await setName(host, { raw: { status: 502, body: 'bad gateway' } })
    const more = { notify_url: `https://${host}/` }
    const patched = organization.owner.patch(`/v1/branches/${branch.id}`, more)
    expect(await statusesOf([...creations('untold', more), patched])).toEqual([503, 503, 503])
    await control.update(branches).set({ notifyUrl: more.notify_url }).where(eq(branches.id, branch.id))
    const renamed = await organization.owner.patch(`/v1/branches/${branch.id}`, { ...more, git_branch: 'kept' })
    expect(renamed).toMatchObject({ status: 200, body: { git_branch: 'kept', ...more } })
    await control.update(branches).set({ notifyUrl: null }).where(eq(branches.id, branch.id))
  })
})

describe('a branch stays unchanged', () => {
  it.each(['push', 'merge', 'reset'])('after %s up to a version that does not exist', async (action) => {
    const { owner } = organization
    const path = `/v1/branches/${branch.id}`
    const { body: before } = await owner.get(`/v1/projects/${ref}/branches/${branch.name}`)
    const source = action === 'push' ? ref : branch.project_ref
    const message = expect.stringContaining(`body.migration_version: ${source} has no migration 20000101000000`)
    const refused = { status: 400, body: { message } }
    expect(await owner.post(`${path}/${action}`, { migration_version: '20000101000000' })).toMatchObject(refused)
    expect((await owner.get(`/v1/projects/${ref}/branches/${branch.name}`)).body).toEqual(before)
  })

  it('after a push up to a version if the migrations of its parent cannot be read', async () => {
    const { owner } = organization
    const rename = (from: string, to: string) =>
      runSql(owner, ref, `alter table supabase_migrations.schema_migrations rename column ${from} to ${to}`)
    expect(await rename('version', 'renamed')).toMatchObject({ status: 201 })
    const reply = await owner.post(`/v1/branches/${branch.id}/push`, { migration_version: '20000101000000' })
    await rename('renamed', 'version')
    const message = expect.stringContaining(`body.migration_version: the migrations of ${ref} cannot be read: column`)
    expect(reply).toMatchObject({ status: 400, body: { message } })
  })

  it('after a request to reset it at each push', async () => {
    const refused = { status: 400, body: { message: expect.stringContaining('body.reset_on_push') } }
    expect(await organization.owner.patch(`/v1/branches/${branch.id}`, { reset_on_push: true })).toMatchObject(refused)
  })

  it('after push, reset and diff while it is not active', async () => {
    const { owner } = organization
    const path = `/v1/branches/${branch.project_ref}`
    const replies = () => [owner.post(`${path}/push`, {}), owner.post(`${path}/reset`, {}), owner.get(`${path}/diff`)]
    expect(await whileStatus(branch.project_ref, 'INACTIVE', () => statusesOf(replies()))).toEqual([409, 409, 409])
  })

  it('after push, reset, merge and diff while its parent is not active', async () => {
    const { owner } = organization
    const path = `/v1/branches/${branch.id}`
    const started = () => ['push', 'reset', 'merge'].map((kind) => owner.post(`${path}/${kind}`, {}))
    const replies = () => Promise.all([...started(), owner.get(`${path}/diff`)])
    const message = expect.stringContaining("the parent's status is INACTIVE, not ACTIVE_HEALTHY")
    const refused = { status: 409, body: { message } }
    expect(await whileStatus(ref, 'INACTIVE', replies)).toMatchObject(Array(4).fill(refused))
    const { body } = await owner.get(`/v1/projects/${ref}/branches/${branch.name}`)
    expect(body).toMatchObject({ status: 'FUNCTIONS_DEPLOYED', preview_project_status: 'ACTIVE_HEALTHY' })
  })

  it('while its project is being deleted by itself', async () => {
    const { owner } = organization
    const input = { projectRef: branch.project_ref, kind: 'delete', dueAt: new Date('2100-01-01') } as const
    const [task] = await control
      .insert(projectTasks)
      .values({ ...input, input: {} })
      .returning()
    const replies = [owner.delete(`/v1/branches/${branch.id}`), owner.delete(`/v1/projects/${ref}/branches`)]
    expect(await statusesOf(replies)).toEqual([409, 409])
    await control.delete(projectTasks).where(eq(projectTasks.id, task?.id ?? ''))
    expect(await owner.get(`/v1/branches/${branch.id}`)).toMatchObject({ status: 200 })
  })

  it.each([
    ['at once', ''],
    ['in an hour', '?force=false'],
  ])('after its deletion %s if it is made persistent meanwhile', async (_, query) => {
    const { owner } = organization
    const isBranch = eq(branches.id, branch.id)
    const { asked } = await control.transaction(async (tx) => {
      await tx.update(branches).set({ persistent: true }).where(isBranch)
      return untilBlocked(tx, () => owner.delete(`/v1/branches/${branch.id}${query}`))
    })
    const message = expect.stringContaining('a persistent branch cannot be deleted')
    expect(await asked).toMatchObject({ status: 422, body: { message } })
    const rows = await control.update(branches).set({ persistent: false }).where(isBranch).returning()
    expect(rows).toMatchObject([{ removedAt: null, deletionScheduledAt: null }])
  })

  it('after a request to disable the branches of a branch', async () => {
    const reply = await organization.owner.delete(`/v1/projects/${branch.project_ref}/branches`)
    expect(reply).toMatchObject({ status: 422 })
  })

  it('after a diff of a database that cannot be reached', async () => {
    await onHost(branch.project_ref, 'pause')
    expect((await organization.owner.get(`/v1/branches/${branch.id}/diff`)).status).toBe(503)
    await onHost(branch.project_ref, 'resume')
  })
})

/** Sends the changes that would close the database of a project or replace it. */
async function changesOf(of: string, point: string) {
  const { owner } = organization
  const path = `/v1/projects/${of}`
  await control
    .insert(backups)
    .values({ projectRef: of, kind: 'restore_point', name: point, insertedAt: new Date(), status: 'COMPLETED' })
  return Promise.all([
    owner.post(`${path}/pause`),
    owner.post(`${path}/restart`),
    owner.patch(`${path}/billing/addons`, { addon_type: 'compute_instance', addon_variant: 'ci_small' }),
    owner.post(`${path}/database/backups/undo`, { name: point }),
  ])
}

describe('a parent that is read by a run', () => {
  it.each(['branch_create', 'branch_push', 'branch_reset', 'branch_finish'] as const)(
    'keeps its database open: %s',
    async (kind) => {
      const { owner } = organization
      const name = kind.slice('branch_'.length)
      const [task] = await control
        .insert(projectTasks)
        .values({ projectRef: branch.project_ref, kind, dueAt: new Date('2100-01-01'), input: {} })
        .returning()
      const replies = await changesOf(ref, name)
      await control.delete(projectTasks).where(eq(projectTasks.id, task?.id ?? ''))
      const message = expect.stringContaining('a run of a branch is still reading it')
      expect(replies).toMatchObject(Array(4).fill({ status: 409, body: { message } }))
      expect(await owner.get(`/v1/projects/${ref}`)).toMatchObject({ body: { status: 'ACTIVE_HEALTHY' } })
    },
  )
})

describe('a branch that is read by its merge', () => {
  it('keeps its database open', async () => {
    const { owner } = organization
    const own = branch.project_ref
    const query = 'select pg_advisory_xact_lock(7)'
    expect(await migrate(owner, own, query)).toMatchObject({ status: 200 })
    const parent = await adminClient(ref)
    await parent.query('select pg_advisory_lock(7)')
    const merge = act(owner, branch, 'merge')
    const waiting = `select from pg_locks where locktype = 'advisory' and objid = 7 and not granted`
    await vi.waitFor(async () => expect((await parent.query(waiting)).rows).toEqual([{}]), { timeout: WAIT_MS })
    const replies = await changesOf(own, 'merge')
    await parent.end()
    const message = expect.stringContaining('a run of a branch is still reading it')
    expect(replies).toMatchObject(Array(4).fill({ status: 409, body: { message } }))
    expect(await merge).toMatchObject({ migrate: 'EXITED', deploy: 'EXITED' })
  })
})

describe('an endpoint below a project', () => {
  const nobody = '00000000-0000-4000-8000-000000000000'

  it.each([
    ['get', (runs: string) => `${runs}/${nobody}`, 404],
    ['get', (runs: string) => `${runs}/${nobody}/logs`, 404],
    ['get', (runs: string) => `${runs}/${'x'.repeat(65)}`, 400],
    ['get', (runs: string) => `${runs}/${'x'.repeat(65)}/logs`, 400],
  ] as const)('refuses an unknown or invalid run: %s %s', async (method, path, status) => {
    expect(await organization.owner[method](path(`/v1/projects/${ref}/actions`))).toMatchObject({ status })
  })

  it('sets no steps of an unknown run', async () => {
    const path = `/v1/projects/${ref}/actions/${nobody}/status`
    expect(await organization.owner.patch(path, { clone: 'EXITED' })).toMatchObject({ status: 404 })
  })

  it('finds no branch by an unknown name, and refuses a name with a NUL', async () => {
    const named = (name: string) => organization.owner.get(`/v1/projects/${ref}/branches/${name}`)
    expect(await statusesOf([named('nobody'), named('%00')])).toEqual([404, 400])
  })

  it('is no snippet', async () => {
    expect(await organization.owner.delete('/v1/snippets/none')).toMatchObject({ status: 400 })
  })
})

describe('a restore point', () => {
  it('must be complete, and its project active, to be restored', async () => {
    const { owner } = organization
    const undo = async (name: string) =>
      (await owner.post(`/v1/projects/${ref}/database/backups/undo`, { name })).status
    const row = { projectRef: ref, kind: 'restore_point', insertedAt: new Date() } as const
    await control.insert(backups).values([
      { ...row, name: 'failed', status: 'FAILED' },
      { ...row, name: 'whole', status: 'COMPLETED' },
    ])
    expect(await undo('failed')).toBe(409)
    expect(await whileStatus(ref, 'INACTIVE', () => undo('whole'))).toBe(409)
  })
})

describe('temporary logins', () => {
  const jit = (path = '') => `/v1/projects/${ref}/${path || 'database/jit'}`

  it('are not opened if the database cannot be reached or is not active, and end as soon as it can', async () => {
    const { owner, userId } = organization
    const roles = [{ role: 'postgres', expires_at: Math.floor(Date.now() / 1000) + 3600 }]
    expect((await owner.put(jit('jit-access'), { state: 'enabled' })).status).toBe(200)
    expect((await owner.put(jit(), { user_id: userId, roles })).status).toBe(200)
    expect((await owner.post(jit('cli/login-role'), { read_only: false })).status).toBe(201)
    const asked = { role: 'postgres', rhost: '127.0.0.1' }
    expect((await owner.post(jit(), asked)).status).toBe(200)
    expect(await whileStatus(ref, 'INACTIVE', async () => (await owner.post(jit(), asked)).status)).toBe(409)

    await onHost(ref, 'pause')
    const replies = [
      await owner.post(jit('cli/login-role'), { read_only: false }),
      await owner.post(jit(), asked),
      await owner.delete(jit('cli/login-role')),
      await owner.put(jit('jit-access'), { state: 'disabled' }),
      await owner.put(jit(), { user_id: userId, roles: [] }),
      await owner.delete(jit(`database/jit/${userId}`)),
    ]
    // The pending end is recorded, and no reply says that the login has ended.
    expect(replies.map(({ status }) => status)).toEqual([503, 503, 503, 503, 503, 503])
    await onHost(ref, 'resume')
    expect((await owner.get(jit('jit-access'))).body).toMatchObject({ state: 'disabled' })
    const open = `select rolname from pg_roles where rolname ~ '^(cli|jit)_login_'`
    await vi.waitFor(
      async () => {
        await tick()
        expect(await adminRows(ref, open)).toEqual([])
      },
      { timeout: WAIT_MS },
    )
  })
})
