import { randomInt, randomUUID } from 'node:crypto'
import { and, eq } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog, customHostnames, releasedSubdomains, vanitySubdomains } from '../../../src/model/tables/index.ts'
import {
  baseUrl,
  type Caller,
  control,
  newOrganization,
  setName,
  type TestOrganization,
  tokenOf,
} from '../../support/api.ts'
import { cliOf } from '../../support/cli.ts'
import { extended } from '../../support/extended.ts'
import { createProject, newProject, runSql, untilGone } from '../../support/projects.ts'
import { exchange } from '../../support/storage.ts'

const DOMAIN = 'projects.example.com'
const KEYS = '/auth/v1/.well-known/jwks.json'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

/** Makes a project of its own, whose counters no other test uses. */
async function newPlace() {
  const ref = await createProject(organization)
  return placeOf(organization.owner, ref)
}

function placeOf(caller: Caller, ref: string) {
  const path = (rest: string) => `/v1/projects/${ref}/${rest}`
  return {
    ref,
    vanity: () => caller.get(path('vanity-subdomain')),
    check: (name: unknown) => caller.post(path('vanity-subdomain/check-availability'), { vanity_subdomain: name }),
    activate: (name: unknown) => caller.post(path('vanity-subdomain/activate'), { vanity_subdomain: name }),
    drop: () => caller.delete(path('vanity-subdomain')),
    hostname: () => caller.get(path('custom-hostname')),
    initialize: (name: unknown) => caller.post(path('custom-hostname/initialize'), { custom_hostname: name }),
    reverify: () => caller.post(path('custom-hostname/reverify')),
    activateHostname: () => caller.post(path('custom-hostname/activate')),
    remove: (query = '') => caller.delete(path(`custom-hostname${query}`)),
  }
}
type Place = ReturnType<typeof placeOf>

const newName = () => `v-${randomUUID()}`
const newHostname = () => `${newName()}.hosts-of-others.com`

const keysAt = async (host: string) => {
  const { status, body } = await exchange(new URL(KEYS, baseUrl).href, { headers: { host } })
  return { status, body }
}
/** Returns what the project's own host serves. */
const keysOf = ({ ref }: Place) => keysAt(`${ref}.${DOMAIN}`)

/** Waits for the reply: each isolate applies a change within a second, and there may be several. */
const untilServed = (host: string, expected: unknown) => expect.poll(() => keysAt(host)).toEqual(expected)
const NOT_SERVED = { status: 404, body: expect.stringContaining('No such endpoint') }

const traced = async ({ ref }: Place, action: string) => {
  const rows = await control
    .select({ user: auditLog.actorUserId, detail: auditLog.detail })
    .from(auditLog)
    .where(and(eq(auditLog.projectRef, ref), eq(auditLog.action, action)))
  return rows.map(({ user, detail }) => [user, detail])
}

describe('a host below the domain of projects', () => {
  it('serves nothing of the management API, whether or not it belongs to a project', async () => {
    const place = await newPlace()
    const name = newName()
    await place.activate(name)
    await untilServed(`${name}.${DOMAIN}`, await keysOf(place))
    const authorization = `Bearer ${organization.owner.token}`
    const labels = [place.ref, name, 'nobodys-name', 'one.too-many']
    for (const host of labels.map((label) => `${label}.${DOMAIN}`)) {
      for (const path of [
        '/',
        '/health',
        '/docs',
        '/api/v1-json',
        '/v1/projects',
        `/v2/projects/${place.ref}/workers`,
      ]) {
        const { status, body } = await exchange(new URL(path, baseUrl).href, { headers: { host, authorization } })
        expect([host, path, status, body]).toEqual([host, path, 404, expect.stringContaining('No such endpoint')])
      }
    }
  })

  it('names a service that is not offered', async () => {
    const { ref } = await newPlace()
    const { status, body } = await exchange(new URL('/auth/v1/user', baseUrl).href, {
      headers: { host: `${ref}.${DOMAIN}` },
    })
    expect([status, JSON.parse(body).message]).toEqual([404, expect.stringContaining('Auth (/auth/v1) is not offered')])
  })
})

describe('an unknown host', () => {
  it('is answered 120 times a minute for a caller, while a name that nobody has used yet is served', async () => {
    const place = await newPlace()
    const name = newName()
    await place.activate(name)
    const caller = { 'x-test-address': `203.0.113.${randomInt(1, 255)}` }
    const ask = (host: string, path = KEYS) => exchange(new URL(path, baseUrl).href, { headers: { host, ...caller } })
    const replies = await Promise.all(Array.from({ length: 140 }, () => ask(newHostname())))
    expect(replies.filter(({ status }) => status === 404)).toHaveLength(120)
    const refused = replies.filter(({ status }) => status === 429)
    expect(refused).toHaveLength(20)
    expect(Number(refused[0]?.headers['retry-after'])).toBeGreaterThan(0)
    expect(await ask(`${name}.${DOMAIN}`)).toMatchObject({ status: 200 })
    expect(await ask(newHostname(), '/health/live')).toMatchObject({ status: 200 })
    expect((await organization.owner.get('/v1/organizations')).status).toBe(200)
  })
})

describe('a vanity subdomain', () => {
  it('does not exist at first', async () => {
    const { vanity } = await newPlace()
    const reply = await vanity()
    expect([reply.status, reply.body, reply.headers.get('x-ratelimit-limit')]).toEqual([
      200,
      { status: 'not-used' },
      '10',
    ])
  })

  it('leads to the project once it is activated, until it is deleted', async () => {
    const place = await newPlace()
    const name = newName()
    const host = `${name}.${DOMAIN}`
    expect(await keysAt(host)).toMatchObject(NOT_SERVED)
    expect(await place.check(name)).toMatchObject({ status: 201, body: { available: true } })
    expect(await place.activate(name)).toMatchObject({ status: 201, body: { custom_domain: host } })
    expect(await place.vanity()).toMatchObject({ status: 200, body: { status: 'active', custom_domain: host } })
    expect(await place.check(name)).toMatchObject({ status: 201, body: { available: false } })
    const served = await keysOf(place)
    expect(served.status).toBe(200)
    await untilServed(host, served)
    const dropped = await place.drop()
    expect([dropped.status, dropped.body, dropped.headers.get('content-type')]).toEqual([200, '', null])
    await untilServed(host, NOT_SERVED)
    expect(await place.drop()).toMatchObject({ status: 200, body: '' })
    expect(await traced(place, 'vanity_subdomain.activate')).toEqual([[organization.userId, { subdomain: name }]])
    expect(await traced(place, 'vanity_subdomain.delete')).toEqual([[organization.userId, { subdomain: name }]])
  })

  it('serves storage too, and no other project by its path', async () => {
    const ref = await newProject(organization)
    const place = placeOf(organization.owner, ref)
    const other = await newPlace()
    const name = newName()
    await place.activate(name)
    const host = `${name}.${DOMAIN}`
    await runSql(organization.owner, ref, `insert into storage.buckets (id, name) values ('here', 'here')`)
    const keys = await organization.owner.get(`/v1/projects/${ref}/api-keys?reveal=true`)
    const { api_key: key } = keys.body.find(({ name }: { name: string }) => name === 'service_role')
    const headers = { host, authorization: `Bearer ${key}` }
    const list = (path: string) => exchange(new URL(path, baseUrl).href, { headers })
    await untilServed(host, await keysOf(place))
    expect(JSON.parse((await list('/storage/v1/bucket')).body)).toMatchObject([{ id: 'here' }])
    expect(await list(`/p/${other.ref}${KEYS}`)).toMatchObject({ status: 404 })
  })

  it('replaces the one before, and can be requested again', async () => {
    const place = await newPlace()
    const [first, second] = [newName(), newName()]
    await place.activate(first)
    await place.activate(second)
    expect(await place.activate(second.toUpperCase())).toMatchObject({
      status: 201,
      body: { custom_domain: `${second}.${DOMAIN}` },
    })
    await untilServed(`${second}.${DOMAIN}`, await keysOf(place))
    await untilServed(`${first}.${DOMAIN}`, NOT_SERVED)
    expect(await traced(place, 'vanity_subdomain.activate')).toHaveLength(2)
  })

  const usedForADay = ({ ref }: { ref: string }) =>
    control
      .update(vanitySubdomains)
      .set({ createdAt: new Date(Date.now() - 86_400_000 - 60_000) })
      .where(eq(vanitySubdomains.projectRef, ref))

  it('is reserved for seven days after it was given up', async () => {
    const [place, other] = await Promise.all([newPlace(), newPlace()])
    const [name, second] = [newName(), newName()]
    const taken = (given: string) => ({ status: 400, body: { message: expect.stringContaining(`${given} is taken`) } })
    for (const given of [name, second]) {
      await place.activate(given)
      await usedForADay(place)
    }
    await place.drop()
    for (const given of [name, second]) {
      expect(await other.check(given)).toMatchObject({ status: 201, body: { available: false } })
      expect(await other.activate(given)).toMatchObject(taken(given))
    }
    expect(await other.vanity()).toMatchObject({ body: { status: 'not-used' } })
    expect(await place.check(name)).toMatchObject({ status: 201, body: { available: true } })
    await control
      .update(releasedSubdomains)
      .set({ releasedAt: new Date(Date.now() - 7 * 86_400_000 - 60_000) })
      .where(eq(releasedSubdomains.projectRef, place.ref))
    expect(await other.check(name)).toMatchObject({ status: 201, body: { available: true } })
    expect(await other.activate(name)).toMatchObject({ status: 201 })
  })

  it('is free at once if it was in use for less than a day', async () => {
    const [place, other] = await Promise.all([newPlace(), newPlace()])
    const [name, second] = [newName(), newName()]
    await place.activate(name)
    await place.activate(second)
    expect(await other.check(name)).toMatchObject({ status: 201, body: { available: true } })
    expect(await other.activate(name)).toMatchObject({ status: 201 })
  })

  it('stays reserved for seven days from its last use, however short that was', async () => {
    const place = await newPlace()
    const name = newName()
    await place.activate(name)
    await usedForADay(place)
    await place.drop()
    const isOfPlace = eq(releasedSubdomains.projectRef, place.ref)
    const before = new Date(Date.now() - 5 * 86_400_000)
    await control.update(releasedSubdomains).set({ releasedAt: before }).where(isOfPlace)
    await place.activate(name)
    await place.drop()
    const [row] = await control.select().from(releasedSubdomains).where(isOfPlace)
    expect(row?.releasedAt.getTime()).toBeGreaterThan(before.getTime() + 86_400_000)
  })

  it('belongs to one project: one of two simultaneous requests gets it', async () => {
    const places = await Promise.all([newPlace(), newPlace(), newPlace()])
    const name = newName()
    const replies = await Promise.all(places.map(({ activate }) => activate(name)))
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 400, 400])
    const refused = replies.find(({ status }) => status === 400)
    expect(refused?.body.message).toContain(`${name} is taken`)
    const rows = await control.select().from(vanitySubdomains).where(eq(vanitySubdomains.subdomain, name))
    expect(rows).toHaveLength(1)
  })

  it('is reserved for seven days after its project was deleted', async () => {
    const place = placeOf(organization.owner, await newProject(organization))
    const name = newName()
    await place.activate(name)
    await usedForADay(place)
    await organization.owner.delete(`/v1/projects/${place.ref}`)
    await untilGone(organization.owner, place.ref)
    await untilServed(`${name}.${DOMAIN}`, NOT_SERVED)
    const other = await newPlace()
    expect(await other.check(name)).toMatchObject({ status: 201, body: { available: false } })
    expect(await other.activate(name)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(`${name} is taken`) },
    })
    await control
      .update(releasedSubdomains)
      .set({ releasedAt: new Date(Date.now() - 7 * 86_400_000 - 60_000) })
      .where(eq(releasedSubdomains.projectRef, place.ref))
    expect(await other.activate(name)).toMatchObject({ status: 201 })
  })

  it.each([
    ['', 'letters, digits and hyphens'],
    ['a b', 'letters, digits and hyphens'],
    ['a.b', 'letters, digits and hyphens'],
    ['-a', 'letters, digits and hyphens'],
    ['a-', 'letters, digits and hyphens'],
    ['xn--80ak6aa92e', 'hyphens as its third and fourth character'],
    ['ab--c', 'hyphens as its third and fourth character'],
    ['ä', 'letters, digits and hyphens'],
    ['a'.repeat(64), '63'],
    [7, 'string'],
    [undefined, 'string'],
  ])('cannot be %j', async (name, message) => {
    const { check, activate, vanity } = await newPlace()
    for (const ask of [check, activate]) {
      expect(await ask(name)).toMatchObject({
        status: 400,
        body: { message: expect.stringMatching(new RegExp(`body.vanity_subdomain.*${message}`)) },
      })
    }
    expect((await vanity()).body).toEqual({ status: 'not-used' })
  })

  it.each(['www', 'API', 'abcdefghijklmnopqrst'])('cannot be %s, which is reserved', async (name) => {
    const { check, activate } = await newPlace()
    expect(await check(name)).toMatchObject({ status: 201, body: { available: false } })
    expect(await activate(name)).toMatchObject({ status: 400, body: { message: expect.stringContaining('reserved') } })
  })

  it('can be set or deleted only by its project', async () => {
    const place = await newPlace()
    const stranger = placeOf((await newOrganization()).owner, place.ref)
    const reader = placeOf(await tokenOf(organization.userId, { scopes: ['domains:read'] }), place.ref)
    const name = newName()
    for (const ask of [stranger.vanity, stranger.drop, () => stranger.activate(name), () => stranger.check(name)]) {
      expect((await ask()).status).toBe(404)
    }
    expect((await reader.vanity()).status).toBe(200)
    for (const ask of [reader.drop, () => reader.activate(name), () => reader.check(name)]) {
      expect((await ask()).status).toBe(403)
    }
  })

  it('can be checked ten times a minute', async () => {
    const { vanity, check } = await newPlace()
    for (let n = 0; n < 10; n++) expect((await vanity()).status).toBe(200)
    expect((await vanity()).status).toBe(429)
    expect((await check(newName())).status).toBe(201)
  })
})

const challengeOf = (body: {
  custom_hostname: string
  data: { result: { ownership_verification: { value?: string } } }
}) => body.data.result.ownership_verification.value ?? ''
const show = (hostname: string, challenge: string) => setName(`_pilothouse-challenge.${hostname}`, { TXT: [challenge] })
const point = (hostname: string, { ref }: Place) =>
  setName(hostname, { CNAME: `${ref}.${DOMAIN}`, A: ['93.184.216.34'] })

describe('a custom hostname', () => {
  async function initialized(place?: Place, hostname = newHostname()) {
    const at = place ?? (await newPlace())
    const { body } = await at.initialize(hostname)
    return { place: at, hostname, challenge: challengeOf(body) }
  }

  it('does not exist at first', async () => {
    const place = await newPlace()
    const refused = (message: string) => ({ status: 400, body: { message: expect.stringContaining(message) } })
    expect(await place.hostname()).toMatchObject(refused('No custom hostname configuration found.'))
    expect(await place.reverify()).toMatchObject(refused('Project is not pending custom hostname verification.'))
    expect(await place.activateHostname()).toMatchObject(refused('Verification has not been completed.'))
    for (const query of ['', '?remove_addon=true', '?remove_addon=0'])
      expect(await place.remove(query)).toMatchObject(refused('Custom hostname not configured for project'))
    expect(await place.remove('?remove_addon=maybe')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('query.remove_addon: ') },
    })
  })

  it('follows its DNS records from its creation to its end', async () => {
    const { place, hostname, challenge } = await initialized()
    const begun = (await place.hostname()).body
    const errors = [
      `the TXT record _pilothouse-challenge.${hostname} must be ${challenge}`,
      `${hostname} must be an alias (CNAME) of ${place.ref}.${DOMAIN}`,
    ]
    const result = {
      id: expect.stringMatching(/^[0-9a-f-]{36}$/),
      hostname,
      ssl: {
        status: 'pending_validation',
        validation_records: [{ txt_name: `_pilothouse-challenge.${hostname}`, txt_value: challenge }],
      },
      ownership_verification: { type: 'txt', name: `_pilothouse-challenge.${hostname}`, value: challenge },
      custom_origin_server: `${place.ref}.${DOMAIN}`,
      status: 'pending',
    }
    const data = { success: true, errors: [], messages: [], result }
    expect(begun).toEqual({ status: '2_initiated', custom_hostname: hostname, data })

    const nothing = await place.reverify()
    expect([nothing.status, nothing.body]).toEqual([
      201,
      {
        ...begun,
        data: {
          ...data,
          result: {
            ...result,
            ssl: { ...result.ssl, validation_errors: [{ message: errors[0] }] },
            verification_errors: errors,
          },
        },
      },
    ])
    expect(await place.activateHostname()).toMatchObject({ status: 400 })

    await show(hostname, challenge)
    const own = (await place.reverify()).body
    expect(own).toMatchObject({
      status: '3_challenge_verified',
      data: {
        result: {
          ssl: { status: 'external', validation_records: [] },
          ownership_verification: {},
          verification_errors: errors.slice(1),
        },
      },
    })
    expect(await place.activateHostname()).toMatchObject({ status: 400 })

    await point(hostname, place)
    const ready = (await place.reverify()).body
    expect(ready).toMatchObject({ status: '4_origin_setup_completed' })
    expect(ready.data.result).not.toHaveProperty('verification_errors')
    expect(await place.reverify()).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('Verification has been completed, please proceed to activation.') },
    })
    expect(await keysAt(hostname)).toMatchObject(NOT_SERVED)

    const active = await place.activateHostname()
    expect(active).toMatchObject({
      status: 201,
      body: { status: '5_services_reconfigured', data: { result: { status: 'active' } } },
    })
    await untilServed(hostname, await keysOf(place))
    expect((await place.vanity()).body).toEqual({ status: 'custom-domain-used', custom_domain: hostname })
    expect(await place.activateHostname()).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('already') },
    })
    expect(await place.reverify()).toMatchObject({ status: 400 })

    const removed = await place.remove()
    expect([removed.status, removed.body]).toEqual([200, ''])
    await untilServed(hostname, NOT_SERVED)
    expect(await traced(place, 'custom_hostname.activate')).toEqual([
      [organization.userId, { hostname, status: '5_services_reconfigured' }],
    ])
  })

  it('may have the addresses at the apex of a zone in place of an alias', async () => {
    const { place, hostname, challenge } = await initialized()
    await show(hostname, challenge)
    await setName(`${place.ref}.${DOMAIN}`, { A: ['93.184.216.34', '93.184.216.35'] })
    await setName(hostname, { A: ['93.184.216.34', '93.184.216.99'] })
    expect((await place.reverify()).body.status).toBe('3_challenge_verified')
    await setName(hostname, { A: ['93.184.216.35'] })
    expect((await place.reverify()).body.status).toBe('4_origin_setup_completed')
  })

  it("needs its own project's challenge beside a record that points here", async () => {
    const { place, hostname, challenge } = await initialized()
    const other = await initialized(undefined, hostname)
    expect(other.challenge).not.toBe(challenge)
    await point(hostname, other.place)
    expect((await other.place.reverify()).body.status).toBe('2_initiated')
    await show(hostname, challenge)
    expect((await other.place.reverify()).body.status).toBe('2_initiated')
    expect((await place.reverify()).body.status).toBe('3_challenge_verified')
    await setName(`_pilothouse-challenge.${hostname}`, { TXT: [challenge, other.challenge] })
    expect(await other.place.reverify()).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('the hostname is used by another project') },
    })
  })

  it('does not change while names cannot be resolved', async () => {
    const { place, hostname, challenge } = await initialized()
    await show(hostname, challenge)
    await place.reverify()
    await setName(hostname, { raw: { status: 503, body: '' } })
    expect(await place.reverify()).toMatchObject({ status: 503 })
    expect((await place.hostname()).body.status).toBe('3_challenge_verified')
  })

  it('stays with the project when the record is gone', async () => {
    const { place, hostname, challenge } = await initialized()
    await show(hostname, challenge)
    await place.reverify()
    await setName(`_pilothouse-challenge.${hostname}`, {})
    expect((await place.reverify()).body.status).toBe('3_challenge_verified')
  })

  it('is limited to one at a time', async () => {
    const { place, hostname } = await initialized()
    expect(await place.initialize(newHostname())).toMatchObject({
      status: 544,
      body: {
        message: expect.stringContaining(
          'Delete the custom hostname associated with your project before attempting to create a new one.',
        ),
      },
    })
    expect((await place.hostname()).body.custom_hostname).toBe(hostname)
    await place.remove()
    expect((await place.initialize(newHostname().toUpperCase())).status).toBe(201)
  })

  it('is deleted with its project', async () => {
    const place = placeOf(organization.owner, await newProject(organization))
    await initialized(place)
    await organization.owner.delete(`/v1/projects/${place.ref}`)
    await untilGone(organization.owner, place.ref)
    expect(await control.select().from(customHostnames).where(eq(customHostnames.projectRef, place.ref))).toEqual([])
  })

  it.each(['', 'a', 'a..b', '1.2.3.4', 'a b.com', `${'a'.repeat(64)}.com`, `${'a.'.repeat(127)}com`, 7, undefined])(
    'cannot be %j',
    async (name) => {
      expect(await (await newPlace()).initialize(name)).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('body.custom_hostname') },
      })
    },
  )

  it.each([`x.${DOMAIN}`, 'api.example.com', 'a.localhost', 'a.internal'])(
    'cannot be %s, which is not a public name outside this installation',
    async (name) => {
      expect(await (await newPlace()).initialize(name)).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('The custom hostname is not available') },
      })
    },
  )

  it('can be seen or changed only by its project', async () => {
    const { place } = await initialized()
    const { owner } = await newOrganization()
    const stranger = placeOf(owner, place.ref)
    const own = () => stranger.initialize(newHostname())
    for (const ask of [stranger.hostname, stranger.reverify, stranger.activateHostname, stranger.remove, own]) {
      expect((await ask()).status).toBe(404)
    }
  })
})

describe('clients', () => {
  it('supabase-management-js runs all operations', async () => {
    const place = await newPlace()
    const api = new SupabaseManagementAPI({ accessToken: organization.owner.token ?? '', baseUrl })
    const name = newName()
    const wanted = { vanity_subdomain: name }
    expect((await api.checkVanitySubdomainAvailability(place.ref, wanted)).data).toEqual({ available: true })
    await api.activateVanitySubdomainConfig(place.ref, wanted)
    expect((await api.getVanitySubdomainConfig(place.ref)).data).toMatchObject({ status: 'active' })
    await api.deactivateVanitySubdomainConfig(place.ref)
    const hostname = newHostname()
    await api.updateHostnameConfig(place.ref, { custom_hostname: hostname })
    expect((await api.verifyDnsConfig(place.ref)).data).toMatchObject({ status: '2_initiated' })
    expect((await api.getHostnameConfig(place.ref)).data).toMatchObject({ custom_hostname: hostname })
  })

  extended(
    'the CLI sets and deletes vanity subdomains, and shows custom hostnames',
    async () => {
      const place = await newPlace()
      const run = cliOf(organization.owner)
      const cli = (...args: string[]) => run(...args, '--project-ref', place.ref, '--yes')
      const name = newName()
      await cli('vanity-subdomains', 'activate', '--desired-subdomain', name)
      expect(await cli('vanity-subdomains', 'get')).toContain(`${name}.${DOMAIN}`)
      await cli('vanity-subdomains', 'delete')
      expect((await place.vanity()).body).toEqual({ status: 'not-used' })
      const hostname = newHostname()
      await place.initialize(hostname)
      await cli('domains', 'get')
      await cli('domains', 'reverify')
      const challenge = challengeOf((await place.hostname()).body)
      await show(hostname, challenge)
      await point(hostname, place)
      await cli('domains', 'reverify')
      await cli('domains', 'activate')
      expect((await place.hostname()).body.status).toBe('5_services_reconfigured')
      expect(JSON.parse(await cli('domains', 'get', '--output', 'json'))).toMatchObject({ custom_hostname: hostname })
      await cli('domains', 'delete')
      expect((await place.hostname()).status).toBe(400)
    },
    180_000,
  )
})
