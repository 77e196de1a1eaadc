import { createHmac, randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import { sealSecret } from '../../../src/model/secrets/project.ts'
import { projects } from '../../../src/model/tables/index.ts'
import { randomLetters } from '../../../src/platform/http/common-values.ts'
import type { InvalidCredential } from '../../../src/platform/jwt/credential.ts'
import { secretJwk } from '../../../src/platform/jwt/jwk.ts'
import { legacyKeys, signClaims, verifyClaims, verifyCredential } from '../../../src/services/gateway/credentials.ts'
import { forgetProject, openProject } from '../../../src/services/gateway/open-project.ts'
import { createTrust, sealedTrust, TRUST_CHARACTERS_MAX } from '../../../src/services/gateway/trust.ts'
import { control, newOrganization } from '../../support/api.ts'
import { insertProject } from '../../support/webhooks.ts'

const NOW = new Date('2026-12-01T12:00:00.500Z')
const SECONDS = Math.floor(NOW.getTime() / 1000)
const project = { jwtSecret: 'a secret of this project, as long as one is' }
const other = { jwtSecret: 'a secret of another project, just as long' }
const trusting = ({ jwtSecret }: typeof project) =>
  createTrust({ legacy: { algorithm: 'HS256', kid: undefined, jwk: secretJwk(jwtSecret) } })
const [trust, foreign] = [trusting(project), trusting(other)]

const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const hmac = (text: string, secret: string, hash = 'sha256') =>
  createHmac(hash, secret).update(text).digest('base64url')

/** Signs a token without our code. */
function token(claims: unknown, { header = { alg: 'HS256', typ: 'JWT' } as unknown, secret = project.jwtSecret } = {}) {
  const signed = `${part(header)}.${part(claims)}`
  return `${signed}.${hmac(signed, secret)}`
}

const verify = (text: string, now = NOW) => verifyCredential(trust, text, now)
const refusal = (text: string, now = NOW) =>
  verify(text, now).then(
    () => 'accepted',
    (error: InvalidCredential) => `${error.name}: ${error.message}`,
  )

const VALID = { role: 'authenticated', sub: '6ac0f1b3-3f2b-4e2c-9a0a-6c4d7f6f8a10', exp: SECONDS + 60 }

describe('a credential', () => {
  it('names the role, the user and the claims', async () => {
    const claims = { ...VALID, email: 'ä@example.com', app_metadata: { teams: ['one'] } }
    expect(await verify(token(claims))).toEqual({ role: 'authenticated', userId: VALID.sub, claims })
    expect(await verify(token({ role: 'service_role' }))).toEqual({
      role: 'service_role',
      claims: { role: 'service_role' },
    })
  })

  it('is anonymous without a role', async () => {
    expect(await verify(token({}))).toEqual({ role: 'anon', claims: {} })
  })

  it.each([
    ['none'],
    [''],
    ['postgres'],
    ['supabase_storage_admin'],
    ['authenticator'],
    ['pg_monitor'],
    [null],
    [7],
    [['anon']],
    [{ role: 'anon' }],
  ])('is refused with a role that is not for callers: %j', async (role) => {
    expect(await refusal(token({ ...VALID, role }))).toMatch(/^InvalidCredential: "role" claim must be one of/)
  })

  it.each([[7], [null], [{}]])('has no user if sub is %j', async (sub) => {
    expect(await verify(token({ ...VALID, sub }))).not.toHaveProperty('userId')
  })

  it.each([
    ['exp', SECONDS, '"exp" claim timestamp check failed'],
    ['exp', SECONDS + 1, 'accepted'],
    ['exp', 0, '"exp" claim timestamp check failed'],
    ['exp', -1, '"exp" claim timestamp check failed'],
    ['exp', String(SECONDS + 60), '"exp" claim must be a number'],
    ['exp', null, '"exp" claim must be a number'],
    ['nbf', SECONDS, 'accepted'],
    ['nbf', SECONDS + 1, '"nbf" claim timestamp check failed'],
    ['nbf', 'now', '"nbf" claim must be a number'],
    ['iat', SECONDS + 3600, 'accepted'],
  ])('with %s = %j: %s', async (claim, value, expected) => {
    expect(await refusal(token({ ...VALID, [claim]: value }))).toContain(expected)
  })

  it.each([
    ['none', ''],
    ['none', hmac(`${part({ alg: 'none' })}.${part(VALID)}`, project.jwtSecret)],
    ['HS512', hmac(`${part({ alg: 'HS512' })}.${part(VALID)}`, project.jwtSecret, 'sha512')],
    ['hs256', hmac(`${part({ alg: 'hs256' })}.${part(VALID)}`, project.jwtSecret)],
  ])('with the algorithm %s is refused, whatever key signs it', async (alg, signature) => {
    const text = `${part({ alg })}.${part(VALID)}.${signature}`
    expect(await refusal(text)).toBe('InvalidCredential: "alg" (Algorithm) Header Parameter value not allowed')
  })

  it.each(['RS256', 'ES256', 'EdDSA'])('with the algorithm %s requires a key of that algorithm', async (alg) => {
    for (const kid of [undefined, randomUUID()]) {
      const text = token(VALID, { header: { alg, kid } })
      expect(await refusal(text)).toBe('InvalidCredential: no applicable key found in the JSON Web Key Set')
    }
  })

  it('is valid only for its own project', async () => {
    const theirs = token(VALID, { secret: other.jwtSecret })
    expect(await refusal(theirs)).toBe('InvalidCredential: signature verification failed')
    expect(await verifyCredential(foreign, theirs, NOW)).toMatchObject({ role: 'authenticated' })
  })

  it('is refused if one character is changed', async () => {
    const [head, payload, signature = ''] = token(VALID).split('.')
    const raised = part({ ...VALID, role: 'service_role' })
    const flipped = (signature.startsWith('A') ? 'B' : 'A') + signature.slice(1)
    const tampered = [
      `${head}.${raised}.${signature}`,
      `${part({ typ: 'JWT', alg: 'HS256' })}.${payload}.${signature}`,
      `${head}.${payload}.${flipped}`,
      `${head}.${payload}.${signature.slice(0, -3)}`,
      `${head}.${payload}.`,
    ]
    for (const text of tampered) {
      expect(await refusal(text)).toBe('InvalidCredential: signature verification failed')
    }
  })

  it.each([
    '',
    'garbage',
    'a.b',
    'a.b.c.d',
    '..',
    ' a.b.c',
    'ä.ö.ü',
    'a=.b=.c=',
    `${part({ alg: 'HS256' })}..x`,
    '.'.repeat(100_000),
    'x'.repeat(1_000_000),
  ])('is refused if it is not a token', async (text) => {
    expect(await refusal(text)).toBe('InvalidCredential: Invalid Compact JWS')
  })

  it('is refused if its header cannot be parsed', async () => {
    for (const header of [[], null, 'HS256', 7]) {
      expect(await refusal(token(VALID, { header }))).toBe('InvalidCredential: JWS Protected Header is invalid')
    }
    expect(await refusal('a.b.c')).toBe('InvalidCredential: JWS Protected Header is invalid')
    expect(await refusal(token(VALID, { header: { alg: 'HS256', crit: ['exp'], exp: 1 } }))).toContain('"crit"')
  })

  it('is refused if its payload is not an object', async () => {
    for (const claims of [[], null, 'role', 7]) {
      expect(await refusal(token(claims))).toBe('InvalidCredential: JWT Claims Set must be a top-level JSON object')
    }
  })

  it('may be large', async () => {
    const claims = { ...VALID, groups: Array.from({ length: 20_000 }, () => randomUUID()) }
    expect((await verify(token(claims))).claims).toEqual(claims)
  })

  it.each(['sb_publishable_abcdef', 'sb_secret_abcdef'])(
    'of the form %s is refused if the project does not have it',
    async (key) => {
      expect(await refusal(key)).toBe('InvalidCredential: Invalid API key')
    },
  )
})

describe('a signed claim', () => {
  it('is valid until it expires, to the second', async () => {
    const signed = await signClaims(project, { url: 'bucket/ä b.png', scope: 'download' }, 60, NOW)
    const [head = '', payload = '', signature] = signed.split('.')
    expect(signature).toBe(hmac(`${head}.${payload}`, project.jwtSecret))
    const claims = { url: 'bucket/ä b.png', scope: 'download', iat: SECONDS, exp: SECONDS + 60 }
    expect(await verifyClaims(trust, signed, new Date((SECONDS + 60) * 1000 - 1))).toEqual(claims)
    await expect(verifyClaims(trust, signed, new Date((SECONDS + 60) * 1000))).rejects.toThrow('"exp" claim')
    await expect(verifyClaims(foreign, signed, NOW)).rejects.toThrow('signature verification failed')
  })

  it('yields keys that open the project and do not change', async () => {
    const of = { ...project, ref: 'abcdefghijklmnopqrst', createdAt: new Date(NOW.getTime() - 1000) }
    const keys = await legacyKeys(of)
    expect(await legacyKeys(of)).toEqual(keys)
    expect(await verify(keys.anon)).toMatchObject({ role: 'anon', claims: { iss: 'supabase', ref: of.ref } })
    expect(await verify(keys.service_role)).toMatchObject({ role: 'service_role' })
    expect(await refusal(keys.anon, new Date('2037-01-01'))).toContain('"exp" claim timestamp check failed')
  })
})

/** The parts of a context that openProject needs, over the real control database. */
const ctxAt = (now: Date) =>
  ({
    config: { ENCRYPTION_KEY: `k1:${Buffer.alloc(32, 1).toString('base64')}` },
    db: control,
    now: () => now,
  }) as unknown as SystemCtx

describe('an opened project', () => {
  let organizationId: string
  beforeAll(async () => {
    organizationId = (await newOrganization()).id
  })

  async function insert(fields: Partial<typeof projects.$inferInsert> = {}): Promise<string> {
    const ref = randomLetters()
    const sealedRunnerPassword = await sealSecret(ctxAt(NOW), ref, 'runner_password', `runner of ${ref}`)
    return insertProject({ id: organizationId }, { ref, sealedRunnerPassword, ...fields })
  }
  let now = NOW
  const opened = (ref: string) => openProject(ctxAt(now), ref)
  const pass = (ms: number) => {
    now = new Date(now.getTime() + ms)
  }

  it('has what its services need', async () => {
    const ref = await insert({ storageConfig: { fileSizeLimit: 7 } })
    expect(await opened(ref)).toMatchObject({
      ref,
      organizationId,
      status: 'ACTIVE_HEALTHY',
      trust: { ref, legacy: { algorithm: 'HS256' }, issuers: [], acceptsLegacyApiKeys: true },
      runnerPassword: `runner of ${ref}`,
      storage: { fileSizeLimit: 7 },
    })
  })

  it('is cached for a second at most', async () => {
    const ref = await insert()
    // The first call gives the project its secret.
    await opened(ref)
    forgetProject(ref)
    const first = await opened(ref)
    expect(first).toMatchObject({ status: 'ACTIVE_HEALTHY', storage: { fileSizeLimit: 52_428_800 } })
    await control
      .update(projects)
      .set({ status: 'PAUSING', storageConfig: { fileSizeLimit: 1 } })
      .where(eq(projects.ref, ref))
    pass(499)
    expect(await opened(ref)).toBe(first)
    pass(501)
    const second = await opened(ref)
    expect(second).toMatchObject({ status: 'PAUSING', storage: { fileSizeLimit: 1 } })
    // The secrets of a cached project are not opened again.
    expect(second?.trust).toBe(first?.trust)
    expect(second?.urls).toBe(first?.urls)
    await control.update(projects).set({ removedAt: NOW }).where(eq(projects.ref, ref))
    // A cached row from the future is not valid now.
    pass(-10_000)
    expect(await opened(ref)).toBeUndefined()
  })

  it('is found as soon as it exists', async () => {
    const ref = await insert({ removedAt: NOW })
    expect(await opened(ref)).toBeUndefined()
    await control.update(projects).set({ removedAt: null }).where(eq(projects.ref, ref))
    expect(await opened(ref)).toMatchObject({ ref })
  })

  it('gets one secret, even if many callers open it at once for the first time', async () => {
    const ref = await insert({ sealedJwtSecret: null })
    const all = await Promise.all(Array.from({ length: 8 }, () => opened(ref)))
    forgetProject(ref)
    const secrets = [...all, await opened(ref)].map((found) => found?.trust.legacy?.jwk.k)
    expect(new Set(secrets).size).toBe(1)
  })
})

it('the trust of a project is evicted from the cache if it was used longest ago, and no other is', () => {
  const trustOf = (n: number) => sealedTrust(`project ${n}`, '{}')
  const [first, ...others] = Array.from({ length: 20_000 }, (_, n) => trustOf(n))
  expect(trustOf(0)).toBe(first)
  trustOf(20_000)
  expect(trustOf(0)).toBe(first)
  expect(trustOf(19_999)).toBe(others.at(-1))
  expect(trustOf(1)).not.toBe(others[0])
  sealedTrust('project 3', 'x'.repeat(TRUST_CHARACTERS_MAX - 20_000))
  expect(trustOf(19_999)).toBe(others.at(-1))
  expect(trustOf(4)).not.toBe(others[3])
})
