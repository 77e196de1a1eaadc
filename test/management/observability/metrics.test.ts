import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { afterEach, describe, expect, inject, it, vi } from 'vitest'
import { projects, projectTasks } from '../../../src/model/tables/index.ts'
import { type Family, openMetricsText } from '../../../src/platform/metrics/openmetrics.ts'
import { as, control, newOrganization, workerLogs } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { parseOpenMetrics } from '../../support/openmetrics.ts'
import { createProject, newProject } from '../../support/projects.ts'
import { startReceiver } from '../../support/receiver.ts'
import { newBucket, newStorage } from '../../support/storage.ts'
import { newEndpoint, newPlace, sendTest, untilStatuses } from '../../support/webhooks.ts'

const monitor = as(inject('metricsToken'))
let minutes = 0

/** Returns the metrics a minute after the previous call: the database's values are cached for a few seconds. */
async function scrape() {
  const { status, headers, body } = await monitor.at(new Date(Date.now() + minutes++ * 60_000)).get('/metrics')
  expect([status, headers.get('content-type')]).toEqual([
    200,
    'application/openmetrics-text; version=1.0.0; charset=utf-8',
  ])
  return parseOpenMetrics(body as unknown as string)
}

describe('GET /metrics', () => {
  it('requires its token, whatever else the caller may do', async () => {
    const { owner } = await newOrganization()
    const token = inject('metricsToken')
    for (const wrong of [undefined, '', `${token}x`, token.slice(1), owner.token]) {
      const { status, headers, body } = await as(wrong).get('/metrics')
      expect([status, headers.get('www-authenticate')]).toEqual([401, 'Bearer realm="metrics"'])
      expect(JSON.stringify(body)).not.toContain('pilothouse_')
    }
    const { status, headers } = await as(undefined, { authorization: token }).get('/metrics')
    expect(status).toBe(401)
    expect((await monitor.get('/metrics')).status).toBe(200)
    const lines = await workerLogs('"path":"/metrics"')
    expect(lines.some((line) => line.includes(headers.get('x-request-id') ?? 'none'))).toBe(true)
    expect(await workerLogs(token)).toEqual([])
  })

  it('is the only endpoint that accepts that token', async () => {
    expect((await monitor.get('/v1/projects')).status).toBe(401)
  })

  it('counts calls of functions and requests to storage by operation and status', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const { slug } = await putFunction(ref, `export default { fetch: () => new Response('', { status: 418 }) }`)
    const before = await scrape()
    for (let call = 0; call < 3; call++) {
      expect((await as(undefined).get(`/p/${ref}/functions/v1/${slug}`)).status).toBe(418)
    }
    const storage = await newStorage(organization)
    await newBucket(storage)
    const after = await scrape()
    const requests = 'pilothouse_http_requests_total'
    const grown = (labels: Record<string, string>) => after.sum(requests, labels) - before.sum(requests, labels)
    expect(grown({ operation: 'functions.call', status: '418' })).toBe(3)
    expect(grown({ operation: 'storage.bucket.create', status: '200' })).toBeGreaterThanOrEqual(1)
    expect(grown({ operation: 'v1-create-a-project', status: '201' })).toBeGreaterThanOrEqual(1)
  })

  it('counts each request in one bucket of its service', async () => {
    await monitor.get('/health')
    const { values, sum } = await scrape()
    const name = 'pilothouse_http_request_duration_seconds'
    expect(sum(`${name}_count`)).toBe(sum('pilothouse_http_requests_total'))
    const buckets = Array.from(values).filter(([key]) => key.startsWith(`${name}_bucket{service="management"`))
    const counts = buckets.map(([, value]) => value)
    expect(counts).toEqual(counts.toSorted((a, b) => a - b))
    expect(buckets.at(-1)).toEqual([
      `${name}_bucket{service="management",le="+Inf"}`,
      values.get(`${name}_count{service="management"}`),
    ])
    expect(values.get(`${name}_sum{service="management"}`)).toBeGreaterThan(0)
  })

  it('counts attempts of webhooks by their result', async () => {
    const receiver = await startReceiver((_request, response) => response.writeHead(500).end())
    const place = await newPlace('projects')
    const endpoint = await newEndpoint(place, { url: receiver.url })
    const attempts = async (status: string) => (await scrape()).sum('pilothouse_webhook_attempts_total', { status })
    const [failed, succeeded] = [await attempts('failure'), await attempts('success')]
    await sendTest(place, endpoint)
    await untilStatuses(endpoint, 'failure')
    receiver.answer((_request, response) => response.end())
    await sendTest(place, endpoint)
    await untilStatuses(endpoint, 'failure', 'success')
    await expect.poll(() => attempts('failure')).toBeGreaterThan(failed)
    expect(await attempts('success')).toBeGreaterThan(succeeded)
  })

  it('reports how long the oldest task of a kind has been due, and counts ended tasks', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const row = { projectRef: ref, kind: 'add_replica', state: 'pending', createdAt: new Date() } as const
    // Later than every clock of this file except that of the last request below.
    const dueAt = new Date(Date.now() + 10 * 86_400_000)
    const [task] = await control
      .insert(projectTasks)
      .values({ ...row, dueAt })
      .returning()
    const labels = { queue: 'project', kind: 'add_replica' }
    try {
      const before = await scrape()
      expect(before.sum('pilothouse_tasks', { ...labels, state: 'pending' })).toBeGreaterThanOrEqual(1)
      const later = await monitor.at(new Date(dueAt.getTime() + 90_000)).get('/metrics')
      const { sum } = parseOpenMetrics(later.body as unknown as string)
      expect(sum('pilothouse_task_oldest_due_seconds', labels)).toBeGreaterThanOrEqual(90)
      const ended = { queue: 'project', kind: 'create', state: 'done' }
      expect(before.sum('pilothouse_tasks_ended_total', ended)).toBeGreaterThanOrEqual(1)
    } finally {
      await control.delete(projectTasks).where(eq(projectTasks.id, task?.id ?? ''))
    }
  })

  it('reports sizes, connections and the hosts', async () => {
    const ref = await createProject(await newOrganization())
    const stored = (await scrape()).sum('pilothouse_storage_bytes')
    await control
      .update(projects)
      .set({ storageBytes: 10 ** 12 })
      .where(eq(projects.ref, ref))
    const { sum, types } = await scrape()
    expect(sum('pilothouse_storage_bytes')).toBeGreaterThanOrEqual(stored + 10 ** 12)
    for (const name of ['organizations', 'users', 'projects', 'database_connections', 'database_size_bytes']) {
      expect(sum(`pilothouse_${name}`), name).toBeGreaterThan(0)
    }
    expect(sum('pilothouse_database_connections')).toBeLessThanOrEqual(sum('pilothouse_database_connections_max'))
    expect(sum('pilothouse_check_ok', { check: 'database' })).toBe(1)
    expect(sum('pilothouse_host_up', { host: 'local' })).toBe(1)
    expect(sum('pilothouse_host_memory_free_bytes')).toBeLessThan(sum('pilothouse_host_memory_bytes'))
    expect(sum('pilothouse_host_disk_free_bytes')).toBeLessThan(sum('pilothouse_host_disk_bytes'))
    expect(sum('pilothouse_build_info')).toBe(1)
    expect(types.get('pilothouse_http_requests')).toBe('counter')
  })

  it('costs the control database at most four statements, and none while the values are cached', async () => {
    const { headers } = await monitor.at(new Date(Date.now() + 86_400_000)).get('/metrics')
    const [line = ''] = await workerLogs(headers.get('x-request-id') ?? 'none')
    expect(JSON.parse(line).queries).toBeLessThanOrEqual(4)
    const again = await monitor.at(new Date(Date.now() + 86_400_000)).get('/metrics')
    const [second = ''] = await workerLogs(again.headers.get('x-request-id') ?? 'none')
    expect(JSON.parse(second).queries ?? 0).toBe(0)
  })
})

describe('OpenMetrics text', () => {
  it('escapes the values of labels', () => {
    const family: Family = { name: 'x', type: 'gauge', help: 'X.', samples: [{ labels: { a: 'q"\\\n' }, value: 1 }] }
    const text = openMetricsText([family])
    expect(text).toBe('# TYPE pilothouse_x gauge\n# HELP pilothouse_x X.\npilothouse_x{a="q\\"\\\\\\n"} 1\n# EOF\n')
    expect(parseOpenMetrics(text).sum('pilothouse_x', { a: 'q"\\\n' })).toBe(1)
  })
})

describe('counters', () => {
  afterEach(() => {
    vi.unstubAllGlobals()
    vi.restoreAllMocks()
  })

  it('are handed over together, some time after the first, and are kept while the object is unreachable', async () => {
    vi.resetModules()
    const { count, flushCounts } = await import('../../../src/platform/metrics/counters.ts')
    const waits: { ms: number; end(): void }[] = []
    const wait = (ms: number) => new Promise<void>((end) => waits.push({ ms, end }))
    vi.stubGlobal('scheduler', { wait })
    const taken: [string, number[]][][] = []
    let isAway = true
    const add = async (counts: Map<string, number[]>) => {
      if (isAway) throw new Error('away')
      taken.push([...counts])
      return counts
    }
    const METRICS = { idFromName: (name: string) => name, get: () => ({ add }) }
    const work: Promise<unknown>[] = []
    const host = { bindings: { METRICS } as never, waitUntil: (one: Promise<unknown>) => void work.push(one) }
    for (const state of ['done', 'done', 'failed']) count(host, 'tasks_ended', ['project', 'create', state])
    expect(waits.map(({ ms }) => ms)).toEqual([10_000])
    waits[0]?.end()
    const failures = vi.spyOn(console, 'error').mockReturnValue()
    await Promise.all(work)
    expect(failures.mock.calls.flat()).toEqual([expect.stringContaining('metrics_flush_failed')])
    isAway = false
    count(host, 'tasks_ended', ['project', 'create', 'done'])
    await flushCounts(host.bindings)
    expect(taken).toEqual([
      [
        ['tasks_ended project create done', [3]],
        ['tasks_ended project create failed', [1]],
      ],
    ])
    count({ ...host, bindings: { METRICS, PROGRAMS_PROCESS: randomUUID() } as never }, 'tasks_ended', ['a', 'b', 'c'])
    expect(await flushCounts(host.bindings)).toEqual(new Map())
  })
})
