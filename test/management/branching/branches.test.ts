import pg from 'pg'
import { Webhook } from 'standardwebhooks'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { instancesOfHost } from '../../instances.ts'
import { anyone, newApp, newMember, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import {
  act,
  type BranchReply,
  createBranch,
  migrate,
  newBranch,
  rows,
  runOf,
  untilBranch,
} from '../../support/branches.ts'
import { extended } from '../../support/extended.ts'
import { newProject, runSql, untilGone } from '../../support/projects.ts'
import { newReceiver } from '../../support/receiver.ts'
import { WAIT_MS } from '../../support/wait.ts'
import { eventRowsOf, insertProject } from '../../support/webhooks.ts'

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const REF = /^[a-z]{20}$/
const WAIT = { timeout: WAIT_MS, interval: 250 }

const SCHEMA = `
  create table authors (id int generated always as identity primary key, name text not null);
  create table books (id int primary key, author int references authors, title text default 'untitled');
  insert into authors (name) values ('one'), ('two'); insert into books values (1, 1, 'first');
  alter table books enable row level security;
  create policy readers on books for select to anon using (true);`

async function newParent(): Promise<{ organization: TestOrganization; ref: string }> {
  const organization = await newOrganization()
  const ref = await newProject(organization)
  return { organization, ref }
}

describe('a new branch', () => {
  let parent: Awaited<ReturnType<typeof newParent>>
  beforeAll(async () => {
    parent = await newParent()
    const { owner } = parent.organization
    expect(await migrate(owner, parent.ref, SCHEMA, 'library')).toMatchObject({ status: 200 })
    // More buckets than one page of the copy has.
    await rows(
      owner,
      parent.ref,
      `insert into storage.buckets (id, name, public)
        select name, name, true from unnest(array['covers'] || array(select 'of-' || n from generate_series(1, 2500) n)) name`,
    )
  })

  it('answers at once and then has the schema, the history and the buckets of its parent, without data', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await createBranch(owner, ref, { branch_name: 'schema only', git_branch: 'feature/a' })
    expect(branch).toEqual({
      id: expect.stringMatching(UUID),
      name: 'schema only',
      project_ref: expect.stringMatching(REF),
      parent_project_ref: ref,
      is_default: false,
      git_branch: 'feature/a',
      persistent: false,
      status: 'CREATING_PROJECT',
      created_at: expect.any(String),
      updated_at: expect.any(String),
      with_data: false,
      preview_project_status: 'COMING_UP',
    })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    const own = branch.project_ref
    expect(await rows(owner, own, 'select count(*)::int as n from authors')).toEqual([{ n: 0 }])
    expect(await rows(owner, own, `select polname from pg_policy where polrelid = 'books'::regclass`)).toEqual([
      { polname: 'readers' },
    ])
    const buckets = `select count(*)::int as n, bool_and(public) as public, min(id) as first from storage.buckets`
    expect(await rows(owner, own, buckets)).toEqual([{ n: 2501, public: true, first: 'covers' }])
    const history = (await owner.get(`/v1/projects/${ref}/database/migrations`)).body
    expect((await owner.get(`/v1/projects/${own}/database/migrations`)).body).toEqual(history)
  })

  it('has the data too if that is requested, and is a separate database', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref, { with_data: true })
    const own = branch.project_ref
    expect(await rows(owner, own, 'select name from authors order by id')).toEqual([{ name: 'one' }, { name: 'two' }])
    await rows(owner, own, `insert into authors (name) values ('three')`)
    expect(await rows(owner, ref, 'select count(*)::int as n from authors')).toEqual([{ n: 2 }])
    expect(await rows(owner, own, 'select count(*)::int as n from authors')).toEqual([{ n: 3 }])
  })

  it("can be reached by psql with its config, and not with its parent's", async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const { status, body } = await owner.get(`/v1/branches/${branch.project_ref}`)
    expect(status).toBe(200)
    expect(body).toMatchObject({
      ref: branch.project_ref,
      release_channel: 'ga',
      status: 'ACTIVE_HEALTHY',
      db_host: expect.any(String),
      db_port: expect.any(Number),
      db_user: `postgres.${branch.project_ref}`,
      db_pass: expect.any(String),
      jwt_secret: expect.any(String),
    })
    expect((await owner.get(`/v1/branches/${branch.id}`)).body).toEqual(body)
    const login = { host: body.db_host, port: body.db_port, user: body.db_user, password: body.db_pass }
    const client = new pg.Client({ ...login, database: 'postgres' })
    await client.connect()
    expect((await client.query('select count(*)::int as n from books')).rows).toEqual([{ n: 0 }])
    await client.end()
    const stranger = new pg.Client({ ...login, user: `postgres.${ref}`, database: 'postgres' })
    await expect(stranger.connect()).rejects.toThrow(/password authentication failed/)
  })

  it('shows its run: steps, log, and number', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    const { body: runs } = await owner.get(`/v1/projects/${own}/actions`)
    expect(runs).toHaveLength(1)
    expect(runs[0]).toMatchObject({ branch_id: branch.id, git_config: null, workdir: null, check_run_id: null })
    const steps = ['clone', 'pull', 'health', 'configure', 'migrate', 'seed', 'deploy']
    expect(runs[0].run_steps.map(({ name }: { name: string }) => name)).toEqual(steps)
    expect(new Set(runs[0].run_steps.map(({ status }: { status: string }) => status))).toEqual(new Set(['EXITED']))
    expect(await runOf(owner, ref, runs[0].id)).toEqual(runs[0])
    const log = await owner.get(`/v1/projects/${own}/actions/${runs[0].id}/logs`)
    expect(log.headers.get('content-type')).toContain('text/plain')
    expect(log.body).toContain(`clone: copying the schema of ${ref} to ${own}\n`)
    const head = await owner.request('HEAD', `/v1/projects/${own}/actions`)
    expect(head).toMatchObject({ status: 200, body: '' })
    expect(head.headers.get('x-total-count')).toBe('1')
  })

  it('is listed beside the default branch, under projects of the organization, and by name', async () => {
    const { organization, ref } = await newParent()
    const { owner, slug } = organization
    expect(await owner.get(`/v1/projects/${ref}/branches`)).toMatchObject({ status: 200, body: [] })
    const branch = await createBranch(owner, ref, { branch_name: 'müll/100 %' })
    const { body } = await owner.get(`/v1/projects/${ref}/branches`)
    expect(body.map(({ name, is_default }: BranchReply) => [name, is_default])).toEqual([
      ['main', true],
      ['müll/100 %', false],
    ])
    expect(body[0]).toMatchObject({ project_ref: ref, parent_project_ref: ref, status: 'FUNCTIONS_DEPLOYED' })
    const page = (await owner.get(`/v1/organizations/${slug}/projects`)).body.projects
    expect(page.find((item: { ref: string }) => item.ref === branch.project_ref)).toMatchObject({ is_branch: true })
    const all = (await owner.get('/v1/projects')).body.map((project: { ref: string }) => project.ref)
    expect(all).toContain(ref)
    expect(all).not.toContain(branch.project_ref)
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
  })

  it("is created by v2 with v2's field names", async () => {
    const { organization, ref } = parent
    const attributes = { name: 'from v2', persistent: true, desired_disk_size_gb: 16, git_branch: 'v2' }
    const reply = await organization.owner.post(`/v2/projects/${ref}/branches`, {
      data: { type: 'branch', attributes },
    })
    expect(reply.status).toBe(201)
    expect(reply.body).toEqual({
      data: {
        type: 'branch',
        id: expect.stringMatching(UUID),
        attributes: {
          name: 'from v2',
          project_ref: expect.stringMatching(REF),
          parent_project_ref: ref,
          is_default: false,
          persistent: true,
          with_data: false,
          git_branch: 'v2',
          created_at: expect.any(String),
          updated_at: expect.any(String),
        },
      },
    })
  })

  it('of the default kind is the project itself', async () => {
    const organization = await newOrganization()
    const ref = await insertProject(organization)
    const { owner } = organization
    const fields = { branch_name: 'production', is_default: true }
    const ephemeral = { ...fields, persistent: false }
    expect(await owner.post(`/v1/projects/${ref}/branches`, ephemeral)).toMatchObject({ status: 400 })
    const before = (await owner.get(`/v1/projects/${ref}`)).body
    const branch = await createBranch(owner, ref, { ...fields, branch_name: 'main' })
    expect(branch).toMatchObject({ project_ref: ref, is_default: true, persistent: true, status: 'FUNCTIONS_DEPLOYED' })
    const update = (change: object) => owner.patch(`/v1/branches/${branch.id}`, change)
    expect(await update({ persistent: false })).toMatchObject({ status: 422 })
    expect(await update({ branch_name: 'production', persistent: true })).toMatchObject({ status: 200 })
    expect((await owner.get(`/v1/projects/${ref}`)).body).toEqual(before)
    for (const action of ['push', 'merge', 'reset'])
      expect(await owner.post(`/v1/branches/${branch.id}/${action}`, {})).toMatchObject({ status: 422 })
    expect(await owner.delete(`/v1/branches/${branch.id}`)).toMatchObject({ status: 422 })
    expect(await owner.get(`/v1/branches/${ref}/diff`)).toMatchObject({ status: 422 })
  })
})

describe('an invalid branch', () => {
  let parent: Awaited<ReturnType<typeof newParent>>
  beforeAll(async () => {
    parent = await newParent()
  })

  it.each([
    ['without a name', {}, 'body.branch_name'],
    ['with a blank name', { branch_name: ' ' }, 'body.branch_name'],
    ['with an unknown region', { branch_name: 'x', region: 'mars' }, 'body.region'],
    ['in another region', { branch_name: 'x', region: 'eu-west-1' }, 'body.region: eu-west-1 is not available'],
    ['with another version', { branch_name: 'x', postgres_engine: '15' }, 'body.postgres_engine: 15 is not available'],
    ['on another channel', { branch_name: 'x', release_channel: 'beta' }, 'body.release_channel: beta is not'],
    [
      'with a size that the host does not offer',
      { branch_name: 'x', desired_instance_size: '48xlarge_high_memory' },
      'body.desired_instance_size: 48xlarge_high_memory is not available',
    ],
    ['with an unknown size', { branch_name: 'x', desired_instance_size: 'huge' }, 'body.desired_instance_size'],
    ['with an invalid URL', { branch_name: 'x', notify_url: 'nowhere' }, 'body.notify_url'],
    ['with a private URL', { branch_name: 'x', notify_url: 'http://10.0.0.1/' }, 'body.notify_url'],
    ['with secrets that are not text', { branch_name: 'x', secrets: { A: 1 } }, 'body.secrets.A'],
    ['with data of the wrong type', { branch_name: 'x', with_data: 'yes' }, 'body.with_data'],
  ])('is refused %s', async (_, body, field) => {
    const { organization, ref } = parent
    const before = (await organization.owner.get(`/v1/projects/${ref}/branches`)).body.length
    const reply = await organization.owner.post(`/v1/projects/${ref}/branches`, body)
    expect(reply.status).toBe(400)
    expect(reply.body.message).toContain(field)
    expect((await organization.owner.get(`/v1/projects/${ref}/branches`)).body).toHaveLength(before)
  })

  it('is refused with a name in use, for a branch, and as a second default', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await createBranch(owner, ref, { branch_name: 'once' })
    expect(await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'once' })).toMatchObject({ status: 409 })
    const ofBranch = await owner.post(`/v1/projects/${branch.project_ref}/branches`, { branch_name: 'x' })
    expect(ofBranch).toMatchObject({ status: 422 })
    const ofBranchV2 = await owner.post(`/v2/projects/${branch.project_ref}/branches`, {
      data: { type: 'branch', attributes: { name: 'x' } },
    })
    expect(ofBranchV2).toMatchObject({ status: 400, body: { error: { code: 'bad_request.branch' } } })
    const second = await owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'x', is_default: true })
    expect(second).toMatchObject({ status: 409 })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
  })
})

describe('merge, push and reset', () => {
  it("a merge applies the parent's missing migrations, one transaction each, and reports them", async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    await migrate(owner, ref, 'create table base (n int)')
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await migrate(owner, own, 'create table added (n int)', 'added')
    await migrate(owner, own, 'alter table base add column m int')
    expect(await act(owner, branch, 'merge')).toEqual({
      pull: 'EXITED',
      health: 'EXITED',
      migrate: 'EXITED',
      deploy: 'EXITED',
    })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, ref, 'select * from added, base')).toEqual([])
    const [theirs, ours] = await Promise.all(
      [ref, own].map(async (of) => (await owner.get(`/v1/projects/${of}/database/migrations`)).body),
    )
    expect(theirs).toEqual(ours)
    expect(await owner.get(`/v1/branches/${own}/diff`)).toMatchObject({ status: 200, body: '' })
  })

  it('a merge only records a migration that the parent has run for a request with the same key', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    for (const of of [ref, own]) {
      const headers = { 'idempotency-key': 'release 1' }
      const query = 'create table released (n int)'
      const reply = await owner.post(`/v1/projects/${of}/database/migrations`, { query }, { headers })
      expect(reply).toMatchObject({ status: 200 })
    }
    // Otherwise both may have the version of the same second.
    await rows(owner, ref, `update supabase_migrations.schema_migrations set version = '20200101000000'`)
    expect(await act(owner, branch, 'merge')).toMatchObject({ migrate: 'EXITED' })
    const [theirs, ours] = await Promise.all(
      [ref, own].map(async (of) => (await owner.get(`/v1/projects/${of}/database/migrations`)).body),
    )
    expect([theirs.length, ours.length]).toEqual([2, 1])
    expect(theirs).toEqual(expect.arrayContaining(ours))
  })

  extended('a migration that fails leaves nothing of itself, and the rest can be merged once it is fixed', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await migrate(owner, own, 'create table first (n int)')
    await migrate(owner, own, 'create table second (n int); create table taken (n int)')
    await rows(owner, ref, 'create table taken (other text)')
    expect(await act(owner, branch, 'merge')).toMatchObject({ migrate: 'DEAD', deploy: 'CREATED' })
    await untilBranch(owner, branch, 'MIGRATIONS_FAILED')
    expect((await runSql(owner, ref, 'select * from first')).status).toBe(201)
    expect((await runSql(owner, ref, 'select * from second')).status).toBe(400)
    const [run] = (await owner.get(`/v1/projects/${own}/actions`)).body
    const log = await owner.get(`/v1/projects/${own}/actions/${run.id}/logs`)
    expect(log.body).toMatch(/migrate: failed: .*relation "taken" already exists/)
    await rows(owner, ref, 'drop table taken')
    expect(await act(owner, branch, 'merge')).toMatchObject({ migrate: 'EXITED' })
    expect((await runSql(owner, ref, 'select * from second, taken')).status).toBe(201)
  })

  it("a push applies the parent's newer migrations, up to a version", async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await migrate(owner, ref, 'create table a (n int)')
    await migrate(owner, ref, 'create table b (n int)')
    const [first] = (await owner.get(`/v1/projects/${ref}/database/migrations`)).body
    expect(await act(owner, branch, 'push', { migration_version: first.version })).toMatchObject({ migrate: 'EXITED' })
    expect((await runSql(owner, own, 'select * from a')).status).toBe(201)
    expect((await runSql(owner, own, 'select * from b')).status).toBe(400)
    expect(await act(owner, branch, 'push')).toMatchObject({ migrate: 'EXITED' })
    expect((await runSql(owner, own, 'select * from b')).status).toBe(201)
  })

  it('a reset creates the database again: its own migrations stay, everything else is removed', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    await migrate(owner, ref, 'create table base (n int)')
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await migrate(owner, own, 'create table kept (n int)')
    await migrate(owner, own, 'create table late (n int)')
    await rows(owner, own, 'create table untracked (n int); insert into kept values (1)')
    const bodiless = await owner.send('POST', `/v1/branches/${own}/reset`, { raw: '', headers: {} })
    expect(bodiless).toMatchObject({ status: 201, body: { workflow_run_id: expect.any(String) } })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, own, 'select * from kept, late, base')).toEqual([])
    expect((await runSql(owner, own, 'select * from untracked')).status).toBe(400)
    const history = (await owner.get(`/v1/projects/${own}/database/migrations`)).body
    expect(history).toHaveLength(3)
    await act(owner, branch, 'reset', { migration_version: history[1].version })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect((await runSql(owner, own, 'select * from kept')).status).toBe(201)
    expect((await runSql(owner, own, 'select * from late')).status).toBe(400)
  })

  it('a reset keeps a migration whose version the parent has with another text, until one of them has another version', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    const sameSecond = owner.at(new Date(Date.now() + 5_000))
    await migrate(sameSecond, own, 'create table of_branch (n int); insert into of_branch values (1)')
    await migrate(sameSecond, ref, 'create table of_parent (n int)')
    const reset = () => act(owner, branch, 'reset')
    expect(await reset()).toMatchObject({ clone: 'DEAD' })
    // The steps have ended before the task, and until then no SQL is allowed.
    const kept = async () => expect(await rows(owner, own, 'select n from of_branch')).toEqual([{ n: 1 }])
    await vi.waitFor(kept, WAIT)
    const history = 'supabase_migrations.schema_migrations'
    await rows(owner, ref, `update ${history} set version = version::bigint + 1`)
    expect(await reset()).toMatchObject({ migrate: 'EXITED' })
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    expect(await rows(owner, own, 'select * from of_branch, of_parent')).toEqual([])
  })

  it('only one runs at a time, and only while both sides exist', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    await migrate(owner, branch.project_ref, 'select pg_sleep(1)')
    const [first, second] = await Promise.all(
      [1, 2].map(() => owner.post(`/v1/branches/${branch.project_ref}/merge`, {})),
    )
    expect([first?.status, second?.status].sort()).toEqual([201, 409])
    const [reset, push] = await Promise.all(
      ['reset', 'push'].map((action) => owner.post(`/v1/branches/${branch.project_ref}/${action}`, {})),
    )
    // They wait for the merge, and then for each other.
    expect([reset?.status, push?.status].sort()).toEqual([201, 409])
    const merged = (await owner.get(`/v1/projects/${ref}/actions`)).body.at(-2)
    expect(merged.run_steps.map(({ status }: { status: string }) => status)).toEqual(Array(4).fill('EXITED'))
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    for (const body of [{ migration_version: 'x' }, { migration_version: 5 }])
      expect(await owner.post(`/v1/branches/${branch.project_ref}/reset`, body)).toMatchObject({ status: 400 })
  })
})

describe('the deletion of a branch', () => {
  let parent: Awaited<ReturnType<typeof newParent>>
  beforeAll(async () => {
    parent = await newParent()
  })

  it('takes effect at once by default, and leaves nothing', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    expect(await instancesOfHost()).toContain(own)
    expect(await owner.delete(`/v1/branches/${own}`)).toMatchObject({ status: 200, body: { message: 'ok' } })
    expect(await owner.get(`/v1/branches/${own}`)).toMatchObject({ status: 404 })
    await untilGone(owner, own)
    await vi.waitFor(async () => expect(await instancesOfHost()).not.toContain(own), WAIT)
    // The name can be used again.
    await createBranch(owner, ref, { branch_name: branch.name })
  })

  it('can be deferred for an hour and canceled until then', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    expect(await owner.post(`/v1/branches/${own}/restore`)).toMatchObject({ status: 422 })
    expect(await owner.delete(`/v1/branches/${own}?force=perhaps`)).toMatchObject({ status: 400 })
    const anHourAgo = new Date(Date.now() - 3_600_001)
    expect(await owner.delete(`/v1/branches/${own}?force=false`)).toMatchObject({ status: 200 })
    const { body } = await owner.get(`/v1/projects/${ref}/branches/${branch.name}`)
    const inMs = Date.parse(body.deletion_scheduled_at) - Date.now()
    expect(inMs).toBeGreaterThan(3_500_000)
    expect(inMs).toBeLessThanOrEqual(3_600_000)
    const restored = { status: 201, body: { message: 'Branch restoration initiated' } }
    expect(await owner.post(`/v1/branches/${own}/restore`)).toMatchObject(restored)
    await tick()
    expect((await owner.get(`/v1/projects/${ref}/branches/${branch.name}`)).body).not.toHaveProperty(
      'deletion_scheduled_at',
    )
    await owner.at(anHourAgo).delete(`/v1/branches/${own}?force=no`)
    await tick()
    await untilGone(owner, own)
  })

  it('waits until a persistent branch is made ephemeral', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref, { persistent: true })
    for (const path of [`/v1/branches/${branch.id}`, `/v1/projects/${branch.project_ref}`])
      expect(await owner.delete(path)).toMatchObject({ status: 422 })
    const shown = await owner.get(`/v1/projects/${branch.project_ref}`)
    expect(shown).toMatchObject({ status: 200, body: { status: 'ACTIVE_HEALTHY' } })
    const patched = await owner.patch(`/v1/branches/${branch.id}`, { persistent: false })
    expect(patched).toMatchObject({ status: 200, body: { persistent: false } })
    expect(await owner.delete(`/v1/branches/${branch.id}`)).toMatchObject({ status: 200 })
  })

  it('is possible during its creation, and leaves nothing', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await createBranch(owner, ref)
    expect(await owner.delete(`/v1/branches/${branch.id}`)).toMatchObject({ status: 200 })
    await untilGone(owner, branch.project_ref)
    await vi.waitFor(async () => expect(await instancesOfHost()).not.toContain(branch.project_ref), WAIT)
  })

  it('comes with that of its parent, and when branching is disabled', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref, { persistent: true })
    expect(await owner.delete(`/v1/projects/${ref}/branches`)).toMatchObject({ status: 200, body: '' })
    expect(await owner.get(`/v1/projects/${ref}/branches`)).toMatchObject({ status: 422 })
    await untilGone(owner, branch.project_ref)
    const another = await newBranch(owner, ref)
    expect((await owner.get(`/v1/projects/${ref}/branches`)).body).toHaveLength(2)
    expect(await owner.delete(`/v1/projects/${ref}`)).toMatchObject({ status: 200 })
    await untilGone(owner, another.project_ref)
    await vi.waitFor(
      async () => expect(await instancesOfHost()).toEqual(expect.not.arrayContaining([another.project_ref, ref])),
      WAIT,
    )
  })

  it('comes with that of its project', async () => {
    const { organization, ref } = parent
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    expect(await owner.delete(`/v1/projects/${branch.project_ref}`)).toMatchObject({ status: 200 })
    expect(await owner.get(`/v1/projects/${ref}/branches/${branch.name}`)).toMatchObject({ status: 404 })
  })
})

describe('a branch notifies', () => {
  it("its notify_url and the parent's webhooks of each change, signed", async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const receiver = await newReceiver()
    const branch = await newBranch(owner, ref, { notify_url: receiver.url })
    const { jwt_secret: secret } = (await owner.get(`/v1/branches/${branch.id}`)).body
    await owner.delete(`/v1/branches/${branch.id}`)
    const notifications = () => receiver.received.map(({ body }) => JSON.parse(body))
    await vi.waitFor(() => expect(notifications().at(-1)?.type).toBe('v1.project.branch.removed'), WAIT)
    const verifier = new Webhook(secret, { format: 'raw' })
    for (const { headers, body } of receiver.received) verifier.verify(body, headers as Record<string, string>)
    const statuses = notifications().map(({ type, payload }) => [type.split('.').at(-1), payload.branch.status])
    expect(statuses).toEqual([
      ['created', 'CREATING_PROJECT'],
      ['updated', 'RUNNING_MIGRATIONS'],
      ['updated', 'MIGRATIONS_PASSED'],
      ['updated', 'FUNCTIONS_DEPLOYED'],
      ['removed', 'FUNCTIONS_DEPLOYED'],
    ])
    expect(notifications()[0].payload).toMatchObject({
      project_ref: ref,
      branch: { ref: branch.project_ref, name: branch.name, git_branch: null, is_default: false },
    })
    const listed = (await owner.get(`/v2/projects/${ref}/webhooks/endpoints`)).body.data
    expect(listed).toEqual([])
  })

  it.each(['push', 'reset'] as const)('of each status of a %s once', async (kind) => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const notifications = async () =>
      (await eventRowsOf(ref))
        .filter(({ type }) => type === 'v1.project.branch.updated')
        .map(({ payload }) => (payload as { branch: { status: string } }).branch.status)
    const before = await notifications()
    await act(owner, branch, kind)
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    const statuses = ['RUNNING_MIGRATIONS', 'MIGRATIONS_PASSED', 'FUNCTIONS_DEPLOYED']
    expect((await notifications()).slice(before.length)).toEqual(statuses)
  })

  it('of what PATCH changes', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const receiver = await newReceiver()
    const fields = { branch_name: 'renamed', git_branch: 'g', notify_url: receiver.url, request_review: true }
    const { status, body } = await owner.patch(`/v1/branches/${branch.id}`, fields)
    expect(status).toBe(200)
    expect(body).toMatchObject({
      name: 'renamed',
      git_branch: 'g',
      notify_url: receiver.url,
      review_requested_at: expect.any(String),
    })
    const path = `/v1/projects/${branch.project_ref}`
    expect((await owner.get(path)).body).toHaveProperty('name', 'renamed')
    expect(await owner.patch(path, { name: 'other' })).toMatchObject({ status: 422 })
    await vi.waitFor(() => expect(receiver.received).toHaveLength(1), WAIT)
    const events = (await eventRowsOf(ref)).length
    expect(await owner.patch(`/v1/branches/${branch.id}`, {})).toMatchObject({ status: 200, body: { name: 'renamed' } })
    expect(await eventRowsOf(ref)).toHaveLength(events)
    const freed = await owner.patch(`/v1/branches/${branch.id}`, { git_branch: '' })
    expect([freed.status, 'git_branch' in freed.body]).toEqual([200, false])
    expect(await owner.patch(`/v1/branches/${branch.id}`, { branch_name: 'main' })).toMatchObject({ status: 409 })
    expect(await owner.patch(`/v1/branches/${branch.id}`, { status: 'DONE' })).toMatchObject({ status: 400 })
    expect(await owner.patch(`/v1/branches/${branch.id}`, { status: 'MIGRATIONS_PASSED' })).toMatchObject({
      body: { status: 'MIGRATIONS_PASSED' },
    })
  })
})

describe('steps that an external runner does', () => {
  it('are set during the run, each by its name', async () => {
    const { organization, ref } = await newParent()
    const { owner } = organization
    const branch = await newBranch(owner, ref)
    const own = branch.project_ref
    await migrate(owner, own, 'select pg_sleep(2)')
    const { workflow_run_id: id } = (await owner.post(`/v1/branches/${own}/merge`, {})).body
    const path = `/v1/projects/${own}/actions/${id}/status`
    expect(await owner.patch(path, { deploy: 'RUNNING' })).toMatchObject({ status: 200, body: { message: 'ok' } })
    expect((await runOf(owner, own, id)).run_steps.find(({ name }) => name === 'deploy')?.status).toBe('RUNNING')
    expect(await owner.patch(path, { deploy: 'EXITED', clone: 'EXITED', seed: 'EXITED' })).toMatchObject({
      status: 400,
      body: { message: expect.stringMatching(/body\.clone: is not a step of this run.*body\.seed: /) },
    })
    expect((await runOf(owner, own, id)).run_steps.find(({ name }) => name === 'deploy')?.status).toBe('RUNNING')
    expect(await owner.patch(path, { deploy: 'FLYING' })).toMatchObject({ status: 400 })
    // The branch keeps its earlier status until the run starts.
    await vi.waitFor(
      async () => expect(await owner.patch(path, { deploy: 'RUNNING' })).toMatchObject({ status: 409 }),
      { ...WAIT, interval: 1_000 },
    )
    await untilBranch(owner, branch, 'FUNCTIONS_DEPLOYED')
    for (const unknown of ['nothing', crypto.randomUUID()])
      expect(await owner.get(`/v1/projects/${own}/actions/${unknown}`)).toMatchObject({ status: 404 })
    expect(await owner.get(`/v1/projects/${own}/actions?limit=9`)).toMatchObject({ status: 400 })
    expect(await owner.get(`/v1/projects/${own}/actions?offset=-1`)).toMatchObject({ status: 400 })
    expect((await owner.get(`/v1/projects/${own}/actions?offset=1`)).body).toHaveLength(1)
    const all = await owner.get(`/v1/projects/${own}/actions?limit=2000&offset=0`)
    expect(all).toMatchObject({ status: 200, body: { length: 2 } })
  })
})

describe('access to a branch', () => {
  let parent: Awaited<ReturnType<typeof newParent>>
  let branch: BranchReply
  beforeAll(async () => {
    parent = await newParent()
    branch = await newBranch(parent.organization.owner, parent.ref)
  })

  it('follows the role, in the organization or only in the parent', async () => {
    const { organization, ref } = parent
    const path = `/v1/branches/${branch.project_ref}`
    const reader = await newMember(organization, 'read-only')
    const config = (await reader.get(path)).body
    expect(config).toMatchObject({ ref: branch.project_ref })
    expect(config).not.toHaveProperty('db_pass')
    expect(config).not.toHaveProperty('jwt_secret')
    expect(await reader.post(`/v1/projects/${ref}/branches`, { branch_name: 'x' })).toMatchObject({ status: 403 })
    expect(await reader.delete(path)).toMatchObject({ status: 403 })
    const ofParent = await newMember(organization, 'developer', ref)
    expect((await ofParent.get(path)).body).toHaveProperty('db_pass')
    expect(await ofParent.get(`/v1/projects/${branch.project_ref}`)).toMatchObject({ status: 200 })
    const elsewhere = await newMember(organization, 'developer', await insertProject(organization))
    const stranger = (await newOrganization()).owner
    for (const caller of [elsewhere, stranger]) {
      expect(await caller.get(path)).toMatchObject({ status: 404 })
      expect(await caller.get(`/v1/branches/${branch.id}`)).toMatchObject({ status: 404 })
      expect(await caller.post(`${path}/merge`, {})).toMatchObject({ status: 404 })
      expect(await caller.delete(path)).toMatchObject({ status: 404 })
    }
    expect(await anyone.get(path)).toMatchObject({ status: 401 })
    const app = (await newApp(organization, ['projects:read'])).caller
    expect(await app.get(path)).toMatchObject({ status: 403 })
  })

  it('as a writer of only the branch does not include a merge into its parent', async () => {
    const { organization } = parent
    const ofBranch = await newMember(organization, 'developer', branch.project_ref)
    expect(await ofBranch.post(`/v1/branches/${branch.project_ref}/push`, {})).toMatchObject({ status: 201 })
    expect(await ofBranch.post(`/v1/branches/${branch.project_ref}/merge`, {})).toMatchObject({ status: 404 })
  })
})
