import { randomUUID } from 'node:crypto'
import { Validator } from '@seriousme/openapi-schema-validator'
import { describe, expect, it } from 'vitest'
import { routes } from '../../src/api.ts'
import { errorsOf } from '../../src/management/kernel/route.ts'
import { errorsOf as storageErrorsOf } from '../../src/services/storage/route.ts'
import { storageRoutes } from '../../src/services/storage/routes.ts'
import { StorageError } from '../../src/services/storage/storage-error.ts'
import { as, tick, workerLogs } from '../support/api.ts'

/** A fresh address for each test keeps tests out of each other's quota. */
const stranger = () => as(undefined, { 'x-test-address': `test-${randomUUID()}` })

const headersOf = ({ headers }: { headers: Headers }) => Object.fromEntries(headers)

const LIMITED = {
  'x-ratelimit-limit': '120',
  'x-ratelimit-remaining': '119',
  'x-ratelimit-reset': expect.stringMatching(/^\d+$/),
  'x-request-id': expect.stringMatching(/^[\da-f-]{36}$/),
}

interface Operation {
  operationId: string
  deprecated?: boolean
  summary: string
  responses: Record<string, { $ref?: string }>
}
/** Returns the codes of an error reply in the document's components. */
const errorCodesAt = ({ components }: Document, reference = ''): readonly string[] =>
  components.responses[reference.replace('#/components/responses/', '')]?.['x-error-codes'] ?? []

interface Document {
  components: { responses: Record<string, { 'x-error-codes': string[] }> }
}
type Paths = Record<string, Record<string, Operation>>

const ofVersion = (version: string): Declared[] =>
  routes.filter(({ path }) => path.startsWith(`/${version}/`)).map((route) => ({ ...route, errors: errorsOf(route) }))

interface Declared {
  method: string
  path: string
  id: string
  errors: readonly string[]
}
const DECLARED: Record<string, readonly Declared[]> = {
  v1: ofVersion('v1'),
  v2: ofVersion('v2'),
  // The storage server replies with other codes for some errors.
  storage: storageRoutes.map((route) => ({
    ...route,
    errors: storageErrorsOf(route).map((code) => new StorageError(code).body.code),
  })),
}
const unique = (codes: readonly string[]) => Array.from(new Set(codes)).sort()

describe.each(Object.keys(DECLARED))('GET /api/%s-json', (name) => {
  const read = () => stranger().get(`/api/${name}-json`)

  it('is a valid OpenAPI document', async () => {
    const { status, body } = await read()
    expect(status).toBe(200)
    expect(await new Validator().validate(body)).toEqual({ valid: true })
  })

  it('lists every route of its table and no other, each with the errors that the router allows', async () => {
    const { body } = await read()
    const published = Object.entries(body.paths as Paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId, responses }]) => ({
        route: `${method.toUpperCase()} ${path}`,
        id: operationId,
        errors: unique(Object.values(responses).flatMap(({ $ref }) => errorCodesAt(body, $ref))),
      })),
    )
    const declared = (DECLARED[name] ?? []).map(({ method, path, id, errors }) => ({
      route: `${method} ${path}`,
      id,
      errors: unique(errors),
    }))
    const byId = (a: { id: string }, b: { id: string }) => a.id.localeCompare(b.id)
    expect(published.toSorted(byId)).toEqual(declared.toSorted(byId))
    expect(unique(published.map(({ id }) => id))).toHaveLength(published.length)
  })

  // If you're here because this failed, the public API changed: if you meant that, run the test with -u and review
  // the diff.
  it('equals the document in the repository', async () => {
    const { body } = await read()
    await expect(`${JSON.stringify(body, null, 2)}\n`).toMatchFileSnapshot(`openapi/${name}.json`)
  })

  it('counts against the quota of the address', async () => {
    expect(headersOf(await read())).toMatchObject(LIMITED)
  })
})

it('the published document of v1 names the failure of each endpoint', async () => {
  const { body } = await stranger().get('/api/v1-json')
  const { get, post } = (body.paths as Paths)['/v1/projects/{ref}/branches'] ?? {}
  expect(get?.responses['500']).toMatchObject({ description: 'Failed to list the branches of a project' })
  expect(post?.responses['500']).toMatchObject({ description: 'Failed to create a branch' })
})

it('the published document of v1 marks deprecated endpoints and parameters', async () => {
  const { body } = await stranger().get('/api/v1-json')
  const operations = Object.values(body.paths as Paths).flatMap((methods) => Object.values(methods))
  expect(
    operations
      .filter(({ deprecated }) => deprecated)
      .map(({ operationId }) => operationId)
      .sort(),
  ).toEqual([
    'v1-create-a-function',
    'v1-get-database-metadata',
    'v1-get-performance-advisors',
    'v1-get-security-advisors',
  ])
  expect(body.components.schemas.BranchIdOrRef.anyOf).toMatchObject([
    { $ref: '#/components/schemas/ProjectRef' },
    { format: 'uuid', deprecated: true },
  ])
})

describe('GET /docs/api', () => {
  it('serves all its files from this server', async () => {
    const caller = stranger()
    const { status, headers, body } = await caller.get('/docs/api')
    expect([status, headers.get('content-type')]).toEqual([200, expect.stringContaining('text/html')])
    const links = Array.from(String(body).matchAll(/(?:href|src)="([^"]+)"/g), ([, link]) => link as string)
    expect(links.filter((link) => !link.startsWith('/'))).toEqual([])
    const replies = await Promise.all(links.map((link) => caller.get(link)))
    expect(replies.map((reply) => reply.status)).toEqual(links.map(() => 200))
    expect(links.filter((link) => link.endsWith('.js'))).toEqual(['/docs/swagger-ui-bundle.js', '/docs/api.js'])
  })

  it('allows no other origin in the page or around it', async () => {
    const headers = headersOf(await stranger().get('/docs/api'))
    expect(headers).toMatchObject({ ...LIMITED, 'x-content-type-options': 'nosniff', 'x-frame-options': 'DENY' })
    const policy = headers['content-security-policy'] ?? ''
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain("script-src 'self';")
    expect(policy).toContain("frame-ancestors 'none'")
    expect(policy).not.toContain('http')
  })

  it('answers 304 to a browser that has the file cached', async () => {
    const { headers } = await stranger().get('/docs/api.js')
    const again = await stranger().get('/docs/api.js', { headers: { 'if-none-match': headers.get('etag') ?? '' } })
    expect([again.status, again.body]).toEqual([304, ''])
  })

  it.each(['swagger-ui-bundle.js.map', 'missing.css', '..%2Fpackage.json', '%2e%2e%2fwrangler.toml'])(
    'has no file %s',
    async (name) => {
      expect((await stranger().get(`/docs/${name}`)).status).toBe(404)
    },
  )

  it('serves its files at no other address', async () => {
    expect((await stranger().get('/api.js')).status).toBe(404)
  })
})

describe('GET /health', () => {
  it('is ok after a message of the cron came through the queue', async () => {
    await tick()
    await expect.poll(async () => (await stranger().get('/health')).status).toBe(200)
    const { body, headers } = await stranger().get('/health')
    expect(body).toEqual({
      status: 'ok',
      checks: {
        database: { ok: true, ms: expect.any(Number) },
        bucket: { ok: true, ms: expect.any(Number) },
        queue: { ok: true, age_seconds: expect.any(Number) },
      },
    })
    expect(headers.get('x-request-id')).toMatch(/^[\da-f-]{36}$/)
    expect(headers.get('x-ratelimit-limit')).toBeNull()
  })

  it('is unavailable if no message came for three minutes', async () => {
    await tick()
    const { status, body } = await stranger()
      .at(new Date(Date.now() + 600_000))
      .get('/health')
    expect(status).toBe(503)
    expect(body).toMatchObject({ status: 'unavailable', checks: { database: { ok: true }, queue: { ok: false } } })
  })

  it('has its checks also at /health/ready, while /health/live only shows that the process answers', async () => {
    const late = stranger().at(new Date(Date.now() + 600_000))
    expect(await late.get('/health/ready')).toMatchObject({ status: 503, body: { checks: { queue: { ok: false } } } })
    const { status, body, headers } = await late.get('/health/live')
    expect([status, body]).toEqual([200, { status: 'ok' }])
    const [line = ''] = await workerLogs(headers.get('x-request-id') ?? 'none')
    expect(JSON.parse(line)).not.toHaveProperty('queries')
  })
})

describe('GET /', () => {
  const asBrowser = { headers: { accept: 'text/html,application/xhtml+xml,*/*;q=0.8' } }

  it('gives programs the name, the state and the links of the installation', async () => {
    const { status, body } = await stranger().get('/')
    expect(status).toBe(200)
    expect(body).toMatchObject({ name: 'Pilothouse', version: expect.stringMatching(/^\d+\.\d+\.\d+$/) })
    expect(['ok', 'unavailable']).toContain(body.health)
    expect(body.not_offered).toEqual([
      'Auth (/auth/v1)',
      'GraphQL (/graphql/v1)',
      'Realtime (/realtime/v1)',
      'Dashboard',
    ])
    for (const link of Object.values<string>(body.links)) {
      expect((await stranger().get(new URL(link).pathname)).status, link).not.toBe(404)
    }
  })

  it('shows browsers the same as a page without scripts', async () => {
    const { status, body, headers } = await stranger().get('/', asBrowser)
    expect(status).toBe(200)
    expect(headers.get('content-type')).toContain('text/html')
    expect(headers.get('vary')).toBe('accept')
    expect(headers.get('content-security-policy')).toContain("default-src 'none'")
    expect(body).toMatch(/<h1>Pilothouse \d/)
    expect(body).toContain('Not offered')
    expect(body).toContain('href="/docs"')
    expect(body).toContain('href="/docs/api"')
  })
})

describe('a request', () => {
  const ref = 'abcdefghijklmnopqrst'

  it.each(['auth', 'realtime'])('of a missing service, %s, gets an error that names it', async (name) => {
    for (const path of [`/p/${ref}/${name}/v1/anything`, `/${name}/v1/anything`]) {
      const { status, body, headers } = await stranger().get(path)
      expect([status, headers.get('access-control-allow-origin')]).toEqual([404, '*'])
      expect(body.message).toMatch(new RegExp(`^No such endpoint: .*\\(/${name}/v1\\) is not offered`))
    }
    const { status, headers } = await stranger().request('OPTIONS', `/p/${ref}/${name}/v1/anything`)
    expect([status, headers.get('access-control-allow-origin')]).toEqual([204, '*'])
  })

  it('without a project gets an error with the address of projects', async () => {
    const { status, body } = await stranger().get('/functions/v1/hello')
    expect(status).toBe(404)
    expect(body.message).toContain('the services of a project are at')
  })

  it('of an unknown service gets a plain 404', async () => {
    expect((await stranger().get('/nothing/v1/at-all')).body).toEqual({ message: 'No such endpoint' })
  })
})

it.each(['/v1/branches/{branch_id_or_ref}/diff', '/v1/projects/{ref}/actions/{run_id}/logs'])(
  '%s is published as text/plain, whatever its charset',
  async (path) => {
    const { body } = await stranger().get('/api/v1-json')
    expect(Object.keys(body.paths[path].get.responses[200].content)).toEqual(['text/plain'])
  },
)
