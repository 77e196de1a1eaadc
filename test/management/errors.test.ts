import { sql } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { anyone, as, baseUrl, type Caller, newOrganization, type TestOrganization, workerLogs } from '../support/api.ts'
import { createBranch } from '../support/branches.ts'
import { startInstallation } from '../support/storage-installation.ts'
import { insertProject } from '../support/webhooks.ts'

let organization: TestOrganization
let caller: Caller
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  caller = organization.owner
  ref = await insertProject(organization)
  await createBranch(caller, ref, { is_default: true })
})
const json = { 'content-type': 'application/json' }

describe('the request body', () => {
  it.each(['{', '{"name":', 'name=x', '', '\u0000', '{"name":"x"}}'])(
    'is refused when it is not JSON: %j',
    async (raw) => {
      const reply = await caller.post('/v1/organizations', undefined, { raw, headers: json })
      expect(reply.status).toBe(400)
      expect(reply.body.message).toMatch(/not valid JSON|body/)
    },
  )

  it.each([
    ['of a JSON body', 'POST', () => '/v1/organizations', '{"name":"caf\xe9"}'],
    ['of one that may be left out', 'POST', () => `/v1/branches/${ref}/push`, '{"migration_version":"\xff"}'],
    ['of one among other types', 'POST', () => `/v1/projects/${ref}/functions`, '{"slug":"a","name":"\xe9","body":""}'],
  ])('is refused if it is not UTF-8: %s', async (_, method, pathOf, text) => {
    const raw = Uint8Array.from(text, (letter) => letter.charCodeAt(0))
    const reply = await caller.send(method, pathOf(), { raw, headers: json })
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('not valid JSON') } })
  })

  it('is refused with the first 500 issues only', async () => {
    const body = { query: 'select 1', parameters: Array(1_000).fill('\ud800') }
    const reply = await caller.post(`/v1/projects/${ref}/database/query`, body)
    expect(reply.status).toBe(400)
    expect(reply.body.message.split('; ')).toHaveLength(500)
  })

  it('may begin with a byte order mark', async () => {
    const reply = await caller.post('/v1/organizations', undefined, { raw: '\ufeff{"name":"café"}', headers: json })
    expect(reply).toMatchObject({ status: 201, body: { name: 'café' } })
  })

  it.each([undefined, 'text/plain', 'application/x-www-form-urlencoded', 'application/jsonp'])(
    'is refused as %s with the required type',
    async (type) => {
      const raw = new Blob(['{"name":"x"}'])
      const reply = await caller.post('/v1/organizations', undefined, {
        raw,
        headers: type ? { 'content-type': type } : {},
      })
      expect(reply).toMatchObject({ status: 415, body: { message: expect.stringContaining('application/json') } })
    },
  )

  it.each(['application/json; charset=utf-8', 'application/merge-patch+json'])('is accepted as %s', async (type) => {
    const reply = await caller.post('/v1/organizations', undefined, {
      raw: '{"name":"x"}',
      headers: { 'content-type': type },
    })
    expect(reply.status).toBe(201)
  })

  it('is refused over its limit, declared or not', async () => {
    const large = JSON.stringify({ name: 'x'.repeat(1024 * 1024) })
    const declared = await caller.post('/v1/organizations', undefined, { raw: large, headers: json })
    expect(declared).toMatchObject({ status: 413, body: { message: expect.stringContaining('1048576') } })

    const streamed = new ReadableStream({
      start(controller) {
        for (const part of large.match(/.{1,65536}/gs) ?? []) controller.enqueue(new TextEncoder().encode(part))
        controller.close()
      },
    })
    const response = await fetch(new URL('/v1/organizations', baseUrl), {
      method: 'POST',
      body: streamed,
      duplex: 'half',
      headers: { ...json, authorization: `Bearer ${caller.token}` },
    } as RequestInit)
    expect(response.status).toBe(413)
  })
})

describe('an error', () => {
  it('is {message} on v1, with the request id in a header', async () => {
    const reply = await caller.get('/v1/projects/aaaaaaaaaaaaaaaaaaaa')
    expect(reply.status).toBe(404)
    expect(reply.body).toEqual({ message: 'Project not found' })
    expect(reply.headers.get('x-request-id')).toMatch(/^[\da-f-]{36}$/)
  })

  it('is the error object of the specification on v2', async () => {
    const reply = await caller.get('/v2/organizations/nobody/projects')
    expect(reply.body).toEqual({
      error: {
        id: reply.headers.get('x-request-id'),
        code: 'not_found.organization',
        message: 'Not Found: Organization not found',
      },
    })
    const invalid = await caller.get(`/v2/organizations/${organization.slug}/projects?page%5Bsize%5D=0&sort=name`)
    expect(invalid).toMatchObject({
      status: 400,
      body: {
        error: {
          code: 'bad_request.validation_failed',
          issues: [{ meta: { field: 'query.page[size]' } }, { meta: { field: 'query.sort' } }],
        },
      },
    })
    expect((await caller.get('/v2/organizations/not%20a%20slug/projects')).body.error).toMatchObject({
      code: 'bad_request.invalid_slug',
      message: 'Bad Request: Invalid organization slug',
    })
    expect(
      (await as(undefined, { 'x-test-address': 'v2' }).get('/v2/organizations/x/projects')).body.error,
    ).toMatchObject({
      code: 'unauthorized',
      message: 'Unauthorized',
    })
  })

  it.each(['/v1/nothing', '/v2/nothing', '/v1/projects/aaaaaaaaaaaaaaaaaaaa/nothing', '/v1//projects'])(
    'is a 404 with rate limit headers if there is no endpoint: %s',
    async (path) => {
      const reply = await caller.get(path)
      expect(reply.status).toBe(404)
      expect(JSON.stringify(reply.body)).toContain('No such endpoint')
      expect(reply.headers.get('x-ratelimit-limit')).toBe('120')
    },
  )

  it.each([
    ['/v1/organizations', 'GET, POST, HEAD, OPTIONS', { message: expect.stringContaining('Method not allowed') }],
    [
      `/v2/projects/${'a'.repeat(20)}/transfers/previews`,
      'POST, OPTIONS',
      { error: { code: 'method_not_allowed', message: 'Method Not Allowed' } },
    ],
  ])('is a 405 with Allow for a method that %s does not have', async (path, allow, body) => {
    const reply = await caller.put(path, {})
    expect(reply).toMatchObject({ status: 405, body })
    expect([reply.headers.get('allow'), reply.headers.get('x-ratelimit-limit')]).toEqual([allow, '120'])
  })
})

it('replies of JSON declare their charset, also errors, as on the hosted service', async () => {
  const types = await Promise.all(
    ['/v1/organizations', '/v1/nothing'].map(async (path) => (await caller.get(path)).headers.get('content-type')),
  )
  expect(types).toEqual(Array(2).fill('application/json; charset=utf-8'))
})

describe('a page of another origin', () => {
  const origin = 'https://app.example'

  it('learns from OPTIONS what a path accepts', async () => {
    const headers = {
      origin,
      'access-control-request-method': 'POST',
      'access-control-request-headers': 'authorization',
    }
    const preflight = await anyone.send('OPTIONS', '/v1/organizations', { headers })
    expect([preflight.status, preflight.body]).toEqual([204, ''])
    expect(Object.fromEntries(preflight.headers)).toMatchObject({
      allow: 'GET, POST, HEAD, OPTIONS',
      'access-control-allow-origin': '*',
      'access-control-allow-methods': 'GET,POST,HEAD,OPTIONS',
      'access-control-allow-headers': 'authorization',
    })
    expect((await anyone.send('OPTIONS', '/v1/nothing', { headers })).status).toBe(404)
  })

  it('reads replies and errors with their limits; without an origin nothing is added', async () => {
    for (const [path, status] of [
      ['/v1/organizations', 200],
      ['/v1/projects/x', 400],
      ['/v1/organizations?x=1', 400],
    ] as const) {
      const reply = await caller.get(path, { headers: { origin } })
      expect([reply.status, reply.headers.get('access-control-allow-origin')]).toEqual([status, '*'])
      expect(reply.headers.get('access-control-expose-headers')).toContain('X-RateLimit-Remaining')
    }
    expect((await caller.get('/v1/organizations')).headers.get('access-control-allow-origin')).toBeNull()
  })
})

describe('the log', () => {
  it('has one line for each request with caller, action and duration, and no token in it', async () => {
    const path = `/v1/organizations/${organization.slug}/members`
    const { headers } = await caller.get(path)
    const lines = await workerLogs(headers.get('x-request-id') ?? 'none')
    expect(lines).toHaveLength(1)
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      event: 'request',
      method: 'GET',
      path,
      status: 200,
      ms: expect.any(Number),
      user: organization.userId,
      route: 'v1-list-organization-members',
      organization: organization.slug,
    })
    expect((await workerLogs()).join('\n')).not.toContain(caller.token)
  })
})

describe('an internal error', () => {
  it('names the endpoint that failed on v1, and nothing of the cause', async () => {
    const installation = await startInstallation()
    try {
      const { owner } = await installation.newOrganization()
      await installation.control.execute(sql`alter table snippets rename to moved`)
      expect(await owner.get('/v1/snippets')).toMatchObject({
        status: 500,
        body: { message: 'Failed to list SQL snippets' },
      })
    } finally {
      await installation.stop()
    }
  })
})
