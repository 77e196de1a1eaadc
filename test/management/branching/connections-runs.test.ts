import { once } from 'node:events'
import { type AddressInfo, connect as connectTo, createServer } from 'node:net'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { actionRunLogs, actionRuns, gitBranches, gitConnections } from '../../../src/model/tables/index.ts'
import { control, newOrganization, type TestOrganization, tick, workerLogs } from '../../support/api.ts'
import { createBranch, rows, untilBranch } from '../../support/branches.ts'
import { branchOf, migration, NOTES, newFollower, SEED, TAGS, untilQuiet, WAIT } from '../../support/connections.ts'
import { extended } from '../../support/extended.ts'
import { connect, newRepository, untilCommitStatus } from '../../support/github.ts'
import { newProject, untilStatus } from '../../support/projects.ts'
import { serveInstallation } from '../../support/serve.ts'
import { startInstallation } from '../../support/storage-installation.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

const sql = (ref: string, query: string) => rows(organization.owner, ref, query)
const hasTable = async (ref: string, table: string) =>
  (await sql(ref, `select to_regclass('${table}') is not null as there`)) as { there: boolean }[]

const runsOf = async (ref: string) => (await organization.owner.get(`/v1/projects/${ref}/actions`)).body

async function logOf(ref: string): Promise<string> {
  const [run] = await runsOf(ref)
  return (await organization.owner.get(`/v1/projects/${ref}/actions/${run.id}/logs`)).body
}

/** Starts a proxy before a database host that can refuse WebSockets, over which sessions travel. */
async function startProxy(target: string, state: { refusesSessions: boolean }): Promise<string> {
  const { hostname, port } = new URL(target)
  const server = createServer((socket) => {
    socket.on('error', () => {})
    socket.once('data', (head) => {
      if (state.refusesSessions && /^upgrade: websocket/im.test(head.toString('latin1'))) return socket.destroy()
      const onward = connectTo(Number(port), hostname)
      onward.on('error', () => socket.destroy())
      onward.write(head)
      socket.pipe(onward).pipe(socket)
    })
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

describe('a push to the default branch', () => {
  it("applies the project's missing migrations, once, and sets GitHub's status", async () => {
    const { ref, repository } = await newFollower(organization)
    const first = await repository.push('main', { 'README.md': '# app', ...NOTES, ...SEED })
    await untilCommitStatus(repository, first, 'success')
    expect(await sql(ref, 'select count(*)::int as n from notes')).toEqual([{ n: 0 }])
    const [pending, success] = await repository.statusesOf(first)
    expect(pending).toMatchObject({ state: 'pending', context: `pilothouse/${ref}` })
    expect(success?.target_url).toMatch(new RegExp(`/v1/projects/${ref}/actions/[0-9a-f-]{36}/logs$`))

    const second = await repository.push('main', { ...NOTES, ...TAGS })
    await untilCommitStatus(repository, second, 'success')
    expect(await sql(ref, 'select id from tags')).toEqual([{ id: 1 }])
    const { body: history } = await organization.owner.get(`/v1/projects/${ref}/database/migrations`)
    expect(history).toEqual([
      { version: '20260101000000', name: 'x' },
      { version: '20260102000000', name: 'x' },
    ])

    const runs = await runsOf(ref)
    expect(runs).toHaveLength(2)
    expect(runs[0]).toMatchObject({
      workdir: 'supabase',
      git_config: { repository: repository.name, branch: 'main', commit: second },
      run_steps: ['pull', 'health', 'migrate', 'seed'].map((name) => ({ name, status: 'EXITED' })),
    })
    const log = await logOf(ref)
    expect(log).toContain(`${repository.name} has 2 migrations at ${second}`)
    expect(log).toContain('1 migrations applied')
    const [kept] = await control
      .select({ files: actionRuns.files })
      .from(actionRuns)
      .where(eq(actionRuns.id, runs[0].id))
    expect(kept?.files).toBeNull()
  })

  it('reports a refused migration to GitHub, keeps the earlier ones, and continues with the next commit', async () => {
    const { ref, repository } = await newFollower(organization)
    const wrong = migration('20260103000000', 'create table half (id int); select * from nowhere;')
    const bad = await repository.push('main', { ...NOTES, ...wrong })
    await untilCommitStatus(repository, bad, 'failure')
    expect((await repository.statusesOf(bad)).at(-1)?.description).toContain('relation "nowhere" does not exist')
    expect([await hasTable(ref, 'notes'), await hasTable(ref, 'half')]).toEqual([[{ there: true }], [{ there: false }]])
    const { body: main } = await organization.owner.get(`/v1/projects/${ref}/branches/main`)
    expect(main).toMatchObject({ is_default: true, status: 'MIGRATIONS_FAILED' })
    const logged = (await workerLogs(`"project":"${ref}"`)).map((line) => JSON.parse(line))
    expect(logged.filter(({ event }) => event.startsWith('task_'))).toEqual([
      expect.objectContaining({ event: 'task_refused', level: 'info', error: 'relation "nowhere" does not exist' }),
    ])
    // The same commit has the same result, and is not tried again.
    await repository.tellPush('main')
    await untilQuiet(ref)
    expect(await runsOf(ref)).toHaveLength(1)
    const right = await repository.push('main', {
      ...NOTES,
      ...migration('20260103000000', 'create table half (id int)'),
    })
    await untilCommitStatus(repository, right, 'success')
    expect(await hasTable(ref, 'half')).toEqual([{ there: true }])
  })

  it('is applied while branching is disabled, and the next default branch has the name that is requested', async () => {
    const { ref, repository } = await newFollower(organization)
    const { owner } = organization
    const path = `/v1/projects/${ref}/branches`
    expect(await owner.delete(path)).toMatchObject({ status: 200 })
    await untilCommitStatus(repository, await repository.push('main', NOTES), 'success')
    expect(await hasTable(ref, 'notes')).toEqual([{ there: true }])
    const production = { branch_name: 'Production', is_default: true, git_branch: 'main' }
    const created = await owner.post(path, production)
    expect(created).toMatchObject({ status: 201, body: { name: 'Production', is_default: true, project_ref: ref } })
    expect((await owner.get(path)).body).toEqual([created.body])
    expect(await owner.post(path, { ...production, branch_name: 'second' })).toMatchObject({ status: 409 })
    await untilCommitStatus(repository, await repository.push('main', { ...NOTES, ...TAGS }), 'success')
    expect((await runsOf(ref)).map((run: { branch_id: string }) => run.branch_id)).toEqual([
      created.body.id,
      created.body.id,
    ])
  })

  it("is applied as of the branch's head, whatever the order of events", async () => {
    const { ref, repository } = await newFollower(organization)
    const older = await repository.commit('main', NOTES)
    const newer = await repository.commit('main', { ...NOTES, ...TAGS })
    await Promise.all([repository.tellPush('main'), repository.tellPush('main'), repository.tellPush('main')])
    await untilCommitStatus(repository, newer, 'success')
    await untilQuiet(ref)
    expect(await repository.statusesOf(older)).toEqual([])
    expect(await runsOf(ref)).toHaveLength(1)
  })

  extended('skips a migration that was edited since, and files that are not migrations', async () => {
    const { ref, repository } = await newFollower(organization)
    await untilCommitStatus(repository, await repository.push('main', NOTES), 'success')
    const edited = migration('20260101000000', '-- edited\ncreate table notes (id int primary key, text text);')
    const others = {
      'supabase/migrations/notes.sql': 'drop table notes',
      'supabase/migrations/old/1_a.sql': 'drop table notes',
    }
    await untilCommitStatus(repository, await repository.push('main', { ...edited, ...others }), 'success')
    const log = await logOf(ref)
    expect(log).toContain('20260101000000 was applied with a different text, and is skipped')
    expect(log).toContain('supabase/migrations/notes.sql is skipped')
    expect(await hasTable(ref, 'notes')).toEqual([{ there: true }])
  })

  it.each([
    [
      'a link among the migrations',
      { 'supabase/migrations/20260101000000_x.sql': '->../../secrets.sql' },
      'links are not followed',
    ],
    ['a link above them', { supabase: '->elsewhere' }, 'links are not followed'],
    [
      'two of one version',
      { ...NOTES, 'supabase/migrations/20260101000000_y.sql': 'select 1' },
      'have the same version',
    ],
    ['a NUL', migration('20260101000000', 'select 1;\0'), 'is not valid UTF-8 text'],
    ['one that is too large', migration('20260101000000', 'x'.repeat(8 * 1024 ** 2 + 1)), 'is larger than 8 MiB'],
    [
      'quotes without end',
      migration('20260101000000', `select '${'"'.repeat(4 * 1024 ** 2)}'`),
      'larger than 15728640 bytes as JSON',
    ],
  ])('refuses %s', async (_what, files, why) => {
    const { ref, repository } = await newFollower(organization)
    const sha = await repository.push('main', files)
    await untilCommitStatus(repository, sha, 'failure')
    expect((await repository.statusesOf(sha)).at(-1)?.description).toContain(why)
    expect(await organization.owner.get(`/v1/projects/${ref}/database/migrations`)).toMatchObject({ body: [] })
  })

  extended('lets two projects follow one repository, each in a folder of its own', async () => {
    const repository = await newRepository()
    const one = await newFollower(organization, {}, repository)
    const two = await newFollower(organization, { workdir: '.' }, repository)
    const sha = await repository.push('main', {
      ...NOTES,
      'migrations/20260101000000_x.sql': 'create table tags (id int)',
    })
    await vi.waitFor(async () => {
      const done = (await repository.statusesOf(sha)).filter(({ state }) => state === 'success')
      expect(done.map(({ context }) => context).sort()).toEqual(
        [one.ref, two.ref].sort().map((ref) => `pilothouse/${ref}`),
      )
    }, WAIT)
    expect([await hasTable(one.ref, 'notes'), await hasTable(one.ref, 'tags')]).toEqual([
      [{ there: true }],
      [{ there: false }],
    ])
    expect([await hasTable(two.ref, 'notes'), await hasTable(two.ref, 'tags')]).toEqual([
      [{ there: false }],
      [{ there: true }],
    ])
  })

  it('follows a repository that was renamed', async () => {
    const { ref, repository } = await newFollower(organization)
    const name = `renamed-${ref}/app`
    await repository.rename(name)
    await untilCommitStatus(repository, await repository.push('main', NOTES), 'success')
    const [row] = await control.select().from(gitConnections).where(eq(gitConnections.projectRef, ref))
    expect(row?.repositoryName).toBe(name)
  })

  extended('survives failures of GitHub, and a status that it refuses', async () => {
    const { ref, repository } = await newFollower(organization)
    await repository.fault('access_tokens', 500)
    await repository.fault('git/ref', 403, 1, { headers: { 'retry-after': '1' } })
    await repository.fault('tarball', 502)
    await repository.fault('statuses', 403, 1)
    const sha = await repository.push('main', NOTES)
    await untilCommitStatus(repository, sha, 'success')
    expect((await repository.statusesOf(sha)).map(({ state }) => state)).toEqual(['success'])
    expect(await logOf(ref)).toContain('it will be retried')
  })

  it.each(['access_tokens', 'git/ref', 'tarball'])('survives a token that GitHub refuses at %s', async (match) => {
    const { repository } = await newFollower(organization)
    await repository.fault(match, 401, 1, { message: 'Bad credentials' })
    await untilCommitStatus(repository, await repository.push('main', NOTES), 'success')
  })

  it('is not lost with its message, nor with the consumer that was reading it', async () => {
    const { ref, repository } = await newFollower(organization)
    const sha = await repository.commit('main', NOTES)
    const [connection] = await control.select().from(gitConnections).where(eq(gitConnections.projectRef, ref))
    const ago = (seconds: number) => new Date(Date.now() - seconds * 1000)
    const dead = { claim: crypto.randomUUID(), leaseUntil: ago(20), attempts: 1 }
    const row = { connectionId: connection?.id ?? '', name: 'main', dueAt: ago(200), asked: 1, updatedAt: ago(200) }
    await control.insert(gitBranches).values({ ...row, ...dead })
    await tick()
    await untilCommitStatus(repository, sha, 'success')
    await untilQuiet(ref)
    expect(await runsOf(ref)).toHaveLength(1)
  })

  it('is not lost if the control database opens no session', async () => {
    const proxy = { refusesSessions: false }
    const installation = await startInstallation({
      serve: async ({ vars, secrets }, folder) => {
        const url = await startProxy(vars.HOST_URL ?? '', proxy)
        const own = { ...inject('github'), HOST_URL: url, NEON_PROXY: url }
        return serveInstallation({ vars: { ...vars, ...own }, secrets }, folder)
      },
    })
    onTestFinished(installation.stop)
    const { control: db } = installation
    const owning = await installation.newOrganization()
    const ref = await newProject(owning)
    const repository = await newRepository()
    const sha = await repository.commit('main', NOTES)
    const connectionId = await connect(owning, ref, repository, {}, db)
    const at = new Date(Date.now() - 60_000)
    const branch = async () =>
      (await db.select().from(gitBranches).where(eq(gitBranches.connectionId, connectionId)))[0]
    proxy.refusesSessions = true
    await db.insert(gitBranches).values({ connectionId, name: 'main', dueAt: at, updatedAt: at })
    await installation.tick()
    await vi.waitFor(async () => expect((await branch())?.commit ?? (await branch())?.lastError).not.toBeNull(), WAIT)
    const lastError = 'The control plane is busy: try again shortly'
    expect(await branch()).toMatchObject({ commit: null, report: null, lastError, dueAt: expect.any(Date) })
    proxy.refusesSessions = false
    await untilCommitStatus(repository, sha, 'success')
  })

  it('leaves no files with a run whose branch is removed while they are downloaded', async () => {
    const { ref, repository } = await newFollower(organization)
    await repository.hold('/tarball/')
    const sha = await repository.push('main', NOTES)
    await vi.waitFor(
      async () => expect(await repository.callsOf()).toContain(`GET /repos/${repository.name}/tarball/${sha}`),
      WAIT,
    )
    expect((await organization.owner.delete(`/v1/projects/${ref}/branches`)).status).toBe(200)
    await repository.hold()
    const run = eq(actionRuns.projectRef, ref)
    await vi.waitFor(async () => {
      const lines = await control
        .select({ line: actionRunLogs.line })
        .from(actionRunLogs)
        .innerJoin(actionRuns, eq(actionRuns.id, actionRunLogs.runId))
        .where(run)
      expect(lines).toContainEqual({ line: `${repository.name} has 1 migrations at ${sha}` })
    }, WAIT)
    expect(await control.select({ files: actionRuns.files }).from(actionRuns).where(run)).toEqual([{ files: null }])
  })

  it('stops if the App has no access any more', async () => {
    const { ref, repository } = await newFollower(organization)
    await repository.fault('access_tokens', 404)
    await repository.push('main', NOTES)
    await untilQuiet(ref)
    expect(await runsOf(ref)).toEqual([])
  })

  it('reports that a paused project applies nothing', async () => {
    const { ref, repository } = await newFollower(organization)
    await organization.owner.post(`/v1/projects/${ref}/pause`)
    await untilStatus(organization.owner, ref, 'INACTIVE')
    const sha = await repository.push('main', NOTES)
    await untilCommitStatus(repository, sha, 'error')
    expect((await repository.statusesOf(sha)).at(-1)?.description).toBe('The project is INACTIVE')
    expect(await runsOf(ref)).toEqual([])
  })
})

describe('a branch that the API made for a branch of the repository', () => {
  it('follows each of its commits, and stays when its pull request ends', async () => {
    const { ref, repository } = await newFollower(organization)
    const made = await createBranch(organization.owner, ref, { git_branch: 'staging' })
    await untilBranch(organization.owner, made, 'FUNCTIONS_DEPLOYED')
    const sha = await repository.push('staging', { ...NOTES, ...SEED })
    await untilCommitStatus(repository, sha, 'success')
    expect(await sql(made.project_ref, 'select count(*)::int as n from notes')).toEqual([{ n: 0 }])
    expect(await hasTable(ref, 'notes')).toEqual([{ there: false }])
    const pull = await repository.pull('staging')
    await repository.setPull(pull, 'closed')
    await repository.tellPull('closed', pull, 'staging')
    await untilQuiet(ref)
    expect(await branchOf(ref, 'staging')).toMatchObject({ id: made.id })
  })

  extended('turns another branch into the default branch', async () => {
    const { ref, repository } = await newFollower(organization)
    await createBranch(organization.owner, ref, { branch_name: 'production', is_default: true, git_branch: 'release' })
    await untilCommitStatus(repository, await repository.push('release', NOTES), 'success')
    expect(await hasTable(ref, 'notes')).toEqual([{ there: true }])
    expect((await repository.tellPush('main')).body).toEqual({ message: 'no project is connected to this branch' })
  })
})
