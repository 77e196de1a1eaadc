import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { requestCounts } from '../../src/model/tables/index.ts'
import { baseUrl, control, newMember, newOrganization, type TestOrganization } from '../support/api.ts'
import { newCli } from '../support/cli.ts'
import { extended } from '../support/extended.ts'
import { invocationsOf, putFunction } from '../support/functions.ts'
import { WAIT } from '../support/machine.ts'
import { startMcp } from '../support/mcp.ts'
import { newStorage, type TestStorage } from '../support/storage.ts'

let organization: TestOrganization
let project: TestStorage
let functionId: string
beforeAll(async () => {
  organization = await newOrganization()
  project = await newStorage(organization)
  const program = `Deno.serve(() => { console.error('it broke'); return new Response('x', { status: 500 }) })`
  const { slug, id } = await putFunction(project.ref, program)
  functionId = id
  await fetch(new URL(`/p/${project.ref}/functions/v1/${slug}`, baseUrl))
  await fetch(`${project.url}/bucket`, { headers: { authorization: `Bearer ${project.keys.service}` } })
  await vi.waitFor(async () => {
    expect((await invocationsOf(id))[0]?.console).toHaveLength(1)
    const counted = await control.select().from(requestCounts)
    const own = counted.filter(({ projectRef }) => projectRef === project.ref)
    expect(own.map(({ service }) => service).sort()).toEqual(['functions', 'storage'])
  }, WAIT)
})

const tokenOfNew = async () => (await newMember(organization, 'read-only')).token as string

describe('supabase-management-js', () => {
  it('reads logs and counts', async () => {
    const api = new SupabaseManagementAPI({ accessToken: await tokenOfNew(), baseUrl })
    const iso_timestamp_start = new Date(Date.now() - 600_000).toISOString()
    const { data: logs } = await api.getProjectLogs(project.ref, {
      sql: 'select event_message, m.level from function_logs cross join unnest(metadata) as m',
      iso_timestamp_start,
    })
    expect(logs).toEqual({ result: [{ event_message: 'it broke', level: 'error' }] })
    const { data: wrong } = await api.getProjectLogs(project.ref, { sql: 'select' })
    expect(wrong).toEqual({ result: [], error: expect.stringContaining('expected a value') })
    const { data: counts } = await api.getProjectUsageApiCount(project.ref, { interval: '15min' })
    expect(counts.result).toMatchObject([{ total_storage_requests: 1, total_rest_requests: 0 }])
    expect((await api.getProjectUsageRequestCount(project.ref)).data).toEqual({ result: [{ count: 2 }] })
    const asked = { interval: '1hr', function_id: functionId } as const
    expect((await api.getProjectFunctionCombinedStats(project.ref, asked)).data).toMatchObject({
      result: [{ requests_count: 1, server_err_count: 1, log_error_count: 1 }],
    })
  })
})

describe('the MCP server', () => {
  const SERVICES = ['auth', 'storage', 'realtime', 'branch-action']

  it('reads the logs of each service and queries them', async () => {
    const tool = await startMcp({ baseUrl, token: await tokenOfNew(), features: 'debugging' })
    const logs = (service: string) => tool('get_logs', { project_id: project.ref, service })
    expect(await logs('edge-function-runtime')).toContain('it broke')
    expect(await logs('edge-function')).toContain(functionId)
    expect(await logs('api')).toContain('GET | 500 | ')
    const fails = "do $$ begin raise exception 'of the database'; end $$"
    await organization.owner.post(`/v1/projects/${project.ref}/database/query`, { query: fails })
    expect(await logs('postgres')).toContain('of the database')
    for (const service of SERVICES) expect(await logs(service)).not.toMatch(/error/i)
    const query = { project_id: project.ref, sql: 'select distinct source from logs order by source' }
    expect(await tool('query_logs', query)).toMatch(/edge_logs.*function_edge_logs.*function_logs/)
  })
})

describe('the supabase CLI', () => {
  extended('shows logs by service, level, function and text, and runs SQL over them', async () => {
    const { run, remove } = newCli({ token: await tokenOfNew() })
    const logs = (...args: string[]) =>
      run('logs', `--remote=${project.ref}`, '--since', '10m', '--output-format', 'json', '--agent', 'no', ...args)
    try {
      expect(await logs('--service', 'functions', '--service', 'function-edge')).toMatch(/it broke/)
      expect(await logs()).toContain('GET | 500 | ')
      const broken = ['--service', 'functions', '--level', 'error', '--resource', functionId, '--search', 'BROKE']
      expect(await logs(...broken)).toContain('it broke')
      expect(await logs('--service', 'functions', '--level', 'info')).not.toContain('it broke')
      expect(
        await run(
          'logs',
          `--remote=${project.ref}`,
          '--sql',
          "select count() as calls from logs where source = 'edge_logs'",
          '--output-format',
          'json',
        ),
      ).toContain('calls')
    } finally {
      remove()
    }
  })
})
