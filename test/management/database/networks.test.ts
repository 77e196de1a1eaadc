import { eq } from 'drizzle-orm'
import type pg from 'pg'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog } from '../../../src/model/tables/index.ts'
import {
  type Caller,
  control,
  newOrganization,
  type Reply,
  type TestOrganization,
  tokenOf,
  unhurried,
} from '../../support/api.ts'
import { newBranch } from '../../support/branches.ts'
import { cliOf } from '../../support/cli.ts'
import { extended } from '../../support/extended.ts'
import { newProject, ownerClient, runSql, untilStatus } from '../../support/projects.ts'

const ANYWHERE = { dbAllowedCidrs: ['0.0.0.0/0'], dbAllowedCidrsV6: ['::/0'] }
const TIME = expect.stringMatching(/^\d{4}-\d\d-\d\dT/)

let organization: TestOrganization
let ref: string
let clock: () => Caller
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
  clock = unhurried(organization.owner)
})
const caller = () => clock()

const path = (rest = '', project = ref) => `/v1/projects/${project}/network-restrictions${rest}`
const read = async () => (await caller().get(path())).body
const apply = (body: unknown) => caller().post(path('/apply'), body)
const change = (body: unknown) => caller().patch(path(), body)

/** Connects a client of the project's owner from this machine. */
async function connect(project = ref): Promise<pg.Client> {
  const client = ownerClient(project)
  await client.connect()
  return client
}
const canConnect = async (project = ref) => {
  const client = await connect(project)
  await client.end()
  return true
}

describe('network restrictions', () => {
  it('admit everybody at first', async () => {
    expect(await caller().get(path())).toMatchObject({ status: 200 })
    expect(await read()).toEqual({ entitlement: 'allowed', config: ANYWHERE, status: 'applied' })
    expect(await canConnect()).toBe(true)
  })

  it('exclude other addresses, and end their sessions, while the services go on', async () => {
    const before = await connect()
    const ended = new Promise((resolve) => before.once('end', resolve))
    const config = { dbAllowedCidrs: ['10.0.0.0/8'], dbAllowedCidrsV6: [] }
    const reply = await apply(config)
    expect(reply).toMatchObject({ status: 201 })
    expect(reply.body).toEqual({
      entitlement: 'allowed',
      config,
      old_config: ANYWHERE,
      status: 'applied',
      updated_at: TIME,
      applied_at: TIME,
    })
    await ended
    await expect(canConnect()).rejects.toThrow(/not in tenant allow_list: 127\.0\.0\.1/)
    expect((await runSql(organization.owner, ref, 'select 1 as v')).body).toEqual([{ v: 1 }])
    const { network_restrictions: effective } = (await caller().get(`/v2/projects/${ref}/config`)).body.data.attributes
      .database
    const { config: _lists, old_config: _before, ...state } = reply.body
    expect(effective).toEqual({ ...state, allowed_cidrs: [{ address: '10.0.0.0/8', type: 'v4' }] })

    const patched = await change({
      add: { dbAllowedCidrs: ['127.0.0.0/8'] },
      remove: { dbAllowedCidrs: ['10.0.0.0/8'] },
    })
    expect(patched).toMatchObject({ status: 200 })
    expect(patched.body).toMatchObject({
      config: { dbAllowedCidrs: [{ address: '127.0.0.0/8', type: 'v4' }] },
      old_config: { dbAllowedCidrs: [{ address: '10.0.0.0/8', type: 'v4' }] },
    })
    expect(await read()).toMatchObject({
      config: { dbAllowedCidrs: ['127.0.0.0/8'], dbAllowedCidrsV6: [] },
      old_config: config,
    })
    expect(await canConnect()).toBe(true)
    await apply(ANYWHERE)
    expect(await canConnect()).toBe(true)
  })

  it('are independent of SSL enforcement', async () => {
    const enforce = (database: boolean) =>
      caller().put(`/v1/projects/${ref}/ssl-enforcement`, { requestedConfig: { database } })
    await apply({ dbAllowedCidrs: ['127.0.0.1/32'] })
    await enforce(true)
    await expect(canConnect()).rejects.toThrow('SSL connection is required')
    await apply({ dbAllowedCidrs: ['10.0.0.0/8'] })
    await enforce(false)
    await expect(canConnect()).rejects.toThrow('not in tenant allow_list')
    await apply(ANYWHERE)
    expect(await canConnect()).toBe(true)
  })

  it('return the times that are read afterwards', async () => {
    // The wall clock advances within a request.
    const { owner } = organization
    const times = ({ body: { updated_at, applied_at } }: Reply) => ({ updated_at, applied_at })
    const applied = await owner.post(path('/apply'), ANYWHERE)
    expect(times(applied)).toEqual(times(await owner.get(path())))
    const patched = await owner.patch(path(), { add: ANYWHERE })
    expect(times(patched)).toEqual(times(await owner.get(path())))
  })

  it('keep a list that is not named, and an empty list admits nobody', async () => {
    await apply({ dbAllowedCidrsV6: ['2001:db8::/32'] })
    expect((await read()).config).toEqual({ dbAllowedCidrs: ['0.0.0.0/0'], dbAllowedCidrsV6: ['2001:db8::/32'] })
    expect(await canConnect()).toBe(true)
    await apply({ dbAllowedCidrs: [], dbAllowedCidrsV6: [] })
    await expect(canConnect()).rejects.toThrow('not in tenant allow_list')
    await change({ add: ANYWHERE })
    expect((await read()).config).toEqual(ANYWHERE)
    expect(await canConnect()).toBe(true)
  })

  it('are the same network however it is spelled', async () => {
    await apply({
      dbAllowedCidrs: ['127.0.0.0/8', '127.0.0.1/8', '10.1.2.3/8'],
      dbAllowedCidrsV6: ['2001:DB8::/32', '2001:db8:0:0::/32', '::ffff:1.2.3.4/128', '::/1'],
    })
    const first = {
      dbAllowedCidrs: ['127.0.0.0/8', '10.1.2.3/8'],
      dbAllowedCidrsV6: ['2001:DB8::/32', '::ffff:1.2.3.4/128', '::/1'],
    }
    expect((await read()).config).toEqual(first)
    await change({ add: { dbAllowedCidrs: ['10.0.0.0/8'], dbAllowedCidrsV6: ['2001:db8::1/32'] } })
    expect((await read()).config).toEqual(first)
    await change({
      remove: {
        dbAllowedCidrs: ['10.0.0.0/8', '127.0.0.0/9'],
        dbAllowedCidrsV6: ['2001:0db8::/32', '::FFFF:102:304/128', '8000::/1'],
      },
    })
    expect((await read()).config).toEqual({ dbAllowedCidrs: ['127.0.0.0/8'], dbAllowedCidrsV6: ['::/1'] })
    expect(await canConnect()).toBe(true)
    await apply(ANYWHERE)
  })

  it('are none if both kinds have a network of length zero', async () => {
    const isMissed = async () => {
      const { body } = await caller().get(`/v1/projects/${ref}/advisors/security`)
      return body.lints.some(({ name }: { name: string }) => name === 'network_restrictions_not_set')
    }
    await apply({ dbAllowedCidrs: ['10.0.0.0/8'], dbAllowedCidrsV6: ['::/0'] })
    expect(await isMissed()).toBe(false)
    await apply({ dbAllowedCidrs: ['10.0.0.0/0'], dbAllowedCidrsV6: ['0:0:0:0:0:0:0:1/0'] })
    expect([await isMissed(), await canConnect()]).toEqual([true, true])
    await apply(ANYWHERE)
  })

  it('are those of the parent on a branch', async () => {
    const parent = await newProject(organization)
    await caller().post(path('/apply', parent), { dbAllowedCidrs: ['10.0.0.0/8'], dbAllowedCidrsV6: [] })
    const enforce = (project: string, database: boolean) =>
      caller().put(`/v1/projects/${project}/ssl-enforcement`, { requestedConfig: { database } })
    await enforce(parent, true)
    const branch = await newBranch(organization.owner, parent)
    const { config } = (await caller().get(path('', branch.project_ref))).body
    expect(config).toEqual({ dbAllowedCidrs: ['10.0.0.0/8'], dbAllowedCidrsV6: [] })
    const { db_pass: password } = (await caller().get(`/v1/branches/${branch.id}`)).body
    const connect = () => ownerClient(branch.project_ref, { password }).connect()
    await expect(connect()).rejects.toThrow('SSL connection is required')
    await enforce(branch.project_ref, false)
    await expect(connect()).rejects.toThrow('not in tenant allow_list')
  })

  it.each<[Record<string, unknown>, string]>([
    [{ dbAllowedCidrs: ['10.0.0.1'] }, 'body.dbAllowedCidrs.0'],
    [{ dbAllowedCidrs: ['::/0'] }, 'body.dbAllowedCidrs.0'],
    [{ dbAllowedCidrs: ['10.0.0.0/33'] }, 'body.dbAllowedCidrs.0'],
    [{ dbAllowedCidrs: "10.0.0.0/8' or true --" }, 'body.dbAllowedCidrs'],
    [{ dbAllowedCidrsV6: ['10.0.0.0/8'] }, 'body.dbAllowedCidrsV6.0'],
    [{ dbAllowedCidrs: Array.from({ length: 201 }, (_, n) => `10.0.${n}.0/24`) }, 'body.dbAllowedCidrs'],
  ])('are not %#', async (body, field) => {
    const before = await read()
    for (const reply of [await apply(body), await change({ add: body })]) {
      expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field.slice(5)) } })
    }
    expect(await read()).toEqual(before)
  })

  it('keep their values if a change has too many', async () => {
    const many = (from: number, count: number) =>
      Array.from({ length: count }, (_, n) => `10.${Math.floor((from + n) / 250)}.${(from + n) % 250}.0/24`)
    await apply({ dbAllowedCidrs: many(0, 150), dbAllowedCidrsV6: [] })
    expect(await change({ add: { dbAllowedCidrs: many(150, 51) } })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('at most 200 networks') },
    })
    expect((await read()).config.dbAllowedCidrs).toHaveLength(150)
    await apply(ANYWHERE)
  })

  it('require a member with the right, and an active project', async () => {
    const stranger = (await newOrganization()).owner
    const reader = await tokenOf(organization.userId, { scopes: ['projects:read'] })
    expect((await stranger.get(path())).status).toBe(404)
    expect((await stranger.post(path('/apply'), ANYWHERE)).status).toBe(404)
    expect((await reader.get(path())).status).toBe(200)
    expect((await reader.post(path('/apply'), ANYWHERE)).status).toBe(403)
    const paused = await newProject(organization)
    await organization.owner.post(`/v1/projects/${paused}/pause`)
    await untilStatus(organization.owner, paused, 'INACTIVE')
    expect((await caller().post(path('/apply', paused), ANYWHERE)).status).toBe(409)
    expect((await caller().patch(path('', paused), { add: ANYWHERE })).status).toBe(409)
  })

  it('are in the audit log', async () => {
    const rows = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    const details = rows.filter(({ action }) => action === 'project.network.update').map(({ detail }) => detail)
    expect(details).toContainEqual({ fields: ['v4', 'v6'] })
  })
})

describe('network bans', () => {
  const bans = `/network-bans`

  it('list addresses that failed to log in, and can be lifted', async () => {
    const own = await newProject(organization)
    const at = `/v1/projects/${own}${bans}`
    const guess = () => ownerClient(own, { password: 'wrong' }).connect()
    for (let tries = 0; tries < 10; tries++) await expect(guess()).rejects.toThrow()
    await expect(connect(own)).rejects.toThrow(/banned until/)
    expect((await caller().post(`${at}/retrieve`)).body).toEqual({ banned_ipv4_addresses: ['127.0.0.1'] })
    expect((await caller().post(`${at}/retrieve/enriched`)).body).toEqual({
      banned_ipv4_addresses: [{ banned_address: '127.0.0.1', identifier: own, type: 'postgres' }],
    })
    const lift = (from: Caller, body: object) =>
      from.send('DELETE', at, { headers: { 'content-type': 'application/json' }, raw: JSON.stringify(body) })
    const reader = await tokenOf(organization.userId, { scopes: ['projects:read'] })
    expect((await reader.post(`${at}/retrieve`)).status).toBe(201)
    expect((await lift(reader, { ipv4_addresses: ['127.0.0.1'] })).status).toBe(403)
    const stranger = (await newOrganization()).owner
    expect((await stranger.post(`${at}/retrieve`)).status).toBe(404)
    expect(await lift(caller(), { ipv4_addresses: [], identifier: ref })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('body.identifier') },
    })
    await expect(connect(own)).rejects.toThrow(/banned until/)
    expect((await lift(caller(), { ipv4_addresses: ['127.0.0.1'] })).status).toBe(200)
    expect((await caller().post(`${at}/retrieve`)).body).toEqual({ banned_ipv4_addresses: [] })
    expect(await canConnect(own)).toBe(true)
    const rows = await control.select().from(auditLog).where(eq(auditLog.projectRef, own))
    const lifted = rows.filter(({ action }) => action === 'project.network_bans.lift').map(({ detail }) => detail)
    expect(lifted).toEqual([{ addresses: ['127.0.0.1'] }])
  })

  it('are none at first', async () => {
    const at = `/v1/projects/${ref}${bans}`
    for (const each of [`${at}/retrieve`, `${at}/retrieve/enriched`]) {
      const reply = await caller().post(each)
      expect([reply.status, reply.body]).toEqual([201, { banned_ipv4_addresses: [] }])
    }
    const lifted = await caller().send('DELETE', at, {
      headers: { 'content-type': 'application/json' },
      raw: JSON.stringify({ ipv4_addresses: ['1.2.3.4', '2001:db8::1'], requester_ip: false }),
    })
    expect([lifted.status, lifted.body, lifted.headers.get('content-type')]).toEqual([200, '', null])
    const refused = await caller().send('DELETE', at, {
      headers: { 'content-type': 'application/json' },
      raw: JSON.stringify({ ipv4_addresses: ['localhost'] }),
    })
    expect(refused).toMatchObject({
      status: 400,
      body: {
        message: expect.stringMatching(/body\.ipv4_addresses\.0: Invalid IPv4 address, or: Invalid IPv6 address/),
      },
    })
  })
})

extended('the CLI shows and changes both', async () => {
  const run = cliOf(organization.owner)
  const cli = (...args: string[]) => run(...args, '--project-ref', ref, '--yes')
  await cli('network-restrictions', 'update', '--db-allow-cidr', '127.0.0.0/8', '--bypass-cidr-checks')
  expect((await read()).config).toEqual({ dbAllowedCidrs: ['127.0.0.0/8'], dbAllowedCidrsV6: [] })
  await cli('network-restrictions', 'update', '--db-allow-cidr', '1.2.3.0/24', '--append')
  expect((await read()).config.dbAllowedCidrs).toEqual(['127.0.0.0/8', '1.2.3.0/24'])
  expect(await cli('network-restrictions', 'get')).toContain('1.2.3.0/24')
  await cli('network-bans', 'get')
  await cli('network-bans', 'remove', '--db-unban-ip', '1.2.3.4')
})
