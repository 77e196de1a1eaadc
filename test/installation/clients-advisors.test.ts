import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, describe, expect, it } from 'vitest'
import { baseUrl, newOrganization, type TestOrganization } from '../support/api.ts'
import { cliOf } from '../support/cli.ts'
import { extended } from '../support/extended.ts'
import { startMcp } from '../support/mcp.ts'
import { newProject, runSql } from '../support/projects.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  await runSql(organization.owner, ref, 'create table unkeyed (n int)')
})

const unkeyed = expect.objectContaining({
  name: 'no_primary_key',
  detail: 'The table public.unkeyed has no primary key.',
})
const insecure = expect.objectContaining({ name: 'ssl_not_enforced', level: 'WARN' })

describe('the official clients', () => {
  it('supabase-management-js reads both lists', async () => {
    const api = new SupabaseManagementAPI({ accessToken: organization.owner.token ?? '', baseUrl })
    expect((await api.getPerformanceAdvisors(ref)).data?.lints).toEqual(expect.arrayContaining([unkeyed]))
    expect((await api.getSecurityAdvisors(ref)).data?.lints).toEqual(expect.arrayContaining([insecure]))
  })

  extended('the supabase CLI shows advisories by level, and fails at the requested level', async () => {
    const cli = cliOf(organization.owner)
    const advisors = (...args: string[]) => cli('db', 'advisors', `--remote=${ref}`, ...args)
    const all = await advisors('--type', 'all', '--level', 'info', '--fail-on', 'none')
    expect(all).toContain('no_primary_key')
    expect(all).toContain('ssl_not_enforced')
    const warnings = await advisors('--type', 'performance', '--level', 'warn', '--fail-on', 'none')
    expect(warnings).not.toContain('no_primary_key')
    await expect(advisors('--type', 'security', '--fail-on', 'warn')).rejects.toMatchObject({
      stdout: expect.stringContaining('ssl_not_enforced'),
    })
  })

  it('the MCP server passes them on', async () => {
    const tool = await startMcp({ baseUrl, token: organization.owner.token ?? '', features: 'debugging' })
    expect(await tool('get_advisors', { project_id: ref, type: 'performance' })).toContain('no_primary_key')
    expect(await tool('get_advisors', { project_id: ref, type: 'security' })).toContain('ssl_not_enforced')
  })
})
