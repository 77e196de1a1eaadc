import { eq } from 'drizzle-orm'
import { describe, expect, inject, it, vi } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import { EngineUnavailable } from '../../../src/engine/engine-errors.ts'
import { createHostEngine } from '../../../src/engine/host/host.ts'
import { reconcileProjects } from '../../../src/management/projects/projects/reconcile.ts'
import { heartbeats, projects, projectTasks } from '../../../src/model/tables/index.ts'
import { oneHost } from '../../engine/host-engine.ts'
import { askHost, instancesOfHost } from '../../instances.ts'
import { control, newOrganization, tick, workerLogs } from '../../support/api.ts'
import { newProject, PASSWORD, runSql, untilGone } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

const HOUR_MS = 3_600_000
const WAIT = { timeout: WAIT_MS, interval: 100 }

/** Makes the last reconciliation long ago. */
const forgetLastTime = () => control.delete(heartbeats).where(eq(heartbeats.name, 'reconcile'))

async function reconcile(): Promise<void> {
  await forgetLastTime()
  await tick()
}

const makeInstance = (ref: string) => askHost('PUT', `/instances/${ref}`, { password: PASSWORD })
const isOnHost = async (ref: string) => (await instancesOfHost()).includes(ref)

/** Makes a project that was removed an hour ago, whose instance exists again. */
async function newLeftover(organization: Awaited<ReturnType<typeof newOrganization>>, agoMs = HOUR_MS) {
  const ref = await newProject(organization)
  await organization.owner.delete(`/v1/projects/${ref}`)
  await untilGone(organization.owner, ref)
  await makeInstance(ref)
  const removedAt = new Date(Date.now() - agoMs)
  await control.update(projects).set({ removedAt }).where(eq(projects.ref, ref))
  return ref
}

describe('what a removed project left on a host', () => {
  it('is removed after a time, with its planned work, and nothing of another project', async () => {
    const organization = await newOrganization()
    const { owner } = organization
    const [gone, recent, staying] = await Promise.all([
      newLeftover(organization),
      newLeftover(organization, 0),
      newProject(organization),
    ])
    await control.insert(projectTasks).values({ projectRef: gone, kind: 'restart', input: {}, dueAt: new Date() })
    await reconcile()
    await vi.waitFor(async () => expect(await isOnHost(gone)).toBe(false), WAIT)
    const tasks = await control.select().from(projectTasks).where(eq(projectTasks.projectRef, gone))
    expect(tasks.map(({ state }) => state)).not.toContain('pending')
    expect(await isOnHost(recent)).toBe(true)
    expect((await runSql(owner, staying, 'select 1 as one')).body).toEqual([{ one: 1 }])
    await control
      .update(projects)
      .set({ removedAt: new Date(Date.now() - HOUR_MS) })
      .where(eq(projects.ref, recent))
    await tick()
    expect(await isOnHost(recent)).toBe(true)
    await reconcile()
    await vi.waitFor(async () => expect(await isOnHost(recent)).toBe(false), WAIT)
  })

  it('stays, and is reported, if its project is unknown', async () => {
    const ref = 'aaaaaaaaaaaaaaaaaaaa'
    await makeInstance(ref)
    try {
      await reconcile()
      await vi.waitFor(
        async () => expect((await workerLogs(ref)).join('\n')).toMatch(/"databases_unknown".*"refs":"[a-z ]*a{20}/),
        WAIT,
      )
      expect(await isOnHost(ref)).toBe(true)
    } finally {
      await askHost('DELETE', `/instances/${ref}`)
    }
  })
})

it('databases are compared with the projects, however many there are', async () => {
  const refs = Array.from({ length: 70_000 }, (_, n) => `none-${n}`)
  const reported: unknown[] = []
  const log = { info: () => {}, error: (...entry: unknown[]) => reported.push(entry) }
  const ctx = { db: control, engine: { refs: async () => refs }, now: () => new Date(), log } as unknown as SystemCtx
  await forgetLastTime()
  await reconcileProjects(ctx)
  expect(reported).toEqual([['databases_unknown', expect.objectContaining({ count: refs.length })]])
})

it('nothing is considered removed while its host is silent', async () => {
  const organization = await newOrganization()
  const [gone, staying] = await Promise.all([newLeftover(organization), newProject(organization)])
  const written: string[] = []
  const address = { id: 'host', key: 'k', databaseHost: inject('databaseHost'), databasePort: inject('databasePort') }
  const engine = createHostEngine({
    hosts: oneHost({ ...address, url: 'http://127.0.0.1:1' }),
    states: {
      read: async () => ({ host: 'host' }),
      write: async (ref) => void written.push(ref),
      refs: async () => [gone, staying],
    },
  })
  const log = { info: () => {}, error: () => {} }
  const ctx = { db: control, engine, now: () => new Date(), log } as unknown as SystemCtx
  await forgetLastTime()
  await expect(reconcileProjects(ctx)).rejects.toThrow(EngineUnavailable)
  await expect(engine.backups.list()).rejects.toThrow(EngineUnavailable)
  expect(written).toEqual([])
  expect(await isOnHost(gone)).toBe(true)
  expect((await runSql(organization.owner, staying, 'select 1 as one')).body).toEqual([{ one: 1 }])
  // The host answers again.
  await reconcile()
  await vi.waitFor(async () => expect(await isOnHost(gone)).toBe(false), WAIT)
})
