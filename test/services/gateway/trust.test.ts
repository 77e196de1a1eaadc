import { randomBytes, randomUUID } from 'node:crypto'
import { eq, sql } from 'drizzle-orm'
import { expect, it } from 'vitest'
import { KEYS_MAX as API_KEYS_MAX, CLAIMS_CHARACTERS_MAX } from '../../../src/management/keys/api-keys/service.ts'
import { KEYS_MAX as SIGNING_KEYS_MAX } from '../../../src/management/keys/signing-keys/service.ts'
import { KEY_SET_CHARACTERS_MAX } from '../../../src/management/service-config/third-party-auth/jwks.ts'
import { INTEGRATIONS_MAX } from '../../../src/management/service-config/third-party-auth/service.ts'
import { apiKeys, projects } from '../../../src/model/tables/index.ts'
import { TRUST } from '../../../src/services/gateway/trust.ts'
import { baseUrl, control, newOrganization, type TestOrganization } from '../../support/api.ts'
import { newForeignKey } from '../../support/issuer.ts'
import { keysPath, newProjectRow } from '../../support/signing-keys.ts'

/** The limit for the largest project in docs/auth-and-keys.md. */
const CHARACTERS_MAX = 512 * 1024

async function fillSigningKeys({ owner }: TestOrganization, ref: string): Promise<void> {
  const create = (k: string) =>
    owner.post(keysPath(ref), { algorithm: 'HS256', status: 'in_use', private_jwk: { kty: 'oct', k } })
  for (let n = 0; n < SIGNING_KEYS_MAX; n++) {
    expect((await create(randomBytes(1_024).toString('base64url'))).status).toBe(201)
  }
  expect((await owner.post(keysPath(ref, 'legacy'))).status).toBe(201)
  expect((await create(randomBytes(1_024).toString('base64url'))).status).toBe(409)
}

async function fillIssuers({ owner }: TestOrganization, ref: string): Promise<void> {
  const { jwk } = await newForeignKey('RS256')
  const one = { ...jwk, kid: 'x'.repeat(256) }
  const count = Math.floor((KEY_SET_CHARACTERS_MAX - '{"keys":[]}'.length) / (JSON.stringify(one).length + 1))
  const custom_jwks = { keys: Array.from({ length: count }, () => one) }
  for (let n = 0; n < INTEGRATIONS_MAX; n++) {
    const reply = await owner.post(`/v1/projects/${ref}/config/auth/third-party-auth`, { custom_jwks })
    expect(reply.status, reply.body.message).toBe(201)
  }
}

async function fillApiKeys({ owner }: TestOrganization, ref: string): Promise<void> {
  const create = (name: string, claims: object) =>
    owner.post(`/v1/projects/${ref}/api-keys`, { type: 'secret', name, secret_jwt_template: claims })
  const { body } = await create('first', { role: 'anon', big: 'x'.repeat(4_070) })
  const [row] = await control.select().from(apiKeys).where(eq(apiKeys.id, body.id))
  if (!row) throw new Error('the key was not made')
  const largest = Math.floor(CLAIMS_CHARACTERS_MAX / 4_096) - 1
  const others = Array.from({ length: API_KEYS_MAX - 1 }, (_, n) => ({
    ...{ ...row, id: randomUUID(), name: `n${n}_`, hash: randomBytes(32).toString('base64url') },
    secretJwtTemplate: n < largest - 1 ? row.secretJwtTemplate : { role: 'service_role' },
  }))
  await control.insert(apiKeys).values(others)
  expect((await create('last', { role: 'anon' })).body.message).toBe(
    `Too many API keys: a project can have at most ${API_KEYS_MAX}`,
  )
}

it('the trust of the largest project is read in half a MiB, and opened', async () => {
  const organization = await newOrganization()
  const ref = await newProjectRow(organization)
  await fillSigningKeys(organization, ref)
  await fillIssuers(organization, ref)
  await fillApiKeys(organization, ref)
  const [told] = await control
    .select({ characters: sql<number>`length(trust)` })
    .from(sql`(select ${TRUST} as trust from ${projects} p where p.ref = ${ref}) p`)
  expect(told?.characters).toBeGreaterThan(CHARACTERS_MAX * 0.8)
  expect(told?.characters).toBeLessThan(CHARACTERS_MAX)
  const opened = await fetch(new URL(`/p/${ref}/auth/v1/.well-known/jwks.json`, baseUrl))
  expect([opened.status, await opened.json()]).toEqual([200, { keys: [] }])
})
