import { beforeAll, expect, it } from 'vitest'
import { FORCED_ROLLBACK } from '../../../src/engine/forced-rollback.ts'
import { workerLogs } from '../../support/api.ts'
import { newDataApi, type TestDataApi, writeOf } from '../../support/data-api.ts'

let api: TestDataApi
beforeAll(async () => {
  api = await newDataApi('create table things (id int primary key, name text); insert into things values (1), (2);')
})

async function databaseLog() {
  const sql = `select event_message, parsed.error_severity from postgres_logs
    where parsed.error_severity in ('WARNING', 'ERROR', 'FATAL') order by timestamp limit 100`
  const query = new URLSearchParams({ sql })
  const { body } = await api.organization.owner.get(`/v1/projects/${api.ref}/analytics/endpoints/logs.all?${query}`)
  return (body.result as { event_message: string; error_severity: string }[]).map(
    ({ error_severity, event_message }) => `${error_severity}: ${event_message}`,
  )
}

it('has the errors of callers, and not those by which the Data API rolls back a transaction', async () => {
  const headers = { accept: 'application/vnd.pgrst.object+json', prefer: 'return=representation' }
  const statuses: unknown[] = []
  const send = async (path: string, init?: RequestInit) => {
    const { status, body } = await api.json(path, init)
    statuses.push(body.code ?? status)
  }
  await send('/things?id=eq.1')
  await api.sql('alter table things add column if not exists note text')
  await send('/things?id=eq.1&note=is.null')
  await send('/things?id=gt.0', { method: 'DELETE', headers })
  await send('/things?id=gt.0', writeOf('PATCH', { name: 'all' }, 'handling=strict,max-affected=1'))
  await send('/things?id=eq.7', writeOf('PUT', { id: 8 }))
  await send('/things', writeOf('POST', { id: 3 }, 'return=representation,tx=rollback'))
  await send(`/things?id=eq.${FORCED_ROLLBACK}`)
  await send('/things?id=eq.three')
  expect(statuses).toEqual([200, 200, 'PGRST116', 'PGRST124', 'PGRST115', 201, '22P02', '22P02'])
  expect(await databaseLog()).toEqual([
    `ERROR: invalid input syntax for type integer: "${FORCED_ROLLBACK}"`,
    'ERROR: invalid input syntax for type integer: "three"',
  ])
})

it("has no error in the installation's log if a statement of the owner takes too long", async () => {
  await api.sql(`create or replace function slow() returns void language sql set statement_timeout = '10ms' as
    'select pg_sleep(10)'`)
  const response = await api.send(api.keys.service, '/rpc/slow', { method: 'POST' })
  const { code } = (await response.json()) as { code: string }
  expect([response.status, code]).toEqual([500, '57014'])
  const lines = (await workerLogs(response.headers.get('x-request-id') ?? 'none')).map((line) => JSON.parse(line))
  const message = 'canceling statement due to statement timeout'
  expect(lines).toEqual([
    expect.objectContaining({ level: 'info', event: 'statement_failed', project: api.ref, code, error: message }),
    expect.objectContaining({ level: 'info', event: 'request', path: `/p/${api.ref}/rest/v1/rpc/slow`, error: code }),
  ])
})

it("has a line in the installation's log for a request that fails, and none for one that succeeds", async () => {
  const linesOf = async (path: string) => {
    const response = await api.send(api.keys.service, path)
    return (await workerLogs(response.headers.get('x-request-id') ?? 'none')).map((line) => JSON.parse(line).event)
  }
  expect(await linesOf('/things')).toEqual([])
  expect(await linesOf('/nothing')).toEqual(['request'])
})
