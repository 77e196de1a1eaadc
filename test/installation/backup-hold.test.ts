import { eq } from 'drizzle-orm'
import pg from 'pg'
import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { projects, projectTasks } from '../../src/model/tables/index.ts'
import { REMOVALS_LOCK } from '../../src/platform/removals.ts'
import { sweepStorage } from '../../src/services/storage/sweep-bytes.ts'
import { untilGone } from '../support/projects.ts'
import { type Installation, startInstallation } from '../support/storage-installation.ts'
import { WAIT_MS } from '../support/wait.ts'

const DAY_MS = 24 * 60 * 60 * 1000

let installation: Installation
beforeAll(async () => {
  installation = await startInstallation()
})
afterAll(() => installation.stop())

/** Holds removals back, as a backup of the installation does, until the returned function is called. */
async function holdRemovals(): Promise<() => Promise<void>> {
  const client = new pg.Client({ connectionString: installation.controlUrl })
  await client.connect()
  await client.query('BEGIN')
  await client.query(`SELECT pg_advisory_xact_lock(${REMOVALS_LOCK})`)
  return () => client.end()
}

it('removed bytes, programs and projects are kept until a backup of the installation has copied them', async () => {
  const { control, bytes, newStorage, sql, ctxAt, stateOf } = installation
  const { organization, ref, objects, bucket } = await newStorage()
  const { owner } = organization
  for (const body of ['one', 'two']) await objects.from(bucket).upload('a', body, { upsert: true })
  await sql(ref, `update pgbouncer.removed_versions set removed_at = removed_at - interval '15 minutes'`)
  expect(await bytes.versions(ref)).toHaveLength(2)
  const release = await holdRemovals()

  const held = ctxAt(new Date(Date.now() + 2 * DAY_MS))
  await control.update(projects).set({ storageSweepDueAt: new Date(0) })
  await sweepStorage(held)
  expect(held.logged).toEqual([{ event: 'storage_sweep_postponed', project: ref }])
  expect(await bytes.versions(ref)).toHaveLength(2)

  expect((await owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
  await vi.waitFor(
    async () => {
      const [task] = await control.select().from(projectTasks).where(eq(projectTasks.kind, 'delete'))
      expect(task).toMatchObject({ state: 'pending', attempts: 0, lastError: expect.stringContaining('a backup') })
    },
    { timeout: WAIT_MS, interval: 50 },
  )
  expect(await stateOf(ref)).toBe('running')
  expect(await bytes.versions(ref)).toHaveLength(2)

  await release()
  await untilGone(owner, ref)
  expect(await stateOf(ref)).toBeUndefined()
  expect(await bytes.versions(ref)).toHaveLength(0)
})
