import { generateKeyPairSync, randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import type { JWK } from 'jose'
import { beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import {
  auditLog,
  projectSettings,
  projects,
  type SIGNING_KEY_STATUSES,
  signingKeys,
} from '../../../src/model/tables/index.ts'
import { type Caller, control, newOrganization, type TestOrganization, workerLogs } from '../../support/api.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { ALGORITHMS, type Algorithm, keysPath, newPrivateJwk, newProjectRow } from '../../support/signing-keys.ts'
import { WAIT_MS } from '../../support/wait.ts'

type Status = (typeof SIGNING_KEY_STATUSES)[number]

let organization: TestOrganization
let owner: Caller
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
})
beforeEach(async () => {
  ref = await newProjectRow(organization)
})

const create = (body: Record<string, unknown>, caller = owner) => caller.post(keysPath(ref), body)
const update = (id: string, status: Status, caller = owner) => caller.patch(keysPath(ref, id), { status })
const migrate = () => owner.post(keysPath(ref, 'legacy'))
const rowsOf = (of = ref) =>
  control.select().from(signingKeys).where(eq(signingKeys.projectRef, of)).orderBy(signingKeys.createdAt)
const statuses = async () => Object.fromEntries((await rowsOf()).map(({ id, status }) => [id, status]))

const AT = new Date('2026-12-01T12:00:00.000Z')
const seconds = (n: number) => new Date(AT.getTime() + n * 1000)

/** Inserts a key of which only the state matters. */
async function put(status: Status, fields: Partial<typeof signingKeys.$inferInsert> = {}): Promise<string> {
  const at = { createdAt: AT, updatedAt: AT, ...(status === 'revoked' && { revokedAt: AT }) }
  const row = { id: randomUUID(), projectRef: ref, algorithm: 'ES256' as const, status, ...at, ...fields }
  await control.insert(signingKeys).values({ publicJwk: { kty: 'EC', kid: row.id }, ...row })
  return row.id
}
const set = (area: 'legacy_api_keys', value: Record<string, unknown>) =>
  control.insert(projectSettings).values({ projectRef: ref, area, value, updatedAt: AT })
const auditOf = () => control.select().from(auditLog).where(eq(auditLog.projectRef, ref)).orderBy(auditLog.id)

const bytes = (length: number) => expect.stringMatching(new RegExp(`^[\\w-]{${length}}$`))
const PUBLIC: Record<Algorithm, unknown> = {
  HS256: null,
  ES256: { kty: 'EC', crv: 'P-256', x: bytes(43), y: bytes(43) },
  RS256: { kty: 'RSA', n: bytes(342), e: 'AQAB' },
  EdDSA: { kty: 'OKP', crv: 'Ed25519', x: bytes(43) },
}
const publicOf = (algorithm: Algorithm, id: unknown, part = PUBLIC[algorithm]) =>
  part && { kid: id, alg: algorithm, use: 'sig', key_ops: ['verify'], ext: true, ...part }

/** Returns the parts of a key that must never be shown. */
const secretsIn = ({ d, k, p }: JWK) => [d, k, p].filter((part) => part !== undefined)

describe('POST …/signing-keys', () => {
  it.each(ALGORITHMS)('makes a key of %s, on standby', async (algorithm) => {
    const { status, body } = await create({ algorithm }, owner.at(AT))
    expect([status, body]).toEqual([
      201,
      {
        id: expect.any(String),
        algorithm,
        status: 'standby',
        public_jwk: publicOf(algorithm, body.id),
        created_at: AT.toISOString(),
        updated_at: AT.toISOString(),
      },
    ])
    expect(await owner.get(keysPath(ref))).toMatchObject({ status: 200, body: { keys: [body] } })
    expect(await owner.get(keysPath(ref, body.id))).toMatchObject({ status: 200, body })
  })

  it.each(ALGORITHMS)('imports a key of %s under its own id, and shows no private part', async (algorithm) => {
    const kid = randomUUID()
    const jwk = await newPrivateJwk(algorithm)
    const wrapped = {
      ...jwk,
      kid: kid.toUpperCase(),
      alg: algorithm,
      use: 'sig',
      key_ops: ['verify', 'sign'],
      ext: true,
    }
    const { status, body } = await create({ algorithm, status: 'in_use', private_jwk: wrapped })
    const { d: _d, p: _p, q: _q, dp: _dp, dq: _dq, qi: _qi, ...part } = jwk
    expect([status, body]).toMatchObject([
      201,
      { id: kid, status: 'in_use', public_jwk: publicOf(algorithm, kid, algorithm === 'HS256' ? null : part) },
    ])
    const everything = JSON.stringify([body, await rowsOf(), await auditOf(), await workerLogs()])
    for (const secret of secretsIn(jwk)) expect(everything).not.toContain(secret)
    expect(await auditOf()).toMatchObject([
      {
        action: 'signing_key.create',
        actorUserId: organization.userId,
        detail: { key: kid, algorithm, imported: true },
      },
    ])
  })

  it('accepts a key that several projects share, and no key twice in one', async () => {
    const jwk = { ...(await newPrivateJwk('ES256')), kid: randomUUID() }
    const body = { algorithm: 'ES256', status: 'in_use', private_jwk: jwk }
    expect((await create(body)).status).toBe(201)
    const again = await create(body)
    expect([again.status, again.body.message]).toEqual([
      409,
      `The project already has a signing key with this id: ${jwk.kid}`,
    ])
    ref = await newProjectRow(organization)
    expect((await create(body)).status).toBe(201)
  })

  it('keeps one key on standby, and one in use', async () => {
    const { body: first } = await create({ algorithm: 'ES256' })
    const refused = await create({ algorithm: 'ES256', status: 'standby' })
    expect(refused.status).toBe(409)
    expect(refused.body.message).toContain(first.id)
    const { body: second } = await create({ algorithm: 'ES256', status: 'in_use' })
    const { body: third } = await create({ algorithm: 'ES256', status: 'in_use' })
    expect(await statuses()).toEqual({ [first.id]: 'standby', [second.id]: 'previously_used', [third.id]: 'in_use' })
  })

  it('keeps one of each if many requests arrive at once', async () => {
    const created = await Promise.all(Array.from({ length: 4 }, () => create({ algorithm: 'ES256' })))
    expect(created.map(({ status }) => status).sort()).toEqual([201, 409, 409, 409])
    const used = await Promise.all(Array.from({ length: 4 }, () => create({ algorithm: 'HS256', status: 'in_use' })))
    expect(used.map(({ status }) => status)).toEqual([201, 201, 201, 201])
    const all = Object.values(await statuses()).sort()
    expect(all).toEqual(['in_use', 'previously_used', 'previously_used', 'previously_used', 'standby'])
  })

  it('accepts 20 keys beside the JWT secret', async () => {
    for (let n = 0; n < 19; n++) await put('revoked')
    expect((await migrate()).status).toBe(201)
    expect((await create({ algorithm: 'HS256' })).status).toBe(201)
    const refused = await create({ algorithm: 'HS256', status: 'in_use' })
    expect([refused.status, refused.body.message]).toEqual([409, expect.stringContaining('at most 20')])
  })
})

describe('the import of a key', () => {
  const keys = {} as Record<Algorithm | 'other' | 'otherEdDSA' | 'otherRsa' | 'weak', JWK>
  beforeAll(async () => {
    for (const algorithm of ALGORITHMS) keys[algorithm] = await newPrivateJwk(algorithm)
    keys.other = await newPrivateJwk('ES256')
    keys.otherEdDSA = await newPrivateJwk('EdDSA')
    keys.otherRsa = await newPrivateJwk('RS256')
    // jose generates no key this short.
    keys.weak = generateKeyPairSync('rsa', { modulusLength: 1024 }).privateKey.export({ format: 'jwk' }) as JWK
  })
  const of = (algorithm: Algorithm, more: JWK = {}) => ({ algorithm, private_jwk: { ...keys[algorithm], ...more } })
  const without = (algorithm: Algorithm, member: keyof JWK) => of(algorithm, { [member]: undefined })

  it.each<[string, () => unknown, string]>([
    ['without an algorithm', () => ({}), 'body.algorithm'],
    ['of an unsupported algorithm', () => ({ algorithm: 'HS512' }), 'body.algorithm'],
    ['in a state that a new one cannot have', () => ({ algorithm: 'ES256', status: 'revoked' }), 'body.status'],
    ['of another algorithm', () => ({ ...of('ES256'), algorithm: 'EdDSA' }), 'body.private_jwk.kty'],
    ['without a type', () => ({ algorithm: 'ES256', private_jwk: {} }), 'body.private_jwk.kty'],
    ['that is null', () => ({ algorithm: 'ES256', private_jwk: null }), 'body.private_jwk'],
    ['that names another algorithm', () => of('ES256', { alg: 'ES384' }), 'body.private_jwk.alg'],
    ['that is for encryption', () => of('ES256', { use: 'enc' }), 'body.private_jwk.use'],
    ['that may only sign', () => of('ES256', { key_ops: ['sign'] }), 'body.private_jwk.key_ops'],
    ['that may sign twice', () => of('ES256', { key_ops: ['sign', 'sign'] }), 'body.private_jwk.key_ops'],
    ['that may do more', () => of('ES256', { key_ops: ['sign', 'verify', 'deriveKey'] }), 'body.private_jwk.key_ops'],
    ['that is not extractable', () => of('ES256', { ext: false }), 'body.private_jwk.ext'],
    ['whose id is not a UUID', () => of('ES256', { kid: 'mine' }), 'body.private_jwk.kid'],
    ['of another curve', () => of('ES256', { crv: 'P-384' }), 'body.private_jwk.crv'],
    ['without a private part', () => without('ES256', 'd'), 'body.private_jwk.d'],
    ['without a private part (EdDSA)', () => without('EdDSA', 'd'), 'body.private_jwk.d'],
    ['without a private part (RS256)', () => without('RS256', 'd'), 'body.private_jwk.d'],
    ['without a prime', () => without('RS256', 'qi'), 'body.private_jwk.qi'],
    ['without a secret', () => without('HS256', 'k'), 'body.private_jwk.k'],
    ['with another exponent', () => of('RS256', { e: 'Aw' }), 'body.private_jwk.e'],
    ['that is too short', () => of('HS256', { k: 'x'.repeat(15) }), 'body.private_jwk.k'],
    ['that is not base64url', () => of('HS256', { k: `${'x'.repeat(16)}+` }), 'body.private_jwk.k'],
    ['that is too long', () => of('HS256', { k: 'x'.repeat(1_367) }), 'body.private_jwk.k'],
    ['with a part too long', () => of('RS256', { n: 'x'.repeat(1_367) }), 'body.private_jwk.n'],
    ['that is not on its curve', () => of('ES256', { x: 'A'.repeat(43) }), 'body.private_jwk: '],
    [
      'whose private part belongs to another key',
      () => of('ES256', { d: keys.other.d as string }),
      'body.private_jwk: ',
    ],
    [
      'whose public part belongs to another key',
      () => of('EdDSA', { x: keys.otherEdDSA.x as string }),
      'body.private_jwk: ',
    ],
    ['whose modulus belongs to another key', () => of('RS256', { n: keys.otherRsa.n as string }), 'body.private_jwk: '],
    ['that is weak', () => ({ algorithm: 'RS256', private_jwk: keys.weak }), 'at least 2048 bits'],
  ])('refuses one %s', async (_, body, field) => {
    const reply = await create(body() as Record<string, unknown>)
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining(field) } })
    expect(await rowsOf()).toEqual([])
    expect(await auditOf()).toEqual([])
  })

  it('accepts keys just inside the limits', async () => {
    for (const k of ['x'.repeat(16), 'x'.repeat(1_366)]) {
      expect((await create({ ...of('HS256', { k }), status: 'in_use' })).status).toBe(201)
    }
  })
})

describe('PATCH …/signing-keys/{id}', () => {
  const ALL: readonly Status[] = ['in_use', 'previously_used', 'revoked', 'standby']
  const ALLOWED = [
    'standby in_use',
    'standby previously_used',
    'standby revoked',
    'previously_used standby',
    'previously_used revoked',
    'revoked standby',
  ]
  const table = ALL.flatMap((from) => ALL.map((to) => [from, to] as const))

  it.each(table)('changes %s to %s only if that is allowed', async (from, to) => {
    const id = await put(from)
    const isAllowed = from === to || ALLOWED.includes(`${from} ${to}`)
    const reply = await update(id, to, owner.at(seconds(60)))
    expect(reply.status).toBe(isAllowed ? 200 : 409)
    const [row] = await rowsOf()
    const changed = isAllowed && from !== to
    expect(row?.status).toBe(isAllowed ? to : from)
    expect(row?.updatedAt).toEqual(changed ? seconds(60) : AT)
    expect(row?.revokedAt).toEqual(row?.status !== 'revoked' ? null : changed ? seconds(60) : AT)
    expect(await auditOf()).toMatchObject(
      changed ? [{ action: 'signing_key.update', detail: { key: id, from, to } }] : [],
    )
    if (!isAllowed) expect(reply.body.message).toContain(`a key that is ${from} cannot become ${to}: put `)
  })

  it('rotates the keys: the one in use becomes previously used at the same moment', async () => {
    const [old, next] = [await put('in_use'), await put('standby')]
    expect(await update(next, 'in_use', owner.at(seconds(1)))).toMatchObject({
      status: 200,
      body: { id: next, status: 'in_use', created_at: AT.toISOString(), updated_at: seconds(1).toISOString() },
    })
    expect(await statuses()).toEqual({ [old]: 'previously_used', [next]: 'in_use' })
    expect(await auditOf()).toMatchObject([{ detail: { key: next, retired: old } }])
  })

  it('restarts programs only if other public keys are published', async () => {
    const generation = async () =>
      (await control.select({ n: projects.secretsGeneration }).from(projects).where(eq(projects.ref, ref)))[0]?.n ?? 0
    const path = keysPath(ref)
    const before = await generation()
    const { body: secret } = await owner.post(path, { algorithm: 'HS256', status: 'in_use' })
    const { body: key } = await owner.post(path, { algorithm: 'ES256' })
    expect(await generation()).toBe(before + 1)
    for (const status of ['standby', 'in_use', 'in_use']) {
      expect((await owner.patch(`${path}/${key.id}`, { status })).status).toBe(200)
    }
    expect((await owner.patch(`${path}/${secret.id}`, { status: 'revoked' })).status).toBe(200)
    expect(await generation()).toBe(before + 1)
    const { body: next } = await owner.post(path, { algorithm: 'RS256', status: 'in_use' })
    expect(next).toMatchObject({ status: 'in_use' })
    expect((await owner.patch(`${path}/${key.id}`, { status: 'revoked' })).status).toBe(200)
    expect(await generation()).toBe(before + 3)
  })

  it('keeps one key on standby', async () => {
    const [standby, revoked] = [await put('standby'), await put('revoked')]
    const refused = await update(revoked, 'standby')
    expect([refused.status, refused.body.message]).toEqual([
      409,
      `Another signing key is on standby: first rotate to ${standby} or set it to previously_used`,
    ])
  })

  it('lets one of two simultaneous changes win', async () => {
    const [old, next] = [await put('in_use'), await put('standby')]
    const replies = await Promise.all([update(next, 'in_use'), update(next, 'revoked'), update(next, 'in_use')])
    const after = await statuses()
    const won = after[next] === 'in_use'
    expect(replies.map(({ status }) => status)).toEqual(won ? [200, 409, 200] : [409, 200, 409])
    expect(after[old]).toBe(won ? 'previously_used' : 'in_use')
  })

  it('changes only the keys of its own project', async () => {
    const id = await put('standby')
    ref = await newProjectRow(organization)
    const replies = [
      await owner.get(keysPath(ref, id)),
      await update(id, 'in_use'),
      await owner.delete(keysPath(ref, id)),
    ]
    for (const { status, body } of replies) {
      expect([status, body]).toEqual([404, { message: 'Signing key not found' }])
    }
  })

  it.each([{}, { status: 'active' }, { status: null }])('refuses %j', async (body) => {
    const id = await put('standby')
    const reply = await owner.patch(keysPath(ref, id), body)
    expect([reply.status, reply.body.message]).toEqual([400, expect.stringContaining('body.status')])
  })
})

describe('the JWT secret', () => {
  it('becomes a signing key once, in use', async () => {
    const absent = await owner.get(keysPath(ref, 'legacy'))
    expect([absent.status, absent.body.message]).toEqual([404, expect.stringContaining('not a signing key yet')])
    const replies = await Promise.all([migrate(), migrate(), migrate()])
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 409, 409])
    const made = replies.find(({ status }) => status === 201)
    expect(made?.body).toMatchObject({ algorithm: 'HS256', status: 'in_use', public_jwk: null })
    expect(await owner.get(keysPath(ref, 'legacy'))).toMatchObject({ status: 200, body: made?.body })
    expect(await rowsOf()).toMatchObject([{ isLegacy: true, sealedPrivateJwk: null }])
    expect(await auditOf()).toMatchObject([{ action: 'signing_key.migrate' }])
  })

  it('replaces the key in use', async () => {
    const id = await put('in_use')
    const { body } = await migrate()
    expect(await statuses()).toEqual({ [id]: 'previously_used', [body.id]: 'in_use' })
  })

  it('is not revoked while keys that it signed are in use', async () => {
    const id = await put('previously_used', { isLegacy: true, algorithm: 'HS256', publicJwk: null })
    const refused = await update(id, 'revoked')
    expect([refused.status, refused.body.message]).toEqual([409, expect.stringContaining('legacy API keys')])
    await set('legacy_api_keys', { enabled: false })
    expect((await update(id, 'revoked')).status).toBe(200)
    const kept = await owner.at(new Date('2030-01-01')).delete(keysPath(ref, id))
    expect([kept.status, kept.body.message]).toEqual([409, expect.stringContaining('cannot be deleted')])
    expect((await update(id, 'standby')).body).toMatchObject({ status: 'standby' })
  })
})

describe('DELETE …/signing-keys/{id}', () => {
  const remove = (id: string, after: number) => owner.at(seconds(after)).delete(keysPath(ref, id))

  it.each([
    ['in_use', 'put another key in use, then revoke this one'],
    ['previously_used', 'revoke it first'],
    ['standby', 'revoke it first'],
  ] as const)('keeps a key that is %s, and says what to do', async (status, next) => {
    const id = await put(status)
    const refused = await remove(id, 10 ** 6)
    expect([refused.status, refused.body.message]).toEqual([409, expect.stringContaining(next)])
    expect(await rowsOf()).toHaveLength(1)
  })

  it.each([
    ['an hour by default', null, 3_600],
    ['at least an hour', 60, 3_600],
    ['as long as tokens live', 86_400, 86_400],
  ])('waits %s', async (_, jwtExp, wait) => {
    const changed = await owner.patch(`/v1/projects/${ref}/config/auth`, { jwt_exp: jwtExp })
    expect(changed.status).toBe(200)
    const id = await put('revoked')
    const early = await remove(id, wait - 1)
    expect([early.status, early.body.message]).toEqual([
      409,
      expect.stringContaining(`can be deleted from ${seconds(wait).toISOString()}`),
    ])
    expect(await remove(id, wait)).toMatchObject({ status: 200, body: { id, status: 'revoked' } })
    expect(await rowsOf()).toEqual([])
    expect((await remove(id, wait)).status).toBe(404)
    const deletions = (await auditOf()).filter(({ action }) => action === 'signing_key.delete')
    expect(deletions).toMatchObject([{ detail: { key: id } }])
  })
})

it.each(['legacyx', 'x', '00000000-0000-0000-0000-00000000000g'])('finds no key with the id %s', async (id) => {
  const replies = [
    await owner.get(keysPath(ref, id)),
    await update(id, 'in_use'),
    await owner.delete(keysPath(ref, id)),
  ]
  for (const { status, body } of replies) {
    expect([status, body.message]).toEqual([400, expect.stringContaining('path.id')])
  }
})

it('deletes the keys of a removed project', async () => {
  ref = await newProject(organization)
  await put('standby')
  expect((await owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
  await untilGone(owner, ref)
  await vi.waitFor(async () => expect(await rowsOf()).toEqual([]), { timeout: WAIT_MS })
})
