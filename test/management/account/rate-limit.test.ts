import { randomInt, randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { issueToken } from '../../../dev/seed.ts'
import { newAccessToken } from '../../../src/access/token.ts'
import { randomLetters } from '../../../src/platform/http/common-values.ts'
import { as, baseUrl, control, newMember, newOrganization, tokenOf, workerLogs } from '../../support/api.ts'
import { createProject } from '../../support/projects.ts'

const MINUTE_MS = 60_000
const headersOf = ({ headers }: { headers: Headers }) => ({
  limit: Number(headers.get('x-ratelimit-limit')),
  remaining: Number(headers.get('x-ratelimit-remaining')),
  resetMs: Number(headers.get('x-ratelimit-reset')),
})

describe('the standard limit', () => {
  it('lets exactly 120 of 1,000 simultaneous requests pass', async () => {
    const { owner, slug } = await newOrganization()
    const caller = owner.at(new Date())
    const replies = await Promise.all(Array.from({ length: 1000 }, () => caller.get(`/v1/organizations/${slug}`)))
    expect(replies.filter(({ status }) => status === 200)).toHaveLength(120)
    expect(replies.filter(({ status }) => status === 429)).toHaveLength(880)
  })

  it('counts down, refuses until the window ends, and then starts again', async () => {
    const { owner, slug } = await newOrganization()
    const start = new Date()
    const atMs = (ms: number) => owner.at(new Date(start.getTime() + ms)).get(`/v1/organizations/${slug}`)

    expect(headersOf(await atMs(0))).toEqual({ limit: 120, remaining: 119, resetMs: MINUTE_MS })
    expect(headersOf(await atMs(1_000))).toEqual({ limit: 120, remaining: 118, resetMs: 59_000 })
    await Promise.all(Array.from({ length: 118 }, () => atMs(2_000)))

    const refused = await atMs(59_999)
    expect(refused).toMatchObject({ status: 429, body: { message: expect.stringContaining('Rate limit exceeded') } })
    expect(headersOf(refused)).toEqual({ limit: 120, remaining: 0, resetMs: 1 })
    expect(refused.headers.get('retry-after')).toBe('1')

    const next = await atMs(MINUTE_MS)
    expect(next.status).toBe(200)
    expect(headersOf(next)).toEqual({ limit: 120, remaining: 119, resetMs: MINUTE_MS })
  })

  it('is counted separately for each caller, and for each project or organization', async () => {
    const organization = await newOrganization()
    const { owner, slug } = organization
    const [one, two] = [await createProject(organization), await createProject(organization)]
    const other = await newMember(organization, 'developer')
    const at = new Date(Date.now() + 10 * MINUTE_MS)
    const left = async (caller: typeof owner, path: string) => headersOf(await caller.at(at).get(path)).remaining

    expect(await left(owner, `/v1/projects/${one}`)).toBe(119)
    expect(await left(owner, `/v1/projects/${one}/restore`)).toBe(118)
    expect(await left(owner, `/v1/projects/${two}`)).toBe(119)
    expect(await left(owner, `/v1/organizations/${slug}`)).toBe(119)
    expect(await left(owner, `/v2/organizations/${slug}/projects`)).toBe(118)
    expect(await left(owner, '/v1/projects')).toBe(119)
    expect(await left(other, `/v1/projects/${one}`)).toBe(119)
    // A branch id has a quota of its own, even an unknown one, in any spelling.
    const branch = `a${randomUUID().slice(1)}`
    expect(await left(owner, `/v1/branches/${branch}`)).toBe(119)
    expect(await left(owner, `/v1/branches/${branch.toUpperCase()}`)).toBe(118)
    expect(await left(owner, '/v1/projects')).toBe(118)
  })

  it.each([
    ['a wrong parameter', 'api-keys/x', {}, 400],
    ['a scope that the token lacks', 'api-keys', { scopes: ['projects:read' as const] }, 403],
  ])('counts a request that is refused for %s against its project alone', async (_, path, fields, status) => {
    const organization = await newOrganization()
    const [one, two] = [await createProject(organization), await createProject(organization)]
    const caller = (await tokenOf(organization.userId, fields)).at(new Date(Date.now() + 10 * MINUTE_MS))
    const refused = await Promise.all(Array.from({ length: 120 }, () => caller.get(`/v1/projects/${one}/${path}`)))
    expect(refused.map((reply) => reply.status)).toEqual(Array(120).fill(status))
    expect((await caller.get(`/v1/projects/${two}/${path}`)).status).toBe(status)
    expect(headersOf(await caller.get('/v1/projects'))).toMatchObject({ remaining: 119 })
  })

  it('counts a path without a route apart from all endpoints', async () => {
    const organization = await newOrganization()
    const project = await createProject(organization)
    const caller = organization.owner.at(new Date(Date.now() + 10 * MINUTE_MS))
    await Promise.all(Array.from({ length: 120 }, () => caller.get(`/v1/projects/${project}/nothing`)))
    expect(headersOf(await caller.get('/v1/projects'))).toMatchObject({ remaining: 119 })
    expect(headersOf(await caller.get(`/v1/projects/${project}`))).toMatchObject({ remaining: 119 })
  })

  it('counts refused requests too, by address if there is no token', async () => {
    const address = `test-${crypto.randomUUID()}`
    const caller = as(undefined, { 'x-test-address': address }).at(new Date())
    const replies = await Promise.all(Array.from({ length: 130 }, () => caller.get('/v1/profile')))
    expect(replies.filter(({ status }) => status === 401)).toHaveLength(120)
    expect(replies.filter(({ status }) => status === 429)).toHaveLength(10)
    expect((await as(undefined, { 'x-test-address': `${address}-2` }).get('/v1/profile')).status).toBe(401)
  })

  it('counts guesses of unknown resources together, whatever the path', async () => {
    const { owner } = await newOrganization()
    const caller = owner.at(new Date())
    const guess = () => randomLetters()
    const replies = await Promise.all(
      Array.from({ length: 130 }, (_, n) =>
        caller.get(n % 2 ? `/v1/projects/${guess()}` : `/v1/organizations/${guess()}`),
      ),
    )
    expect(replies.filter(({ status }) => status === 404)).toHaveLength(120)
    expect(replies.filter(({ status }) => status === 429)).toHaveLength(10)
  })

  it.each([
    ['no route', 'nothing', {}],
    ['a wrong parameter', 'api-keys/x', {}],
    ['a scope that the token lacks', 'api-keys', { scopes: ['projects:read' as const] }],
  ])('counts guesses that end before a lookup: %s', async (_, path, fields) => {
    const { userId } = await newOrganization()
    const caller = (await tokenOf(userId, fields)).at(new Date())
    const ask = () => caller.get(`/v1/projects/${randomLetters()}/${path}`)
    const replies = await Promise.all(Array.from({ length: 130 }, ask))
    expect(replies.filter(({ status }) => status === 429)).toHaveLength(10)
    const refused = replies.find(({ status }) => status === 429)
    expect(refused?.headers.get('retry-after')).toMatch(/^\d+$/)
    expect(refused?.headers.get('x-ratelimit-remaining')).toBe('0')
  })

  it('keeps the other quotas of a caller who guesses too often', async () => {
    const organization = await newOrganization()
    const project = await createProject(organization)
    const caller = organization.owner.at(new Date(Date.now() + 20 * MINUTE_MS))
    await caller.get(`/v1/projects/${project}`)
    await Promise.all(Array.from({ length: 250 }, () => caller.get(`/v1/projects/${randomLetters()}`)))
    expect((await caller.get(`/v1/projects/${randomLetters()}`)).status).toBe(429)
    expect((await caller.get(`/v1/projects/${project}`)).status).toBe(200)
  })

  it('does not count the requests of others from the same address against a token', async () => {
    const { userId } = await newOrganization()
    const address = `test-${crypto.randomUUID()}`
    const at = new Date()
    const from = (token: string | undefined) => as(token, { 'x-test-address': address }).at(at)
    const old = await issueToken(control, { userId, name: 'old' })
    expect((await from(old).get('/v1/profile')).status).toBe(200)
    await Promise.all(Array.from({ length: 130 }, () => from(undefined).get('/v1/profile')))
    expect((await from(undefined).get('/v1/profile')).status).toBe(429)
    expect((await from(await issueToken(control, { userId, name: 'new' })).get('/v1/profile')).status).toBe(200)
    await Promise.all(Array.from({ length: 130 }, () => from(newAccessToken()).get('/v1/profile')))
    expect((await from(newAccessToken()).get('/v1/nowhere')).status).toBe(429)
    // The token's place in the cache has expired by then.
    const later = new Date(at.getTime() + 30_000)
    expect((await as(newAccessToken(), { 'x-test-address': address }).at(later).get('/v1/profile')).status).toBe(429)
    expect((await as(old, { 'x-test-address': address }).at(later).get('/v1/profile')).status).toBe(200)
  })

  it('shares one quota between requests with an empty address, and locks out no token for it', async () => {
    const { userId } = await newOrganization()
    const from = (token: string, at: Date) => as(token, { 'x-test-address': '' }).at(at).get('/v1/profile')
    const at = new Date(Date.now() + 3 * MINUTE_MS)
    await Promise.all(Array.from({ length: 130 }, () => from(newAccessToken(), at)))
    expect((await from(await issueToken(control, { userId, name: 'new' }), at)).status).toBe(200)
    // As when the clock of an isolate was wrong.
    expect((await from(newAccessToken(), new Date())).status).toBe(401)
  })

  it('does not count preflights, which cannot carry a token', async () => {
    const headers = { 'x-test-address': randomUUID(), origin: 'https://example.com' }
    const preflight = () =>
      fetch(new URL('/v1/projects', baseUrl), {
        method: 'OPTIONS',
        headers: { ...headers, 'access-control-request-method': 'GET' },
      })
    const replies = await Promise.all(Array.from({ length: 130 }, preflight))
    expect(new Set(replies.map(({ status }) => status))).toEqual(new Set([204]))
    expect(replies.at(-1)?.headers.get('access-control-allow-origin')).toBe('*')
  })

  it('looks no token of a preflight up', async () => {
    const ids = await Promise.all(
      Array.from({ length: 3 }, async () => {
        const headers = { authorization: `Bearer ${newAccessToken()}` }
        const reply = await fetch(new URL('/v1/projects', baseUrl), { method: 'OPTIONS', headers })
        return reply.headers.get('x-request-id') ?? ''
      }),
    )
    for (const id of ids) {
      const [line = '{}'] = await workerLogs(id)
      expect(JSON.parse(line)).toMatchObject({ request_id: id, status: 204 })
      expect(JSON.parse(line)).not.toHaveProperty('queries')
    }
  })

  it('names the longer wait if two limits are reached', async () => {
    const organization = await newOrganization()
    const ref = await createProject(organization)
    const start = Date.now()
    const atMs = (ms: number) => organization.owner.at(new Date(start + ms))
    const logs = () => atMs(50_000).get(`/v1/projects/${ref}/analytics/endpoints/logs.all?sql=x`)
    await Promise.all(Array.from({ length: 90 }, () => atMs(0).get(`/v1/projects/${ref}`)))
    await Promise.all(Array.from({ length: 30 }, logs))
    const refused = await logs()
    expect([refused.status, headersOf(refused)]).toEqual([429, { limit: 30, remaining: 0, resetMs: MINUTE_MS }])
  })

  it('counts IPv6 addresses by the network of one caller', async () => {
    const network = `2001:db8:${randomInt(65_536).toString(16)}:${randomInt(65_536).toString(16)}`
    const at = new Date()
    const left = async (address: string) => {
      const { headers } = await as(undefined, { 'x-test-address': address }).at(at).get('/v1/profile')
      return Number(headers.get('x-ratelimit-remaining'))
    }
    expect([await left(`${network}::1`), await left(`${network}:ffff:1:2:3`), await left(`${network}::1`)]).toEqual([
      119, 118, 117,
    ])
    expect(await left('2001:db8:ffff:ffff::1'.replace('ffff', randomInt(65_536).toString(16)))).toBe(119)
  })

  it('counts invalid tokens by address, whatever the path, and then looks no more of them up', async () => {
    const address = `test-${crypto.randomUUID()}`
    const at = new Date()
    const replies = []
    for (let n = 0; n < 125; n++) {
      const caller = as(newAccessToken(), { 'x-test-address': address }).at(at)
      replies.push(await caller.get(`/v1/projects/${randomLetters()}`))
    }
    expect(replies.map(({ status }) => status)).toEqual([...Array(120).fill(401), ...Array(5).fill(429)])
    const last = replies.at(-1)?.headers.get('x-request-id') ?? ''
    const [line = '{}'] = await workerLogs(last)
    expect(JSON.parse(line)).not.toHaveProperty('queries')
  })
})
