import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, inject, it } from 'vitest'
import { type Fleet, openFleet } from './faults/fleet/installation.ts'
import { playFleet } from './faults/fleet/play.ts'
import { copyInstallation } from './installations.ts'

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

/** `npm run test:faults` kills at random, more often and during all that owners do. */
it('work whose processes are killed is taken up at once and ends true, with nothing lost or left over', async () => {
  const victims = ['API', 'daemon', 'server', 'control database'] as const
  const { problems, settledMs } = await playFleet(fleet, {
    ...{ seed: 1, kills: 4, owners: 2, victims, pauseMsMax: 1_000 },
    operations: ['branch', 'pause'],
  })
  expect(problems).toEqual([])
  expect(settledMs).toBeLessThan(60_000)
})

it('sessions of the control database that are ended at any moment cost no request more than a 503', async () => {
  const { problems } = await playFleet(fleet, {
    ...{ seed: 2, kills: 40, owners: 1, victims: ['control sessions'], pauseMsMax: 100 },
    operations: ['write', 'resize', 'back up'],
  })
  expect(problems).toEqual([])
})
