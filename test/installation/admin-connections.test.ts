import { and, eq, like } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { auditLog, gitBranches, gitConnections, users } from '../../src/model/tables/index.ts'
import { admin as ofInstallation } from '../support/admin.ts'
import { control, newOrganization, type TestOrganization } from '../support/api.ts'
import { newRepository } from '../support/github.ts'
import { insertProject } from '../support/webhooks.ts'

const admin = (args: string[]) => ofInstallation('connection', ...args)

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  for (const [name, value] of Object.entries(inject('github'))) vi.stubEnv(name, value)
  organization = await newOrganization()
  ref = await insertProject(organization)
})

afterAll(() => void vi.unstubAllEnvs())

const rowsOf = (projectRef: string) =>
  control.select().from(gitConnections).where(eq(gitConnections.projectRef, projectRef))

describe('connection', () => {
  it('adds a repository with the fields that GitHub reports, lists it, has it checked again, and removes it', async () => {
    const repository = await newRepository()
    const [user] = await control.select().from(users).where(eq(users.id, organization.userId))
    const options = ['--project', ref, '--repository', repository.name, '--user', user?.username ?? '']
    const more = ['--workdir', './apps/db/', '--branch-limit', '2', '--new-branch-per-pr', '--changes-only']
    expect(await admin(['add', ...options, ...more])).toBe(`${ref} follows ${repository.name} from its next push on`)
    const [row] = await rowsOf(ref)
    expect(row).toMatchObject({
      organizationId: organization.id,
      installationId: repository.installationId,
      repositoryId: repository.id,
      repositoryName: repository.name,
      workdir: 'apps/db',
      branchLimit: 2,
      newBranchPerPr: true,
      changesOnly: true,
      userId: organization.userId,
    })
    await expect(admin(['add', ...options])).rejects.toThrow('follows a repository already')
    expect(await admin(['list', organization.slug])).toBe(
      `${ref}  ${repository.name}  apps/db  2 branches for pull requests  changes only`,
    )
    expect(await admin(['sync', '--project', ref])).toContain('not reported a branch yet')
    // While GitHub fails, the sweeps of this run leave the branch as it is.
    await repository.fault('access_tokens', 503, 1_000)
    const at = new Date()
    const [before] = await control
      .insert(gitBranches)
      .values({ connectionId: row?.id ?? '', name: 'main', commit: 'abc', updatedAt: at })
      .returning()
    expect(await admin(['sync', '--project', ref])).toContain('checks main')
    const [branch] = await control
      .select()
      .from(gitBranches)
      .where(eq(gitBranches.connectionId, row?.id ?? ''))
    // A check that is under way compares `asked` and leaves the branch due.
    expect(branch).toMatchObject({ commit: null, dueAt: expect.any(Date), asked: (before?.asked ?? 0) + 1 })
    expect(await admin(['remove', '--project', ref])).toContain('its branches stay')
    expect(await rowsOf(ref)).toEqual([])
    const traced = await control
      .select({ action: auditLog.action })
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, ref), like(auditLog.action, 'connection.%')))
    expect(traced.map(({ action }) => action).sort()).toEqual([
      'connection.add',
      'connection.remove',
      'connection.sync',
      'connection.sync',
    ])
  })

  it('refuses an impossible connection, and writes nothing', async () => {
    const repository = await newRepository()
    const branch = await insertProject(organization, { parentRef: ref })
    const add = (project: string, ...more: string[]) =>
      admin(['add', '--project', project, '--repository', repository.name, ...more])
    await expect(admin(['add', '--repository', 'a/b'])).rejects.toThrow('--project is missing')
    await expect(admin(['add', '--project', ref])).rejects.toThrow('--repository is missing')
    await expect(admin(['add', '--project', ref, '--repository', 'a/..'])).rejects.toThrow('owner/name')
    await expect(admin(['add', '--project', ref, '--repository', 'nobody/none'])).rejects.toThrow(
      'Is the App installed there?',
    )
    await expect(add('abcdefghijklmnopqrst')).rejects.toThrow('no project has the ref')
    await expect(add(branch)).rejects.toThrow('is a branch')
    await expect(add(ref, '--user', 'nobody')).rejects.toThrow('no user is called')
    await expect(add(ref, '--branch-limit', '-1')).rejects.toThrow('--branch-limit')
    await expect(add(ref, '--branch-limit', 'x')).rejects.toThrow('--branch-limit x')
    await expect(add(ref, '--workdir', '../x')).rejects.toThrow('--workdir ../x')
    await expect(admin(['remove', '--project', ref])).rejects.toThrow('follows no repository')
    vi.stubEnv('GITHUB_APP_ID', '')
    await expect(add(ref)).rejects.toThrow('No GitHub App')
    expect([...(await rowsOf(ref)), ...(await rowsOf(branch))]).toEqual([])
  })
})
