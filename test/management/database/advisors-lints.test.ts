import { readFile, writeFile } from 'node:fs/promises'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { type ReportedLint, textOf } from '../../../src/management/database/advisors/lints.ts'
import { type SettingFacts, settingChecks } from '../../../src/management/database/advisors/settings.ts'
import { users } from '../../../src/model/tables/index.ts'
import { adminClient, adminRows } from '../../instances.ts'
import { runAdvisors } from '../../support/advisors.ts'
import { CASES } from '../../support/advisors-cases.ts'
import {
  addMember,
  type Caller,
  control,
  newMember,
  newOrganization,
  newUser,
  type TestOrganization,
  unhurried,
} from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import { newProject, ownerClient, runSql } from '../../support/projects.ts'
import { WAIT_MS } from '../../support/wait.ts'

let organization: TestOrganization
let ref: string
let owner: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  owner = unhurried(organization.owner)
})

const run = (...names: string[]) => runAdvisors(owner(), ref, ...names)

async function asAdmin(query: string, { project = ref, database = 'postgres' } = {}) {
  const client = await adminClient(project, { database })
  try {
    await client.query('set search_path = public')
    for (const statement of query.split(';\n')) await client.query(statement)
  } finally {
    await client.end()
  }
}

async function change(query: string, admin = false) {
  if (admin) return asAdmin(query)
  const reply = await runSql(owner(), ref, query)
  expect(reply, JSON.stringify(reply.body)).toMatchObject({ status: 201 })
}

const reportOf = (lint: string) => {
  const { title, level, category, description, remediation } = textOf(lint as ReportedLint)
  return { name: lint, title, level, facing: 'EXTERNAL', categories: [category], description, remediation }
}

describe('a lint of the database', () => {
  it.each(CASES)('$lint $title', async ({ lint, fault, repair, found, admin }) => {
    const before = await run(lint)
    const { detail, metadata, key: cache_key } = found
    const expected = { ...reportOf(lint), detail, metadata, cache_key }
    await change(fault, admin)
    const lints = await run(lint)
    expect(lints.filter(({ cache_key: key }) => !before.some((known) => known.cache_key === key))).toEqual([expected])
    expect(await run(lint)).toEqual(lints)
    await change(repair, admin)
    expect(await run(lint)).toEqual(before)
  })

  it('unused_index ends with the first query that uses it', async () => {
    await change('create table looked (id int primary key, n int); create index looked_n on looked (n)')
    const unused = {
      ...reportOf('unused_index'),
      detail: 'No query has used the index looked_n of the table public.looked.',
      metadata: { schema: 'public', name: 'looked', type: 'table' },
      cache_key: 'unused_index.public.looked.looked_n',
    }
    expect(await run('unused_index')).toContainEqual(unused)
    await change('set enable_seqscan = off; select n from looked where n = 1')
    await vi.waitFor(async () => expect(await run('unused_index')).not.toContainEqual(unused), { timeout: WAIT_MS })
  })

  it('log_connections_not_enabled is fixed by a setting of the project', async () => {
    const set = (log_connections: boolean) =>
      owner().patch(`/v1/projects/${ref}/config/database/postgres`, { log_connections })
    expect(await run('log_connections_not_enabled')).toHaveLength(1)
    expect((await set(true)).status).toBe(200)
    await vi.waitFor(async () => expect(await run('log_connections_not_enabled')).toEqual([]), { timeout: WAIT_MS })
    expect((await set(false)).status).toBe(200)
    await vi.waitFor(async () => expect(await run('log_connections_not_enabled')).toHaveLength(1), { timeout: WAIT_MS })
  })

  it('log_connections_not_enabled covers the whole server', async () => {
    const [{ path, pid } = { path: '', pid: '' }] = await adminRows<{ path: string; pid: string }>(
      ref,
      `select current_setting('config_file') as path, split_part(pg_read_file('postmaster.pid'), chr(10), 1) as pid`,
    )
    // Under an account of its own, a server can reach its data only as its working directory.
    const file = path.replace('/proc/self/', `/proc/${pid}/`)
    const configuration = await readFile(file, 'utf8')
    const set = async (value: string, lints: object[]) => {
      await writeFile(file, `${configuration}\n${value}\n`)
      await asAdmin('select pg_reload_conf()')
      await vi.waitFor(async () => expect(await run('log_connections_not_enabled')).toEqual(lints), {
        timeout: WAIT_MS,
      })
    }
    const off = {
      ...reportOf('log_connections_not_enabled'),
      detail: 'The server has log_connections off.',
      metadata: { type: 'compliance' },
      cache_key: 'log_connections_not_enabled',
    }
    try {
      await set("log_connections = 'off'", [off])
      await set("log_connections = 'authorization'", [])
    } finally {
      await set('', [off])
    }
  })
})

describe('a lint of the settings', () => {
  const auth = { type: 'auth', entity: 'Auth' }
  const set = async (fields: object) =>
    expect(await owner().patch(`/v1/projects/${ref}/config/auth`, fields)).toMatchObject({ status: 200 })

  it.each([
    {
      lint: 'auth_otp_long_expiry',
      fault: { mailer_otp_exp: 3_601 },
      repair: { mailer_otp_exp: 3_600 },
      detail: 'mailer_otp_exp is 3601 seconds, more than 3600.',
    },
    {
      lint: 'auth_otp_short_length',
      fault: { mfa_phone_verify_enabled: true, mfa_phone_otp_length: 4 },
      repair: { mfa_phone_verify_enabled: false },
      detail: 'mfa_phone_otp_length is 4, less than 6.',
    },
    {
      lint: 'password_requirements_min_length',
      fault: { password_min_length: 7 },
      repair: { password_min_length: 8 },
      detail: 'password_min_length is 7, less than 8.',
    },
    {
      lint: 'auth_leaked_password_protection',
      fault: { password_hibp_enabled: false },
      repair: { password_hibp_enabled: true },
      detail: 'password_hibp_enabled is false.',
    },
    {
      lint: 'auth_insufficient_mfa_options',
      fault: { mfa_web_authn_enroll_enabled: false },
      repair: { mfa_web_authn_enroll_enabled: true, mfa_web_authn_verify_enabled: true },
      detail: 'Second factors that can be enrolled and verified: totp (of totp, phone and web_authn).',
    },
    {
      lint: 'auth_password_policy_missing',
      fault: { password_required_characters: '' },
      repair: { external_email_enabled: false },
      detail: 'password_required_characters is empty.',
    },
  ])('$lint follows the configuration of Auth', async ({ lint, fault, repair, detail }) => {
    await set(fault)
    expect(await run(lint)).toEqual([{ ...reportOf(lint), detail, metadata: auth, cache_key: lint }])
    await set(repair)
    expect(await run(lint)).toEqual([])
  })

  it('network_restrictions_not_set follows the network restrictions', async () => {
    const apply = (body: unknown) => organization.owner.post(`/v1/projects/${ref}/network-restrictions/apply`, body)
    await apply({ dbAllowedCidrs: ['10.0.0.0/8'] })
    expect(await run('network_restrictions_not_set')).toEqual([])
    await apply({ dbAllowedCidrs: ['0.0.0.0/0'] })
    const detail = 'The database accepts connections from any address.'
    expect(await run('network_restrictions_not_set')).toEqual([
      {
        ...reportOf('network_restrictions_not_set'),
        detail,
        metadata: { type: 'compliance' },
        cache_key: 'network_restrictions_not_set',
      },
    ])
  })

  it('ssl_not_enforced follows SSL enforcement', async () => {
    const enforce = async (database: boolean) =>
      expect(await owner().put(`/v1/projects/${ref}/ssl-enforcement`, { requestedConfig: { database } })).toMatchObject(
        { status: 200 },
      )
    await enforce(true)
    expect(await run('ssl_not_enforced')).toEqual([])
    await enforce(false)
    const detail = 'The database accepts connections without SSL: SSL enforcement is off.'
    expect(await run('ssl_not_enforced')).toEqual([
      { ...reportOf('ssl_not_enforced'), detail, metadata: { type: 'compliance' }, cache_key: 'ssl_not_enforced' },
    ])
  })

  it('no_backup_admin ends with another active administrator of the whole organization', async () => {
    await newMember(organization, 'developer')
    const disabled = await newUser()
    await addMember(organization.id, disabled, 'owner')
    await control.update(users).set({ disabledAt: new Date() }).where(eq(users.id, disabled))
    await newMember(organization, 'administrator', ref)
    expect(await run('no_backup_admin')).toEqual([
      {
        ...reportOf('no_backup_admin'),
        detail: 'The organization has only one owner or administrator.',
        metadata: { type: 'compliance' },
        cache_key: 'no_backup_admin',
      },
    ])
    await newMember(organization, 'administrator')
    expect(await run('no_backup_admin')).toEqual([])
  })

  it('pitr_not_enabled is reported for a driver without a history', async () => {
    expect(await run('pitr_not_enabled')).toEqual([])
    const facts = { engine: { name: 'host', pointInTime: undefined } } as unknown as SettingFacts
    expect(settingChecks.pitr_not_enabled(facts)).toBe('The driver host has no point-in-time recovery.')
  })
})

describe('a lint of health', () => {
  const HEALTH = ['db_not_reachable', 'db_connection_failing', 'db_connection_limit_reached']
  const health = (lint: string, detail: string, key = lint) => ({
    ...reportOf(lint),
    detail,
    metadata: { type: 'health' },
    cache_key: key,
  })
  const unchecked = (lint: string) => ({
    ...health('advisor_check_unavailable', `${lint} was not checked: the database of the project cannot be reached.`),
    metadata: { type: 'health', name: lint },
    cache_key: `advisor_check_unavailable.${lint}`,
  })
  const found = async (project: string, ...lints: string[]) =>
    (await runAdvisors(owner(), project, ...lints)).sort((a, b) => a.cache_key.localeCompare(b.cache_key))

  it('db_connection_limit_reached names the server or role whose sessions are all open', async () => {
    const password = 'visiting'
    await change(`create role visitor login connection limit 2 password '${password}'`)
    const reached = (whose: string, most: number) =>
      health(
        'db_connection_limit_reached',
        `${whose} has ${most} of its ${most} sessions open.`,
        `db_connection_limit_reached."${whose}"`,
      )
    const clients = Array.from({ length: 47 }, (_, n) =>
      ownerClient(ref, n < 2 ? { user: `visitor.${ref}`, password } : {}),
    )
    expect(await run(...HEALTH)).toEqual([])
    for (const client of clients) await client.connect()
    expect(await run(...HEALTH)).toEqual([reached('The role visitor', 2), reached('The server', 47)])
    for (const client of clients) await client.end()
    await vi.waitFor(async () => expect(await run(...HEALTH)).toEqual([]), { timeout: WAIT_MS })
  })

  extended('a database that refuses all logins, or has no session left, is reported', async () => {
    const project = await newProject(organization)
    await asAdmin('alter role supabase_read_only_user nologin', { project })
    expect(await found(project, 'db_connection_failing', 'no_primary_key')).toEqual([
      unchecked('no_primary_key'),
      health('db_connection_failing', 'The database server refused the session of the check.'),
    ])
    await asAdmin('alter role supabase_read_only_user login connection limit 0', { project })
    expect(await found(project, ...HEALTH)).toEqual([
      unchecked('db_connection_failing'),
      unchecked('db_not_reachable'),
      health('db_connection_limit_reached', 'No connection was left for the role that checks the database.'),
    ])
    await asAdmin('alter role supabase_read_only_user connection limit 10', { project })
    expect(await found(project, ...HEALTH)).toEqual([])
  })

  it('a database that does not exist is reported', async () => {
    const project = await newProject(organization)
    await asAdmin('drop database postgres with (force)', { project, database: 'template1' })
    expect(await found(project, 'db_not_reachable', 'auth_otp_long_expiry')).toEqual([
      health('db_not_reachable', 'The database of the project did not answer.'),
    ])
  })
})
