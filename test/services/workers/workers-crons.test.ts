import { and, asc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { invocations, projects, workers } from '../../../src/model/tables/index.ts'
import { control, newMember, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { WAIT } from '../../support/machine.ts'
import { newProject } from '../../support/projects.ts'
import { type Source, saying, workerOf } from '../../support/workers.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

/** A time far from now, so that no other test's tick runs it. */
const CRON = '30 4 1 1 *'
const YEAR = new Date().getUTCFullYear() + 1
const at = (minute: number, second = 10, year = YEAR) => new Date(Date.UTC(year, 0, 1, 4, minute, second))

const PRINTING = `export default {
  fetch: () => new Response('well'),
  scheduled({ cron, scheduledTime, type, noRetry }, env, ctx) {
    ctx.waitUntil(Promise.resolve())
    console.log(JSON.stringify([cron, scheduledTime, type, typeof noRetry, env.A]))
  },
}`

const sourceOf = (program: string, crons: readonly string[] = [CRON]): Source => ({
  'wrangler.json': JSON.stringify({ main: 'index.js', vars: { A: 'b' }, triggers: { crons } }),
  'index.js': program,
})

async function deployWorker(
  program: string | ((name: string) => string) = PRINTING,
  crons?: readonly string[],
  spec: Record<string, unknown> = {},
) {
  const project = await newProject(organization)
  const worker = workerOf(await newMember(organization, 'developer'), project)
  const text = typeof program === 'string' ? program : program(worker.name)
  expect(await worker.ship(sourceOf(text, crons), spec)).toMatchObject({ build_state: 'active' })
  const [row] = await control.select().from(workers).where(eq(workers.projectRef, project))
  const id = row?.id ?? ''
  /** Returns the scheduled calls, the first one first. */
  const calls = async () => {
    const rows = await control
      .select()
      .from(invocations)
      .where(and(eq(invocations.programId, id), eq(invocations.method, 'CRON')))
      .orderBy(asc(invocations.at))
    return rows.map(({ path, status, console: lines, kind, projectRef }) => {
      expect([kind, projectRef]).toEqual(['worker', project])
      return [path, status, ...lines.map(({ message }) => message)]
    })
  }
  const dueAt = async () => (await control.select().from(workers).where(eq(workers.id, id)))[0]?.cronDueAt
  return { worker, project, id, calls, dueAt }
}

/** Waits for the rows, which are written a moment after the call. */
const untilCalled = (calls: () => Promise<unknown[]>, expected: unknown[]) =>
  vi.waitFor(async () => expect(await calls()).toEqual(expected), WAIT)

/** The expected row of a call; earlier calls have their rows once that of a later minute exists. */
const printed = (cron: string, minute: number, year = YEAR) => [
  cron,
  204,
  JSON.stringify([cron, at(minute, 0, year).getTime(), 'scheduled', 'function', 'b']),
]

describe('a worker with cron expressions', () => {
  it('is called at their minutes, once each however many sweeps run', async () => {
    const each = '*/5 4 1 1 *'
    const { calls, dueAt } = await deployWorker(PRINTING, [each, CRON, each])
    expect(await dueAt()).toEqual(at(0, 0))
    await Promise.all([tick(at(0)), tick(at(0)), tick(at(0))])
    await tick(at(1))
    expect(await dueAt()).toEqual(at(5, 0))
    await Promise.all([tick(at(25)), tick(at(25, 59))])
    await tick(at(30))
    await tick(at(30, 59))
    const first = [printed(each, 0)]
    // All minutes from 5 to 20 are too long ago.
    await vi.waitFor(async () => {
      const all = await calls()
      expect(all.slice(0, 2)).toEqual([...first, printed(each, 25)])
      expect(all.slice(2).toSorted()).toEqual([printed(CRON, 30), printed(each, 30)].toSorted())
    }, WAIT)
    expect(await dueAt()).toEqual(at(35, 0))
  })

  it('is called for each minute of the last five, also if an earlier one was missed', async () => {
    const each = '*/2 4 1 1 *'
    const { calls, dueAt } = await deployWorker(PRINTING, [each, CRON])
    expect(await dueAt()).toEqual(at(0, 0))
    await tick(at(30))
    const due = [printed(each, 26), printed(each, 28), printed(each, 30), printed(CRON, 30)]
    await vi.waitFor(async () => expect((await calls()).toSorted()).toEqual(due.toSorted()), WAIT)
    expect(await dueAt()).toEqual(at(32, 0))
  })

  it('is called up to five minutes late, and not later', async () => {
    const { calls, dueAt } = await deployWorker(PRINTING, [CRON])
    await tick(at(35, 0))
    await untilCalled(calls, [printed(CRON, 30)])
    expect(await dueAt()).toEqual(at(30, 0, YEAR + 1))
    await tick(at(35, 1, YEAR + 1))
    expect(await dueAt()).toEqual(at(30, 0, YEAR + 2))
    await tick(at(30, 1, YEAR + 2))
    await untilCalled(calls, [printed(CRON, 30), printed(CRON, 30, YEAR + 2)])
  })

  it('may be a class, or have no handler but this one', async () => {
    const named = await deployWorker(`import { WorkerEntrypoint } from 'cloudflare:workers'
      export default class extends WorkerEntrypoint { scheduled({ cron }) { console.log(cron, this.env.A) } }`)
    const alone = await deployWorker(`export default { async scheduled({ cron }) { console.log(cron) } }`)
    const serving = await deployWorker(
      `Deno.serve(() => new Response('well')); export default { scheduled() { console.log('called') } }`,
    )
    await tick(at(30))
    await untilCalled(named.calls, [[CRON, 204, `${CRON} b`]])
    await untilCalled(alone.calls, [[CRON, 204, CRON]])
    await untilCalled(serving.calls, [[CRON, 204, 'called']])
    expect(await (await serving.worker.call()).text()).toBe('well')
    const answer = await alone.worker.call()
    expect([answer.status, await answer.json()]).toEqual([500, expect.objectContaining({ code: 'WORKER_ERROR' })])
  })

  it('has a row with the reason if its handler fails, and is called again at its next minute', async () => {
    const { calls } = await deployWorker(`export default { scheduled() { throw new Error('no luck') } }`)
    await tick(at(30))
    await tick(at(30, 10, YEAR + 1))
    const failed = [CRON, 500, expect.stringContaining('no luck')]
    await untilCalled(calls, [failed, failed])
  })

  it('is not called once it is deleted, replaced, without instances, or its project is not active', async () => {
    const [deleted, replaced, empty, paused, last] = await Promise.all([
      deployWorker(),
      deployWorker(),
      deployWorker(PRINTING, [CRON], { instances: 0 }),
      deployWorker(),
      deployWorker(),
    ])
    expect((await deleted.worker.delete()).status).toBe(204)
    expect(await replaced.worker.ship(saying('no crons'))).toMatchObject({ build_state: 'active' })
    expect(await replaced.dueAt()).toBeNull()
    await control.update(projects).set({ status: 'INACTIVE' }).where(eq(projects.ref, paused.project))
    await tick(at(30))
    await untilCalled(last.calls, [printed(CRON, 30)])
    // A restored project continues with its next minute.
    await control.update(projects).set({ status: 'ACTIVE_HEALTHY' }).where(eq(projects.ref, paused.project))
    await tick(at(36))
    await tick(at(30, 10, YEAR + 1))
    await untilCalled(last.calls, [printed(CRON, 30), printed(CRON, 30, YEAR + 1)])
    await untilCalled(paused.calls, [printed(CRON, 30, YEAR + 1)])
    for (const { calls } of [deleted, replaced, empty]) expect(await calls()).toEqual([])
  })

  it('continues with a deployment of an earlier build, and with the served one if a build fails', async () => {
    const { worker, calls } = await deployWorker()
    expect((await worker.deploy({ instances: 2 })).status).toBe(202)
    expect(await worker.built()).toMatchObject({ build_state: 'active', spec: { instances: 2 } })
    await tick(at(30))
    await untilCalled(calls, [printed(CRON, 30)])
    expect(await worker.ship(sourceOf('export default {'))).toMatchObject({ build_state: 'failed' })
    await tick(at(30, 10, YEAR + 1))
    await untilCalled(calls, [printed(CRON, 30), printed(CRON, 30, YEAR + 1)])
  })

  it('makes the calls that were due before the deployment of a version without further expressions', async () => {
    const [same, other] = await Promise.all([deployWorker(), deployWorker()])
    const missed = at(30, 0, YEAR - 1)
    for (const { id, project } of [same, other]) {
      // No sweep claims calls of a project that is not active.
      await control.update(projects).set({ status: 'INACTIVE' }).where(eq(projects.ref, project))
      await control.update(workers).set({ cronDueAt: missed }).where(eq(workers.id, id))
    }
    expect(await same.worker.ship(sourceOf(PRINTING))).toMatchObject({ build_state: 'active' })
    expect(await other.worker.ship(sourceOf(PRINTING, ['29 4 1 1 *', CRON]))).toMatchObject({ build_state: 'active' })
    expect([await same.dueAt(), await other.dueAt()]).toEqual([missed, at(29, 0)])
  })

  it('makes calls that waited for others, though a version with the same expression replaced it meanwhile', async () => {
    const crons = Array.from({ length: 6 }, (_, n) => `30 4 1 1,${n + 2} *`)
    const { worker, id, calls } = await deployWorker(
      (name) => `export default {
        fetch: () => new Response('old'),
        async scheduled({ cron }, env) {
          const url = env.SUPABASE_URL + '/workers/v1/${name}/' + encodeURIComponent(cron)
          const version = async () => (await fetch(url)).text()
          while ((await version()) === 'old') await scheduler.wait(250)
          console.log('old')
        },
      }`,
      crons,
    )
    const sweep = tick(at(30))
    // A scheduled call has its row at its end. The rows of the handlers' own requests show that four handlers run.
    await vi.waitFor(async () => {
      const requested = control.selectDistinct({ path: invocations.path }).from(invocations)
      expect(await requested.where(eq(invocations.programId, id))).toHaveLength(4)
    }, WAIT)
    const next = `export default { fetch: () => new Response('new'), scheduled() { console.log('new') } }`
    expect(await worker.ship(sourceOf(next, crons.slice(0, 5)))).toMatchObject({ build_state: 'active' })
    await sweep
    await vi.waitFor(async () => {
      const all = (await calls()).map(([, status, version]) => [status, version])
      expect(all).toEqual([...Array(4).fill([204, 'old']), [204, 'new']])
    }, WAIT)
  })

  it('has four calls at a time', async () => {
    const crons = Array.from({ length: 10 }, (_, n) => `30 4 1 1,${n + 2} *`)
    const { calls } = await deployWorker(
      `let running = 0
      export default { async scheduled({ cron }) {
        running += 1
        const most = []
        for (let n = 0; n < 10; n += 1) { most.push(running); await scheduler.wait(20) }
        console.log(Math.max(...most))
        running -= 1
      } }`,
      crons,
    )
    await tick(at(30))
    await vi.waitFor(async () => expect(await calls()).toHaveLength(10), WAIT)
    const seen = (await calls()).map(([, status, most]) => [status, Number(most)])
    expect(seen.map(([status]) => status)).toEqual(Array(10).fill(204))
    expect(Math.max(...seen.map(([, most]) => Number(most)))).toBe(4)
  })

  extended(
    'is stopped after 150 s',
    async () => {
      const { calls } = await deployWorker(`export default { scheduled: () => scheduler.wait(400_000) }`)
      await tick(at(30))
      await untilCalled(calls, [[CRON, 504, expect.stringContaining('no scheduled handler ended, within 150 s')]])
    },
    300_000,
  )
})
