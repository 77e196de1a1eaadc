import { eq } from 'drizzle-orm'
import pg from 'pg'
import { describe, expect, inject, it, vi } from 'vitest'
import { heartbeats, projects, projectTasks } from '../src/db/schema/index.ts'
import { control, newOrganization, tick, workerLogs } from './api.ts'
import { leftOf } from './engine/copy-projects.ts'
import { newProject, runSql, untilGone } from './projects.ts'

const HOUR_MS = 3_600_000

/** As if the last time were long ago. */
async function reconcile(): Promise<void> {
  await control.delete(heartbeats).where(eq(heartbeats.name, 'reconcile'))
  await tick()
}

async function withCluster<Value>(work: (client: pg.Client) => Promise<Value>): Promise<Value> {
  const client = new pg.Client({ connectionString: inject('adminUrl') })
  await client.connect()
  try {
    return await work(client)
  } finally {
    await client.end()
  }
}

describe('what a removed project left in the cluster', () => {
  it('is removed in time, with the work that is planned on it, and that of no other project', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const [gone = '', recent = '', staying = ''] = await Promise.all([1, 2, 3].map(() => newProject(organization)))
    for (const ref of [gone, recent]) {
      await owner.delete(`/v1/projects/${ref}`)
      await untilGone(owner, ref)
      await withCluster(async (client) => {
        await client.query(`create role p_${ref} login`)
        await client.query(`create database p_${ref} owner p_${ref}`)
      })
    }
    const removedAt = new Date(Date.now() - HOUR_MS)
    await control.update(projects).set({ removedAt }).where(eq(projects.ref, gone))
    await control.insert(projectTasks).values({ projectRef: gone, kind: 'restart', input: {}, dueAt: new Date() })
    await reconcile()
    await vi.waitFor(async () => expect(await leftOf(gone)).toEqual([]), { timeout: 60_000, interval: 100 })
    const tasks = await control.select().from(projectTasks).where(eq(projectTasks.projectRef, gone))
    expect(tasks.map(({ state }) => state)).not.toContain('pending')
    expect(await leftOf(recent)).toHaveLength(2)
    expect((await runSql(owner, staying, 'select 1 as one')).body).toEqual([{ one: 1 }])
    await control.update(projects).set({ removedAt }).where(eq(projects.ref, recent))
    await tick()
    expect(await leftOf(recent)).toHaveLength(2)
    await reconcile()
    await vi.waitFor(async () => expect(await leftOf(recent)).toEqual([]), { timeout: 60_000, interval: 100 })
  })

  it('stays, and is told of, where no project is known', async () => {
    const ref = 'aaaaaaaaaaaaaaaaaaaa'
    await withCluster((client) => client.query(`create role p_${ref}`))
    try {
      await reconcile()
      await vi.waitFor(
        async () =>
          expect((await workerLogs(ref)).join('\n')).toMatch(new RegExp(`"databases_unknown".*"refs":"${ref}`)),
        { timeout: 60_000, interval: 100 },
      )
      expect(await leftOf(ref)).toHaveLength(1)
    } finally {
      await withCluster((client) => client.query(`drop role p_${ref}`))
    }
  })
})
