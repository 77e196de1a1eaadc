import { randomUUID } from 'node:crypto'
import { eq, sql } from 'drizzle-orm'
import { type JWTPayload, SignJWT } from 'jose'
import { beforeAll, describe, expect, it } from 'vitest'
import { thirdPartyAuths } from '../../../src/model/tables/index.ts'
import { baseUrl, control, newOrganization, type TestOrganization, tick } from '../../support/api.ts'
import { putFunction } from '../../support/functions.ts'
import { type ForeignKey, newForeignKey, newIssuer } from '../../support/issuer.ts'
import { apiOf, newStorage, type TestStorage } from '../../support/storage.ts'

interface Place extends TestStorage {
  slug: string
}

let organization: TestOrganization
let place: Place
let other: Place
let key: ForeignKey
beforeAll(async () => {
  organization = await newOrganization()
  ;[place, other] = (await Promise.all([newPlace(), newPlace()])) as [Place, Place]
  key = await newForeignKey()
})

async function newPlace(): Promise<Place> {
  const storage = await newStorage(organization)
  const program = 'Deno.serve(() => new Response("called"))'
  const { slug } = await putFunction(storage.ref, program, { verifyJwt: true })
  return { ...storage, slug }
}

const pathOf = ({ ref }: Place, id = '') => `/v1/projects/${ref}/config/auth/third-party-auth${id && `/${id}`}`

/** Trusts an issuer for the length of a test. */
async function trust(body: unknown, of = place): Promise<string> {
  const reply = await organization.owner.post(pathOf(of), body)
  expect(reply).toMatchObject({ status: 201 })
  return reply.body.id
}
const removeIntegration = async (id: string, of = place) =>
  expect(await organization.owner.delete(pathOf(of, id))).toMatchObject({ status: 200 })

const claims = (fields: JWTPayload = {}) => ({ sub: randomUUID(), role: 'authenticated', ...fields })

/** Returns whether the storage server and a function accept it. */
async function ask(token: string, of = place): Promise<{ storage: boolean; functions: boolean }> {
  const headers = { authorization: `Bearer ${token}` }
  const [storage, functions] = await Promise.all([
    apiOf(of, token).get('bucket'),
    fetch(new URL(`/p/${of.ref}/functions/v1/${of.slug}`, baseUrl), { headers }),
  ])
  return { storage: storage.status === 200, functions: functions.status === 200 }
}
const TAKEN = { storage: true, functions: true }
const REFUSED = { storage: false, functions: false }

describe('a token of another issuer', () => {
  it.each(['RS256', 'ES256', 'EdDSA'])('signed with %s is accepted as long as the integration exists', async (alg) => {
    const signer = await newForeignKey(alg)
    const { issuer } = await newIssuer([await newForeignKey(), signer])
    const token = await signer.sign(claims({ iss: issuer }))
    expect(await ask(token)).toEqual(REFUSED)
    const id = await trust({ oidc_issuer_url: issuer })
    expect(await ask(token)).toEqual(TAKEN)
    expect(await ask(token, other)).toEqual(REFUSED)
    await removeIntegration(id)
    expect(await ask(token)).toEqual(REFUSED)
  })

  it('names the caller', async () => {
    const { issuer } = await newIssuer([key])
    const id = await trust({ oidc_issuer_url: issuer })
    const service = await key.sign(claims({ iss: issuer, role: 'service_role' }))
    const name = `bucket-${randomUUID()}`
    expect(await apiOf(place, service).post('bucket', { name })).toMatchObject({ status: 200 })
    const user = await key.sign(claims({ iss: issuer }))
    expect(await apiOf(place, user).post('bucket', { name: `${name}-2` })).toMatchObject({
      body: { statusCode: '403' },
    })
    const postgres = await key.sign(claims({ iss: issuer, role: 'postgres' }))
    expect(await ask(postgres)).toMatchObject({ storage: false })
    await removeIntegration(id)
  })

  it('is refused unless every part of it is valid', async () => {
    const { issuer } = await newIssuer([key])
    const id = await trust({ oidc_issuer_url: issuer })
    const iss = issuer
    const stranger = await newForeignKey('ES256', key.kid)
    const now = Math.floor(Date.now() / 1000)
    const publicKey = new TextEncoder().encode(JSON.stringify(key.jwk))
    const [, payload] = (await key.sign(claims({ iss }))).split('.')
    const none = `${Buffer.from('{"alg":"none"}').toString('base64url')}.${payload}.`
    const tokens: [string, string][] = [
      ['another key of the same name', await stranger.sign(claims({ iss }))],
      ['a key of another name', await key.sign(claims({ iss }), { kid: randomUUID() })],
      ['no name of a key', await key.sign(claims({ iss }), {})],
      ['another issuer', await key.sign(claims({ iss: `${iss}.evil.dev` }))],
      ['a slash more', await key.sign(claims({ iss: `${iss}/` }))],
      ['no issuer', await key.sign(claims())],
      ['a list of issuers', await key.sign(claims({ iss: [iss] as unknown as string }))],
      ['a start that is to come', await key.sign(claims({ iss, nbf: now + 600 }))],
      ['no signature', none],
      [
        'the public key as a secret',
        await new SignJWT(claims({ iss })).setProtectedHeader({ alg: 'HS256', kid: key.kid }).sign(publicKey),
      ],
    ]
    expect(await ask(await key.sign(claims({ iss })))).toEqual(TAKEN)
    for (const [name, token] of tokens) expect([name, await ask(token)]).toEqual([name, REFUSED])
    await removeIntegration(id)
  })

  it.each(['jwks_url', 'custom_jwks'])(
    'verified by a %s alone may name any issuer, and requires a known key',
    async (field) => {
      const { jwksUrl } = await newIssuer([key])
      const id = await trust({ [field]: field === 'jwks_url' ? jwksUrl : { keys: [key.jwk] } })
      const stranger = await newForeignKey()
      for (const iss of ['https://one.dev', undefined]) {
        const fields = iss === undefined ? {} : { iss }
        expect(await ask(await key.sign(claims(fields)))).toEqual(TAKEN)
        expect(await ask(await key.sign(claims(fields)), other)).toEqual(REFUSED)
        expect(await ask(await stranger.sign(claims(fields)))).toEqual(REFUSED)
        expect(await ask(await stranger.sign(claims(fields), { kid: key.kid }))).toEqual(REFUSED)
      }
      await removeIntegration(id)
      expect(await ask(await key.sign(claims()))).toEqual(REFUSED)
    },
  )

  it('is accepted if several integrations know its key, or other keys of the same id', async () => {
    const namesake = await newForeignKey('ES256', key.kid)
    const { jwksUrl } = await newIssuer([key])
    const { issuer } = await newIssuer([key])
    const sources = [{ jwks_url: jwksUrl }, { custom_jwks: { keys: [key.jwk] } }, { oidc_issuer_url: issuer }]
    const ids: string[] = []
    for (const source of [...sources, { custom_jwks: { keys: [namesake.jwk] } }]) ids.push(await trust(source))
    expect(await ask(await key.sign(claims()))).toEqual(TAKEN)
    expect(await ask(await namesake.sign(claims()))).toEqual(TAKEN)
    expect(await ask(await key.sign(claims({ iss: issuer })))).toEqual(TAKEN)
    expect(await ask(await namesake.sign(claims({ iss: issuer })))).toEqual(REFUSED)
    for (const id of ids) await removeIntegration(id)
  })

  it('cannot use the keys of another issuer', async () => {
    const [one, two] = await Promise.all([newForeignKey(), newForeignKey()])
    const [first, second] = await Promise.all([newIssuer([one]), newIssuer([two])])
    const ids = [await trust({ oidc_issuer_url: first.issuer }), await trust({ oidc_issuer_url: second.issuer })]
    expect(await ask(await one.sign(claims({ iss: first.issuer })))).toEqual(TAKEN)
    expect(await ask(await one.sign(claims({ iss: second.issuer })))).toEqual(REFUSED)
    expect(await ask(await two.sign(claims({ iss: first.issuer })))).toEqual(REFUSED)
    for (const id of ids) await removeIntegration(id)
  })

  it('is accepted with new keys, and refused with old ones, once they have been fetched', async () => {
    const next = await newForeignKey('RS256')
    const { issuer, publish, documents } = await newIssuer([key])
    const id = await trust({ oidc_issuer_url: issuer })
    const refresh = async () => {
      const due = { refreshAt: sql`now() - interval '1 second'` }
      await control.update(thirdPartyAuths).set(due).where(eq(thirdPartyAuths.id, id))
      await tick()
    }
    const [old, renewed] = await Promise.all([key.sign(claims({ iss: issuer })), next.sign(claims({ iss: issuer }))])
    expect(await Promise.all([ask(old), ask(renewed)])).toEqual([TAKEN, REFUSED])
    publish([key, next])
    await refresh()
    await expect.poll(() => Promise.all([ask(old), ask(renewed)])).toEqual([TAKEN, TAKEN])
    publish([next])
    await refresh()
    await expect.poll(() => Promise.all([ask(old), ask(renewed)])).toEqual([REFUSED, TAKEN])
    documents.delete('/jwks')
    await refresh()
    expect(await ask(renewed)).toEqual(TAKEN)
    for (const [hours, outcome] of [
      [25, REFUSED],
      [23, TAKEN],
    ] as const) {
      const resolvedAt = sql`now() - make_interval(hours => ${hours})`
      await control.update(thirdPartyAuths).set({ resolvedAt }).where(eq(thirdPartyAuths.id, id))
      await expect.poll(() => ask(renewed)).toEqual(outcome)
    }
    publish([])
    await refresh()
    await expect.poll(() => ask(renewed)).toEqual(REFUSED)
    publish([next])
    await refresh()
    await expect.poll(() => ask(renewed)).toEqual(TAKEN)
    await removeIntegration(id)
  })
})
