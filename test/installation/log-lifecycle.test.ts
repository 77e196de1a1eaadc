import { expect, it } from 'vitest'
import { newOrganization, workerLogs } from '../support/api.ts'
import { newBranch } from '../support/branches.ts'
import { newProject, untilGone, untilStatus } from '../support/projects.ts'

/** Returns the events of the log about a project or branch, without requests and tasks, in their order. */
async function eventsOf(ref: string): Promise<string[]> {
  const entries = (await workerLogs(ref)).map((line) => JSON.parse(line))
  return entries
    .filter(({ event }) => /^(project|branch)_/.test(event))
    .map(({ event, from, to, status, level }) => {
      expect(level).toBe('info')
      return [event, from, to, status].filter((part) => part !== undefined).join(' ')
    })
}

it('the log has the life cycle of a project', async () => {
  const organization = await newOrganization()
  const { owner } = organization
  const ref = await newProject(organization)
  for (const [change, status] of [
    ['pause', 'INACTIVE'],
    ['restore', 'ACTIVE_HEALTHY'],
  ] as const) {
    await owner.post(`/v1/projects/${ref}/${change}`)
    await untilStatus(owner, ref, status)
  }
  await owner.delete(`/v1/projects/${ref}`)
  await untilGone(owner, ref)
  await expect
    .poll(() => eventsOf(ref))
    .toEqual([
      'project_created',
      'project_status_changed COMING_UP ACTIVE_HEALTHY',
      'project_status_changed ACTIVE_HEALTHY PAUSING',
      'project_status_changed PAUSING INACTIVE',
      'project_paused',
      'project_status_changed INACTIVE RESTORING',
      'project_status_changed RESTORING ACTIVE_HEALTHY',
      'project_restored',
      'project_status_changed ACTIVE_HEALTHY GOING_DOWN',
      'project_status_changed GOING_DOWN REMOVED',
      'project_removed',
    ])
})

it('the log has the life cycle of a branch', async () => {
  const organization = await newOrganization()
  const { owner } = organization
  const ref = await newProject(organization)
  const { project_ref: branch } = await newBranch(owner, ref)
  expect((await owner.delete(`/v1/branches/${branch}?force=true`)).status).toBe(200)
  await untilGone(owner, branch)
  const branchEvents = async () =>
    (await eventsOf(`"branch":"${branch}"`)).filter((event) => event.startsWith('branch_'))
  await expect.poll(async () => (await branchEvents()).at(-1)).toBe('branch_removed FUNCTIONS_DEPLOYED')
  expect((await branchEvents())[0]).toBe('branch_created CREATING_PROJECT')
  expect(await branchEvents()).toContain('branch_updated FUNCTIONS_DEPLOYED')
})
