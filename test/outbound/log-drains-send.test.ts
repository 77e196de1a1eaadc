import { randomUUID } from 'node:crypto'
import { eq, inArray, sql } from 'drizzle-orm'
import pg from 'pg'
import { describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { invocations, logDrainEntries, logDrains, workers, workerTasks } from '../../src/model/tables/index.ts'
import { claimDrain, dueDrains, ENTRIES_MAX, readPending, recordSent } from '../../src/outbound/drains/store.ts'
import { DATABASE_CLOCK } from '../../src/platform/db/database-clock.ts'
import { firstIdOf } from '../../src/platform/db/id.ts'
import { control, newOrganization, setName, tick, workerLogs } from '../support/api.ts'
import { newBranch } from '../support/branches.ts'
import { extended } from '../support/extended.ts'
import {
  bodyOf,
  type DrainedProject,
  drainRow,
  hurry,
  jsonOf,
  line,
  log,
  newDrain,
  newDrained,
  newWebhookDrain,
  untilSwept,
  waiting,
} from '../support/log-drains.ts'
import { newProject } from '../support/projects.ts'
import { newReceiver, type Received, withStatus } from '../support/receiver.ts'
import { WAIT_MS } from '../support/wait.ts'
import { NOBODY, WAIT } from '../support/webhooks.ts'

// biome-ignore lint/suspicious/noExplicitAny: rows as they arrive
type Row = any
const rowsIn = (received: readonly Received[]): Row[] => received.flatMap(jsonOf)
const callsIn = (received: readonly Received[]): string[] =>
  rowsIn(received).flatMap((row) => (row.source === 'edge_logs' ? [row.log_attributes.execution_id] : []))
const messagesIn = (received: readonly Received[], source: string): string[] =>
  rowsIn(received).flatMap((row) => (row.source === source ? [row.event_message] : []))

const entriesOf = async (event: string, drain: string) =>
  (await workerLogs(drain)).map((text) => JSON.parse(text)).filter((one) => one.event === event)

/** Waits for the line in the sender's log, which is written after the loss is recorded. */
const untilLost = (drain: string, lost: { rows: number; reason: string }) =>
  vi.waitFor(async () => {
    expect(await entriesOf('log_drain_rows_lost', drain)).toEqual([
      expect.objectContaining({ level: 'error', ...lost }),
    ])
  }, WAIT)

describe('a log entry', () => {
  it('arrives as a row of `logs`, a call before its messages, and is then removed', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    const [call] = await log(project, { status: 500, console: [line('hello'), line('broken', 'error')] })
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    expect(receiver.received[0]?.headers).toMatchObject({ 'content-type': 'application/json' })
    const rows = rowsIn(receiver.received)
    expect(rows.map(({ source, severity_text, event_message }) => [source, severity_text, event_message])).toEqual([
      ['edge_logs', 'ERROR', 'GET | 500 | /f'],
      ['function_edge_logs', 'ERROR', 'GET | 500 | /f'],
      ['function_logs', 'INFO', 'hello'],
      ['function_logs', 'ERROR', 'broken'],
    ])
    expect(rows[1]).toEqual({
      id: call,
      timestamp: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/),
      source: 'function_edge_logs',
      severity_text: 'ERROR',
      event_message: 'GET | 500 | /f',
      log_attributes: expect.objectContaining({ 'response.status_code': '500', execution_id: call }),
      project: project.ref,
    })
    await vi.waitFor(async () => expect(await waiting(id)).toBe(0), WAIT)
    await vi.waitFor(async () => {
      const sent = await entriesOf('log_drain_sent', id)
      expect(sent).toEqual([expect.objectContaining({ project: project.ref, backend: 'webhook', batches: 1, rows: 4 })])
    }, WAIT)
  })

  it('is sent if it was logged after the drain was created', async () => {
    const project = await newDrained()
    await log(project)
    const { receiver } = await newWebhookDrain({}, project)
    const [later] = await log(project)
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    expect(callsIn(receiver.received)).toEqual([later])
  })

  it('goes to each drain of the project, and to none of another', async () => {
    const project = await newDrained()
    const drains = [await newWebhookDrain({}, project), await newWebhookDrain({}, project)]
    const other = await newWebhookDrain()
    const [call] = await log(project)
    const [theirs] = await log(other.project)
    await untilSwept(() => expect(drains.map(({ receiver }) => receiver.received.length)).toEqual([1, 1]))
    expect(drains.map(({ receiver }) => callsIn(receiver.received))).toEqual([[call], [call]])
    await untilSwept(() => expect(callsIn(other.receiver.received)).toEqual([theirs]))
  })

  it('is sent with what a call prints after it has ended, and only with that', async () => {
    const { project, receiver } = await newWebhookDrain()
    const [call] = await log(project, { console: [line('first')] })
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    await control
      .update(invocations)
      .set({ console: sql`console || ${JSON.stringify([line('late'), line('later')])}::jsonb` })
      .where(eq(invocations.id, call as string))
    await untilSwept(() => expect(receiver.received).toHaveLength(2))
    expect(rowsIn(receiver.received.slice(1)).map((row) => [row.source, row.event_message])).toEqual([
      ['function_logs', 'late'],
      ['function_logs', 'later'],
    ])
    const ids = rowsIn(receiver.received).map((row) => row.id)
    expect(new Set(ids).size).toBe(ids.length)
  })

  it('is not skipped because its write started before that of an entry already sent', async () => {
    const { project, receiver } = await newWebhookDrain()
    const client = new pg.Client({ connectionString: inject('controlUrl') })
    await client.connect()
    onTestFinished(() => client.end())
    const slow = randomUUID()
    await client.query('begin')
    await client.query(
      `insert into invocations (id, project_ref, kind, program_id, deployment_id, method, path, status, ms, console, at)
        values ($1, $2, 'function', $1, $1, 'GET', '/slow', 200, 1, '[]', now() - interval '1 minute')`,
      [slow, project.ref],
    )
    const [quick] = await log(project)
    await untilSwept(() => expect(callsIn(receiver.received)).toEqual([quick]))
    await client.query('commit')
    await untilSwept(() => expect(callsIn(receiver.received)).toEqual([quick, slow]))
  })

  it('is sent for builds and calls of workers', async () => {
    const { project, receiver } = await newWebhookDrain()
    const at = new Date()
    const spec = { size: '2gb', exposure: 'public', instances: 1 } as const
    const values = { projectRef: project.ref, name: 'api', spec, buildState: 'active' } as const
    const [worker] = await control
      .insert(workers)
      .values({ ...values, createdAt: at, updatedAt: at })
      .returning()
    const workerId = worker?.id as string
    const [task] = await control
      .insert(workerTasks)
      .values({ workerId, kind: 'build', spec, dueAt: new Date(Date.now() + 3_600_000), createdAt: at })
      .returning()
    await log(project, { kind: 'worker', programId: workerId, console: [line('up')] })
    await control
      .update(workerTasks)
      .set({ state: 'failed', lastError: 'no such file', finishedAt: at })
      .where(eq(workerTasks.id, task?.id as string))
    await untilSwept(() => expect(rowsIn(receiver.received)).toHaveLength(4))
    expect(rowsIn(receiver.received).map((row) => [row.source, row.event_message])).toEqual([
      ['edge_logs', 'GET | 200 | /f'],
      ['worker_ingress_logs', 'GET | 200 | /f'],
      ['worker_guest_logs', 'up'],
      ['worker_api_logs', 'build_failed'],
    ])
    expect(rowsIn(receiver.received)[3].log_attributes).toMatchObject({ worker: 'api', reason: 'no such file' })
  })

  it('of a run of a branch goes to the drains of the parent, and the branch itself has no drains', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const project: DrainedProject = { organization, ref, caller: organization.owner, path: pathOf(ref) }
    const { receiver } = await newWebhookDrain({}, project)
    const branch = await newBranch(organization.owner, ref)
    const own = await organization.owner.get(pathOf(branch.project_ref))
    expect(own).toMatchObject({ status: 200, body: { data: [] } })
    await untilSwept(() => expect(messagesIn(receiver.received, 'workflow_run_logs').length).toBeGreaterThan(1))
    const first = rowsIn(receiver.received).find(({ source }) => source === 'workflow_run_logs')
    expect(first.log_attributes).toMatchObject({ workflow_run: expect.any(String) })
  })
})

const pathOf = (ref: string) => `/v2/projects/${ref}/analytics/log-drains`

describe('a request', () => {
  it('carries the headers, and is compressed if that is configured', async () => {
    const headers = { authorization: 'Bearer let-me-in', 'x-team': 'a' }
    const { project, receiver, id } = await newWebhookDrain({ gzip: true, headers })
    await log(project)
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    expect(receiver.received[0]?.headers).toMatchObject({ ...headers, 'content-encoding': 'gzip' })
    expect(rowsIn(receiver.received)).toHaveLength(2)
    expect((await workerLogs(id)).join()).not.toContain('let-me-in')
    expect(JSON.stringify(await drainRow(id))).not.toContain('let-me-in')
  })

  it('holds a limited number of rows and bytes, in order', async () => {
    const { project, receiver } = await newWebhookDrain()
    const small = await log(project, {}, ENTRIES_MAX + 10)
    const large = await log(project, { console: Array.from({ length: 60 }, () => line('x'.repeat(10_000))) }, 3)
    await untilSwept(() => expect(callsIn(receiver.received)).toHaveLength(small.length + large.length))
    expect(receiver.received.map((request) => callsIn([request]).length)).toEqual([ENTRIES_MAX, 11, 1, 1])
    expect(receiver.received.every(({ bytes }) => bytes.length < 1.5 * 1024 * 1024)).toBe(true)
    expect(new Set(callsIn(receiver.received.slice(0, 2)).slice(0, small.length))).toEqual(new Set(small))
  })
})

describe('a failing destination', () => {
  it('receives the same rows again with growing delays, until it accepts them', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer(withStatus(503, {}, 'let-me-in'))
    const calls = await log(project)
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    const [failed] = await vi.waitFor(async () => {
      const found = await entriesOf('log_drain_failed', id)
      expect(found).toHaveLength(1)
      return found
    }, WAIT)
    expect(failed).toMatchObject({ error_code: 'bad_status', reason: 'the destination answered 503', failures: 1 })
    expect(failed.next_s).toBeGreaterThanOrEqual(10)
    await vi.waitFor(async () => expect((await drainRow(id)).failures).toBe(1), WAIT)
    expect((await drainRow(id)).nextAt.getTime()).toBeGreaterThan(Date.now())
    const [later] = await log(project)
    await tick()
    expect(receiver.received).toHaveLength(1)
    await hurry(id)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(1))
    expect((await drainRow(id)).nextAt.getTime()).toBeGreaterThan(Date.now() + 5_000)
    receiver.answer(withStatus(200))
    await hurry(id)
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    expect(await drainRow(id)).toMatchObject({ failures: 0, failingSince: null })
    expect(callsIn(receiver.received.slice(-1))).toEqual([...calls, later])
    expect((await workerLogs(id)).join()).not.toContain('let-me-in')
  })

  it('is tried again when that is due, and not at the next sweep', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer(withStatus(503))
    await log(project)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBe(1))
    const due = (await drainRow(id)).nextAt.getTime()
    receiver.answer(withStatus(200))
    await vi.waitFor(() => expect(receiver.received).toHaveLength(2), WAIT)
    expect(Date.now()).toBeLessThan(due + 4_000)
  })

  it('is retried after the time that it asks for', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer(withStatus(429, { 'retry-after': '120' }))
    await log(project)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    expect((await drainRow(id)).nextAt.getTime()).toBeGreaterThan(Date.now() + 100_000)
  })

  it('does not count as failing if its name cannot be resolved or its secrets cannot be opened', async () => {
    const receiver = await newReceiver()
    const host = `${randomUUID()}.receivers.dev`
    await setName(host, { A: ['93.184.215.14'], ttl: 0 }, new URL(receiver.url).origin)
    const project = await newDrained()
    const id = await newDrain(project, 'webhook', { url: `https://${host}/`, headers: { 'x-key': 'k' } })
    await setName(host, { raw: { status: 502, body: '' } })
    await log(project)
    await untilSwept(async () => expect(await entriesOf('log_drain_postponed', id)).toHaveLength(1))
    expect(receiver.received).toEqual([])
    await setName(host, { A: ['93.184.215.14'], ttl: 0 })
    const { sealedSecrets } = await drainRow(id)
    await control
      .update(logDrains)
      .set({ sealedSecrets: sealedSecrets.replace(/^\w+/, 'another') })
      .where(eq(logDrains.id, id))
    await hurry(id)
    await untilSwept(async () => expect(await entriesOf('log_drain_postponed', id)).toHaveLength(2))
    expect(await drainRow(id)).toMatchObject({ failures: 0, failingSince: null })
    const config = { url: `https://${host}/`, headers: { 'x-key': 'new' } }
    const reply = await project.caller.put(`${project.path}/${id}`, bodyOf({ backend_type: 'webhook', config }))
    expect(reply.status).toBe(200)
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    expect(receiver.received[0]?.headers).toMatchObject({ 'x-key': 'new' })
  })

  it('cannot redirect elsewhere', async () => {
    const target = await newReceiver()
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer(withStatus(307, { location: target.url }))
    await log(project)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    expect(target.received).toEqual([])
  })

  it('does not delay other drains while it hangs, and the request ends at its time limit', async () => {
    const hanging = await newWebhookDrain()
    hanging.receiver.answer(() => {})
    const neighbour = await newWebhookDrain({}, hanging.project)
    await log(hanging.project)
    await untilSwept(() => expect(hanging.receiver.received).toHaveLength(1))
    await untilSwept(() => expect(callsIn(neighbour.receiver.received)).toHaveLength(1))
    await log(hanging.project)
    await untilSwept(() => expect(callsIn(neighbour.receiver.received)).toHaveLength(2))
    expect(await entriesOf('log_drain_failed', hanging.id)).toEqual([])
    // Meanwhile the same rows are not sent a second time.
    expect(hanging.receiver.received).toHaveLength(1)
    const [failed] = await vi.waitFor(
      async () => {
        const found = await entriesOf('log_drain_failed', hanging.id)
        expect(found).toHaveLength(1)
        return found
      },
      { ...WAIT, timeout: WAIT_MS },
    )
    expect(failed).toMatchObject({ error_code: 'timeout' })
  })

  it('loses only a row that it refuses, once it has accepted later rows', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer((_request, response, { body }) => {
      response.writeHead(body.includes('poison') ? 400 : 200).end()
    })
    const before = await log(project, {}, 5)
    await log(project, { path: '/poison' })
    const after = await log(project, {}, 5)
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    const taken = receiver.received.filter(({ body }) => !body.includes('poison'))
    expect(new Set(callsIn(taken))).toEqual(new Set([...before, ...after]))
    await untilLost(id, { rows: 2, reason: 'refused' })
  })

  it('loses only a line that it refuses, and neither its call nor the other lines', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer((_request, response, { body }) => {
      response.writeHead(body.includes('poison') ? 400 : 200).end()
    })
    const messages = Array.from({ length: 20 }, (_, n) => `line ${n}`)
    const [call] = await log(project, { console: messages.toSpliced(13, 1, 'poison').map((message) => line(message)) })
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    const taken = receiver.received.filter(({ body }) => !body.includes('poison'))
    expect(callsIn(taken)).toEqual([call])
    expect(messagesIn(taken, 'function_logs')).toEqual(messages.toSpliced(13, 1))
    await untilLost(id, { rows: 1, reason: 'refused' })
  })

  it('loses nothing if it refuses everything', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer(withStatus(400))
    await log(project, {}, 3)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    expect(await waiting(id)).toBe(3)
    await log(project, {}, 20)
    await hurry(id)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(1))
    expect(await waiting(id)).toBe(23)
  })
})

describe('a row that can no longer be sent', () => {
  it('is counted and reported if its record is gone', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    const [gone] = await log(project, { console: [line('x')] })
    await control.delete(invocations).where(eq(invocations.id, gone as string))
    const [kept] = await log(project)
    await untilSwept(() => expect(callsIn(receiver.received)).toEqual([kept]))
    await untilLost(id, { rows: 3, reason: 'gone' })
  })

  it('is counted and reported if it waits for longer than logs are kept', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer(withStatus(500))
    await log(project, {}, 4)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    const old = firstIdOf(Date.now() - 8 * 86_400_000).slice(0, 24)
    await control.execute(
      sql`update log_drain_entries e set id = (${old} || right(id::text, 12))::uuid where drain_id = ${id}::uuid`,
    )
    const [kept] = await log(project)
    await untilSwept(async () => expect(await waiting(id)).toBe(1))
    await untilLost(id, { rows: 8, reason: 'expired' })
    receiver.answer(withStatus(200))
    await hurry(id)
    await untilSwept(() => expect(callsIn(receiver.received.slice(-1))).toEqual([kept]))
  })
})

describe('two senders', () => {
  it('never send for one drain at the same time', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    const claims = await Promise.all(Array.from({ length: 4 }, () => claimDrain(control, DATABASE_CLOCK, id)))
    expect(claims.filter((claim) => claim !== undefined)).toHaveLength(1)
    await log(project)
    const other = await newWebhookDrain()
    await log(other.project)
    await untilSwept(() => expect(other.receiver.received).toHaveLength(1))
    expect(receiver.received).toEqual([])
    await control
      .update(logDrains)
      .set({ leaseUntil: new Date(Date.now() - 1) })
      .where(eq(logDrains.id, id))
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
  })

  it('discard a result that comes after the claim has ended', async () => {
    const { project, id } = await newWebhookDrain()
    const claimed = await claimDrain(control, DATABASE_CLOCK, id)
    if (!claimed) throw new Error('not claimed')
    await log(project)
    expect(await recordSent(control, DATABASE_CLOCK, claimed, { sent: [], dropped: [] })).toBe(true)
    await hurry(id)
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    expect(await recordSent(control, DATABASE_CLOCK, claimed, { sent: [], dropped: [] })).toBe(false)
  })

  it('keep rows that one gave up while the other has claimed them', async () => {
    const { project, id } = await newWebhookDrain()
    const [first, second] = [await claimDrain(control, DATABASE_CLOCK, id), randomUUID()]
    if (!first) throw new Error('not claimed')
    await log(project)
    await control.update(logDrains).set({ claim: second }).where(eq(logDrains.id, id))
    const entries = await control.select().from(logDrainEntries).where(eq(logDrainEntries.drainId, id))
    const ids = entries.map((entry) => entry.id)
    expect(await recordSent(control, DATABASE_CLOCK, first, { sent: [], dropped: ids })).toBe(false)
    expect(await waiting(id)).toBe(ids.length)
    expect(await recordSent(control, DATABASE_CLOCK, { ...first, claim: second }, { sent: [], dropped: ids })).toBe(
      true,
    )
    expect([ids.length > 0, await waiting(id)]).toEqual([true, 0])
  })
})

describe('the cost of a batch', () => {
  const QUICKEST_OF = 9

  async function quickestMs(work: () => Promise<unknown>): Promise<number> {
    let best = Number.POSITIVE_INFINITY
    for (let n = 0; n < QUICKEST_OF; n++) {
      const startedAt = performance.now()
      await work()
      best = Math.min(best, performance.now() - startedAt)
    }
    return best
  }

  extended('is the same after 100,000 earlier calls', async () => {
    const project = await newDrained()
    // No sender reads the rows of these drains.
    const [few, many] = [await newDrain(project, 'webhook', HELD), await newDrained(project.organization)]
    const drain = await newDrain(many, 'webhook', HELD)
    await control
      .update(logDrains)
      .set({ leaseUntil: new Date(Date.now() + 3_600_000) })
      .where(inArray(logDrains.id, [few, drain]))
    await fill(project.ref, 1_000)
    await fill(many.ref, 100_000)
    expect(await waiting(drain)).toBe(100_000)
    await control.execute(sql`analyze log_drain_entries, invocations`)
    const read = (id: string) => () => readPending(control, id, { after: undefined, count: ENTRIES_MAX })
    const pending = await read(drain)()
    expect([pending.entries.length, pending.rows.length, pending.isFull]).toEqual([ENTRIES_MAX, 2 * ENTRIES_MAX, true])
    const ratio = (await quickestMs(read(drain))) / (await quickestMs(read(few)))
    expect(ratio).toBeLessThan(2)
    const due = () => dueDrains(control, DATABASE_CLOCK, { after: NOBODY, count: 1_000 })
    expect(await quickestMs(due)).toBeLessThan(100)
    await control.delete(logDrainEntries).where(eq(logDrainEntries.drainId, drain))
  })

  const HELD = { url: 'http://127.0.0.1:9/' }
  const fill = (ref: string, count: number) =>
    control.execute(sql`insert into invocations
      (project_ref, kind, program_id, deployment_id, method, path, status, ms, console, at)
      select ${ref}, 'function', ${NOBODY}::uuid, ${NOBODY}::uuid, 'GET', '/f', 200, 1, '[]', now() - n * interval '1 ms'
      from generate_series(1, ${count}) n`)
})
