import { randomUUID } from 'node:crypto'
import { createRemoteJWKSet, importJWK, jwtVerify, SignJWT } from 'jose'
import { beforeAll, describe, expect, it } from 'vitest'
import { baseUrl, newOrganization, type TestOrganization } from '../../support/api.ts'
import { ALGORITHMS, keysPath, newPrivateJwk, newProjectRow } from '../../support/signing-keys.ts'
import { exchange } from '../../support/storage.ts'

const PATH = '/auth/v1/.well-known/jwks.json'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProjectRow(organization)
})

const urlOf = (project = ref) => new URL(`/p/${project}${PATH}`, baseUrl)
const get = (url = urlOf(), init: RequestInit = {}) =>
  fetch(url, { ...init, headers: { 'x-test-address': randomUUID(), ...init.headers } })
const keys = async () => ((await (await get()).json()) as { keys: { kid: string; alg: string }[] }).keys
const create = async (body: Record<string, unknown>) => (await organization.owner.post(keysPath(ref), body)).body
const move = (id: string, status: string) => organization.owner.patch(keysPath(ref, id), { status })

describe('GET /auth/v1/.well-known/jwks.json', () => {
  it('returns the public keys of all that are not revoked, and no secret', async () => {
    expect(await keys()).toEqual([])
    const made = []
    for (const algorithm of ALGORITHMS) made.push(await create({ algorithm, status: 'in_use' }))
    await organization.owner.post(keysPath(ref, 'legacy'))
    const standby = await create({ algorithm: 'EdDSA' })
    const [, es256, rs256, eddsa] = made
    expect(await keys()).toEqual([es256, rs256, eddsa, standby].map(({ public_jwk }) => public_jwk))
    await move(rs256.id, 'revoked')
    expect((await keys()).map(({ kid }) => kid)).toEqual([es256.id, eddsa.id, standby.id])
  })

  it('is sufficient for an external verifier', async () => {
    const jwk = await newPrivateJwk('ES256')
    const { id } = await create({ algorithm: 'ES256', status: 'in_use', private_jwk: jwk })
    const token = await new SignJWT({ role: 'authenticated' })
      .setProtectedHeader({ alg: 'ES256', kid: id })
      .setExpirationTime('1m')
      .sign(await importJWK(jwk, 'ES256'))
    const set = createRemoteJWKSet(urlOf())
    expect((await jwtVerify(token, set)).payload).toMatchObject({ role: 'authenticated' })
  })

  it('is also at the host of the project', async () => {
    const { status, body } = await exchange(new URL(PATH, baseUrl).href, {
      headers: { host: `${ref}.projects.example.com` },
    })
    expect([status, JSON.parse(body)]).toEqual([200, { keys: await keys() }])
  })

  it('may be cached for a minute, and read by any page', async () => {
    const { headers, status } = await get()
    expect(status).toBe(200)
    expect(Object.fromEntries(headers)).toMatchObject({
      'content-type': 'application/json; charset=utf-8',
      'cache-control': 'public, max-age=60',
      'access-control-allow-origin': '*',
    })
    const head = await get(urlOf(), { method: 'HEAD' })
    expect([head.status, await head.text()]).toEqual([200, ''])
    const preflight = await get(urlOf(), { method: 'OPTIONS' })
    expect([preflight.status, preflight.headers.get('access-control-allow-methods')]).toEqual([204, 'GET,HEAD'])
    const post = await get(urlOf(), { method: 'POST' })
    expect([post.status, post.headers.get('allow')]).toEqual([405, 'GET, HEAD, OPTIONS'])
  })

  it('answers 404 for an unknown project, and guesses are counted', async () => {
    const missing = await get(urlOf('abcdefghijklmnopqrst'))
    expect([missing.status, await missing.json()]).toEqual([404, { message: 'Project not found' }])
    expect(missing.headers.get('cache-control')).toBe('no-store')
    expect((await get(new URL(PATH, baseUrl))).status).toBe(404)
    const headers = { 'x-test-address': randomUUID(), 'x-test-clock': String(Date.now()) }
    const replies = await Promise.all(
      Array.from({ length: 121 }, () => get(urlOf('abcdefghijklmnopqrst'), { headers })),
    )
    const statuses = replies.map(({ status }) => status)
    expect(statuses.filter((status) => status === 404)).toHaveLength(120)
    expect(statuses.filter((status) => status === 429)).toHaveLength(1)
    // All services share the quota of the address, and tell when it ends.
    for (const path of [PATH, '/rest/v1/x', '/functions/v1/x', '/storage/v1/object/x']) {
      const refused = await get(new URL(`/p/abcdefghijklmnopqrst${path}`, baseUrl), { headers })
      expect([path, refused.status, refused.headers.get('retry-after')]).toEqual([path, 429, '60'])
    }
  })
})
