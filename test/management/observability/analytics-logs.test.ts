import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { compileQuery } from '../../../src/management/observability/analytics/sql/compile.ts'
import { parseQuery } from '../../../src/management/observability/analytics/sql/parse.ts'
import { type ConsoleLine, invocations, workers, workerTasks } from '../../../src/model/tables/index.ts'
import {
  baseUrl,
  type Caller,
  control,
  newMember,
  newOrganization,
  type TestOrganization,
  unhurried,
} from '../../support/api.ts'
import { act, newBranch } from '../../support/branches.ts'
import { extended } from '../../support/extended.ts'
import { invocationsOf, putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newProject } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
let other: string
/** Returns a caller that is far from any rate limit. */
let reader: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ;[ref, other] = await Promise.all([newProject(organization), newProject(organization)])
  reader = unhurried(organization.owner)
  await put(ref, FUNCTION, { ms: 40, console: [line('log', 'hello'), line('error', 'broken: 50%')] })
  await put(ref, FUNCTION, { at: at(-10), status: 404, method: 'POST', path: '/p/x/functions/v1/f/missing' })
  await put(ref, FUNCTION, { at: at(-20), status: 500, ms: 900 })
  await put(ref, FUNCTION, { at: at(-90), status: 200 })
  await put(other, randomUUID(), { console: [line('error', 'a secret of the other project')] })
})

/** The day of all rows here: yesterday, because rows older than a week are purged. */
const DAY = new Date(Date.now() - 86_400_000).toISOString().slice(0, 10)
const TODAY = new Date().toISOString().slice(0, 10)
const NOW = new Date(`${DAY}T05:06:07.000Z`)
const at = (seconds: number) => new Date(NOW.getTime() + seconds * 1000)
const FUNCTION = randomUUID()
const DEPLOYMENT = randomUUID()
/** The greatest depth of a query, with two functions at each level. */
const NESTED = 24

const line = (level: string, message: string, printed = at(-4)): ConsoleLine => ({
  level,
  message,
  at: printed.toISOString(),
})

const put = async (projectRef: string, programId: string, fields: Partial<typeof invocations.$inferInsert> = {}) => {
  const [row] = await control
    .insert(invocations)
    .values({
      ...{
        projectRef,
        programId,
        deploymentId: DEPLOYMENT,
        kind: 'function',
        method: 'GET',
        path: '/p/x/functions/v1/f',
      },
      ...{ status: 200, ms: 7, console: [], at: at(-5), ...fields },
    })
    .returning({ id: invocations.id })
  return row?.id as string
}

/** Returns the highest memory use of a process, in KiB; 0 if the system does not report it. */
const peakOf = (pid: number): number => {
  const path = `/proc/${pid}/status`
  return existsSync(path) ? Number(/VmHWM:\s+(\d+)/.exec(readFileSync(path, 'utf8'))?.[1]) : 0
}

interface Asked {
  endpoint?: string
  start?: Date
  end?: Date
  project?: string
}

async function ask(
  sql: string | undefined,
  { endpoint = 'logs', start = at(-60), end = NOW, project = ref }: Asked = {},
) {
  const query = new URLSearchParams({
    ...(sql !== undefined && { sql }),
    iso_timestamp_start: start.toISOString(),
    iso_timestamp_end: end.toISOString(),
  })
  const reply = await reader().get(`/v1/projects/${project}/analytics/endpoints/${endpoint}?${query}`)
  expect([reply.status, reply.body.error]).toEqual([200, undefined])
  return reply.body.result
}

async function problemOf(sql: string, endpoint = 'logs'): Promise<string> {
  const path = `/v1/projects/${ref}/analytics/endpoints/${endpoint}?${new URLSearchParams({ sql })}`
  const reply = await reader().get(path)
  expect([reply.status, reply.body.result]).toEqual([200, []])
  return reply.body.error
}

describe('GET /v1/projects/{ref}/analytics/endpoints/logs.all', () => {
  const all = (sql?: string) => ask(sql, { endpoint: 'logs.all' })

  it('returns the edge logs without a query, the newest first', async () => {
    expect(await all()).toEqual([
      {
        id: expect.any(String),
        timestamp: at(-5).getTime() * 1000,
        event_message: 'GET | 200 | /p/x/functions/v1/f',
        method: 'GET',
        path: '/p/x/functions/v1/f',
        status_code: 200,
      },
      expect.objectContaining({ method: 'POST', path: '/p/x/functions/v1/f/missing', status_code: 404 }),
      expect.objectContaining({ status_code: 500 }),
    ])
  })

  it('returns the last minute without times, a minute before an end, and everything since a start', async () => {
    const count = async (query: string) => {
      const path = `/v1/projects/${ref}/analytics/endpoints/logs.all?sql=select count(*) as n from edge_logs${query}`
      return (await organization.owner.at(NOW).get(path)).body.result
    }
    expect(await count('')).toEqual([{ n: 3 }])
    expect(await count(`&iso_timestamp_end=${at(-40).toISOString()}`)).toEqual([{ n: 1 }])
    expect(await count(`&iso_timestamp_start=${at(-100).toISOString()}`)).toEqual([{ n: 4 }])
    expect(await count(`&iso_timestamp_start=${DAY}T06:04:37%2B01:00`)).toEqual([{ n: 4 }])
  })

  it('refuses more than 24 hours to the nearest minute, a start after the end, and an invalid time', async () => {
    const asked = async (start: string, end: string) => {
      const query = `iso_timestamp_start=${start}&iso_timestamp_end=${end}`
      return reader().get(`/v1/projects/${ref}/analytics/endpoints/logs.all?${query}`)
    }
    expect((await asked(`${DAY}T00:00:00Z`, `${TODAY}T00:00:29Z`)).status).toBe(200)
    const refused = async (start: string, end: string, said: string) =>
      expect(await asked(start, end)).toMatchObject({ status: 400, body: { message: expect.stringContaining(said) } })
    await refused(`${DAY}T00:00:00Z`, `${TODAY}T00:01:00Z`, 'query.iso_timestamp_end: must be at most 24 hours')
    await refused(`${DAY}T00:00:01Z`, `${DAY}T00:00:00Z`, 'query.iso_timestamp_start: must not be after')
    await refused('yesterday', `${DAY}T00:00:00Z`, 'query.iso_timestamp_start')
  })

  it.each([
    [
      'function_edge_logs',
      `select id, function_edge_logs.timestamp, event_message, response.status_code, request.method, m.function_id,
        m.execution_time_ms, m.deployment_id, m.version from function_edge_logs cross join unnest(metadata) as m
        cross join unnest(m.response) as response cross join unnest(m.request) as request order by timestamp desc limit 1`,
      {
        ...{
          id: expect.any(String),
          timestamp: at(-5).getTime() * 1000,
          event_message: 'GET | 200 | /p/x/functions/v1/f',
        },
        ...{ status_code: 200, method: 'GET', function_id: FUNCTION, execution_time_ms: 40, deployment_id: DEPLOYMENT },
        version: null,
      },
    ],
    [
      'function_logs',
      `select id, function_logs.timestamp, event_message, metadata.event_type, metadata.function_id, metadata.level
        from function_logs cross join unnest(metadata) as metadata order by timestamp desc, level limit 1`,
      {
        // The second line of its millisecond.
        ...{ id: expect.any(String), timestamp: at(-4).getTime() * 1000 + 1, event_message: 'broken: 50%' },
        ...{ event_type: 'Log', function_id: FUNCTION, level: 'error' },
      },
    ],
    [
      'counts by minute',
      `select timestamp_trunc(fel.timestamp, minute) as timestamp, count(fel.id) as requests_count,
        countif(response.status_code between 200 and 299) as success_count, avg(m.execution_time_ms) as average
        from function_edge_logs as fel cross join unnest(fel.metadata) as m cross join unnest(m.response) as response
        where function_id = '${FUNCTION}' and response.status_code < 500 group by timestamp order by timestamp asc`,
      {
        timestamp: Date.parse(`${DAY}T05:05:00Z`) * 1000,
        ...{ requests_count: 1, success_count: 0, average: 7 },
      },
    ],
    [
      'texts in double quotes',
      `select "it's \\"a\\"" as t, m.level as "the level" from function_logs cross join unnest(metadata) as m
        where m.level = "error" and event_message like "broken%" and m.level <> ""`,
      { t: `it's "a"`, 'the level': 'error' },
    ],
    [
      'a search in the last hour',
      `select cast(timestamp as datetime) as t, status_code from edge_logs, unnest(metadata) m, unnest(m.response)
        where regexp_contains(event_message, r'POST.+miss') and timestamp > timestamp_sub(timestamp('${DAY}T05:06:07Z'), interval 1 hour)
        and timestamp < '2100-01-01 00:00:00'`,
      { t: at(-10).getTime() * 1000, status_code: 404 },
    ],
  ])('answers the queries of BigQuery clients: %s', async (_, sql, row) => {
    expect((await all(sql))[0]).toEqual(row)
  })

  it('finds nothing in sources without records', async () => {
    expect(await all('select identifier, m.parsed from postgres_logs cross join unnest(metadata) as m')).toEqual([])
  })
})

describe('GET /v1/projects/{ref}/analytics/endpoints/logs', () => {
  it('returns the lines of one moment in the order in which they were printed', async () => {
    const project = await newProject(organization)
    const printed = Array.from({ length: 12 }, (_, n) => `line ${n}`)
    await put(project, FUNCTION, { console: printed.map((text) => line('log', text)) })
    const rows = await ask(`select event_message from function_logs order by timestamp limit 100`, { project })
    expect(rows).toEqual(printed.map((event_message) => ({ event_message })))
  })

  it('separates the lines of one millisecond by a time in the query, and by the start and the end', async () => {
    const project = await newProject(organization)
    await put(project, FUNCTION, { console: ['first', 'second', 'third'].map((text) => line('log', text)) })
    const query = async (condition: string, times: Record<string, string>, endpoint = 'logs') => {
      const sql = `select event_message from function_logs ${condition} order by timestamp`
      const parameters = new URLSearchParams({
        ...{ sql, iso_timestamp_start: at(-60).toISOString(), iso_timestamp_end: NOW.toISOString(), ...times },
      })
      const { body } = await reader().get(`/v1/projects/${project}/analytics/endpoints/${endpoint}?${parameters}`)
      return body.result.map((row: { event_message: string }) => row.event_message)
    }
    const [, second, third] = (
      await ask("select timestamp from logs where source = 'function_logs' order by timestamp", { project })
    ).map(({ timestamp }: { timestamp: string }) => timestamp)
    expect(await query(`where timestamp < '${third}'`, {})).toEqual(['first', 'second'])
    expect(await query(`where timestamp > timestamp('${second}')`, {}, 'logs.all')).toEqual(['third'])
    const local = `${DAY} ${third?.slice(11, -1)}`
    expect(await query(`where timestamp >= '${local}'`, {})).toEqual(['third'])
    expect(await query('', { iso_timestamp_end: third })).toEqual(['first', 'second'])
    expect(await query('', { iso_timestamp_start: second })).toEqual(['second', 'third'])
  })

  it('has calls, lines, builds of workers and runs of branches in one table', async () => {
    const project = await newProject(organization)
    const values = { projectRef: project, name: 'api', buildState: 'active', createdAt: NOW, updatedAt: NOW } as const
    const spec = { size: '2gb', exposure: 'public', instances: 1 } as const
    const [worker] = await control
      .insert(workers)
      .values({ ...values, spec })
      .returning()
    const workerId = worker?.id as string
    await put(project, workerId, { kind: 'worker', console: [line('warn', 'careful')], path: '/p/x/workers/v1/api' })
    await put(project, FUNCTION, { console: [line('debug', 'seen')] })
    const task = { workerId, kind: 'build', spec, dueAt: NOW, createdAt: NOW, finishedAt: at(-1) } as const
    await control.insert(workerTasks).values({ ...task, state: 'done' })
    await control.insert(workerTasks).values({ ...task, state: 'failed', lastError: 'no such file' })
    const rows = await ask(
      `select source, severity_text, event_message, log_attributes['worker'] as worker,
      log_attributes['level'] as level, log_attributes['reason'] as reason from logs order by source, event_message`,
      { project },
    )
    const found = rows.map((row: Record<string, string>) => Object.values(row).join(' '))
    expect(found).toEqual([
      'edge_logs INFO GET | 200 | /p/x/functions/v1/f   ',
      'edge_logs INFO GET | 200 | /p/x/workers/v1/api   ',
      'function_edge_logs INFO GET | 200 | /p/x/functions/v1/f   ',
      'function_logs DEBUG seen  debug ',
      'worker_api_logs ERROR build_failed api  no such file',
      'worker_api_logs INFO build_succeeded api  ',
      'worker_guest_logs WARN careful api warn ',
      'worker_ingress_logs INFO GET | 200 | /p/x/workers/v1/api api  ',
    ])
  })

  it('names a removed worker by its id', async () => {
    const project = await newProject(organization)
    const removed = crypto.randomUUID()
    await put(project, removed, { kind: 'worker', console: [line('warn', 'careful')] })
    const query = `select source, log_attributes['worker'] as worker from logs where source like 'worker%' order by source`
    expect(await ask(query, { project })).toEqual([
      { source: 'worker_guest_logs', worker: removed },
      { source: 'worker_ingress_logs', worker: removed },
    ])
  })

  it('has the runs of branches: all of them for the parent, its own for a branch', async () => {
    const project = await newProject(organization)
    const { project_ref: branch } = await newBranch(organization.owner, project)
    await act(organization.owner, { project_ref: branch }, 'reset')
    const end = new Date(Date.now() + 60_000)
    const window = { start: new Date(end.getTime() - 600_000), end }
    const runs = (of: string) =>
      ask(
        `select log_attributes['workflow_run'] as workflow_run, timestamp, id, event_message from logs
        where source = 'workflow_run_logs' order by timestamp desc limit 100`,
        { ...window, project: of },
      )
    const [first] = await runs(project)
    expect(first).toMatchObject({
      workflow_run: expect.stringMatching(/^[0-9a-f-]{36}$/),
      event_message: expect.any(String),
    })
    expect(await runs(branch)).toEqual(await runs(project))
    expect(await runs(ref)).toEqual([])
  })

  it('returns times in ISO 8601 and all attributes as text', async () => {
    const rows = await ask(`select timestamp, log_attributes from logs where source = 'function_edge_logs'
      and log_attributes['response.status_code'] = '404'`)
    expect(rows).toEqual([
      {
        timestamp: `${DAY}T05:05:57.000000Z`,
        log_attributes: {
          ...{ 'request.method': 'POST', 'request.path': '/p/x/functions/v1/f/missing', 'response.status_code': '404' },
          ...{
            'request.pathname': '/p/x/functions/v1/f/missing',
            execution_time_ms: '7',
            execution_id: expect.any(String),
          },
          ...{ function_id: FUNCTION, deployment_id: DEPLOYMENT },
        },
      },
    ])
  })

  it.each([
    ['select distinct source from logs order by source', ['edge_logs', 'function_edge_logs', 'function_logs']],
    ["select count() as n from logs where source = 'edge_logs'", [3]],
    [
      'select source, count(*) n from logs group by source having n > 2 order by n desc, 1',
      ['edge_logs', 'function_edge_logs'],
    ],
    [
      "select log_attributes['response.status_code'] as s, count() from logs where source='edge_logs' group by s order by s desc",
      ['500', '404', '200'],
    ],
    ["select event_message from logs where severity_text = 'ERROR' and event_message ilike 'BROKEN%'", ['broken: 50%']],
    ["select event_message from logs where event_message like '%50\\%'", ['broken: 50%']],
    [
      "select timestamp_sub(max(timestamp), interval 2 hour) as t from logs where source = 'edge_logs'",
      [`${DAY}T03:06:02.000000Z`],
    ],
    ["select subtractHours(min(timestamp), 1) as t from logs where source = 'edge_logs'", [`${DAY}T04:05:47.000000Z`]],
    [
      "select event_message from logs where endsWith(event_message, 'lo') = true and match(event_message, '^h') <> false order by true",
      ['hello'],
    ],
    ["select event_message from logs where positionCaseInsensitiveUTF8(event_message, 'HELL') > 0", ['hello']],
    [
      "select max(toInt32OrZero(log_attributes['execution_time_ms'])) as m from logs where source in ('edge_logs')",
      [900],
    ],
    [
      "select quantile(0.5)(toFloat64OrZero(log_attributes['execution_time_ms'])) from logs where source='edge_logs'",
      [40],
    ],
    [
      "select toStartOfMinute(timestamp) as minute, count() from logs where source = 'edge_logs' group by minute order by minute",
      [`${DAY}T05:05:00.000000Z`, `${DAY}T05:06:00.000000Z`],
    ],
    [
      "select if(toInt32OrZero(log_attributes['response.status_code']) >= 500, 'bad', 'good') as k from logs where source = 'edge_logs' group by k order by k",
      ['bad', 'good'],
    ],
    ["select case when source = 'edge_logs' then 1 else 0 end as edge from logs group by edge order by edge", [0, 1]],
    ["select uniq(source) from logs where not (source = 'edge_logs' or source is null)", [2]],
    [
      "select concat(upper(source), '!') as c from logs where source = 'function_logs' limit 1 offset 1",
      ['FUNCTION_LOGS!'],
    ],
    ["select sum(distinct 3) from logs where source = 'edge_logs'", [3]],
    ['select count(distinct source) from logs', [3]],
    [`select "logs"."source" from logs where "source" = 'edge_logs' limit 1`, ['edge_logs']],
    ["select 'it''s \\'fine\\'' as t from logs limit 1 -- a comment", ["it's 'fine'"]],
    ["select '\\'''\\\\''' as t from logs limit 1", ["''\\'"]],
  ] as [string, unknown[]][])('answers %s', async (sql, expected) => {
    const rows = await ask(sql)
    expect(rows.map((row: Record<string, unknown>) => Object.values(row)[0])).toEqual(expected)
  })

  it('reads subqueries and common table expressions, also within each other', async () => {
    const project = await newProject(organization)
    for (const [status, path] of [
      [200, '/a'],
      [500, '/a'],
      [500, '/b'],
      [404, '/b'],
    ] as const) {
      await put(project, FUNCTION, { status, path, console: [line('error', `said ${path}`)] })
    }
    const read = (sql: string) => ask(sql, { project })
    expect(
      await read(`with calls as (
          select log_attributes['request.path'] as path, toInt64OrZero(log_attributes['response.status_code']) as status
          from logs where source = 'edge_logs'),
        failed as (select c.path, count() as n from calls as c where c.status >= 400 group by path)
        select path, n * 10 as tenfold from failed where n > 0 order by n desc, path`),
    ).toEqual([
      { path: '/b', tenfold: 20 },
      { path: '/a', tenfold: 10 },
    ])
    expect(
      await read(`select count() as n, max(seen.timestamp) = max(timestamp) as same
        from (select * from logs where source = 'function_logs' order by timestamp desc limit 3) as seen
        where seen.log_attributes['level'] = 'error'`),
    ).toEqual([{ n: 3, same: true }])
    expect(
      await read(`select count() as n from logs where source = 'function_logs' and log_attributes['execution_id'] in (
        select log_attributes['execution_id'] as id from logs where log_attributes['response.status_code'] = '500')`),
    ).toEqual([{ n: 2 }])
    expect(await read(`select id from logs where id not in (select id from logs)`)).toEqual([])
    expect(await read(`select * from (select timestamp from logs limit 1)`)).toEqual([
      { timestamp: expect.stringMatching(/^\d{4}-.*Z$/) },
    ])
  })

  it('reads nothing of another project by a subquery', async () => {
    const other = await newProject(organization)
    await put(other, FUNCTION, {})
    const mine = await newProject(organization)
    const sql = 'select id from (select id from logs) where id in (select id from logs)'
    expect(await ask(sql, { project: mine })).toEqual([])
    expect(await ask(sql, { project: other })).not.toEqual([])
  })

  it.each([
    ['', 'expected SELECT'],
    ['delete from logs', 'expected SELECT, found "delete" at position 1'],
    ['select id from invocations', 'unknown table "invocations"'],
    ['select id from logs, projects', 'a join is only supported with UNNEST'],
    ['select id from logs join projects on true', 'a join is only supported with UNNEST'],
    ['select id from (select * from projects)', 'unknown table "projects"'],
    ['select id from logs where id in (select ref from projects)', 'unknown table "projects"'],
    ['select id from logs where id in (select id, source from logs)', 'must select one column'],
    ['select id from logs where id in (select timestamp from logs)', 'IN takes a time, not text'],
    ['select id from logs where id = (select id from logs)', 'a subquery is only supported in FROM and after IN'],
    ['select (select id from logs) as x from logs', 'a subquery is only supported in FROM and after IN'],
    ['with x as (select 1) select * from x', 'expected FROM'],
    ['with x as (select id from logs) select source from x', 'unknown column "source": must be one of id'],
    ["with x as (select id from logs) select log_attributes['level'] as l from x", 'unknown column "log_attributes"'],
    ["with x as (select id from logs) select id['level'] as l from x", 'id has no attributes'],
    ['with x as (select id from x) select id from x', 'unknown table "x"'],
    [
      'select * from (select id from logs) cross join unnest(m.request) as r',
      'UNNEST is only supported with a log table',
    ],
    [`select id from ${'(select id from '.repeat(11)}logs${')'.repeat(11)}`, 'more than 10 SELECTs'],
    ['select id from logs; drop table invocations', 'expected the end of the query'],
    ['select id from logs union all select ref from projects', 'expected the end of the query'],
    ['select project_ref from logs', 'unknown column "project_ref"'],
    ['select pg_sleep(1) from logs', 'the function pg_sleep is not supported'],
    ['select constructor(1) from logs', 'the function constructor is not supported'],
    ["select current_setting('x') from logs", 'the function current_setting is not supported'],
    ["select id from logs where log_attributes['status'] > 400", 'toInt64OrZero'],
    ['select id, count() from logs', 'id must be in GROUP BY or in an aggregate'],
    ['select id from logs where count() > 1', 'WHERE cannot contain an aggregate'],
    ['select sum(count()) from logs', 'count cannot be inside another aggregate'],
    ['select count() from logs group by count()', 'GROUP BY cannot contain an aggregate'],
    ['select id, source as id from logs', 'duplicate column "id"'],
    ['select lower(id, id) from logs', 'lower takes 1 values, not 2'],
    ["select id from logs where match(id, '(')", 'regular expression'],
    ["select id from logs where timestamp > 'soon'", 'invalid time "soon"'],
    ['select id from logs where', 'expected a value, found the end of the query'],
    ['select id from logs limit x', 'expected a whole number'],
    ['select id # from logs', 'unexpected "#"'],
    [`select ${'('.repeat(60)}1${')'.repeat(60)} from logs`, 'nested too deeply'],
    [
      `select 1 as a0, ${Array.from({ length: 20 }, (_, n) => `a${n}+a${n} as a${n + 1}`).join(', ')} from logs`,
      'too long',
    ],
    [`select 1${'+1'.repeat(401)} as x from logs`, 'too long'],
    [`select id from logs where false${' or false'.repeat(401)}`, 'too long'],
    [
      `select 1 as a0, ${Array.from({ length: 8 }, (_, n) => `a${n}${'+1'.repeat(350)} as a${n + 1}`).join(', ')} from logs`,
      'too long',
    ],
    ['select countIf(distinct true) from logs', 'countif does not support DISTINCT'],
    ['select uniq(distinct id) from logs', 'uniq does not support DISTINCT'],
  ])('reports what is wrong with %s', async (sql, said) => {
    expect(await problemOf(sql)).toContain(said)
  })

  it.each([
    ['a subquery', ''],
    ['a subquery with a limit', ' limit 1'],
  ])('counts a column of %s by the size of its expression', async (_, clause) => {
    const tenfold = `concat(${Array(10).fill('a').join()})`
    const nest = (levels: number): string =>
      levels === 0
        ? 'select event_message as a from function_edge_logs'
        : `select ${tenfold} as a from (${nest(levels - 1)}${clause})`
    expect(await problemOf(nest(4), 'logs.all')).toBe('the query is too long')
    expect(await ask(nest(3), { endpoint: 'logs.all' })).not.toEqual([])
  })

  it('reports a query that is too long for Postgres', async () => {
    const groups = Array.from({ length: 1_700 }, (_, n) => `'${n.toString(36)}'`)
    expect(await problemOf(`select count() from logs group by ${groups.join(',')}`)).toContain('too long')
  })

  it.each([
    ['numbers of texts of numbers', `${'toInt64(toString('.repeat(NESTED)}7${'))'.repeat(NESTED)}`, 7],
    ['ends of texts', `${"if(endsWith('ab', ".repeat(NESTED)}'b'${"), 'b', '')".repeat(NESTED)}`, 'b'],
    [
      'times of times',
      `${'toDateTime('.repeat(2 * NESTED)}'${DAY}'${')'.repeat(2 * NESTED)}`,
      `${DAY}T00:00:00.000000Z`,
    ],
  ])('accepts the greatest depth: %s', async (_, expression, expected) => {
    expect(await ask(`select ${expression} as x from logs limit 1`)).toEqual([{ x: expected }])
  })

  it('reads chains of operators', async () => {
    expect(await ask(`select 1${'+1'.repeat(400)} as x from logs limit 1`)).toEqual([{ x: 401 }])
    expect(await ask(`select id from logs where false${' or false'.repeat(400)}`)).toEqual([])
    expect(await ask(`select ''${"||''".repeat(400)} as x from logs limit 1`)).toEqual([{ x: '' }])
  })

  it('returns rows of no other project, whatever the query', async () => {
    const attempts = [
      'select * from logs',
      'select event_message from logs where 1 = 1 or id = id',
      "select event_message from logs where event_message = '' or true -- ')",
      "select event_message from logs where source = 'x'' or project_ref <> ''' or true",
      `select event_message from logs where log_attributes['identifier'] <> '${ref}' or true`,
      `select event_message from logs where log_attributes['x'' or true) --'] = '' or true`,
      'select event_message as "c0, (select 1)" from logs',
    ]
    for (const sql of attempts) expect(JSON.stringify(await ask(sql))).not.toContain('a secret of the other project')
    expect(JSON.stringify(await ask('select * from logs', { project: other }))).toContain(
      'a secret of the other project',
    )
  })

  it('returns at most 1,000 rows, and reports rows that are too long', async () => {
    const project = await newProject(organization)
    const row = {
      projectRef: project,
      kind: 'function',
      programId: FUNCTION,
      deploymentId: DEPLOYMENT,
      method: 'GET',
    } as const
    const console = Array.from({ length: 100 }, () => line('log', 'x'.repeat(10_000)))
    const rows = Array.from({ length: 1_010 }, () => ({
      ...row,
      path: '/',
      status: 200,
      ms: 1,
      console: [],
      at: at(-5),
    }))
    await control.insert(invocations).values(rows)
    await control
      .insert(invocations)
      .values([1, 2, 3, 4, 5].map(() => ({ ...row, path: '/', status: 200, ms: 1, console, at: at(-5) })))
    expect(await ask("select id from logs where source = 'edge_logs' limit 5000", { project })).toHaveLength(1_000)
    const sql = "select event_message from logs where source = 'function_logs'"
    const path = `/v1/projects/${project}/analytics/endpoints/logs?${new URLSearchParams({ sql })}`
    const reply = await organization.owner.at(NOW).get(path)
    expect(reply.body).toEqual({ result: [], error: expect.stringContaining('longer than 4194304 characters') })
  })

  extended('builds no text that is too long', async () => {
    const project = await newProject(organization)
    const console = Array.from({ length: 100 }, () => line('log', 'x'.repeat(10_000)))
    for (let n = 0; n < 5; n++) await put(project, FUNCTION, { console })
    const all = `select concat(${Array(20).fill('event_message').join()}) as x from logs where source = 'function_logs'`
    const window = {
      start: at(-60).toISOString(),
      end: NOW.toISOString(),
      now: NOW,
      project: { ref: project, parentRef: null },
    }
    const { statement } = compileQuery(parseQuery(all), window)
    const mebibytes = await control.transaction(async (tx) => {
      const { rows } = await tx.execute(sql`select pg_backend_pid() as pid`)
      const peak = () => peakOf(Number(rows[0]?.pid)) / 1_024
      const before = peak()
      expect((await tx.execute(statement)).rows).toEqual([{ rows: null }])
      return peak() - before
    })
    // The answer would have 100 MiB.
    expect(mebibytes).toBeLessThan(40)
  })

  it('ends a query that takes too long', async () => {
    const project = await newProject(organization)
    await put(project, FUNCTION, { path: 'x'.repeat(1_001) })
    const sql =
      "select count() from logs where match(log_attributes['request.path'], r'^(x*)(x*)(x*)(x*)\\1\\2\\3\\4$')"
    const path = `/v1/projects/${project}/analytics/endpoints/logs?${new URLSearchParams({ sql })}`
    const replies = await Promise.all(Array.from({ length: 12 }, () => organization.owner.at(NOW).get(path)))
    const problems = new Set(replies.map(({ body }) => body.error.slice(0, 20)))
    expect(problems).toEqual(new Set(['the query took more ', 'too many log queries']))
  })

  it('allows 30 requests a minute, separately for each endpoint', async () => {
    const caller = (await newMember(organization, 'read-only')).at(NOW)
    for (const endpoint of ['logs.all', 'logs', 'metrics']) {
      const path = `/v1/projects/${ref}/analytics/endpoints/${endpoint}`
      const replies = await Promise.all(Array.from({ length: 31 }, () => caller.get(path)))
      expect(replies.map(({ status }) => status).sort()).toEqual([...Array.from({ length: 30 }, () => 200), 429])
    }
  })
})

describe('a call of a function', () => {
  it('is in the logs with what it printed', async () => {
    const { slug, id } = await putFunction(ref, "Deno.serve(() => { console.log('it ran'); return new Response('x') })")
    const path = `/functions/v1/${slug}`
    await fetch(new URL(`/p/${ref}${path}`, baseUrl))
    const [row] = await vi.waitFor(async () => {
      const rows = await invocationsOf(id)
      expect(rows[0]?.console).toHaveLength(1)
      return rows
    }, WAIT)
    const window = { start: new Date(Date.now() - 60_000), end: new Date(Date.now() + 60_000) }
    const rows = await ask(
      `select event_message, log_attributes['execution_id'] as call from logs
      where log_attributes['function_id'] = '${id}' order by event_message`,
      window,
    )
    expect(rows).toEqual([
      { event_message: `GET | 200 | ${path}`, call: row?.id },
      { event_message: 'it ran', call: row?.id },
    ])
  })

  it('that reports an impossible time is logged at its time of arrival', async () => {
    const { slug, id } = await putFunction(
      ref,
      `Date.prototype.toISOString = () => '+099999-01-01T00:00:00.000Z'
      Deno.serve(() => { console.log('from the future'); return new Response('x') })`,
    )
    await fetch(new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl))
    await vi.waitFor(async () => expect((await invocationsOf(id))[0]?.console).toHaveLength(1), WAIT)
    const window = { start: new Date(Date.now() - 60_000), end: new Date(Date.now() + 60_000) }
    const sql = `select event_message from logs where source = 'function_logs' and log_attributes['function_id'] = '${id}'`
    expect(await ask(sql, window)).toEqual([{ event_message: 'from the future' }])
  })
})

describe('with many other rows', () => {
  const COUNT = 100_000
  const project = randomUUID()
    .replaceAll(/[^a-z]/g, '')
    .padEnd(20, 'x')
    .slice(0, 20)
  const scope = { end: NOW.toISOString(), now: NOW, project: { ref: project, parentRef: null } }
  const day = { ...scope, start: at(-86_400).toISOString() }
  const minute = { ...scope, start: at(-60).toISOString() }
  beforeAll(async () => {
    await control.execute(sql`
      insert into invocations (project_ref, kind, program_id, deployment_id, method, path, status, ms, console, at)
      select ${project}, 'function', ${FUNCTION}, ${DEPLOYMENT}, 'GET', '/', 200, 1, '[]',
        ${NOW.toISOString()}::timestamptz - n * 86400.0 / ${COUNT} * interval '1 second' from generate_series(1, ${COUNT}) n`)
    await control.execute(sql`
      insert into storage_requests (id, project_ref, method, path, status, ms, skipped, at)
      select gen_random_uuid(), project_ref, method, '/storage/v1/', status, ms, 0, at + interval '1 millisecond'
      from invocations where project_ref = ${project}`)
    await control.execute(sql`
      insert into data_api_requests select id, project_ref, method, '/rest/v1/', status, ms, null, 0, at from storage_requests
      where project_ref = ${project}`)
    await control.execute(sql`analyze data_api_requests`)
    await control.execute(sql`analyze invocations`)
    await control.execute(sql`analyze storage_requests`)
  })

  it.each([
    ['all of the last minute', 'select * from logs order by timestamp desc limit 100', minute],
    ['what is counted in the last minute', 'select source, count() from logs group by source', minute],
    [
      'the newest of a day',
      "select id, event_message from logs where source = 'function_edge_logs' order by timestamp desc limit 100",
      day,
    ],
    [
      'the newest of a day in a table',
      'select id, m.function_id from function_edge_logs order by timestamp desc limit 100',
      day,
    ],
    [
      'the newest of a day of three services',
      'select id, request.path from edge_logs order by timestamp desc limit 100',
      day,
    ],
    [
      'the oldest of a day of three services',
      'select id, request.path from edge_logs order by timestamp limit 100',
      day,
    ],
    [
      'the newest of storage',
      "select * from logs where source = 'storage_logs' order by timestamp desc limit 100",
      day,
    ],
  ])('reads %s in few pages', async (_, query, scope) => {
    const { statement } = compileQuery(parseQuery(query), scope)
    const { rows } = await control.execute<{ 'QUERY PLAN': { Plan: Record<string, number> }[] }>(
      sql`explain (analyze, buffers, format json) ${statement}`,
    )
    const [{ Plan: plan } = { Plan: {} }] = rows[0]?.['QUERY PLAN'] ?? []
    expect((plan['Shared Hit Blocks'] ?? 0) + (plan['Shared Read Blocks'] ?? 0)).toBeLessThan(400)
  })
})
