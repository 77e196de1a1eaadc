import { randomUUID } from 'node:crypto'
import { asc, eq, sql } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, describe, expect, it } from 'vitest'
import { auditLog, thirdPartyAuths } from '../../../src/model/tables/index.ts'
import {
  baseUrl,
  type Caller,
  control,
  newMember,
  newOrganization,
  setName,
  type TestOrganization,
  tick,
} from '../../support/api.ts'
import { type ForeignKey, newForeignKey, newIssuer } from '../../support/issuer.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { newProjectRow } from '../../support/signing-keys.ts'

const NOBODY = '00000000-0000-4000-8000-000000000000'
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)
const NOW = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const TIMES = { inserted_at: NOW, updated_at: NOW, resolved_at: NOW }

let organization: TestOrganization
let owner: Caller
let rsa: ForeignKey
let p256: ForeignKey
let ed25519: ForeignKey
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
  ;[rsa, p256, ed25519] = (await Promise.all(['RS256', 'ES256', 'EdDSA'].map((alg) => newForeignKey(alg)))) as [
    ForeignKey,
    ForeignKey,
    ForeignKey,
  ]
})

async function newPlace(given?: string) {
  const ref = given ?? (await newProjectRow(organization))
  const path = `/v1/projects/${ref}/config/auth/third-party-auth`
  const create = (body: unknown) => owner.post(path, body)
  const integrate = async (body: unknown) => {
    const reply = await create(body)
    expect(reply).toMatchObject({ status: 201 })
    return reply.body
  }
  const rows = () => control.select().from(thirdPartyAuths).where(eq(thirdPartyAuths.projectRef, ref))
  return { ref, path, create, integrate, rows }
}

describe('an integration', () => {
  it('is resolved by its issuer, shown, listed and deleted', async () => {
    const { ref, path, create, rows } = await newPlace()
    const { issuer, jwksUrl, paths } = await newIssuer([rsa, p256, ed25519])
    const created = await create({ oidc_issuer_url: issuer })
    expect(created.status).toBe(201)
    const resolved_jwks = { keys: [rsa.jwk, p256.jwk, ed25519.jwk] }
    const { body } = created
    expect(body).toEqual({ id: UUID, type: 'oidc', oidc_issuer_url: issuer, resolved_jwks, ...TIMES })
    expect(paths()).toEqual(['/.well-known/openid-configuration', '/jwks'])
    expect(await owner.get(path)).toMatchObject({ status: 200, body: [body] })
    expect(await owner.get(`${path}/${body.id}`)).toMatchObject({ status: 200, body })
    expect((await rows())[0]).toMatchObject({ issuer, refreshAt: expect.any(Date), refreshError: null })

    const byUrl = await create({ jwks_url: jwksUrl })
    expect(byUrl.body).toEqual({ id: UUID, type: 'jwks', jwks_url: jwksUrl, resolved_jwks, ...TIMES })
    const custom = await create({ custom_jwks: { keys: [p256.jwk] } })
    const own = { keys: [p256.jwk] }
    expect(custom.body).toEqual({ id: UUID, type: 'custom_jwks', custom_jwks: own, resolved_jwks: own, ...TIMES })
    const { alg, use, ...bare } = p256.jwk
    const given = { keys: [{ ...bare, kid: 'bare', key_ops: ['verify'], ext: true }], note: 'ours' }
    const asGiven = await create({ custom_jwks: given })
    expect(asGiven.body).toMatchObject({ custom_jwks: given, resolved_jwks: { keys: [{ kid: 'bare', alg, use }] } })
    expect((await owner.get(`${path}/${asGiven.body.id}`)).body.custom_jwks).toEqual(given)
    await owner.delete(`${path}/${asGiven.body.id}`)
    expect((await rows()).map((row) => row.issuer).sort()).toEqual([issuer, null, null])
    const ids = async () => (await owner.get(path)).body.map(({ id }: { id: string }) => id)
    expect(await ids()).toEqual([body.id, byUrl.body.id, custom.body.id])

    expect(await owner.delete(`${path}/${body.id}`)).toMatchObject({ status: 200, body })
    expect(await owner.get(`${path}/${body.id}`)).toMatchObject({ status: 404 })
    expect(await ids()).toEqual([byUrl.body.id, custom.body.id])
    const traces = await control
      .select({ action: auditLog.action, userId: auditLog.actorUserId, detail: auditLog.detail })
      .from(auditLog)
      .where(eq(auditLog.projectRef, ref))
      .orderBy(asc(auditLog.createdAt))
    const { userId } = organization
    const detail = { integration: body.id, type: 'oidc', issuer, jwks_url: null }
    expect(traces).toContainEqual({ action: 'third_party_auth.create', userId, detail })
    expect(traces.at(-1)).toEqual({ action: 'third_party_auth.delete', userId, detail: { integration: body.id } })
  })

  it('shows no query of an address in the audit log', async () => {
    const { ref, integrate } = await newPlace()
    const { host, documents } = await newIssuer([p256])
    documents.set('/jwks?key=secret', { keys: [p256.jwk] })
    await integrate({ jwks_url: `https://${host}/jwks?key=secret` })
    const [trace] = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    expect(trace?.detail).toMatchObject({ jwks_url: `https://${host}/jwks` })
    expect(JSON.stringify(trace)).not.toContain('key=secret')
  })

  it('may omit the trailing slash of its issuer, and have a path', async () => {
    const { integrate, rows } = await newPlace()
    const { issuer } = await newIssuer([p256], '/tenants/one/')
    await integrate({ oidc_issuer_url: issuer.slice(0, -1) })
    expect(await rows()).toMatchObject([{ issuer }])
  })

  it('uses the supported keys of a set that has others too', async () => {
    const { integrate } = await newPlace()
    const p384 = await newForeignKey('ES384')
    const others = [
      { jwk: { ...p256.jwk, use: 'enc' } },
      { jwk: { ...rsa.jwk, alg: 'RSA-OAEP' } },
      { jwk: { ...rsa.jwk, n: 'AQAB' } },
      { jwk: { ...p256.jwk, x: p256.jwk.y } },
    ]
    const { jwksUrl } = await newIssuer([p384, ...others, { jwk: { ...ed25519.part, alg: 'Ed25519', x5c: ['x'] } }])
    const { resolved_jwks } = await integrate({ jwks_url: jwksUrl })
    expect(resolved_jwks).toEqual({ keys: [{ ...ed25519.part, alg: 'EdDSA', use: 'sig' }] })
  })

  it('has only the used keys of a set that is nested too deeply to be stored', async () => {
    const { path } = await newPlace()
    const nested = '['.repeat(100_000) + ']'.repeat(100_000)
    const raw = `{"custom_jwks":{"keys":[${JSON.stringify(p256.jwk)}],"extra":${nested}}}`
    const { status, body } = await owner.send('POST', path, { raw, headers: { 'content-type': 'application/json' } })
    expect([status, body.custom_jwks]).toEqual([201, { keys: [p256.jwk] }])
  })

  it('is deleted with its project', async () => {
    const { ref, integrate, rows } = await newPlace(await newProject(organization))
    await integrate({ custom_jwks: { keys: [p256.jwk] } })
    await owner.delete(`/v1/projects/${ref}`)
    await untilGone(owner, ref)
    await expect.poll(rows).toEqual([])
  })

  it('is limited to ten, also for two simultaneous requests', async () => {
    const { create, integrate } = await newPlace()
    const body = { custom_jwks: { keys: [p256.jwk] } }
    for (let n = 0; n < 9; n++) await integrate(body)
    const replies = await Promise.all([create(body), create(body)])
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 400])
    const message = 'Too many third-party auth integrations: a project can have at most 10'
    expect((await create(body)).body).toEqual({ message })
  })

  it('is hidden from others', async () => {
    const { path, integrate } = await newPlace()
    const { id } = await integrate({ custom_jwks: { keys: [p256.jwk] } })
    const other = await newPlace()
    for (const at of [`${other.path}/${id}`, `${path}/${NOBODY}`]) {
      for (const reply of await Promise.all([owner.get(at), owner.delete(at)])) {
        expect(reply).toMatchObject({ status: 404, body: { message: 'Third-party auth integration not found' } })
      }
    }
    for (const reply of await Promise.all([owner.get(`${path}/x`), owner.delete(`${path}/x`)])) {
      expect([reply.status, reply.body.message]).toEqual([400, expect.stringContaining('path.tpa_id: ')])
    }
    const developer = await newMember(organization, 'developer')
    expect(await developer.get(`${path}/${id}`)).toMatchObject({ status: 200 })
    expect(await developer.delete(`${path}/${id}`)).toMatchObject({ status: 403 })
    expect(await developer.post(path, { custom_jwks: { keys: [p256.jwk] } })).toMatchObject({ status: 403 })
  })
})

describe('a body', () => {
  it('is refused with its field named, and nothing is stored', async () => {
    const { create, rows } = await newPlace()
    const { issuer, jwksUrl } = await newIssuer([p256])
    const small = await newForeignKey('RS256')
    const short = { ...small.jwk, n: small.jwk.n?.slice(0, 171) }
    const jwks = (...keys: unknown[]) => ({ custom_jwks: { keys } })
    const bad: [string, unknown, string][] = [
      ['nothing', {}, 'body.oidc_issuer_url: exactly one of'],
      ['two sources', { oidc_issuer_url: issuer, jwks_url: jwksUrl }, 'body.jwks_url: exactly one of'],
      ['a source beside keys', { ...jwks(p256.jwk), jwks_url: jwksUrl }, 'body.custom_jwks: exactly one of'],
      ['an issuer that is not text', { oidc_issuer_url: 1 }, 'body.oidc_issuer_url: '],
      ['an issuer that is not a URL', { oidc_issuer_url: 'issuer' }, 'body.oidc_issuer_url: '],
      ['an issuer without TLS', { oidc_issuer_url: issuer.replace('https', 'http') }, 'must use https'],
      ['an issuer with a query', { oidc_issuer_url: `${issuer}?x=1` }, 'neither a query nor a fragment'],
      [
        'an issuer in a project of this installation',
        { oidc_issuer_url: 'https://a.projects.example.com' },
        'a host of this installation',
      ],
      [
        'an issuer whose name does not exist',
        { oidc_issuer_url: `https://${randomUUID()}.issuers.dev` },
        'does not exist',
      ],
      ['an issuer at a link-local address', { oidc_issuer_url: 'https://169.254.169.254' }, 'body.oidc_issuer_url: '],
      ['an issuer that is too long', { oidc_issuer_url: `${issuer}/${'x'.repeat(2_048)}` }, 'body.oidc_issuer_url: '],
      ['keys without TLS', { jwks_url: 'http://issuers.dev/' }, 'body.jwks_url: must use https'],
      ['keys of this installation', { jwks_url: 'https://api.example.com/jwks' }, 'body.jwks_url: '],
      ['keys at an IP address', { jwks_url: 'https://10.0.0.1/jwks' }, 'body.jwks_url: '],
      ['a set that is text', { custom_jwks: '{"keys":[]}' }, 'body.custom_jwks: must be a JWK set'],
      ['a set that is a list', { custom_jwks: [p256.jwk] }, 'body.custom_jwks: must be a JWK set'],
      ['a set without keys', { custom_jwks: {} }, 'body.custom_jwks: must be a JWK set'],
      ['an empty set', jwks(), 'body.custom_jwks: must be a JWK set'],
      [
        'a set of too many keys',
        jwks(...Array.from({ length: 51 }, () => p256.jwk)),
        'body.custom_jwks: must be a JWK set',
      ],
      [
        'a set that is too large',
        jwks(...Array.from({ length: 50 }, (_, n) => ({ ...rsa.jwk, kid: `${n}`.padEnd(256, 'x') }))),
        'body.custom_jwks: must have at most 32768 characters of JSON',
      ],
      ['a key that is text', jwks('x'), 'body.custom_jwks: must be a JWK set'],
      ['a private key', jwks(p256.jwk, p256.privateJwk), 'body.custom_jwks: must not contain a private key: keys.1.d'],
      ['a private RSA key', jwks(rsa.privateJwk), 'body.custom_jwks: must not contain a private key: keys.0.d'],
      [
        'a symmetric key',
        jwks({ kty: 'oct', k: 'c2VjcmV0' }),
        'body.custom_jwks: must not contain a symmetric key: keys.0',
      ],
      ['a key of another curve', jwks((await newForeignKey('ES384')).jwk), 'neither RSA nor P-256 nor Ed25519: keys.0'],
      ['a key for another algorithm', jwks({ ...rsa.jwk, alg: 'PS256' }), 'is not for RS256: keys.0'],
      ['a key for another use', jwks({ ...rsa.jwk, use: 'enc' }), 'is not for signatures: keys.0'],
      ['a kid that is not text', jwks({ ...rsa.jwk, kid: 1 }), 'of at most 256 characters: keys.0'],
      ['a kid that is too long', jwks({ ...rsa.jwk, kid: 'x'.repeat(257) }), 'of at most 256 characters: keys.0'],
      ['a kid that cannot be stored', jwks({ ...rsa.jwk, kid: '\0' }), 'of at most 256 characters: keys.0'],
      ['a point off the curve', jwks({ ...p256.jwk, x: p256.jwk.y }), 'cannot be read: keys.0'],
      ['an RSA key that is too small', jwks(short), 'does not have 2048 to 8192 bits: keys.0'],
      ['a key with half of its members', jwks({ ...ed25519.jwk, x: undefined }), 'cannot be read: keys.0'],
    ]
    for (const [name, body, reason] of bad) {
      const reply = await create(body)
      expect([name, reply.status], reply.body.message).toEqual([name, 400])
      expect(reply.body.message, name).toContain(reason)
      expect(reply.body.message, name).toMatch(/body\.\w+: /)
    }
    expect(await rows()).toEqual([])
  })

  it('is refused with the error of the other server', async () => {
    const { create, rows } = await newPlace()
    const { host, issuer, jwksUrl, documents } = await newIssuer([p256])
    const discovery = '/.well-known/openid-configuration'
    const jwks_uri = jwksUrl
    const answers: [string, unknown, string][] = [
      [discovery, undefined, 'its /.well-known/openid-configuration responded with status 404'],
      [discovery, '<html>', 'its /.well-known/openid-configuration must return JSON'],
      [discovery, {}, 'its /.well-known/openid-configuration must have'],
      [discovery, { issuer, jwks_uri: 1 }, 'its /.well-known/openid-configuration must have'],
      [discovery, { issuer: 'https://other.dev', jwks_uri }, 'must equal the issuer in its discovery document'],
      [discovery, { issuer: issuer.toUpperCase(), jwks_uri }, 'must equal the issuer in its discovery document'],
      [discovery, { issuer, jwks_uri: 'https://10.0.0.1/jwks' }, 'its jwks_uri must name a public domain'],
      [discovery, { issuer, jwks_uri: `http://${host}/jwks` }, 'its jwks_uri must use https'],
      [discovery, { issuer, jwks_uri: 'file:///etc/passwd' }, 'its jwks_uri must use http or https'],
      ['/jwks', undefined, 'its jwks_uri responded with status 404'],
      ['/jwks', '{', 'its jwks_uri must return JSON'],
      ['/jwks', 'x'.repeat(64 * 1024 + 1), 'its jwks_uri responded with more than 65536 bytes'],
      ['/jwks', { keys: [p256.privateJwk] }, 'its jwks_uri must not contain a private key: keys.0.d'],
      ['/jwks', { keys: [{ kty: 'oct', k: 'eA' }] }, 'its jwks_uri must not contain a symmetric key: keys.0'],
      ['/jwks', { keys: [{ ...p256.jwk, use: 'enc' }] }, 'its jwks_uri must have a key for signatures'],
    ]
    for (const [path, document, reason] of answers) {
      const good = documents.get(path)
      documents.set(path, document)
      const reply = await create({ oidc_issuer_url: issuer })
      expect(reply, reason).toMatchObject({ status: 400 })
      expect(reply.body.message).toContain(`body.oidc_issuer_url: ${reason}`)
      documents.set(path, good)
    }
    expect(await rows()).toEqual([])
    await setName(host, { raw: { status: 502, body: '' } })
    expect(await create({ oidc_issuer_url: issuer })).toMatchObject({ status: 503 })
  })

  it('must be JSON', async () => {
    const { path } = await newPlace()
    const send = (raw: string, type: string) => owner.send('POST', path, { raw, headers: { 'content-type': type } })
    expect(await send('{', 'application/json')).toMatchObject({ status: 400 })
    expect(await send('{}', 'text/plain')).toMatchObject({ status: 415 })
    expect(await owner.post(path, { custom_jwks: 'x'.repeat(1024 * 1024) })).toMatchObject({ status: 413 })
  })
})

describe('the keys of an issuer', () => {
  const bringForward = (id: string) =>
    control
      .update(thirdPartyAuths)
      .set({ refreshAt: sql`now() - interval '1 second'` })
      .where(eq(thirdPartyAuths.id, id))
  /** Waits for refreshes that the tick of another test has started, too. */
  async function refresh({ rows }: Pick<Awaited<ReturnType<typeof newPlace>>, 'rows'>) {
    await tick()
    const leaseEnd = () => Date.now() + 3 * 60_000
    await expect
      .poll(async () => (await rows()).filter(({ refreshAt }) => refreshAt && refreshAt.getTime() < leaseEnd()))
      .toEqual([])
  }

  it('are fetched again when they are due, not before', async () => {
    const place = await newPlace()
    const { ref, path, integrate, rows } = place
    const [due, fresh] = await Promise.all([newIssuer([p256]), newIssuer([p256])])
    const { id, updated_at } = await integrate({ oidc_issuer_url: due.issuer })
    await integrate({ oidc_issuer_url: fresh.issuer })
    const row = async () => (await rows()).find((one) => one.id === id)
    const made = await row()
    const minutes = ((made?.refreshAt?.getTime() ?? 0) - (made?.resolvedAt?.getTime() ?? 0)) / 60_000
    expect(minutes).toBeGreaterThanOrEqual(24)
    expect(minutes).toBeLessThanOrEqual(30)

    due.publish([p256, rsa])
    await bringForward(id)
    await refresh(place)
    expect([due.paths().length, fresh.paths().length]).toEqual([4, 2])
    expect((await owner.get(`${path}/${id}`)).body.resolved_jwks).toEqual({ keys: [p256.jwk, rsa.jwk] })
    const traces = await control.select().from(auditLog).where(eq(auditLog.projectRef, ref))
    const detail = { integration: id, keys: [p256.kid, rsa.kid] }
    expect(traces.filter(({ action }) => action === 'third_party_auth.refresh')).toMatchObject([
      { organizationId: organization.id, actorUserId: null, detail },
    ])

    const changed = await row()
    expect(changed?.updatedAt.toISOString()).not.toBe(updated_at)
    await bringForward(id)
    await refresh(place)
    const same = await row()
    expect(same).toMatchObject({ updatedAt: changed?.updatedAt, refreshError: null })
    expect(same?.resolvedAt?.getTime()).toBeGreaterThan(changed?.resolvedAt?.getTime() ?? 0)
    expect(same?.refreshAt?.getTime()).toBeGreaterThan(Date.now())
  })

  it('do not change while they cannot be fetched, and the next attempt is soon', async () => {
    const place = await newPlace()
    const { integrate, rows } = place
    const failures = [
      { document: undefined, reason: 'responded with status 404' },
      { document: { keys: {} }, reason: 'must be a JWK set' },
      { document: { keys: [rsa.privateJwk] }, reason: 'must not contain a private key' },
    ]
    const issuers = await Promise.all(failures.map(() => newIssuer([p256])))
    const ids: string[] = []
    for (const [index, { jwksUrl, documents }] of issuers.entries()) {
      const { id } = await integrate({ jwks_url: jwksUrl })
      ids.push(id)
      documents.set('/jwks', failures[index]?.document)
      await bringForward(id)
    }
    await refresh(place)
    for (const row of await rows()) {
      expect(row.refreshError).toContain(failures[ids.indexOf(row.id)]?.reason)
      expect(row.refreshAt?.getTime()).toBeGreaterThan(Date.now())
      expect(row.refreshAt?.getTime()).toBeLessThan(Date.now() + 6 * 60_000)
      expect(row.resolvedJwks).toEqual({ keys: [p256.jwk] })
    }
    for (const { publish } of issuers) publish([rsa])
    for (const id of ids) await bringForward(id)
    await refresh(place)
    for (const row of await rows()) expect(row).toMatchObject({ refreshError: null, resolvedJwks: { keys: [rsa.jwk] } })
  })

  it('are fetched ever less often while that fails, but at least every two hours', async () => {
    const place = await newPlace()
    const { integrate, rows } = place
    const { jwksUrl, documents } = await newIssuer([p256])
    const { id } = await integrate({ jwks_url: jwksUrl })
    documents.delete('/jwks')
    const hours = [
      [0.1, 4, 5],
      [3, 24, 30],
      [6, 48, 60],
      [20, 96, 120],
    ] as const
    for (const [since, least, most] of hours) {
      const resolvedAt = new Date(Date.now() - since * 3_600_000)
      await control.update(thirdPartyAuths).set({ resolvedAt }).where(eq(thirdPartyAuths.id, id))
      await bringForward(id)
      await refresh(place)
      const [row] = await rows()
      const minutes = ((row?.refreshAt?.getTime() ?? 0) - Date.now()) / 60_000
      expect(minutes).toBeGreaterThan(least - 1)
      expect(minutes).toBeLessThanOrEqual(most + 1)
      expect(row).toMatchObject({ resolvedAt, refreshError: expect.stringContaining('404') })
    }
  })

  it('are fetched however many others fail, and those in turn', async () => {
    const [place, { ref: failing }] = await Promise.all([newPlace(), newPlace()])
    const { integrate, rows } = place
    const [{ jwksUrl }, { jwksUrl: brokenUrl, documents, paths }] = await Promise.all([
      newIssuer([p256]),
      newIssuer([p256]),
    ])
    documents.set('/jwks', undefined)
    const { id } = await integrate({ jwks_url: jwksUrl })
    const at = { insertedAt: new Date(), updatedAt: new Date(), resolvedAt: new Date() }
    const broken = { projectRef: failing, type: 'jwks', jwksUrl: brokenUrl, resolvedJwks: { keys: [p256.jwk] }, ...at }
    const dueAt = (n: number) => new Date(Date.now() - 3_600_000 + n * 1_000)
    const many = Array.from({ length: 45 }, (_, n) => ({ ...broken, refreshError: 'before', refreshAt: dueAt(n) }))
    const made = await control.insert(thirdPartyAuths).values(many).returning()
    await bringForward(id)
    await refresh(place)
    expect((await rows())[0]?.refreshAt?.getTime()).toBeGreaterThan(Date.now() + 20 * 60_000)
    expect(paths().length).toBeLessThan(45)
    const waiting = async () => {
      const found = await control.select().from(thirdPartyAuths).where(eq(thirdPartyAuths.projectRef, failing))
      return made.filter((row) => found.some((one) => one.id === row.id && one.refreshError === 'before'))
    }
    // The integrations that were due first are tried first.
    const first = await waiting()
    expect(first).toEqual(made.slice(-first.length))
    const afterTick = () => tick().then(waiting)
    await expect.poll(afterTick).toEqual([])
  })

  it('are fetched by one of two simultaneous ticks', async () => {
    const { integrate } = await newPlace()
    const { jwksUrl, paths } = await newIssuer([p256])
    const { id } = await integrate({ jwks_url: jwksUrl })
    await bringForward(id)
    await Promise.all([tick(), tick()])
    expect(paths()).toHaveLength(2)
  })

  it('do not return after the integration is deleted, even while they are being fetched', async () => {
    const { path, integrate, rows } = await newPlace()
    const { jwksUrl, answer, paths } = await newIssuer([p256])
    const { id } = await integrate({ jwks_url: jwksUrl })
    const gate = Promise.withResolvers<void>()
    answer(async (_request, response) => {
      await gate.promise
      response.end(JSON.stringify({ keys: [rsa.jwk] }))
    })
    await bringForward(id)
    const ticking = tick()
    await expect.poll(paths).toHaveLength(2)
    expect(await owner.delete(`${path}/${id}`)).toMatchObject({ status: 200 })
    gate.resolve()
    await ticking
    expect(await rows()).toEqual([])
  })

  it('are never fetched if they were given', async () => {
    const { integrate, rows } = await newPlace()
    await integrate({ custom_jwks: { keys: [p256.jwk] } })
    expect(await rows()).toMatchObject([{ refreshAt: null }])
  })
})

it('supabase-management-js adds, lists, reads and deletes an integration', async () => {
  const { ref } = await newPlace()
  const api = new SupabaseManagementAPI({ accessToken: owner.token ?? '', baseUrl })
  const custom_jwks = { keys: [p256.jwk] }
  const { data: made, status } = await api.createProjectTpaIntegration(ref, { custom_jwks })
  expect([status, made.custom_jwks]).toEqual([201, custom_jwks])
  expect((await api.listProjectTpaIntegrations(ref)).data).toEqual([made])
  expect((await api.getProjectTpaIntegration(ref, made.id)).data).toEqual(made)
  expect((await api.deleteProjectTpaIntegration(ref, made.id)).data).toEqual(made)
})
