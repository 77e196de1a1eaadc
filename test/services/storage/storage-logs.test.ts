import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { dataApiRequests, requestCounts, storageRequests } from '../../../src/model/tables/index.ts'
import { createTokenBuckets } from '../../../src/services/gateway/token-bucket.ts'
import {
  baseUrl,
  control,
  newOrganization,
  type TestOrganization,
  tick,
  unhurried,
  workerLogs,
} from '../../support/api.ts'
import { jsonOf, newWebhookDrain, untilSwept } from '../../support/log-drains.ts'
import { WAIT } from '../../support/machine.ts'
import { exchange, newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling } from '../../support/storage-http.ts'

/** Yesterday, because rows older than a week are purged. */
const NOW = new Date(`${new Date(Date.now() - 86_400_000).toISOString().slice(0, 10)}T05:06:07.000Z`)
const at = (seconds: number) => ({ 'x-test-clock': String(NOW.getTime() + seconds * 1_000) })

let organization: TestOrganization
let storage: TestStorage
let service: ReturnType<typeof calling>
let bucket: string
beforeAll(async () => {
  organization = await newOrganization()
  storage = await newStorage(organization)
  service = calling(storage, storage.keys.service)
  bucket = await newBucket(storage)
})

const rowsOf = ({ ref }: Pick<TestStorage, 'ref'>) =>
  control.select().from(storageRequests).where(eq(storageRequests.projectRef, ref))
const idsOf = (replies: { headers: Headers }[]) => replies.map(({ headers }) => headers.get('x-request-id') as string)
const written = (ids: string[], of = storage) =>
  vi.waitFor(async () => expect((await rowsOf(of)).map(({ id }) => id)).toEqual(expect.arrayContaining(ids)), WAIT)

async function ask(sql: string, { endpoint = 'logs', project = storage.ref } = {}) {
  const query = new URLSearchParams({ sql, iso_timestamp_end: new Date(NOW.getTime() + 1_000).toISOString() })
  const reply = await unhurried(organization.owner)().get(
    `/v1/projects/${project}/analytics/endpoints/${endpoint}?${query}`,
  )
  expect([reply.status, reply.body.error]).toEqual([200, undefined])
  return reply.body.result
}

describe('a request to the storage server', () => {
  const path = () => `/storage/v1/object/${bucket}`
  let ids: string[]
  beforeAll(async () => {
    const uploaded = await service(`POST /object/${bucket}/cat.txt`, { body: 'cat', headers: at(-3) })
    const missing = await service(`GET /object/${bucket}/dog.txt?token=let-me-in`, { headers: at(-2) })
    const denied = await calling(storage, 'none')(`DELETE /object/${bucket}/cat.txt`, { headers: at(-1) })
    expect([uploaded, missing, denied].map(({ status }) => status)).toEqual([200, 400, 400])
    ids = idsOf([uploaded, missing, denied])
    await written(ids)
  })

  it('leaves a row of edge_logs, for the queries of BigQuery clients', async () => {
    const asked = `select id, identifier, timestamp, event_message, request.method, request.path, response.status_code
      from edge_logs cross join unnest(metadata) as m cross join unnest(m.request) as request
      cross join unnest(m.response) as response order by timestamp`
    const row = (seconds: number, method: string, status_code: number, key: string) => ({
      ...{ id: expect.any(String), identifier: storage.ref, timestamp: (NOW.getTime() + seconds * 1_000) * 1_000 },
      ...{
        event_message: `${method} | ${status_code} | ${path()}/${key}`,
        method,
        path: `${path()}/${key}`,
        status_code,
      },
    })
    expect(await ask(asked, { endpoint: 'logs.all' })).toEqual([
      row(-3, 'POST', 200, 'cat.txt'),
      row(-2, 'GET', 400, 'dog.txt'),
      row(-1, 'DELETE', 400, 'cat.txt'),
    ])
  })

  it('leaves a row of storage_logs with its request id and its error', async () => {
    const sql = "select * from logs where source = 'storage_logs' order by timestamp"
    const [uploaded, missing, denied] = await ask(sql)
    expect(uploaded).toEqual({
      ...{ id: ids[0], source: 'storage_logs', severity_text: 'INFO' },
      timestamp: new Date(NOW.getTime() - 3_000).toISOString().replace('Z', '000Z'),
      event_message: `POST | 200 | /object/${bucket}/cat.txt`,
      log_attributes: {
        ...{ 'request.method': 'POST', 'request.path': `${path()}/cat.txt`, 'request.pathname': `${path()}/cat.txt` },
        ...{ 'response.status_code': '200', execution_time_ms: expect.stringMatching(/^\d+$/), level: 'info' },
        ...{ request_id: ids[0], identifier: storage.ref },
      },
    })
    expect(missing).toMatchObject({ severity_text: 'WARN', log_attributes: { error: 'NoSuchKey', level: 'warn' } })
    expect(denied).toMatchObject({ id: ids[2], log_attributes: { error: 'AccessDenied' } })
  })

  it('does not log the query of its address, which may contain a token', async () => {
    expect(JSON.stringify(await ask('select * from logs'))).not.toContain('let-me-in')
  })

  it('is in the logs of no other project', async () => {
    const other = await newStorage(organization)
    const reply = await calling(other, other.keys.service)('GET /bucket', { headers: at(-1) })
    await written(idsOf([reply]), other)
    expect(await ask('select count() as n from storage_logs', { project: other.ref })).toEqual([{ n: 1 }])
    expect(await ask('select count() as n from storage_logs')).toEqual([{ n: 3 }])
  })

  it('sends no query to the control database while it is answered', async () => {
    const replies: Awaited<ReturnType<typeof service>>[] = []
    for (let n = 0; n < 5; n++) replies.push(await service('GET /bucket', { headers: at(-90) }))
    await written(idsOf(replies))
    const lines = (await Promise.all(idsOf(replies).map((id) => workerLogs(id)))).flat().map((line) => JSON.parse(line))
    expect(lines.find(({ event }) => event === 'request')?.path).toBe(`/p/${storage.ref}/storage/v1/bucket`)
    const asked = lines.flatMap(({ event, queries = 0 }) => (event === 'request' ? [queries] : []))
    // The first request looks the project up, and another one may if it was evicted meanwhile.
    expect([asked.length, Math.min(...asked)]).toEqual([5, 0])
  })
})

it('reaches a log drain as both rows, once', async () => {
  const project = { ...storage, organization, caller: organization.owner }
  const { receiver } = await newWebhookDrain(
    {},
    { ...project, path: `/v2/projects/${storage.ref}/analytics/log-drains` },
  )
  const [id] = idsOf([await service(`GET /object/${bucket}/none`)])
  // biome-ignore lint/suspicious/noExplicitAny: rows as they arrive
  const rows = () => receiver.received.flatMap(jsonOf).filter((row: any) => row.log_attributes.request_id === id)
  await untilSwept(() => expect(rows()).not.toEqual([]))
  expect(rows()).toEqual([
    expect.objectContaining({ source: 'edge_logs', event_message: expect.stringMatching(/^GET \| 400 \| .*\/none$/) }),
    expect.objectContaining({ source: 'storage_logs', id, event_message: `GET | 400 | /object/${bucket}/none` }),
  ])
})

it('leaves no row for a path without a project, and none for a preflight', async () => {
  await exchange(`${baseUrl}/p/${'q'.repeat(20)}/storage/v1/bucket`)
  const preflight = await exchange(`${storage.url}/bucket`, { method: 'OPTIONS' })
  expect(preflight.status).toBe(204)
  const [id] = idsOf([await service('GET /bucket')])
  await written([id as string])
  const rows = await rowsOf(storage)
  expect(rows.filter(({ method }) => method === 'OPTIONS')).toEqual([])
  expect(await control.$count(storageRequests, eq(storageRequests.projectRef, 'q'.repeat(20)))).toBe(0)
})

it('leaves a limited number of rows for each project, with the number of missing ones, and is always counted', async () => {
  const busy = await newStorage(organization)
  const url = `${busy.url}/bucket`
  const [MAX, EXTRA] = [5_000, 40]
  const send = async (headers: Record<string, string>) => {
    const response = await fetch(url, { headers })
    await response.arrayBuffer()
  }
  let left = MAX + EXTRA
  const caller = async () => {
    while (left-- > 0) await send(at(0))
  }
  await Promise.all(Array.from({ length: 16 }, caller))
  await vi.waitFor(async () => expect(await rowsOf(busy)).toHaveLength(MAX), WAIT)
  await send(at(60))
  await vi.waitFor(async () => {
    const told = (await rowsOf(busy)).filter(({ skipped }) => skipped > 0)
    expect(told).toMatchObject([{ skipped: EXTRA, at: new Date(NOW.getTime() + 60_000) }])
  }, WAIT)
  await vi.waitFor(async () => {
    const counts = await control.select().from(requestCounts).where(eq(requestCounts.projectRef, busy.ref))
    expect(counts.reduce((sum, { requests }) => sum + requests, 0)).toBe(MAX + EXTRA + 1)
  }, WAIT)
  const end = new Date(NOW.getTime() + 61_000).toISOString()
  const query = new URLSearchParams({ sql: 'select event_message from storage_logs', iso_timestamp_end: end })
  const reply = await organization.owner.get(
    `/v1/projects/${busy.ref}/analytics/endpoints/logs?${query}&iso_timestamp_start=${end.replace(':08.', ':06.')}`,
  )
  expect(reply.body.result).toEqual([
    { event_message: `GET | 400 | /bucket | ${EXTRA} requests before it left no row` },
  ])
}, 120_000)

it('may leave a number of rows at once, and then a number each minute', () => {
  const take = createTokenBuckets({ max: 100, perMinute: 60 })
  const taken = (now: number) => Array.from({ length: 200 }, () => take('a', 1, now)).filter(Boolean).length
  expect([taken(0), taken(0), taken(10_000), taken(5_000), taken(600_000)]).toEqual([100, 0, 10, 0, 100])
  expect(take('b', 1, 0)).toBe(true)
})

it.each([storageRequests, dataApiRequests])('is deleted after seven days (%#)', async (table) => {
  const projectRef = randomUUID()
  const row = { projectRef, method: 'GET', path: '/', status: 200, ms: 1, error: null, skipped: 0 }
  const days = (back: number) => new Date(Date.now() - back * 86_400_000)
  await control.insert(table).values([7.01, 6.9].map((back) => ({ ...row, id: randomUUID(), at: days(back) })))
  await tick()
  await vi.waitFor(async () => expect(await control.$count(table, eq(table.projectRef, projectRef))).toBe(1), WAIT)
})
