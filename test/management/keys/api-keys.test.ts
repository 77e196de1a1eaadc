import { createHash } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { beforeAll, describe, expect, it } from 'vitest'
import { apiKeys, projects } from '../../../src/model/tables/index.ts'
import {
  type Caller,
  control,
  newApp,
  newMember,
  newOrganization,
  type TestOrganization,
  workerLogs,
} from '../../support/api.ts'
import { createProject } from '../../support/projects.ts'

interface Key {
  id: string
  api_key: string
  prefix: string
  hash: string
}

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await createProject(organization)
})

const sha256 = (text: string) => createHash('sha256').update(text).digest('base64url')

const list = (caller: Caller, query = '', project = ref) => caller.get(`/v1/projects/${project}/api-keys${query}`)
const allOf = async (project: string): Promise<Key[]> => (await list(organization.owner, '?reveal=true', project)).body
const keysOf = async (project: string) => (await allOf(project)).slice(0, 2)
const partsOf = ({ api_key }: Key) =>
  api_key.split('.').map((part) => Buffer.from(part, 'base64url')) as [Buffer, Buffer, Buffer]
const claimsOf = (key: Key) => JSON.parse(String(partsOf(key)[1]))

describe('GET /v1/projects/{ref}/api-keys', () => {
  it('lists the legacy keys, a publishable one and a secret one, as clients know them', async () => {
    const reply = await list(organization.owner, '?reveal=true')
    const key = (role: string) => ({
      name: role,
      api_key: expect.stringMatching(/^[\w-]+\.[\w-]+\.[\w-]{43}$/),
      id: role,
      type: 'legacy',
      prefix: expect.stringMatching(/^[\w-]{5}$/),
      hash: expect.stringMatching(/^[\w-]{43}$/),
      description: `Legacy ${role} API key`,
    })
    expect(reply.status).toBe(200)
    const made = (type: string, secret_jwt_template: unknown) => ({
      name: 'default',
      api_key: expect.stringMatching(new RegExp(`^sb_${type}_[\\w-]{22}_[\\w-]{8}$`)),
      id: expect.stringMatching(/^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/),
      type,
      prefix: expect.stringMatching(new RegExp(`^sb_${type}_[\\w-]{5}$`)),
      hash: expect.stringMatching(/^[\w-]{43}$/),
      description: null,
      secret_jwt_template,
      inserted_at: expect.any(String),
      updated_at: expect.any(String),
    })
    const own = [made('publishable', null), made('secret', { role: 'service_role' })]
    expect(reply.body).toEqual([key('anon'), key('service_role'), ...own])
    for (const { api_key, prefix, hash } of reply.body.slice(2) as Key[]) {
      expect(api_key.startsWith(prefix)).toBe(true)
      expect(hash).toBe(sha256(api_key))
      expect(api_key.slice(-8)).toBe(sha256(`${ref}|${api_key.slice(0, -9)}`).slice(0, 8))
    }
    const { body: project } = await organization.owner.get(`/v1/projects/${ref}`)
    for (const found of reply.body.slice(0, 2) as Key[]) {
      expect(JSON.parse(String(partsOf(found)[0]))).toEqual({ alg: 'HS256', typ: 'JWT' })
      const iat = Math.floor(Date.parse(project.created_at) / 1000)
      expect(claimsOf(found)).toEqual({ iss: 'supabase', ref, role: found.id, iat, exp: iat + 315_576_000 })
      expect(found.hash).toBe(sha256(found.api_key))
    }
  })

  it('returns the same keys every time, and other keys for each project', async () => {
    const [keys, again] = [await allOf(ref), await allOf(ref)]
    expect(again).toEqual(keys)
    const others = await allOf(await createProject(organization))
    expect(new Set([...keys, ...others].map(({ hash }) => hash)).size).toBe(8)
    expect(new Set([...keys, ...others].map(({ prefix }) => prefix)).size).toBe(8)
  })

  it.each(['', '?reveal=false', '?reveal=0', '?reveal=no'])('hides the secret keys with "%s"', async (query) => {
    const [anon, service, publishable, secret] = await allOf(ref)
    const { body } = await list(organization.owner, query)
    const hidden = (key?: Key) => ({ ...key, api_key: `${key?.prefix}${'·'.repeat(26)}` })
    expect(body).toEqual([anon, hidden(service), publishable, hidden(secret)])
  })

  it.each(['true', '1', 'yes', 'on'])('shows the secret keys with reveal=%s', async (reveal) => {
    expect((await list(organization.owner, `?reveal=${reveal}`)).body).toEqual(await allOf(ref))
  })

  it('refuses a reveal that is neither true nor false', async () => {
    const reply = await list(organization.owner, '?reveal=perhaps')
    expect(reply).toMatchObject({ status: 400, body: { message: expect.stringContaining('query.reveal') } })
  })

  it('gives an old project without keys one set, whoever asks first', async () => {
    const old = await createProject(organization)
    await control.update(projects).set({ sealedJwtSecret: null }).where(eq(projects.ref, old))
    const [keys, ...same] = await Promise.all(Array.from({ length: 8 }, () => keysOf(old)))
    expect(keys).toHaveLength(2)
    expect(same).toEqual(Array(7).fill(keys))
    expect(await keysOf(old)).toEqual(keys)
  })

  it('shows secret keys to the roles that may see secrets', async () => {
    const other = await newOrganization()
    const replies = await Promise.all([
      newMember(organization, 'developer').then((caller) => list(caller)),
      newMember(organization, 'developer', ref).then((caller) => list(caller)),
      newApp(organization, ['secrets:read']).then(({ caller }) => list(caller)),
      newMember(organization, 'read-only').then((caller) => list(caller, '?reveal=true')),
      newApp(organization, ['projects:read', 'secrets:write']).then(({ caller }) => list(caller, '?reveal=true')),
      list(other.owner, '?reveal=true'),
    ])
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 403, 403, 404])
    for (const { body } of replies.slice(3)) expect(Object.keys(body)).toEqual(['message'])
  })

  it('leaves no key in the log, and stores none unsealed', async () => {
    const keys = await keysOf(ref)
    const own = (await allOf(ref)).slice(2)
    const rows = await control.select().from(projects).where(eq(projects.ref, ref))
    const keyRows = await control.select().from(apiKeys).where(eq(apiKeys.projectRef, ref))
    expect(keyRows).toHaveLength(own.length)
    expect(rows).toMatchObject([{ sealedJwtSecret: expect.stringMatching(/^\w+\.[\w-]+$/) }])
    const logs = await workerLogs()
    expect(logs.some((line) => line.includes(`/v1/projects/${ref}/api-keys`))).toBe(true)
    const kept = JSON.stringify([rows, keyRows, logs])
    for (const { api_key } of keys) {
      expect(kept).not.toContain(api_key.split('.')[1])
      expect(kept).not.toContain(api_key.split('.')[2])
    }
    for (const { api_key, prefix } of own) expect(kept).not.toContain(api_key.slice(prefix.length))
  })
})
