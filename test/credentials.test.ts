import { createHmac, randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { openProject } from '../src/auth/project.ts'
import {
  type InvalidCredential,
  legacyKeys,
  signClaims,
  verifyClaims,
  verifyCredential,
} from '../src/auth/project-token.ts'
import { projects } from '../src/db/schema/index.ts'
import type { SystemCtx } from '../src/env.ts'
import { sealSecret } from '../src/secrets/project.ts'
import { control, newOrganization } from './api.ts'

const NOW = new Date('2026-12-01T12:00:00.500Z')
const SECONDS = Math.floor(NOW.getTime() / 1000)
const project = { jwtSecret: 'a secret of this project, as long as one is' }
const other = { jwtSecret: 'a secret of another project, just as long' }

const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url')
const hmac = (text: string, secret: string, hash = 'sha256') =>
  createHmac(hash, secret).update(text).digest('base64url')

/** Made without our code. */
function token(claims: unknown, { header = { alg: 'HS256', typ: 'JWT' } as unknown, secret = project.jwtSecret } = {}) {
  const signed = `${part(header)}.${part(claims)}`
  return `${signed}.${hmac(signed, secret)}`
}

const verify = (text: string, now = NOW) => verifyCredential(project, text, now)
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
    ['p_abcdefghijklmnopqrst_storage'],
    ['Anon'],
    [null],
    [7],
    [['anon']],
    [{ role: 'anon' }],
  ])('takes no other role: %j', async (role) => {
    expect(await refusal(token({ ...VALID, role }))).toMatch(/^InvalidCredential: "role" claim must be one of/)
  })

  it.each([[7], [null], [{}]])('has no user where sub is %j', async (sub) => {
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
    ['RS256', hmac(`${part({ alg: 'RS256' })}.${part(VALID)}`, project.jwtSecret)],
    ['ES256', hmac(`${part({ alg: 'ES256' })}.${part(VALID)}`, project.jwtSecret)],
    ['hs256', hmac(`${part({ alg: 'hs256' })}.${part(VALID)}`, project.jwtSecret)],
  ])('with the algorithm %s is refused, whatever signs it', async (alg, signature) => {
    const text = `${part({ alg })}.${part(VALID)}.${signature}`
    expect(await refusal(text)).toBe('InvalidCredential: "alg" (Algorithm) Header Parameter value not allowed')
  })

  it('holds for its own project alone', async () => {
    const theirs = token(VALID, { secret: other.jwtSecret })
    expect(await refusal(theirs)).toBe('InvalidCredential: signature verification failed')
    expect(await verifyCredential(other, theirs, NOW)).toMatchObject({ role: 'authenticated' })
  })

  it('is refused when one character of it changed', async () => {
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
  ])('is refused when it is no token', async (text) => {
    expect(await refusal(text)).toBe('InvalidCredential: Invalid Compact JWS')
  })

  it('is refused with a header that cannot be read', async () => {
    for (const header of [[], null, 'HS256', 7]) {
      expect(await refusal(token(VALID, { header }))).toBe('InvalidCredential: JWS Protected Header is invalid')
    }
    expect(await refusal('a.b.c')).toBe('InvalidCredential: JWS Protected Header is invalid')
    expect(await refusal(token(VALID, { header: { alg: 'HS256', crit: ['exp'], exp: 1 } }))).toContain('"crit"')
  })

  it('is refused when what was signed is no object', async () => {
    for (const claims of [[], null, 'role', 7]) {
      expect(await refusal(token(claims))).toBe('InvalidCredential: JWT Claims Set must be a top-level JSON object')
    }
  })

  it('may be large', async () => {
    const claims = { ...VALID, groups: Array.from({ length: 20_000 }, () => randomUUID()) }
    expect((await verify(token(claims))).claims).toEqual(claims)
  })

  it.each(['sb_publishable_abcdef', 'sb_secret_abcdef'])('of the form %s is refused in clear words', async (key) => {
    expect(await refusal(key)).toMatch(/^InvalidCredential: .*sb_….*anon or service_role/)
  })
})

describe('a signed claim', () => {
  it('holds until it expires, to the second', async () => {
    const signed = await signClaims(project, { url: 'bucket/ä b.png', scope: 'download' }, 60, NOW)
    const [head = '', payload = '', signature] = signed.split('.')
    expect(signature).toBe(hmac(`${head}.${payload}`, project.jwtSecret))
    const claims = { url: 'bucket/ä b.png', scope: 'download', iat: SECONDS, exp: SECONDS + 60 }
    expect(await verifyClaims(project, signed, new Date((SECONDS + 60) * 1000 - 1))).toEqual(claims)
    await expect(verifyClaims(project, signed, new Date((SECONDS + 60) * 1000))).rejects.toThrow('"exp" claim')
    await expect(verifyClaims(other, signed, NOW)).rejects.toThrow('signature verification failed')
  })

  it('makes keys that open the project and stay the same', async () => {
    const of = { ...project, ref: 'abcdefghijklmnopqrst', createdAt: new Date(NOW.getTime() - 1000) }
    const keys = await legacyKeys(of)
    expect(await legacyKeys(of)).toEqual(keys)
    expect(await verify(keys.anon)).toMatchObject({ role: 'anon', claims: { iss: 'supabase', ref: of.ref } })
    expect(await verify(keys.service_role)).toMatchObject({ role: 'service_role' })
    expect(await refusal(keys.anon, new Date('2037-01-01'))).toContain('"exp" claim timestamp check failed')
  })
})

/** What openProject needs of a context, over the real control database. */
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
    const ref = Array.from({ length: 20 }, () => String.fromCharCode(97 + Math.floor(Math.random() * 26))).join('')
    await control.insert(projects).values({
      ref,
      organizationId,
      name: ref,
      region: 'us-east-1',
      instanceSize: 'nano',
      status: 'ACTIVE_HEALTHY',
      sealedPassword: '',
      sealedRunnerPassword: await sealSecret(ctxAt(NOW), ref, 'runner_password', `runner of ${ref}`),
      ...fields,
    })
    return ref
  }
  const later = (ms: number) => ctxAt(new Date(NOW.getTime() + ms))

  it('tells what its services need', async () => {
    const ref = await insert({ storageConfig: { fileSizeLimit: 7 } })
    expect(await openProject(later(0), ref)).toEqual({
      ref,
      organizationId,
      status: 'ACTIVE_HEALTHY',
      jwtSecret: expect.stringMatching(/^[\w-]{64}$/),
      runnerPassword: `runner of ${ref}`,
      storage: { fileSizeLimit: 7 },
    })
  })

  it('is kept for ten seconds at most', async () => {
    const ref = await insert()
    const opened = await openProject(later(0), ref)
    expect(opened).toMatchObject({ status: 'ACTIVE_HEALTHY', storage: { fileSizeLimit: 52_428_800 } })
    await control
      .update(projects)
      .set({ status: 'PAUSING', storageConfig: { fileSizeLimit: 1 } })
      .where(eq(projects.ref, ref))
    expect(await openProject(later(9_999), ref)).toBe(opened)
    expect(await openProject(later(10_000), ref)).toMatchObject({ status: 'PAUSING', storage: { fileSizeLimit: 1 } })
    await control.update(projects).set({ removedAt: NOW }).where(eq(projects.ref, ref))
    // Kept from a time to come, it says nothing of now.
    expect(await openProject(later(0), ref)).toBeUndefined()
  })

  it('is found as soon as it is there', async () => {
    const ref = await insert({ removedAt: NOW })
    expect(await openProject(later(0), ref)).toBeUndefined()
    await control.update(projects).set({ removedAt: null }).where(eq(projects.ref, ref))
    expect(await openProject(later(0), ref)).toMatchObject({ ref })
  })

  it('gets one secret, though many open it at once for the first time', async () => {
    const ref = await insert({ sealedJwtSecret: null })
    const opened = await Promise.all(Array.from({ length: 8 }, () => openProject(later(0), ref)))
    expect(new Set(opened.map((found) => found?.jwtSecret)).size).toBe(1)
    expect((await openProject(later(60_000), ref))?.jwtSecret).toBe(opened[0]?.jwtSecret)
  })
})
