import { beforeAll, describe, expect, it, vi } from 'vitest'
import { adminClient } from '../../instances.ts'
import { runAdvisors } from '../../support/advisors.ts'
import { type Caller, newApp, newMember, newOrganization, type TestOrganization, unhurried } from '../../support/api.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = unhurried(organization.owner)
})

const path = (category: 'performance' | 'security', project = ref) => `/v1/projects/${project}/advisors/${category}`
const runPath = (project = ref) => `/v2/projects/${project}/advisors/run`
const bodyOf = (lints: unknown) => ({ data: { type: 'project_advisors', attributes: { lints } } })
const sql = async (query: string, project = ref) => {
  const reply = await runSql(owner(), project, query)
  expect(reply, JSON.stringify(reply.body)).toMatchObject({ status: 201 })
}
const names = ({ body }: Awaited<ReturnType<Caller['get']>>): string[] =>
  body.lints.map(({ name }: { name: string }) => name)

/** The lints that clients may request. */
const PUBLISHED = `unindexed_foreign_keys auth_users_exposed auth_rls_initplan no_primary_key unused_index
  multiple_permissive_policies policy_exists_rls_disabled rls_enabled_no_policy duplicate_index security_definer_view
  function_search_path_mutable rls_disabled_in_public extension_in_public rls_references_user_metadata
  materialized_view_in_api foreign_table_in_api unsupported_reg_types auth_otp_long_expiry auth_otp_short_length
  ssl_not_enforced log_connections_not_enabled network_restrictions_not_set password_requirements_min_length
  pitr_not_enabled auth_leaked_password_protection auth_insufficient_mfa_options auth_password_policy_missing
  leaked_service_key no_backup_admin vulnerable_postgres_version db_not_reachable db_connection_failing
  db_connection_limit_reached instance_telemetry_lost instance_db_down instance_alert_firing log_data_api_error_rate_high
  log_auth_error_rate_high log_storage_error_rate_high log_edge_function_error_rate_high log_service_error_rate_high
  realtime_authorization_timeouts realtime_postgres_changes_spike realtime_concurrent_users_near_limit`.split(/\s+/)

describe('GET /v1/projects/{ref}/advisors/performance and security', () => {
  it('report for a new project only its settings, and nothing that it did not create', async () => {
    const project = await newProject(organization)
    expect(await owner().get(path('performance', project))).toMatchObject({ status: 200, body: { lints: [] } })
    const security = await owner().get(path('security', project))
    expect(security.status).toBe(200)
    expect(names(security)).toEqual([
      'log_connections_not_enabled',
      'network_restrictions_not_set',
      'ssl_not_enforced',
      'password_requirements_min_length',
      'auth_leaked_password_protection',
      'auth_insufficient_mfa_options',
      'auth_password_policy_missing',
      'no_backup_admin',
    ])
    expect(names(await owner().get(`${path('security', project)}?lint_type=sql`))).toEqual([
      'log_connections_not_enabled',
    ])
  })

  it('list each problem under a key of its own', async () => {
    await sql(`create schema other; create table other.users (a int); create table users (a int, other_users int);
      create table "a.b" (c int); create schema a; create table a."b.c" (d int); create table "odd ""one" (n int);
      create index on users (a); create index again on users (a); create view seen as select * from users`)
    const performance = await owner().get(path('performance'))
    expect(performance.status).toBe(200)
    expect(names(performance).toSorted()).toEqual([
      'duplicate_index',
      ...Array(5).fill('no_primary_key'),
      ...Array(2).fill('unused_index'),
    ])
    expect(performance.body.lints).toContainEqual({
      name: 'no_primary_key',
      title: 'No Primary Key',
      level: 'INFO',
      facing: 'EXTERNAL',
      categories: ['PERFORMANCE'],
      description:
        'A table has no primary key: its rows cannot be distinguished, and large tables are slow to work with.',
      detail: 'The table other.users has no primary key.',
      remediation: 'https://supabase.com/docs/guides/database/database-linter?lint=0004_no_primary_key',
      metadata: { schema: 'other', name: 'users', type: 'table' },
      cache_key: 'no_primary_key.other.users',
    })
    const security = await owner().get(path('security'))
    expect(names(security)).toEqual(expect.arrayContaining(['security_definer_view', 'rls_disabled_in_public']))
    const keys = [...performance.body.lints, ...security.body.lints].map(({ cache_key }) => cache_key)
    expect(new Set(keys).size).toBe(keys.length)
    expect((await owner().get(path('performance'))).body).toEqual(performance.body)
  })

  it('depend on the schemas that the API serves, and on the rights of its roles', async () => {
    const project = await newProject(organization)
    const open = async () => {
      const { body } = await owner().get(`${path('security', project)}?lint_type=sql`)
      return body.lints
        .filter(({ name }: { name: string }) => name === 'rls_disabled_in_public')
        .map(({ metadata }: { metadata: { schema: string; name: string } }) => `${metadata.schema}.${metadata.name}`)
    }
    await sql(
      `create schema "my api"; create table "my api".mine (n int); grant select on "my api".mine to anon; create table usual (n int)`,
      project,
    )
    expect(await open()).toEqual(['public.usual'])
    const served = { db_schema: 'public, my api' }
    expect(await owner().patch(`/v1/projects/${project}/postgrest`, served)).toMatchObject({ status: 200 })
    expect(await open()).toEqual(['public.usual'])
    await sql('grant usage on schema "my api" to anon', project)
    expect(await open()).toEqual(['my api.mine', 'public.usual'])
    await sql('revoke usage on schema public from public, anon, authenticated', project)
    expect(await open()).toEqual(['my api.mine'])
  })

  it('report the same whatever the owner sets for sessions, and run nothing of the owner', async () => {
    const project = await newProject(organization)
    await sql(
      `create table plain (id int primary key, owner uuid); alter table plain enable row level security;
       create policy own on plain using ((select auth.uid()) = owner);
       create function public.format(text, text) returns text language plpgsql as 'begin raise exception ''mine''; end';
       create function public.regexp_replace(text, text, text, text) returns text language plpgsql as 'begin raise exception ''mine''; end';
       alter database postgres set search_path = public, auth, pg_catalog;
       alter database postgres set quote_all_identifiers = on;
       alter database postgres set standard_conforming_strings = off`,
      project,
    )
    const lints = [...(await owner().get(path('performance', project))).body.lints]
    expect(lints).toEqual([])
    expect(names(await owner().get(path('security', project))).filter((name) => name.startsWith('function'))).toEqual([
      'function_search_path_mutable',
      'function_search_path_mutable',
    ])
  })

  it('list 500 of each lint and the total number', async () => {
    const project = await newProject(organization)
    await sql(
      `do $$ begin for n in 1..501 loop execute format('create table t_%s (n int)', lpad(n::text, 3, '0')); end loop; end $$`,
      project,
    )
    const { body } = await owner().get(path('performance', project))
    expect(body.lints).toHaveLength(500)
    expect(body.lints.at(-1)).toMatchObject({ metadata: { name: 't_500' } })
    expect(body.lints[0].description).toMatch(/ The first 500 of 501 are listed\.$/)
    await sql('drop table t_001', project)
    const { body: whole } = await owner().get(path('performance', project))
    expect(whole.lints.at(-1)).toMatchObject({ metadata: { name: 't_501' }, cache_key: 'no_primary_key.public.t_501' })
    expect(whole.lints[0].description).not.toContain('500')
  })

  it('refuse another lint_type', async () => {
    expect(await owner().get(`${path('security')}?lint_type=auth`)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('query.lint_type') },
    })
  })
})

describe('POST /v2/projects/{ref}/advisors/run', () => {
  it('runs each requested lint once, and reports what cannot be known', async () => {
    const unknowable = ['vulnerable_postgres_version', 'leaked_service_key', 'realtime_postgres_changes_spike']
    const lints = await runAdvisors(
      owner(),
      ref,
      'db_not_reachable',
      'no_backup_admin',
      ...unknowable,
      'no_backup_admin',
    )
    expect(lints.map(({ name }) => name)).toEqual(['no_backup_admin', ...Array(3).fill('advisor_check_unavailable')])
    expect(lints[1]).toEqual({
      name: 'advisor_check_unavailable',
      title: 'Advisor Check Unavailable',
      level: 'INFO',
      facing: 'EXTERNAL',
      categories: ['HEALTH'],
      description: 'The requested check could not run.',
      detail:
        'vulnerable_postgres_version was not checked: this installation has no list of vulnerable Postgres versions.',
      remediation: 'https://supabase.com/docs/guides/platform',
      metadata: { type: 'health', name: 'vulnerable_postgres_version' },
      cache_key: 'advisor_check_unavailable.vulnerable_postgres_version',
    })
  })

  it('answers for every lint of the published list, or says why it was not run', async () => {
    const chunks = Array.from({ length: Math.ceil(PUBLISHED.length / 15) }, (_, n) =>
      PUBLISHED.slice(n * 15, n * 15 + 15),
    )
    const project = await newProject(organization)
    const results = (await Promise.all(chunks.map((chunk) => runAdvisors(owner(), project, ...chunk)))).flat()
    const unchecked = results
      .filter(({ name }) => name === 'advisor_check_unavailable')
      .map(({ metadata }) => metadata.name)
    expect(unchecked).toEqual([
      'leaked_service_key',
      'vulnerable_postgres_version',
      ...PUBLISHED.filter((lint) => /^(instance|log_\w+_rate|realtime)_/.test(lint)),
    ])
    const others = results.map(({ name }) => name).filter((name) => name !== 'advisor_check_unavailable')
    expect(PUBLISHED).toEqual(expect.arrayContaining(others))
  })

  it.each([
    ['no lint', bodyOf([]), 'body.data.attributes.lints'],
    ['sixteen lints', bodyOf(Array(16).fill({ name: 'no_primary_key' })), 'body.data.attributes.lints'],
    ['a lint that there is not', bodyOf([{ name: 'no_such_lint' }]), 'body.data.attributes.lints.0.name'],
    ['a lint that only answers', bodyOf([{ name: 'project_not_active' }]), 'body.data.attributes.lints.0.name'],
    ['another type', { data: { ...bodyOf([{ name: 'no_primary_key' }]).data, type: 'lints' } }, 'body.data.type'],
    ['no data', {}, 'body.data'],
  ])('refuses %s', async (_, body, field) => {
    expect(await owner().post(runPath(), body)).toMatchObject({
      status: 400,
      body: { error: { code: 'bad_request.validation_failed', issues: [{ meta: { field } }] } },
    })
  })

  it('accepts fifteen lints, and other fields beside the attributes', async () => {
    const { data } = bodyOf(Array(15).fill({ name: 'extension_in_public' }))
    const reply = await owner().post(runPath(), { data: { ...data, id: 'mine' } })
    expect(reply).toMatchObject({ status: 200, body: bodyOf([]) })
  })
})

it('advisors require the right to read the database', async () => {
  const reader = await newMember(organization, 'read-only')
  const { caller: app } = await newApp(organization, ['projects:read'])
  const { caller: allowed } = await newApp(organization, ['database:read'])
  const { owner: stranger } = await newOrganization()
  const statuses = (caller: Caller) =>
    Promise.all([
      caller.get(path('performance')),
      caller.get(path('security')),
      caller.post(runPath(), bodyOf([{ name: 'no_primary_key' }])),
    ]).then((replies) => replies.map(({ status }) => status))
  expect(await statuses(reader)).toEqual([200, 200, 200])
  expect(await statuses(allowed)).toEqual([200, 200, 200])
  expect(await statuses(app)).toEqual([403, 403, 403])
  expect(await statuses(stranger)).toEqual([404, 404, 404])
})

/** Makes a project in which a session locks a table: queries that evaluate its policy wait. */
async function lockedProject() {
  const project = await newProject(organization)
  await sql(
    `create table held (n int); alter table held enable row level security;
     create policy own on held using (n = current_setting('app.n')::int)`,
    project,
  )
  const client = ownerClient(project)
  await client.connect()
  await client.query('begin; lock table held')
  return { project, client }
}

it('advisors end in time if a table is locked for long', async () => {
  const { project, client } = await lockedProject()
  const [performance, security, lints] = await Promise.all([
    owner().get(path('performance', project)),
    owner().get(path('security', project)),
    runAdvisors(owner(), project, 'auth_rls_initplan', 'no_backup_admin'),
  ])
  await client.end()
  const tooLong = { status: 400, body: { message: expect.stringContaining('longer than allowed') } }
  expect([performance, security]).toMatchObject([tooLong, tooLong])
  expect(lints.map(({ name, detail }) => [name, detail])).toEqual([
    ['advisor_check_unavailable', 'auth_rls_initplan was not checked: the database did not answer within 6 seconds.'],
    ['no_backup_admin', expect.anything()],
  ])
})

it('advisors report a check that the database canceled', async () => {
  const { project, client } = await lockedProject()
  const replies = Promise.all([
    owner().get(path('performance', project)),
    runAdvisors(owner(), project, 'auth_rls_initplan'),
  ])
  const admin = await adminClient(project)
  const canceled = new Set<number>()
  await vi.waitFor(async () => {
    const { rows } = await admin.query(
      `select pid, pg_cancel_backend(pid) from pg_stat_activity where usename = 'supabase_read_only_user' and wait_event_type = 'Lock'`,
    )
    for (const { pid } of rows) canceled.add(pid)
    expect(canceled.size).toBe(2)
  }, 60_000)
  const [performance, [lint]] = await replies
  await admin.end()
  await client.end()
  expect(performance).toMatchObject({
    status: 503,
    body: { message: expect.stringContaining('canceling statement due to user request') },
  })
  expect(lint).toMatchObject({
    name: 'advisor_check_unavailable',
    detail: expect.stringContaining('the database answered'),
  })
})

it('advisors answer 503 for an unreachable database and 409 for a paused project, whose settings can still be checked', async () => {
  const project = await newProject(organization)
  const replies = () => Promise.all([owner().get(path('performance', project)), owner().get(path('security', project))])
  const admin = await adminClient(project)
  await admin.query(`alter role supabase_read_only_user nologin`)
  await admin.end()
  expect((await replies()).map(({ status }) => status)).toEqual([503, 503])
  await organization.owner.post(`/v1/projects/${project}/pause`)
  await untilStatus(organization.owner, project, 'INACTIVE')
  expect((await replies()).map(({ status }) => status)).toEqual([409, 409])
  const lints = await runAdvisors(owner(), project, 'no_primary_key', 'db_not_reachable', 'ssl_not_enforced')
  expect(lints).toMatchObject([
    {
      name: 'project_not_active',
      detail: 'The database was not checked: the project is INACTIVE.',
      metadata: { type: 'health' },
      cache_key: 'project_not_active',
    },
    { name: 'ssl_not_enforced' },
  ])
})
