import { createHmac, randomUUID } from 'node:crypto'
import { exportJWK, generateKeyPair, importJWK, type JWK, type JWTPayload, SignJWT } from 'jose'
import { beforeAll, describe, expect, it, vi } from 'vitest'
import { projectSettings, thirdPartyAuths } from '../../../src/model/tables/index.ts'
import { baseUrl, control, newOrganization, type TestOrganization } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { ALGORITHMS, type Algorithm, keysPath, newPrivateJwk, newProjectRow } from '../../support/signing-keys.ts'
import { newBucket, newStorage, type TestStorage } from '../../support/storage.ts'
import { calling, signerOf } from '../../support/storage-http.ts'
import { WAIT_MS } from '../../support/wait.ts'

const PROGRAM = `Deno.serve(() => new Response('called'))`

let organization: TestOrganization
let project: TestStorage
let other: TestStorage
let slug: string
let bucket: string
beforeAll(async () => {
  organization = await newOrganization()
  project = await newStorage(organization)
  // The project sends no request to an issuer that it does not trust.
  const ref = await newProjectRow(organization)
  other = { ...project, ref, url: new URL(`/p/${ref}/storage/v1`, baseUrl).href }
  slug = (await putFunction(project.ref, PROGRAM, { verifyJwt: true })).slug
  bucket = await newBucket(project)
})

const ACCEPTED = { storage: 200, function: 'called' }
const refusedAs = (message: string, code = 'UNAUTHORIZED_ASYMMETRIC_JWT') => ({
  storage: expect.stringContaining(message),
  function: code,
})
const codeFor = (algorithm: Algorithm) =>
  algorithm === 'HS256' ? 'UNAUTHORIZED_LEGACY_JWT' : 'UNAUTHORIZED_ASYMMETRIC_JWT'

/** Returns the answers of the storage server, and of a function that verifies tokens, to the holder of a token. */
async function outcomes(token: string, of: TestStorage = project) {
  const { status, body } = await calling(of, token)('GET /bucket')
  const called = await fetch(new URL(`/p/${of.ref}/functions/v1/${slug}`, baseUrl), {
    headers: { authorization: `Bearer ${token}` },
  })
  const text = await called.text()
  return { storage: status === 200 ? 200 : body.message, function: called.headers.get('sb-error-code') ?? text }
}

const CLAIMS = { role: 'authenticated', sub: randomUUID() }
const at = () => Math.floor(Date.now() / 1000) + 600

async function sign(jwk: JWK, alg: string, kid: string | undefined, claims: JWTPayload = CLAIMS): Promise<string> {
  const signing = new SignJWT(claims).setProtectedHeader({ alg, ...(kid !== undefined && { kid }) })
  return signing
    .setIssuedAt()
    .setExpirationTime(at())
    .sign(await importJWK(jwk, alg))
}

const create = async (body: Record<string, unknown>, { ref }: TestStorage = project) => {
  const reply = await organization.owner.post(keysPath(ref), body)
  expect(reply).toMatchObject({ status: 201 })
  return reply.body as { id: string; public_jwk: JWK | null }
}
const move = async (id: string, status: string, { ref }: TestStorage = project) =>
  expect(await organization.owner.patch(keysPath(ref, id), { status })).toMatchObject({ status: 200, body: { status } })

const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
function signByHand(header: unknown, secret: string | Buffer, claims: unknown = { ...CLAIMS, exp: at() }): string {
  const signed = `${part(header)}.${part(claims)}`
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`
}

describe.each(ALGORITHMS)('a token signed by a key of %s', (algorithm) => {
  it('is valid until the key is revoked, and never after it is deleted', async () => {
    const { owner } = organization
    const jwk = await newPrivateJwk(algorithm)
    const { id } = await create({ algorithm, private_jwk: jwk })
    const token = await sign(jwk, algorithm, id)
    const refused = refusedAs(
      algorithm === 'HS256' ? 'signature verification failed' : 'no applicable key found',
      codeFor(algorithm),
    )
    expect(await outcomes(token)).toEqual(ACCEPTED)
    await move(id, 'in_use')
    expect(await outcomes(token)).toEqual(ACCEPTED)
    const { id: next } = await create({ algorithm: 'ES256' })
    await move(next, 'in_use')
    expect(await owner.get(keysPath(project.ref, id))).toMatchObject({ body: { status: 'previously_used' } })
    expect(await outcomes(token)).toEqual(ACCEPTED)
    await move(id, 'revoked')
    expect(await outcomes(token)).toEqual(refused)
    await move(id, 'standby')
    expect(await outcomes(token)).toEqual(ACCEPTED)
    await move(id, 'revoked')
    expect(await outcomes(token)).toEqual(refused)
    const later = owner.at(new Date(Date.now() + 3_700_000))
    expect((await later.delete(keysPath(project.ref, id))).status).toBe(200)
    expect(await outcomes(token)).toEqual(refused)
    // No other trusted key has changed.
    expect(await outcomes(project.keys.service)).toEqual(ACCEPTED)
  })
})

describe('a token is refused', () => {
  const keys = {} as Record<Algorithm, { jwk: JWK; id: string; public: JWK | null }>
  let theirs: { jwk: JWK; id: string }
  beforeAll(async () => {
    for (const algorithm of ALGORITHMS) {
      const jwk = await newPrivateJwk(algorithm)
      const { id, public_jwk } = await create({ algorithm, private_jwk: jwk, status: 'in_use' })
      keys[algorithm] = { jwk, id, public: public_jwk }
    }
    const jwk = await newPrivateJwk('ES256')
    theirs = { jwk, id: (await create({ algorithm: 'ES256', private_jwk: jwk }, other)).id }
  })
  const LEGACY = 'UNAUTHORIZED_LEGACY_JWT'
  const UNSUPPORTED = 'UNAUTHORIZED_UNSUPPORTED_TOKEN_ALGORITHM'
  const ES = () => keys.ES256
  const NO_KEY = 'no applicable key found'
  const FAILED = 'signature verification failed'

  it.each<[string, () => string | Promise<string>, string, string?]>([
    ['without the id of its key', () => sign(ES().jwk, 'ES256', undefined), NO_KEY],
    ['of a key that nobody knows', () => sign(ES().jwk, 'ES256', randomUUID()), NO_KEY],
    ['of a key of another project', () => sign(theirs.jwk, 'ES256', theirs.id), NO_KEY],
    ["of another project's key in our name", () => sign(theirs.jwk, 'ES256', ES().id), FAILED],
    ['that names a key of another algorithm', () => sign(ES().jwk, 'ES256', keys.RS256.id), NO_KEY],
    ['of another hash', () => sign(keys.RS256.jwk, 'RS512', keys.RS256.id), '"alg"', UNSUPPORTED],
    ['of another padding', () => sign(keys.RS256.jwk, 'PS256', keys.RS256.id), '"alg"', UNSUPPORTED],
    [
      'signed with a public key as if it were a secret',
      () => {
        const { x = '', y = '' } = ES().public as JWK
        return signByHand({ alg: 'HS256', kid: ES().id }, Buffer.from(x + y, 'base64url'))
      },
      NO_KEY,
      LEGACY,
    ],
    [
      'signed with a public JWK as if it were a secret',
      () => signByHand({ alg: 'HS256' }, JSON.stringify(ES().public)),
      FAILED,
      LEGACY,
    ],
    ['of no algorithm', () => `${part({ alg: 'none', kid: ES().id })}.${part(CLAIMS)}.`, '"alg"', UNSUPPORTED],
    [
      'that brings its own key',
      async () => {
        const { publicKey, privateKey } = await generateKeyPair('ES256')
        const header = { alg: 'ES256', jwk: await exportJWK(publicKey) }
        return new SignJWT(CLAIMS).setProtectedHeader(header).setExpirationTime(at()).sign(privateKey)
      },
      NO_KEY,
    ],
    [
      'of an HS256 key under an ES256 name',
      () => signByHand({ alg: 'ES256', kid: ES().id }, Buffer.from(keys.HS256.jwk.k ?? '', 'base64url')),
      FAILED,
    ],
    ['without a signature', () => `${part({ alg: 'EdDSA', kid: keys.EdDSA.id })}.${part(CLAIMS)}.`, FAILED],
    [
      'that has expired',
      async () => {
        const key = await importJWK(ES().jwk, 'ES256')
        return new SignJWT(CLAIMS).setProtectedHeader({ alg: 'ES256', kid: ES().id }).setExpirationTime(1).sign(key)
      },
      '"exp"',
    ],
  ])('%s', async (_, tokenOf, message, code) => {
    expect(await outcomes(await tokenOf())).toEqual(refusedAs(message, code))
  })

  it('with a role that no policy applies to, by everything that needs its role', async () => {
    const token = await sign(ES().jwk, 'ES256', ES().id, { role: 'postgres' })
    expect(await outcomes(token)).toEqual({ ...refusedAs('"role" claim must be one of'), function: 'called' })
  })

  it('that was made for a signed URL', async () => {
    const { jwtSecret } = await signerOf(project)
    const claims = { url: `${bucket}/a.txt`, scope: 'download', exp: at() }
    const token = signByHand({ alg: 'HS256' }, jwtSecret, claims)
    expect(await outcomes(token)).toEqual(refusedAs('valid for that URL only', LEGACY))
    // A token with a role belongs to somebody, whatever else it says.
    expect(await outcomes(signByHand({ alg: 'HS256' }, jwtSecret, { ...claims, role: 'anon' }))).toEqual(ACCEPTED)
  })

  it('that is valid here, at another project', async () => {
    const token = await sign(ES().jwk, 'ES256', ES().id)
    expect(await outcomes(token)).toEqual(ACCEPTED)
    expect((await outcomes(token, other)).storage).toContain(NO_KEY)
  })
})

describe("another party's token", () => {
  const issuer = 'https://login.example.org/'
  const keys = {} as Record<Exclude<Algorithm, 'HS256'> | 'weak' | 'unnamed', { jwk: JWK; kid: string }>
  const secret = 'a secret that stands in a public set'
  beforeAll(async () => {
    const named = async (algorithm: Exclude<Algorithm, 'HS256'>) => ({
      jwk: await newPrivateJwk(algorithm),
      kid: `${algorithm}-${randomUUID()}`,
    })
    for (const algorithm of ['ES256', 'RS256', 'EdDSA'] as const) keys[algorithm] = await named(algorithm)
    keys.unnamed = await named('ES256')
    const shown = ({
      jwk: { d: _d, p: _p, q: _q, dp: _dp, dq: _dq, qi: _qi, ...jwk },
      kid,
    }: (typeof keys)['ES256']) => ({ ...jwk, kid })
    const jwks = {
      keys: [
        ...[keys.ES256, keys.RS256, keys.EdDSA].map(shown),
        { kty: 'oct', k: Buffer.from(secret).toString('base64url'), kid: 'secret' },
        { ...shown(keys.ES256), kid: 'for encryption', use: 'enc' },
        null,
        'nonsense',
      ],
    }
    const now = new Date()
    const row = { projectRef: project.ref, insertedAt: now, updatedAt: now }
    await control.insert(thirdPartyAuths).values([
      { ...row, type: 'oidc', issuer, oidcIssuerUrl: issuer, resolvedJwks: jwks },
      { ...row, type: 'custom', customJwks: { keys: [shown(keys.unnamed)] } },
      { ...row, type: 'custom', issuer: 'https://empty.example.org', resolvedJwks: 'no set' },
    ])
    // The row is written beside the API, and applies within a second.
    const token = await sign(keys.ES256.jwk, 'ES256', keys.ES256.kid, { ...CLAIMS, iss: issuer })
    await vi.waitFor(async () => expect(await outcomes(token)).toEqual(ACCEPTED), { timeout: WAIT_MS })
  })

  const by = (name: keyof typeof keys, claims: JWTPayload, alg = name as string, kid = keys[name].kid) =>
    sign(keys[name].jwk, alg, kid, claims)
  const theirs = { ...CLAIMS, iss: issuer }

  it.each(['ES256', 'RS256', 'EdDSA'] as const)('of %s is accepted', async (algorithm) => {
    expect(await outcomes(await by(algorithm, theirs))).toEqual(ACCEPTED)
  })

  it('is accepted by its key alone if the issuer is not configured', async () => {
    expect(await outcomes(await by('unnamed', CLAIMS, 'ES256'))).toEqual(ACCEPTED)
    expect(await outcomes(await by('unnamed', { ...CLAIMS, iss: 'https://any.example.org' }, 'ES256'))).toEqual(
      ACCEPTED,
    )
  })

  it('is anonymous without a role', async () => {
    expect((await outcomes(await by('ES256', { iss: issuer, role: 'superuser' }))).storage).toContain('"role"')
    expect(await outcomes(await by('ES256', { iss: issuer }))).toEqual(ACCEPTED)
  })

  const NO_KEY = 'no applicable key found'
  it.each<[string, () => Promise<string> | string, string, string?]>([
    ['of no issuer', () => by('ES256', CLAIMS), NO_KEY],
    ['of another issuer', () => by('ES256', { ...CLAIMS, iss: 'https://login.example.org' }), NO_KEY],
    ['of an issuer without keys', () => by('ES256', { ...CLAIMS, iss: 'https://empty.example.org' }), NO_KEY],
    ["in one issuer's name with the key of another", () => by('unnamed', theirs, 'ES256'), NO_KEY],
    ['of an unknown key', () => by('ES256', theirs, 'ES256', 'unknown'), NO_KEY],
    ['of a key for encryption', () => by('ES256', theirs, 'ES256', 'for encryption'), NO_KEY],
    [
      'of a secret',
      () => signByHand({ alg: 'HS256', kid: 'secret' }, secret, theirs),
      NO_KEY,
      'UNAUTHORIZED_LEGACY_JWT',
    ],
    [
      'of the JWT secret of the project',
      async () => {
        const { jwtSecret } = await signerOf(project)
        return signByHand({ alg: 'HS256' }, jwtSecret, theirs)
      },
      NO_KEY,
      'UNAUTHORIZED_LEGACY_JWT',
    ],
  ])('is refused: %s', async (_, tokenOf, message, code) => {
    expect(await outcomes(await tokenOf())).toEqual(refusedAs(message, code))
  })
})

describe('the JWT secret', () => {
  const setLegacyApiKeys = (enabled: boolean) =>
    control
      .insert(projectSettings)
      .values({ projectRef: project.ref, area: 'legacy_api_keys', value: { enabled }, updatedAt: new Date() })
      .onConflictDoUpdate({ target: [projectSettings.projectRef, projectSettings.area], set: { value: { enabled } } })
  const LEGACY = 'UNAUTHORIZED_LEGACY_JWT'

  it('signs tokens of users until it is revoked, whether the keys that it signed are accepted or not', async () => {
    const { owner } = organization
    const signer = await signerOf(project)
    const user = await signer.user(randomUUID())
    const service = calling(project, project.keys.service)
    expect((await service(`POST /object/${bucket}/a.txt`, { body: 'kept' })).status).toBe(200)
    const signed = (await service(`POST /object/sign/${bucket}/a.txt`, { body: { expiresIn: 60 } })).body.signedURL
    const forged = `/object/sign/${bucket}/a.txt?token=${signByHand({ alg: 'HS256' }, signer.jwtSecret, {
      ...{ url: `${bucket}/a.txt`, scope: 'download' },
    })}`
    const reads = async (path: string) => (await calling(project)(`GET ${path}`)).status
    expect([await reads(signed), await reads(forged)]).toEqual([200, 200])

    const { body: legacy } = await owner.post(keysPath(project.ref, 'legacy'))
    expect(await outcomes(signByHand({ alg: 'HS256', kid: legacy.id }, signer.jwtSecret))).toEqual(ACCEPTED)
    await setLegacyApiKeys(false)
    const disabled = refusedAs('Legacy API keys are disabled', LEGACY)
    await vi.waitFor(async () => expect(await outcomes(project.keys.service)).toEqual(disabled), { timeout: WAIT_MS })
    expect(await outcomes(project.keys.anon)).toEqual(disabled)
    expect(await outcomes(user)).toEqual(ACCEPTED)

    const { id } = await create({ algorithm: 'ES256' })
    await move(id, 'in_use')
    expect(await outcomes(user)).toEqual(ACCEPTED)
    await move(legacy.id, 'revoked')
    const refused = refusedAs('no applicable key found', LEGACY)
    for (const token of [user, project.keys.service, signByHand({ alg: 'HS256', kid: legacy.id }, signer.jwtSecret)]) {
      expect(await outcomes(token)).toEqual(refused)
    }
    // Signed URLs stay valid after it, and its holder can make no new ones.
    expect([await reads(signed), await reads(forged)]).toEqual([200, 400])

    await move(legacy.id, 'standby')
    await setLegacyApiKeys(true)
    await vi.waitFor(async () => expect(await outcomes(project.keys.service)).toEqual(ACCEPTED), { timeout: WAIT_MS })
  })
})
