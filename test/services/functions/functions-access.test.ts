import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it, vi } from 'vitest'
import { openJwtSecret } from '../../../src/model/secrets/project.ts'
import { functionDeployments, functions, projects } from '../../../src/model/tables/index.ts'
import { signClaims } from '../../../src/services/gateway/credentials.ts'
import { anyone, baseUrl, control, newOrganization } from '../../support/api.ts'
import { copyImage, putFunction } from '../../support/functions.ts'
import { WAIT } from '../../support/machine.ts'
import { newStorage, type TestStorage } from '../../support/storage.ts'

const PROGRAM = `Deno.serve((request) => new Response(request.headers.get('authorization') ?? 'nobody'))`

let project: TestStorage
let other: TestStorage
let slug: string
let jwtSecret: string
const urlOf = (name: string, { ref }: TestStorage = project) => new URL(`/p/${ref}/functions/v1/${name}`, baseUrl)

async function call(headers: Record<string, string> = {}, method = 'POST') {
  const response = await fetch(urlOf(slug), { method, headers })
  const text = await response.text()
  return { status: response.status, code: response.headers.get('sb-error-code'), text }
}
const refused = (code: string, message = 'Invalid JWT', status = 401) => ({
  status,
  code,
  text: JSON.stringify({ code, message }),
})
const sign = (claims: Record<string, unknown>, seconds = 60) => signClaims({ jwtSecret }, claims, seconds, new Date())
const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')

beforeAll(async () => {
  project = await newStorage(await newOrganization())
  other = await newStorage(await newOrganization())
  slug = (await putFunction(project.ref, PROGRAM, { verifyJwt: true })).slug
  const [row] = await control.select().from(projects).where(eq(projects.ref, project.ref))
  jwtSecret = await openJwtSecret(inject('encryptionKey'), project.ref, row?.sealedJwtSecret ?? '')
})

describe('a function that verifies tokens', () => {
  it.each([
    ['the anon key', () => project.keys.anon],
    ['the service key', () => project.keys.service],
    ['what its users hold', () => sign({ sub: randomUUID(), role: 'authenticated' })],
    ['claims of any kind', () => sign({})],
    ['a role that the database does not know', () => sign({ sub: randomUUID(), role: 'editor' })],
    ['several roles', () => sign({ role: ['editor', 'author'] })],
  ])('is called with %s', async (_, tokenOf) => {
    const token = await tokenOf()
    expect(await call({ authorization: `Bearer ${token}` })).toMatchObject({ status: 200, text: `Bearer ${token}` })
  })

  it('is called with the key in the header that gateways use', async () => {
    expect(await call({ apikey: project.keys.anon })).toMatchObject({ status: 200, text: 'nobody' })
  })

  it('can be asked by browsers without a token', async () => {
    expect(await call({}, 'OPTIONS')).toMatchObject({ status: 200 })
  })

  it('is not called without one', async () => {
    expect(await call()).toEqual(refused('UNAUTHORIZED_NO_AUTH_HEADER', 'Missing authorization header'))
    expect(await call({ authorization: 'Bearer ' })).toEqual(
      refused('UNAUTHORIZED_NO_AUTH_HEADER', 'Missing authorization header'),
    )
  })

  it.each([
    ['no token at all', () => 'nonsense', 'UNAUTHORIZED_INVALID_JWT_FORMAT'],
    ['a key of the new form', () => 'sb_secret_abc', 'UNAUTHORIZED_INVALID_JWT_FORMAT'],
    ['a key of another project', () => other.keys.service, 'UNAUTHORIZED_LEGACY_JWT'],
    ['one that has expired', () => sign({}, -10), 'UNAUTHORIZED_LEGACY_JWT'],
    [
      'one that nobody signed',
      () => `${part({ alg: 'none' })}.${part({})}.`,
      'UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM',
    ],
    ['one of other keys', () => `${part({ alg: 'ES256' })}.${part({})}.abc`, 'UNAUTHORIZED_ASYMMETRIC_JWT'],
  ])('is not called with %s', async (_, tokenOf, code) => {
    const message = code === 'UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM' ? 'Unsupported JWT algorithm' : undefined
    expect(await call({ authorization: `Bearer ${await tokenOf()}` })).toEqual(refused(code, message))
  })

  it('lets pages read the reason', async () => {
    const { headers } = await fetch(urlOf(slug), { method: 'POST' })
    expect(headers.get('access-control-allow-origin')).toBe('*')
  })
})

describe('something that does not exist', () => {
  const NOT_FOUND = { code: 'NOT_FOUND', message: 'Requested function was not found' }
  it.each([
    ['a function', () => urlOf('missing')],
    ['a function of another project', () => urlOf(slug, other)],
    ['a project', () => new URL('/p/abcdefghijklmnopqrst/functions/v1/hello', baseUrl)],
    ['a name', () => urlOf('')],
    ['a name that none can have', () => urlOf('a%20b')],
    ['a path without a project', () => new URL(`/p/${project.ref}/functions/v1`, baseUrl)],
  ])('%s: 404', async (_, url) => {
    const response = await fetch(url(), { headers: { 'x-test-address': randomUUID() } })
    expect([response.status, await response.json(), response.headers.get('sb-error-code')]).toEqual([
      404,
      NOT_FOUND,
      'NOT_FOUND',
    ])
  })

  it('counts toward a limit of guesses', async () => {
    const headers = { 'x-test-address': randomUUID() }
    const at = { ...headers, 'x-test-clock': String(Date.now()) }
    const statuses = []
    for (let n = 0; n < 121; n++) statuses.push((await fetch(urlOf(`guess-${n}`), { headers: at })).status)
    expect(statuses.slice(0, 120)).toEqual(Array(120).fill(404))
    expect(statuses[120]).toBe(429)
  })

  it('is not part of the management API', async () => {
    expect((await anyone.get('/functions/v1/hello')).status).toBe(404)
  })
})

describe('a function whose code cannot be read', () => {
  it('is called again once it can', async () => {
    const { slug, id, deploymentId } = await putFunction(other.ref, PROGRAM)
    const missing = randomUUID()
    await control
      .insert(functionDeployments)
      .values({ projectRef: other.ref, id: missing, slug, sha256: '', entrypoint: '', createdAt: new Date() })
    await control.update(functions).set({ deploymentId: missing }).where(eq(functions.id, id))
    for (let n = 0; n < 2; n++) {
      const response = await fetch(urlOf(slug, other))
      expect([response.status, response.headers.get('sb-error-code')]).toEqual([503, 'SERVICE_UNAVAILABLE'])
      expect(response.headers.get('retry-after')).toBe('1')
    }
    await copyImage(other.ref, deploymentId, missing)
    expect((await fetch(urlOf(slug, other))).status).toBe(200)
  })
})

describe('a function that cannot be called now', () => {
  it.each([
    ['INACTIVE', 540, 'PROJECT_PAUSED'],
    ['PAUSING', 540, 'PROJECT_PAUSED'],
    ['COMING_UP', 503, 'PROJECT_NOT_READY'],
    ['GOING_DOWN', 503, 'PROJECT_NOT_READY'],
  ] as const)('of a project that is %s', async (status, code, word) => {
    const open = await putFunction(other.ref, PROGRAM)
    await control.update(projects).set({ status }).where(eq(projects.ref, other.ref))
    try {
      const response = await fetch(urlOf(open.slug, other))
      expect([response.status, ((await response.json()) as { code: string }).code]).toEqual([code, word])
    } finally {
      await control.update(projects).set({ status: 'ACTIVE_HEALTHY' }).where(eq(projects.ref, other.ref))
    }
  })

  it.each([
    ['REMOVED', 404],
    ['THROTTLED', 546],
  ] as const)('that is %s', async (status, code) => {
    const { id, slug } = await putFunction(other.ref, PROGRAM)
    await control.update(functions).set({ status }).where(eq(functions.id, id))
    expect((await fetch(urlOf(slug, other))).status).toBe(code)
  })

  it('stops in every isolate within a second', async () => {
    const { id, slug } = await putFunction(other.ref, PROGRAM)
    expect((await fetch(urlOf(slug, other))).status).toBe(200)
    await control.delete(functions).where(eq(functions.id, id))
    await vi.waitFor(async () => expect((await fetch(urlOf(slug, other))).status).toBe(404), WAIT)
  })
})
