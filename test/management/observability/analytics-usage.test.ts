import { randomUUID } from 'node:crypto'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { invocations, requestCounts } from '../../../src/model/tables/index.ts'
import {
  baseUrl,
  type Caller,
  control,
  newMember,
  newOrganization,
  type TestOrganization,
  tick,
  unhurried,
} from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newProject } from '../../support/projects.ts'
import { newStorage } from '../../support/storage.ts'

/** Yesterday, because rows older than a week are purged. */
const NOW = new Date(`${new Date(Date.now() - 86_400_000).toISOString().slice(0, 10)}T05:06:07.000Z`)
const at = (minutes: number) => new Date(NOW.getTime() + minutes * 60_000)
const shown = (minutes: number) =>
  at(minutes)
    .toISOString()
    .replace(/:\d\d\.000Z$/, ':00Z')
const hour = (minutes: number) => shown(minutes).replace(/:\d\d:00Z$/, ':00:00Z')

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

const endpoint = (ref: string, rest: string) => `/v1/projects/${ref}/analytics/endpoints/${rest}`
const read = async (ref: string, rest: string, caller: Caller = organization.owner) => {
  const reply = await caller.at(NOW).get(endpoint(ref, rest))
  expect([reply.status, reply.body.error]).toEqual([200, undefined])
  return reply.body.result
}

type Service = (typeof requestCounts.$inferSelect)['service']
const count = (projectRef: string, minutes: number, requests: number, service: Service = 'storage') =>
  control.insert(requestCounts).values({ projectRef, service, requests, minute: new Date(shown(minutes)) })

const counted = (storage: number, rest = 0) => ({
  ...{ total_auth_requests: 0, total_realtime_requests: 0, total_rest_requests: rest },
  total_storage_requests: storage,
})

describe('GET /v1/projects/{ref}/analytics/endpoints/usage.api-counts', () => {
  it('counts by the minute up to 3 hours back and by the hour beyond, and a day without an interval', async () => {
    const ref = await newProject(organization)
    for (const minutes of [0, -14, -20, -100, -600, -3_000, -8_000, -10_081]) await count(ref, minutes, 3 - minutes)
    await count(ref, 0, 1_000, 'functions')
    await count(ref, -14, 7, 'rest')
    await count(await newProject(organization), 0, 5_000)
    const counts = (interval: string) => read(ref, `usage.api-counts${interval && `?interval=${interval}`}`)
    const minutes = (...back: number[]) =>
      back.map((one) => ({ timestamp: shown(one), ...counted(3 - one, one === -14 ? 7 : 0) }))
    const hours = (...back: number[]) => back.map((one) => ({ timestamp: hour(one), ...counted(3 - one) }))
    expect(await counts('15min')).toEqual(minutes(-14, 0))
    expect(await counts('30min')).toEqual(minutes(-20, -14, 0))
    expect(await counts('1hr')).toEqual(minutes(-20, -14, 0))
    expect(await counts('3hr')).toEqual(minutes(-100, -20, -14, 0))
    const day = [...hours(-600, -100), { timestamp: hour(-14), ...counted(17 + 23, 7) }, ...hours(0)]
    expect(await counts('1day')).toEqual(day)
    expect(await counts('')).toEqual(day)
    expect(await counts('3day')).toEqual([...hours(-3_000), ...day])
    expect(await counts('7day')).toEqual([...hours(-8_000, -3_000), ...day])
  })

  it("counts the requests to the project's storage server, refused or not, and none of an unknown project", async () => {
    const storage = await newStorage(organization)
    const headers = { authorization: `Bearer ${storage.keys.service}`, 'x-test-clock': String(NOW.getTime()) }
    await Promise.all(Array.from({ length: 20 }, () => fetch(`${storage.url}/bucket`, { headers })))
    const refused = await fetch(`${storage.url}/bucket`, { headers: { ...headers, authorization: 'Bearer none' } })
    expect(refused.ok).toBe(false)
    await fetch(new URL('/p/abcdefghijklmnopqrst/storage/v1/bucket', baseUrl), { headers })
    await vi.waitFor(async () => {
      const sent = await control.select().from(requestCounts)
      const own = sent.filter(({ projectRef }) => projectRef === storage.ref)
      expect(own).toMatchObject([{ minute: new Date(shown(0)), service: 'storage', requests: 21 }])
      expect(sent.filter(({ projectRef }) => projectRef === 'abcdefghijklmnopqrst')).toEqual([])
    }, WAIT)
    expect(await read(storage.ref, 'usage.api-counts?interval=15min')).toEqual([
      { timestamp: shown(0), ...counted(21) },
    ])
    // Later counts are added to it.
    await fetch(`${storage.url}/bucket`, { headers })
    await vi.waitFor(async () => {
      const [row] = await read(
        storage.ref,
        'usage.api-counts?interval=15min',
        await newMember(organization, 'read-only'),
      )
      expect(row.total_storage_requests).toBe(22)
    }, WAIT)
  })

  it('refuses an unknown interval', async () => {
    const ref = await newProject(organization)
    const reply = await organization.owner.get(endpoint(ref, 'usage.api-counts?interval=2hr'))
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('query.interval') } })
  })

  it('allows 30 requests a minute, separately for each endpoint', async () => {
    const ref = await newProject(organization)
    const caller = (await newMember(organization, 'read-only')).at(NOW)
    const ask = async (name: string) => {
      const replies = await Promise.all(Array.from({ length: 31 }, () => caller.get(endpoint(ref, name))))
      expect(replies.map(({ status }) => status).sort()).toEqual([...Array.from({ length: 30 }, () => 200), 429])
    }
    await ask('usage.api-counts')
    await ask('usage.api-requests-count')
  })

  it('deletes counts after eight days', async () => {
    const ref = await newProject(organization)
    const days = (back: number) => new Date(Date.now() - back * 86_400_000)
    const rows = [8.01, 7.9].map(
      (back) => ({ projectRef: ref, service: 'storage', requests: 1, minute: days(back) }) as const,
    )
    await control.insert(requestCounts).values(rows)
    await tick()
    await vi.waitFor(async () => {
      const left = (await control.select().from(requestCounts)).filter(({ projectRef }) => projectRef === ref)
      expect(left).toHaveLength(1)
    }, WAIT)
  })
})

describe('GET /v1/projects/{ref}/analytics/endpoints/usage.api-requests-count', () => {
  it('counts the requests to all services in the last day', async () => {
    const ref = await newProject(organization)
    expect(await read(ref, 'usage.api-requests-count')).toEqual([{ count: 0 }])
    await count(ref, -1, 5)
    await count(ref, -1, 7, 'functions')
    await count(ref, -1_400, 11, 'workers')
    await count(ref, -1_441, 1_000)
    await count(await newProject(organization), -1, 1_000)
    expect(await read(ref, 'usage.api-requests-count')).toEqual([{ count: 23 }])
  })

  it('counts calls of functions, refused or not', async () => {
    const ref = await newProject(organization)
    const code = "Deno.serve(() => new Response('x'))"
    const [open, closed] = [await putFunction(ref, code), await putFunction(ref, code, { verifyJwt: true })]
    const call = async ({ slug }: typeof open) =>
      (await fetch(new URL(`/p/${ref}/functions/v1/${slug}`, baseUrl))).status
    expect(await Promise.all([open, open, open, closed, closed].map(call))).toEqual([200, 200, 200, 401, 401])
    const reader = unhurried(organization.owner)
    await vi.waitFor(async () => {
      const reply = await reader().get(endpoint(ref, 'usage.api-requests-count'))
      expect(reply.body).toEqual({ result: [{ count: 5 }] })
    }, WAIT)
  })
})

describe('GET /v1/projects/{ref}/analytics/endpoints/functions.combined-stats', () => {
  it('counts the calls of a function, their results and their log lines', async () => {
    const ref = await newProject(organization)
    const id = randomUUID()
    const row = {
      projectRef: ref,
      kind: 'function',
      programId: id,
      deploymentId: randomUUID(),
      method: 'GET',
      path: '/',
    } as const
    const call = (minutes: number, status: number, ms: number, levels: string[] = []) => ({
      ...{ ...row, at: at(minutes), status, ms },
      console: levels.map((level) => ({ level, message: 'm', at: at(minutes).toISOString() })),
    })
    await control
      .insert(invocations)
      .values([
        call(-1, 200, 10, ['log', 'info', 'debug']),
        call(-1, 302, 20, ['warn']),
        call(-1, 404, 30),
        call(-1, 500, 40, ['error', 'error']),
        call(-1, 0, 100),
        call(-5, 101, 5),
        call(-20, 200, 5),
        { ...call(-1, 200, 10, ['error']), programId: randomUUID() },
        { ...call(-1, 200, 10, ['error']), projectRef: await newProject(organization) },
      ])
    const stats = (interval: string) => read(ref, `functions.combined-stats?interval=${interval}&function_id=${id}`)
    const none = {
      ...{ requests_count: 1, success_count: 1, redirect_count: 0, client_err_count: 0, server_err_count: 0 },
      ...{ avg_execution_time: 5, max_execution_time: 5 },
      ...{ log_count: 0, log_info_count: 0, log_warn_count: 0, log_error_count: 0 },
    }
    const last = {
      ...{ requests_count: 5, success_count: 1, redirect_count: 1, client_err_count: 1, server_err_count: 2 },
      ...{ avg_execution_time: 40, max_execution_time: 100 },
      ...{ log_count: 6, log_info_count: 2, log_warn_count: 1, log_error_count: 2 },
    }
    const minutes = [
      { timestamp: shown(-5), ...none },
      { timestamp: shown(-1), ...last },
    ]
    expect(await stats('15min')).toEqual(minutes)
    expect(await stats('1hr')).toEqual([{ timestamp: shown(-20), ...none }, ...minutes])
    expect(await stats('1day')).toMatchObject(
      [
        { timestamp: hour(-20), requests_count: 1 },
        { timestamp: hour(-1), requests_count: 6 },
      ].slice(0, 2),
    )
    expect(await stats('3hr')).toHaveLength(3)
    expect(await read(ref, 'functions.combined-stats?interval=3hr&function_id=hello')).toEqual([])
  })

  it('requires an interval and the id of a function', async () => {
    const ref = await newProject(organization)
    const messageOf = async (query: string) => {
      const reply = await organization.owner.get(endpoint(ref, `functions.combined-stats?${query}`))
      expect(reply.status).toBe(400)
      return reply.body.message
    }
    expect(await messageOf('')).toContain('query.interval')
    expect(await messageOf('interval=1day')).toContain('query.function_id')
    expect(await messageOf('interval=7day&function_id=x')).toContain('query.interval')
  })
})
