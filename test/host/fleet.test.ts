import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, inject, it } from 'vitest'
import { type Fleet, openFleet } from '../faults/fleet/installation.ts'
import { playFleet } from '../faults/fleet/play.ts'
import { extended } from '../support/extended.ts'
import { copyInstallation } from '../support/installations.ts'
import { until } from '../support/wire/installation.ts'

const folder = mkdtempSync(join(tmpdir(), 'pilothouse-fleet-'))
let fleet: Fleet

beforeAll(async () => {
  copyInstallation(inject('begun'), folder)
  fleet = await openFleet(folder)
})
afterAll(async () => {
  await fleet?.stop()
  rmSync(folder, { recursive: true, force: true })
})

/** `npm run test:faults` kills processes at random moments, more often and during every operation of owners. */
it('work whose processes are killed is resumed at once and completes, with nothing lost or left over', async () => {
  const victims = ['API', 'daemon', 'server', 'control database'] as const
  const { problems, settledMs } = await playFleet(fleet, {
    ...{ seed: 1, kills: 4, owners: 2, victims, pauseMsMax: 1_000 },
    operations: ['branch', 'pause'],
  })
  expect(problems).toEqual([])
  expect(settledMs).toBeLessThan(60_000)
})

it('control database sessions that end at any moment make a request fail with a 503 at most', async () => {
  const { problems } = await playFleet(fleet, {
    ...{ seed: 2, kills: 40, owners: 1, victims: ['control sessions'], pauseMsMax: 100 },
    operations: ['write', 'resize', 'back up'],
  })
  expect(problems).toEqual([])
})

const newProject = async (): Promise<string> => {
  const { slug } = (await fleet.call('POST', '/v1/organizations', { name: 'Taken up' })).body as { slug: string }
  const project = { name: 'taken up', organization_slug: slug, db_pass: 'correct horse battery staple' }
  const { ref } = (await fleet.call('POST', '/v1/projects', project)).body as { ref: string }
  const isActive = async () => ((await lastTask(ref))?.state === 'done' ? true : undefined)
  await until('it is active', 60_000, isActive)
  return ref
}

interface TaskRow {
  state: string
  claim: string | null
  attempts: number
}
const lastTask = async (ref: string): Promise<TaskRow | undefined> =>
  (
    await fleet.rows<TaskRow>(
      'select state, claim, attempts from project_tasks where project_ref = $1 order by created_at desc limit 1',
      [ref],
    )
  )[0]

async function hostOf(ref: string) {
  const [row] = await fleet.rows<{ host: string }>(
    `select engine_state ->> 'host' as host from projects where ref = $1`,
    [ref],
  )
  return fleet.hosts.find(({ name }) => name === row?.host) ?? expect.fail()
}

it('a task whose API was killed is resumed within 15 seconds of the next start', async () => {
  const ref = await newProject()
  const host = await hostOf(ref)
  // The holder of the lock keeps the task running.
  const locked = await host.ask('POST', `/instances/${ref}/lock`, { wait_ms: 5_000 })
  const { lock } = (await locked.json()) as { lock: string }
  await fleet.call('POST', `/v1/projects/${ref}/pause`)
  const { claim } = await until('it runs', 30_000, async () => {
    const task = await lastTask(ref)
    return task?.state === 'running' ? task : undefined
  })
  await fleet.api.end()
  await host.ask('DELETE', `/instances/${ref}/lock/${lock}`)
  expect(await lastTask(ref)).toMatchObject({ state: 'running', claim })
  fleet.api.start()
  await fleet.untilApiAnswers()
  await until('another process has taken it', 15_000, async () =>
    (await lastTask(ref))?.claim !== claim ? true : undefined,
  )
  await until('it is done', 60_000, async () => ((await lastTask(ref))?.state === 'done' ? true : undefined))
})

extended('a long task is not taken from the process that runs it', async () => {
  const ref = await newProject()
  // The control database is on the other host.
  if ((await hostOf(ref)).name !== 'second') await fleet.admin('project', 'move', ref, 'second')
  const pid = (await hostOf(ref)).daemon.pid() ?? 0
  process.kill(pid, 'SIGSTOP')
  try {
    await fleet.call('POST', `/v1/projects/${ref}/pause`)
    await until('it runs', 30_000, async () => ((await lastTask(ref))?.state === 'running' ? true : undefined))
    const first = await lastTask(ref)
    // Three sweeps run, each of which takes over what a dead process left.
    for (let n = 0; n < 32; n++) {
      await delay(1_000)
      expect(await lastTask(ref)).toEqual(first)
    }
  } finally {
    process.kill(pid, 'SIGCONT')
  }
  await until('it is done', 60_000, async () => ((await lastTask(ref))?.state === 'done' ? true : undefined))
})
