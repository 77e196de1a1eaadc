import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { branches, organizations, projects } from '../../../src/model/tables/index.ts'
import { control, newOrganization, type TestOrganization } from '../../support/api.ts'
import { type RunReply, rows } from '../../support/branches.ts'
import { branchOf, migration, NOTES, newFollower, SEED, TAGS, untilQuiet, WAIT } from '../../support/connections.ts'
import { deploy } from '../../support/deploys.ts'
import { extended } from '../../support/extended.ts'
import { type TestRepository, untilCommitStatus } from '../../support/github.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

const sql = (ref: string, query: string) => rows(organization.owner, ref, query)

/** Opens a pull request with one commit, and sends GitHub's event. */
async function open(repository: TestRepository, branch: string, files: Record<string, string>, changed: string[] = []) {
  const sha = await repository.commit(branch, files)
  const pull = await repository.pull(branch, { files: changed })
  expect(await repository.tellPull('opened', pull, branch)).toMatchObject({ status: 202 })
  return { sha, pull }
}

async function close(repository: TestRepository, pull: number, branch: string) {
  await repository.setPull(pull, 'closed')
  await repository.tellPull('closed', pull, branch)
}

const descriptionOf = async (repository: TestRepository, sha: string) =>
  (await repository.statusesOf(sha)).at(-1)?.description

async function listed(ref: string, gitBranch: string) {
  const { body } = await organization.owner.get(`/v1/projects/${ref}/branches`)
  return body.find((branch: { git_branch?: string }) => branch.git_branch === gitBranch)
}

const untilNoBranch = (ref: string, name: string) =>
  vi.waitFor(async () => expect(await branchOf(ref, name)).toBeUndefined(), WAIT)

describe('a pull request', () => {
  it('gets a branch with its migrations and the seed, follows its commits, and ends with it', async () => {
    const { ref, repository } = await newFollower(organization)
    await untilCommitStatus(repository, await repository.push('main', NOTES), 'success')
    const first = await open(repository, 'feature/tags', { ...NOTES, ...TAGS, ...SEED })
    await untilCommitStatus(repository, first.sha, 'success')
    const branch = await branchOf(ref, 'feature/tags')
    expect(branch).toMatchObject({ name: 'feature/tags', status: 'FUNCTIONS_DEPLOYED', forPullRequests: true })
    const own = branch?.projectRef ?? ''
    expect(await sql(own, 'select text from notes')).toEqual([{ text: 'seeded' }])
    expect(await sql(own, 'select id from tags')).toEqual([{ id: 1 }])

    const more = { 'supabase/migrations/20260103000000_more.sql': 'create table more (id int)' }
    const second = await repository.push('feature/tags', { ...NOTES, ...TAGS, ...SEED, ...more })
    await untilCommitStatus(repository, second, 'success')
    expect(await sql(own, 'select count(*)::int as n from more')).toEqual([{ n: 0 }])
    expect(await sql(own, 'select count(*)::int as n from notes')).toEqual([{ n: 1 }])
    expect(await sql(ref, "select to_regclass('tags') as t")).toEqual([{ t: null }])

    await close(repository, first.pull, 'feature/tags')
    await untilNoBranch(ref, 'feature/tags')
    await vi.waitFor(async () => {
      const [project] = await control.select().from(projects).where(eq(projects.ref, own))
      expect(project?.status).toBe('REMOVED')
    }, WAIT)
  })

  it('shares its branch with another one from the same branch, until the last of them has ended', async () => {
    const { ref, repository } = await newFollower(organization)
    const first = await open(repository, 'shared', NOTES)
    await untilCommitStatus(repository, first.sha, 'success')
    const branch = await branchOf(ref, 'shared')
    expect(await listed(ref, 'shared')).toMatchObject({ pr_number: first.pull })
    const other = await repository.pull('shared')
    await close(repository, first.pull, 'shared')
    await untilQuiet(ref)
    expect(await listed(ref, 'shared')).toMatchObject({ id: branch?.id, pr_number: other })
    await close(repository, other, 'shared')
    await untilNoBranch(ref, 'shared')
  })

  it('whose first commit fails gets the functions, secrets and buckets of the project with a later one', async () => {
    const { owner } = organization
    const { ref, repository } = await newFollower(organization)
    await deploy(owner, ref)
    await owner.post(`/v1/projects/${ref}/secrets`, [{ name: 'SHARED', value: 'parent' }])
    await sql(ref, "insert into storage.buckets (id, name) values ('covers', 'covers')")
    const wrong = await open(repository, 'late', migration('20260101000000', 'select * from nowhere'))
    await untilCommitStatus(repository, wrong.sha, 'failure')
    await untilCommitStatus(repository, await repository.push('late', { ...NOTES, ...SEED }), 'success')
    const own = (await branchOf(ref, 'late'))?.projectRef ?? ''
    expect(await sql(own, 'select text from notes')).toEqual([{ text: 'seeded' }])
    expect(await sql(own, 'select id from storage.buckets')).toEqual([{ id: 'covers' }])
    const path = `/v1/projects/${own}`
    expect((await owner.get(`${path}/functions`)).body).toMatchObject([{ slug: 'hello' }])
    expect((await owner.get(`${path}/secrets`)).body).toMatchObject([{ name: 'SHARED' }])

    await untilCommitStatus(repository, await repository.push('late', { ...NOTES, ...TAGS }), 'success')
    const runs = (await owner.get(`${path}/actions`)).body.map(({ run_steps: steps }: RunReply) =>
      steps.map(({ name }) => name),
    )
    expect(runs).toEqual([
      ['pull', 'health', 'migrate', 'seed'],
      ['pull', 'health', 'configure', 'migrate', 'seed', 'deploy'],
      ['clone', 'pull', 'health', 'configure', 'migrate', 'seed', 'deploy'],
    ])
  })

  extended('runs a failed seed again, and a successful one never', async () => {
    const { ref, repository } = await newFollower(organization)
    const wrong = await open(repository, 'seeds', { ...NOTES, 'supabase/seed.sql': 'insert into nowhere values (1)' })
    await untilCommitStatus(repository, wrong.sha, 'failure')
    await untilCommitStatus(repository, await repository.push('seeds', { ...NOTES, ...SEED }), 'success')
    const own = (await branchOf(ref, 'seeds'))?.projectRef ?? ''
    expect(await sql(own, 'select text from notes')).toEqual([{ text: 'seeded' }])
    const changed = { 'supabase/seed.sql': "insert into notes values (2, 'again')" }
    await untilCommitStatus(repository, await repository.push('seeds', { ...NOTES, ...changed }), 'success')
    expect(await sql(own, 'select text from notes')).toEqual([{ text: 'seeded' }])
  })

  extended('gets none if it is from a fork, if the connection makes none, or if it changes nothing here', async () => {
    const { ref, repository } = await newFollower(organization)
    await repository.commit('theirs', NOTES)
    const theirs = await repository.pull('theirs', { fork: true })
    // GitHub's event differs, and the pull request itself decides.
    await repository.tellPull('opened', theirs, 'theirs')
    const none = await newFollower(organization, { newBranchPerPr: false }, repository)
    const some = await newFollower(organization, { changesOnly: true }, repository)
    const away = await open(repository, 'away', NOTES, ['supabase2/x.sql', 'src/index.ts'])
    await untilCommitStatus(repository, away.sha, 'success')
    for (const each of [ref, none.ref, some.ref]) await untilQuiet(each)
    expect(await branchOf(ref, 'theirs')).toBeUndefined()
    expect([await branchOf(none.ref, 'away'), await branchOf(some.ref, 'away')]).toEqual([undefined, undefined])
    const many = Array.from({ length: 100 }, (_, at) => `src/${at}.ts`)
    await open(repository, 'here', NOTES, [...many, 'supabase/seed.sql'])
    await vi.waitFor(async () => expect(await branchOf(some.ref, 'here')).toBeDefined(), WAIT)
    await untilQuiet(some.ref)
  })

  it('gets a status if there is no room for a branch, and a branch once there is', async () => {
    const { ref, repository } = await newFollower(organization, { branchLimit: 1 })
    const first = await open(repository, 'first', NOTES)
    await untilCommitStatus(repository, first.sha, 'success')
    const second = await open(repository, 'second', NOTES)
    await untilCommitStatus(repository, second.sha, 'error')
    expect(await descriptionOf(repository, second.sha)).toBe('The project has 1 of 1 preview branches')
    await close(repository, first.pull, 'first')
    await untilNoBranch(ref, 'first')
    await repository.tellPull('reopened', second.pull, 'second')
    await untilCommitStatus(repository, second.sha, 'success')
  })

  it('gets a status if the plan or the project has no branches', async () => {
    const own = await newOrganization()
    const { ref, repository } = await newFollower(own)
    expect((await own.owner.delete(`/v1/projects/${ref}/branches`)).status).toBe(200)
    const off = await open(repository, 'off', NOTES)
    await untilCommitStatus(repository, off.sha, 'error')
    expect(await descriptionOf(repository, off.sha)).toBe('Branching is disabled for the project')
    await control.update(organizations).set({ plan: 'free' }).where(eq(organizations.id, own.id))
    const free = await open(repository, 'free', NOTES)
    await untilCommitStatus(repository, free.sha, 'error')
    expect(await descriptionOf(repository, free.sha)).toContain('its plan is free')
  })

  extended('keeps a branch that was made persistent, and does not take a name that another branch has', async () => {
    const { ref, repository } = await newFollower(organization)
    await organization.owner.post(`/v1/projects/${ref}/branches`, { branch_name: 'kept', git_branch: 'other' })
    const { sha, pull } = await open(repository, 'kept', NOTES)
    await untilCommitStatus(repository, sha, 'success')
    const branch = await branchOf(ref, 'kept')
    expect(branch?.name).toBe(`kept #${pull}`)
    await organization.owner.patch(`/v1/branches/${branch?.projectRef}`, { persistent: true })
    await close(repository, pull, 'kept')
    await untilQuiet(ref)
    expect(await branchOf(ref, 'kept')).toMatchObject({ id: branch?.id })
  })

  it('gives up a branch that is set to follow another one', async () => {
    const { ref, repository } = await newFollower(organization)
    const { sha, pull } = await open(repository, 'given', NOTES)
    await untilCommitStatus(repository, sha, 'success')
    const branch = await listed(ref, 'given')
    const set = async (git_branch: string) =>
      (await organization.owner.patch(`/v1/branches/${branch.project_ref}`, { git_branch })).body
    expect(await set('given')).toHaveProperty('pr_number', pull)
    expect(await set('dev')).not.toHaveProperty('pr_number')
    await untilCommitStatus(repository, await repository.push('dev', { ...NOTES, ...TAGS }), 'success')
    expect(await sql(branch.project_ref, 'select id from tags')).toEqual([{ id: 1 }])
    expect(await listed(ref, 'dev')).toMatchObject({ id: branch.id })
  })

  it('reports a run that ended with its branch', async () => {
    const { ref, repository } = await newFollower(organization)
    await repository.fault('tarball', 503, 1_000)
    const { sha } = await open(repository, 'ends', NOTES)
    await untilCommitStatus(repository, sha, 'pending')
    const branch = await branchOf(ref, 'ends')
    await organization.owner.delete(`/v1/branches/${branch?.projectRef}`)
    await repository.tellPush('main')
    await repository.deleteBranch('ends')
    await repository.tellPull('synchronize', 1, 'ends')
    await vi.waitFor(async () => {
      const descriptions = (await repository.statusesOf(sha)).map(({ description }) => description)
      expect(descriptions).toContain('The run was canceled')
    }, WAIT)
  })

  it('deletes its branch while a run still works on it', async () => {
    const { ref, repository } = await newFollower(organization)
    await repository.fault('tarball', 503, 1_000)
    const { sha, pull } = await open(repository, 'short', NOTES)
    await untilCommitStatus(repository, sha, 'pending')
    await close(repository, pull, 'short')
    await untilNoBranch(ref, 'short')
    await untilCommitStatus(repository, sha, 'error')
    expect(await descriptionOf(repository, sha)).toBe('The pull request was closed')
  })

  extended('gets another branch if the first was never made', async () => {
    const { ref, repository } = await newFollower(organization)
    const first = await open(repository, 'unmade', NOTES)
    await untilCommitStatus(repository, first.sha, 'success')
    const branch = await branchOf(ref, 'unmade')
    await control
      .update(projects)
      .set({ status: 'INIT_FAILED' })
      .where(eq(projects.ref, branch?.projectRef ?? ''))
    await untilCommitStatus(repository, await repository.push('unmade', { ...NOTES, ...TAGS }), 'success')
    const [old] = await control
      .select()
      .from(branches)
      .where(eq(branches.id, branch?.id ?? ''))
    expect(old?.removedAt).not.toBeNull()
    expect(await sql((await branchOf(ref, 'unmade'))?.projectRef ?? '', 'select id from tags')).toEqual([{ id: 1 }])
  })
})
