import { eq, sql } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import type { DatabaseLogs, LogPage } from '../../../src/engine/logs.ts'
import { pullPostgresLogs } from '../../../src/management/observability/analytics/pull-postgres-logs.ts'
import { postgresLogCursors, postgresLogs } from '../../../src/model/tables/index.ts'
import { purgeLogs } from '../../../src/outbound/logs/purge.ts'
import { control, newOrganization, type TestOrganization, tick, unhurried } from '../../support/api.ts'
import { jsonOf, newWebhookDrain, untilSwept } from '../../support/log-drains.ts'
import { newProject, untilStatus } from '../../support/projects.ts'
import { insertProject } from '../../support/webhooks.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

/** Makes the project's server log an error with this text. */
async function fail(text: string, project = ref): Promise<void> {
  const query = `do $$ begin raise exception '${text}' using errcode = 'P0077'; end $$`
  const reply = await organization.owner.post(`/v1/projects/${project}/database/query`, { query })
  expect(reply.status).toBe(400)
}

async function ask(query: string, { endpoint = 'logs.all', caller = organization.owner, project = ref } = {}) {
  const path = `/v1/projects/${project}/analytics/endpoints/${endpoint}?${new URLSearchParams({ sql: query })}`
  return unhurried(caller)().get(path)
}

const stored = (project: string) =>
  control.select().from(postgresLogs).where(eq(postgresLogs.projectRef, project)).orderBy(postgresLogs.id)

describe('the logs of Postgres', () => {
  it('can be read as soon as they are written, with the queries of BigQuery clients', async () => {
    await fail('first\nof two lines')
    const { body } = await ask(`select identifier, postgres_logs.timestamp, id, event_message, parsed.error_severity,
      parsed.sql_state_code, parsed.user_name, parsed.database_name, parsed.backend_type, process_id, parsed.query
      from postgres_logs cross join unnest(metadata) as m cross join unnest(m.parsed) as parsed
      where regexp_contains(parsed.error_severity, 'ERROR|FATAL|PANIC') and error_severity = 'ERROR'
      order by timestamp desc limit 1`)
    expect(body).toEqual({
      result: [
        {
          identifier: ref,
          timestamp: expect.any(Number),
          id: expect.stringMatching(/^[0-9a-f-]{36}$/),
          event_message: 'first\nof two lines',
          error_severity: 'ERROR',
          sql_state_code: 'P0077',
          user_name: 'postgres',
          database_name: 'postgres',
          backend_type: 'client backend',
          process_id: expect.any(Number),
          query: null,
        },
      ],
    })
  })

  it('are in the table of all sources, with the queries of ClickHouse clients', async () => {
    await fail('in the table of all')
    const query = `select log_attributes['identifier'] as identifier, event_message, severity_text,
      log_attributes['parsed.error_severity'] as error_severity from logs
      where source = 'postgres_logs' and severity_text = 'ERROR' order by timestamp desc limit 1`
    expect((await ask(query, { endpoint: 'logs' })).body.result).toEqual([
      { identifier: ref, event_message: 'in the table of all', severity_text: 'ERROR', error_severity: 'ERROR' },
    ])
    const { body } = await ask('select distinct source from logs', { endpoint: 'logs' })
    expect(body.result).toContainEqual({ source: 'postgres_logs' })
  })

  it('contain no passwords', async () => {
    const query = "alter role postgres password 'a-new-password-of-theirs'"
    await organization.owner.post(`/v1/projects/${ref}/database/query`, { query })
    await organization.owner.post(`/v1/projects/${ref}/database/query`, { query: query.replace('postgres', 'nobody') })
    const { body } = await ask(`select event_message, metadata from postgres_logs order by timestamp desc limit 1000`)
    expect(JSON.stringify(body.result)).not.toContain('a-new-password-of-theirs')
    expect(body.result.length).toBeGreaterThan(0)
  })

  it('are hidden from other projects and other organizations', async () => {
    const other = await newOrganization()
    const sibling = await newProject(organization)
    await fail('for this project alone')
    const query = "select event_message from postgres_logs where event_message = 'for this project alone'"
    expect((await ask(query)).body.result).toHaveLength(1)
    expect((await ask(query, { project: sibling })).body).toEqual({ result: [] })
    const strangers = await ask(query, { caller: other.owner })
    expect(strangers.status).toBe(404)
    expect(strangers.body.result).toBeUndefined()
  })

  it('can be read for a paused project, which stays paused', async () => {
    const project = await newProject(organization)
    await fail('before the pause', project)
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    const { body } = await ask("select event_message from postgres_logs where event_message like '%pause%'", {
      project,
    })
    expect(body.result).toEqual([{ event_message: 'before the pause' }])
    const { url, key } = inject('host')
    const headers = { authorization: `Bearer ${key}` }
    const instance = await (await fetch(`${url}/host/v1/instances/${project}`, { headers })).json()
    expect(instance).toMatchObject({ state: 'paused' })
  })
})

describe('a collection round', () => {
  it('stores each message once, whoever else reads at the same time', async () => {
    const texts = Array.from({ length: 5 }, (_, n) => `round ${n}`)
    for (const text of texts) await fail(text)
    await Promise.all([tick(), tick(), ask('select count(*) as n from postgres_logs'), tick()])
    const messages = (await stored(ref)).map(({ message }) => message).filter((message) => message.startsWith('round '))
    expect(messages).toEqual(texts)
  })

  it('sends them to the drains of the project, each once and in order', async () => {
    const project = await newProject(organization)
    const path = `/v2/projects/${project}/analytics/log-drains`
    const { receiver } = await newWebhookDrain({}, { organization, ref: project, caller: organization.owner, path })
    const texts = Array.from({ length: 5 }, (_, n) => `drained ${n}`)
    for (const text of texts) await fail(text, project)
    // biome-ignore lint/suspicious/noExplicitAny: rows as they arrive
    const rows = () => receiver.received.flatMap(jsonOf).filter((row: any) => row.event_message.startsWith('drained '))
    await untilSwept(() => expect(rows().length).toBeGreaterThanOrEqual(texts.length))
    await tick()
    // biome-ignore lint/suspicious/noExplicitAny: rows as they arrive
    expect(rows().map((row: any) => row.event_message)).toEqual(texts)
    expect(rows()[0]).toMatchObject({
      source: 'postgres_logs',
      severity_text: 'ERROR',
      project,
      log_attributes: { identifier: project, 'parsed.sql_state_code': 'P0077', 'parsed.user_name': 'postgres' },
    })
  })
})

describe('a collection round over given hosts', () => {
  const line = (message: string, fields = {}) => ({ timestamp: new Date().toISOString(), message, fields })
  const error = vi.fn()
  const context = (logs: DatabaseLogs, now = new Date()) =>
    ({ db: control, engine: { logs }, now: () => now, log: { info() {}, error } }) as unknown as SystemCtx

  /** Makes hosts whose logs are these pages, by their cursors. */
  const hosts = (pages: Record<string, Record<string, LogPage>>, unreachable: string[] = []): DatabaseLogs => ({
    ends: async () => ({ ends: new Map(Object.keys(pages).map((project) => [project, 'end'])), unreachable }),
    read: async (project, since) => {
      const page = pages[project]?.[since ?? '']
      if (!page) throw new Error('the host does not answer')
      return page
    },
  })

  it('is not delayed for one host by another that is down', async () => {
    const [one, other] = [await insertProject(organization), await insertProject(organization)]
    const page = { cursor: 'end', lines: [line('kept')], skippedBytes: 0 }
    const nothing = { cursor: 'end', lines: [], skippedBytes: 0 }
    await pullPostgresLogs(context(hosts({ [one]: {}, [other]: { '': page, end: nothing } }, ['far'])))
    expect((await stored(other)).map(({ message }) => message)).toEqual(['kept'])
    expect(await stored(one)).toEqual([])
    expect(error).toHaveBeenCalledWith('logs_unreachable', { hosts: ['far'] })
    expect(error).toHaveBeenCalledWith('logs_not_read', expect.objectContaining({ project: one }))
  })

  it('keeps the order of messages of one millisecond, and reports lost messages', async () => {
    const project = await insertProject(organization)
    // The time is too recent to be purged.
    const at = new Date(new Date().setUTCMilliseconds(6)).toISOString()
    const lines = ['a', 'b', 'c'].map((message) => ({ ...line(message), timestamp: at }))
    const page = { cursor: 'end', lines, skippedBytes: 12_345 }
    await pullPostgresLogs(context(hosts({ [project]: { '': page, end: { ...page, lines: [], skippedBytes: 0 } } })))
    const { rows } = await control.execute(sql`select message, to_char(at at time zone 'utc', '.US') as at
      from postgres_logs where project_ref = ${project} order by postgres_logs.at`)
    expect(rows).toEqual([
      { message: expect.stringMatching(/^12345 bytes of the log were not stored/), at: '.006000' },
      { message: 'a', at: '.006001' },
      { message: 'b', at: '.006002' },
      { message: 'c', at: '.006003' },
    ])
  })

  it('reads no more of a project that has logged too much until the next day', async () => {
    const project = await insertProject(organization)
    const now = new Date('2026-02-03T04:05:06Z')
    const cursor = { projectRef: project, cursor: 'end-1', readAt: now, day: '2026-02-03', messages: 200_000 }
    await control.insert(postgresLogCursors).values(cursor)
    const page = { cursor: 'end', lines: [line('late')], skippedBytes: 0 }
    const logs = hosts({ [project]: { 'end-1': page, end: { ...page, lines: [] } } })
    await pullPostgresLogs(context(logs, now))
    expect(await stored(project)).toEqual([])
    await pullPostgresLogs(context(logs, new Date('2026-02-04T00:00:00Z')))
    expect((await stored(project)).map(({ message }) => message)).toEqual(['late'])
    const [after] = await control.select().from(postgresLogCursors).where(eq(postgresLogCursors.projectRef, project))
    expect(after).toMatchObject({ cursor: 'end', day: '2026-02-04', messages: 1 })
  })

  it('deletes messages older than a week', async () => {
    const project = await insertProject(organization)
    const values = { projectRef: project, attributes: {} }
    const daysAgo = (days: number) => new Date(Date.now() - days * 86_400_000)
    await control.insert(postgresLogs).values([
      { ...values, message: 'old', at: daysAgo(8) },
      { ...values, message: 'young', at: daysAgo(6) },
    ])
    await purgeLogs(context(hosts({})))
    expect((await stored(project)).map(({ message }) => message)).toEqual(['young'])
  })
})

describe('GET /v1/projects/{ref}/analytics/endpoints/metrics', () => {
  const metricsOf = (project: string, caller = organization.owner) =>
    caller.get(`/v1/projects/${project}/analytics/endpoints/metrics`)

  it("reports the resources of the project's own server, and only the state of a paused one", async () => {
    const project = await newProject(organization)
    await organization.owner.post(`/v1/projects/${project}/database/query`, { query: 'select 1' })
    const { status, body } = await metricsOf(project)
    expect(status).toBe(200)
    expect(body).toMatch(new RegExp(`^pilothouse_instance_wal_bytes_total\\{instance="${project}"\\} \\d+$`, 'm'))
    expect(body).not.toContain(ref)
    await organization.owner.post(`/v1/projects/${project}/pause`)
    await untilStatus(organization.owner, project, 'INACTIVE')
    const samples = (await metricsOf(project)).body.split('\n').filter((line: string) => /^[^#]/.test(line))
    expect(samples).toEqual([`pilothouse_instance_state{instance="${project}",state="paused"} 1`])
  })

  it('is refused to another organization', async () => {
    const other = await newOrganization()
    expect((await metricsOf(ref, other.owner)).status).toBe(404)
  })
})
