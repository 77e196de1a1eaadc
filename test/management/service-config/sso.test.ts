import { randomUUID } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { and, asc, eq, sql } from 'drizzle-orm'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { auditLog, ssoDomains, ssoProviders } from '../../../src/model/tables/index.ts'
import {
  baseUrl,
  type Caller,
  control,
  newMember,
  newOrganization,
  setName,
  type TestOrganization,
  workerLogs,
} from '../../support/api.ts'
import { newCli } from '../../support/cli.ts'
import { extended } from '../../support/extended.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { newReceiver, withStatus } from '../../support/receiver.ts'
import { metadataOf } from '../../support/saml.ts'
import { newProjectRow } from '../../support/signing-keys.ts'
import { BAD, mapped, XML } from '../../support/sso-bodies.ts'

const NOBODY = '00000000-0000-4000-8000-000000000000'
const UUID = expect.stringMatching(/^[0-9a-f-]{36}$/)
const NOW = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/)
const PUBLIC = { A: ['93.184.215.14'], ttl: 0 }
const MAPPING = { keys: { mail: { name: 'email', names: ['mail', 'E-Mail'], default: 'none', array: true } } }
const PERSISTENT = 'urn:oasis:names:tc:SAML:2.0:nameid-format:persistent'

const newEntity = () => `https://idp.example.com/${randomUUID()}`
const newDomain = () => `${randomUUID()}.example.com`

const setSaml = async (ref: string, saml_enabled: boolean) =>
  expect(await owner.patch(`/v1/projects/${ref}/config/auth`, { saml_enabled })).toMatchObject({ status: 200 })

let organization: TestOrganization
let owner: Caller
beforeAll(async () => {
  organization = await newOrganization()
  owner = organization.owner
})

/** Round trips for the caller, the project, and the resource. */
const ROUND_TRIPS = 3

async function queriesOf(headers: Headers): Promise<number> {
  const id = String(headers.get('x-request-id'))
  const line = (await workerLogs()).find((text) => text.includes(id) && text.includes('"queries"'))
  return JSON.parse(line ?? '{}').queries
}

async function newPlace(given?: string) {
  const ref = given ?? (await newProjectRow(organization))
  await setSaml(ref, true)
  const path = `/v1/projects/${ref}/config/auth/sso/providers`
  const create = (fields: Record<string, unknown> = {}) =>
    owner.post(path, { type: 'saml', metadata_xml: metadataOf(newEntity()), ...fields })
  const newProvider = async (fields: Record<string, unknown> = {}) => {
    const reply = await create(fields)
    expect(reply).toMatchObject({ status: 201 })
    return reply.body
  }
  const rows = () => control.select().from(ssoProviders).where(eq(ssoProviders.projectRef, ref))
  const domains = async () => {
    const found = await control.select().from(ssoDomains).where(eq(ssoDomains.projectRef, ref))
    return found.map(({ domain }) => domain).sort()
  }
  return { ref, path, create, newProvider, rows, domains }
}

/** Makes a host whose name leads to this test's own server, which serves the given document. */
async function newIdp(entity = newEntity()) {
  const receiver = await newReceiver(withStatus(200, {}, metadataOf(entity)))
  const host = `${randomUUID()}.idp.dev`
  await setName(host, PUBLIC, new URL(receiver.url).origin)
  return { ...receiver, entity, url: `https://${host}/metadata` }
}

describe('an SSO provider', () => {
  it('is created, shown, listed, changed and deleted', async () => {
    const { ref, path, create, rows } = await newPlace()
    const [entity, domain] = [newEntity(), newDomain()]
    const xml = metadataOf(entity)
    const created = await create({ metadata_xml: xml, domains: [domain.toUpperCase(), domain] })
    const times = { created_at: NOW, updated_at: NOW }
    const saml = { id: UUID, entity_id: entity, ...times }
    const domains = [{ id: UUID, domain, ...times }]
    expect(created).toMatchObject({ status: 201 })
    expect(created.body).toEqual({ id: UUID, saml: { ...saml, metadata_xml: xml }, domains, ...times })
    const { id } = created.body
    expect(created.body.saml.id).toBe(id)
    expect((await owner.get(`${path}/${id.toUpperCase()}`)).body).toEqual(created.body)
    expect((await owner.get(path)).body).toEqual({ items: [{ id, saml, domains, ...times }] })

    const changed = await owner.put(`${path}/${id}`, { attribute_mapping: MAPPING, name_id_format: PERSISTENT })
    expect(changed.body).toEqual({
      ...created.body,
      saml: { ...created.body.saml, attribute_mapping: MAPPING, name_id_format: PERSISTENT, updated_at: NOW },
      updated_at: NOW,
    })
    expect(await owner.put(`${path}/${id}`, {})).toMatchObject({ status: 200, body: changed.body })
    expect(await owner.delete(`${path}/${id}`)).toMatchObject({ status: 200, body: changed.body })
    expect(await rows()).toEqual([])
    expect((await owner.get(path)).body).toEqual({ items: [] })
    const traces = await control
      .select({ action: auditLog.action, userId: auditLog.actorUserId, detail: auditLog.detail })
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, ref), eq(auditLog.organizationId, organization.id)))
      .orderBy(asc(auditLog.createdAt))
    const { userId } = organization
    expect(traces.filter(({ action }) => action.startsWith('sso_'))).toEqual([
      { action: 'sso_provider.create', userId, detail: { provider: id, entity, domains: [domain] } },
      {
        action: 'sso_provider.update',
        userId,
        detail: { provider: id, fields: ['attribute_mapping', 'name_id_format'] },
      },
      { action: 'sso_provider.delete', userId, detail: { provider: id, entity } },
    ])
  })

  it('keeps the rows of remaining domains, and deletes the others', async () => {
    const { path, newProvider, domains } = await newPlace()
    const [kept, left, added] = [newDomain(), newDomain(), newDomain()]
    const before = await newProvider({ domains: [kept, left] })
    const { body } = await owner.put(`${path}/${before.id}`, { domains: [added, kept] })
    const row = before.domains.find(({ domain }: { domain: string }) => domain === kept)
    expect(body.domains).toContainEqual(row)
    expect(await domains()).toEqual([added, kept].sort())
    expect((await owner.put(`${path}/${before.id}`, { domains: [] })).body.domains).toEqual([])
    await newProvider({ domains: [left, kept] })
  })

  it('loses nothing of two simultaneous changes', async () => {
    const { path, newProvider } = await newPlace()
    const { id } = await newProvider()
    const domain = newDomain()
    await Promise.all([
      owner.put(`${path}/${id}`, { attribute_mapping: MAPPING }),
      owner.put(`${path}/${id}`, { name_id_format: PERSISTENT }),
      owner.put(`${path}/${id}`, { domains: [domain] }),
    ])
    expect((await owner.get(`${path}/${id}`)).body).toMatchObject({
      saml: { attribute_mapping: MAPPING, name_id_format: PERSISTENT },
      domains: [{ domain }],
    })
  })

  it('is deleted with its project', async () => {
    const { ref, newProvider, rows } = await newPlace(await newProject(organization))
    await newProvider({ domains: [newDomain()] })
    await owner.delete(`/v1/projects/${ref}`)
    await untilGone(owner, ref)
    await expect.poll(rows).toEqual([])
  })
})

describe('a body', () => {
  it('is refused with its field named, and nothing of it is stored', async () => {
    const { path, create, newProvider, rows, domains } = await newPlace()
    const { id } = await newProvider({ domains: ['kept.example.com'] })
    const before = await rows()
    for (const [name, fields, field] of BAD) {
      const needed = 'metadata_url' in fields && !('metadata_xml' in fields) ? { metadata_xml: undefined } : {}
      const replies = await Promise.all([create({ ...needed, ...fields }), owner.put(`${path}/${id}`, fields)])
      for (const { status, body } of replies) {
        expect([name, status], body.message).toEqual([name, 400])
        expect(body.message, name).toContain(`${field}: `)
      }
    }
    expect(await rows()).toEqual(before)
    expect(await domains()).toEqual(['kept.example.com'])
  })

  it('requires a type and one source', async () => {
    const { path } = await newPlace()
    const xml = metadataOf(newEntity())
    const refused = async (body: unknown) => (await owner.post(path, body)).body.message
    expect(await refused({ metadata_xml: xml })).toContain('body.type: ')
    expect(await refused({ metadata_xml: xml, type: 'oidc' })).toContain('body.type: ')
    expect(await refused({ type: 'saml' })).toContain('body.metadata_xml: ')
    expect(await owner.send('POST', path, { raw: '{', headers: { 'content-type': 'application/json' } })).toMatchObject(
      { status: 400 },
    )
    expect(await owner.send('POST', path, { raw: '{}', headers: { 'content-type': 'text/xml' } })).toMatchObject({
      status: 415,
    })
    const large = { type: 'saml', metadata_xml: 'x'.repeat(3 * 1024 * 1024) }
    expect(await owner.post(path, large)).toMatchObject({ status: 413 })
    expect(await owner.put(`${path}/${NOBODY}`, large)).toMatchObject({ status: 413 })
    for (const raw of ['{', '[]']) {
      expect(
        await owner.send('PUT', `${path}/${NOBODY}`, { raw, headers: { 'content-type': 'application/json' } }),
      ).toMatchObject({ status: 400 })
    }
    expect(
      await owner.send('PUT', `${path}/${NOBODY}`, { raw: '{}', headers: { 'content-type': 'text/xml' } }),
    ).toMatchObject({ status: 415 })
  })

  it('may have a megabyte of metadata, but not one byte more', async () => {
    const { create } = await newPlace()
    const entity = newEntity()
    const padded = (sizeBytes: number) => {
      const bare = metadataOf(entity, { beside: '<!---->' })
      return metadataOf(entity, { beside: `<!--${'\n'.repeat(sizeBytes - bare.length)}-->` })
    }
    expect((await create({ metadata_xml: padded(1024 * 1024 + 1) })).status).toBe(400)
    expect(await create({ metadata_xml: padded(1024 * 1024) })).toMatchObject({ status: 201 })
  })

  it('may have every JSON value but null as a default', async () => {
    const { path, newProvider } = await newPlace()
    for (const value of ['', 'x', 0, -1.5, true, false, {}, { a: [1, { b: null }] }]) {
      const { id, saml } = await newProvider(mapped({ default: value }))
      expect(saml.attribute_mapping).toEqual({ keys: { mail: { default: value } } })
      expect((await owner.get(`${path}/${id}`)).body.saml).toEqual(saml)
    }
  })
})

describe('within a project', () => {
  it('an entity has one provider, also for two simultaneous requests', async () => {
    const { create, rows } = await newPlace()
    const xml = metadataOf(newEntity())
    const replies = await Promise.all([create({ metadata_xml: xml }), create({ metadata_xml: xml })])
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 422])
    const [refused] = replies.filter(({ status }) => status === 422)
    const [row] = await rows()
    expect(refused?.body.message).toBe(`An SSO identity provider with this entity ID already exists: ${row?.entityId}`)
    const other = await newPlace()
    expect(await other.create({ metadata_xml: xml })).toMatchObject({ status: 201 })
  })

  it('a provider keeps its entity', async () => {
    const { path, newProvider } = await newPlace()
    const { id, saml } = await newProvider()
    const next = { metadata_xml: metadataOf(saml.entity_id, { attributes: 'validUntil="2090-01-01T00:00:00Z"' }) }
    expect((await owner.put(`${path}/${id}`, next)).body.saml).toMatchObject(next)
    const refused = await owner.put(`${path}/${id}`, { metadata_xml: metadataOf(newEntity()) })
    expect(refused).toMatchObject({ status: 400 })
    expect(refused.body.message).toContain(`body.metadata_xml: must be of the provider's entity`)
    expect((await owner.get(`${path}/${id}`)).body.saml).toMatchObject(next)
  })

  it('a domain has one provider, also for two simultaneous requests, and the conflict names it', async () => {
    const { path, create, newProvider, rows } = await newPlace()
    const [domain, other] = [newDomain(), newDomain()]
    const replies = await Promise.all([create({ domains: [domain] }), create({ domains: [domain, other] })])
    expect(replies.map(({ status }) => status).sort()).toEqual([201, 400])
    const message = `The domain belongs to another SSO identity provider: ${domain}`
    expect(replies.find(({ status }) => status === 400)?.body).toEqual({ message })
    expect(await rows()).toHaveLength(1)
    const { id } = await newProvider()
    expect(await owner.put(`${path}/${id}`, { domains: [domain], name_id_format: PERSISTENT })).toMatchObject({
      status: 400,
      body: { message },
    })
    expect((await owner.get(`${path}/${id}`)).body.saml.name_id_format).toBeUndefined()
    const elsewhere = await newPlace()
    expect(await elsewhere.create({ domains: [domain] })).toMatchObject({ status: 201 })
  })

  it('there are at most 100 providers', async () => {
    const { ref, path, create } = await newPlace()
    const at = { createdAt: new Date(), updatedAt: new Date() }
    const rows = Array.from({ length: 99 }, (_, n) => ({ projectRef: ref, entityId: `e${n}`, metadataXml: XML, ...at }))
    await control.insert(ssoProviders).values(rows)
    expect((await Promise.all([create(), create()])).map(({ status }) => status).sort()).toEqual([201, 400])
    expect((await create()).body.message).toBe('Too many SSO identity providers: a project can have at most 100')
    const { body, headers } = await owner.get(path)
    expect(body.items).toHaveLength(100)
    expect(await queriesOf(headers)).toBeLessThanOrEqual(ROUND_TRIPS)
  })
})

describe('all providers of a project together', () => {
  const at = { createdAt: new Date(), updatedAt: new Date() }

  it('may have 16 MiB of metadata, and the one that exceeds them is refused by its field', async () => {
    const { ref, path, create, rows } = await newPlace()
    const metadataXml = sql`repeat('x', ${1024 * 1024})`
    const large = Array.from({ length: 15 }, (_, n) => ({ projectRef: ref, entityId: `e${n}`, metadataXml, ...at }))
    await control.insert(ssoProviders).values(large)
    const entity = newEntity()
    const ofMebibyte = (beyond = 0) => {
      const bare = metadataOf(entity, { beside: '<!---->' })
      return metadataOf(entity, { beside: `<!--${'\n'.repeat(1024 * 1024 - bare.length - 1 + beyond)}-->` })
    }
    const last = await create({ metadata_xml: ofMebibyte() })
    expect(last.status).toBe(201)
    const idp = await newIdp()
    const refused = [
      [await create(), 'metadata_xml'],
      [await create({ metadata_xml: undefined, metadata_url: idp.url }), 'metadata_url'],
    ] as const
    for (const [{ status, body }, field] of refused) {
      expect(status).toBe(400)
      expect(body.message).toMatch(
        new RegExp(`body.${field}: the metadata of all providers together has 167\\d+ bytes.*16 MiB`),
      )
    }
    expect(await rows()).toHaveLength(16)
    const change = (beyond: number) => owner.put(`${path}/${last.body.id}`, { metadata_xml: ofMebibyte(beyond) })
    expect((await change(1)).status).toBe(200)
    expect((await owner.put(`${path}/${last.body.id}`, { name_id_format: PERSISTENT })).status).toBe(200)
  })

  it('may have 1,000 domains, and those that exceed them are refused by their field', async () => {
    const { ref, path, newProvider, domains } = await newPlace()
    const [crowd, { id }] = await Promise.all([newProvider(), newProvider({ domains: ['kept.example.com'] })])
    const many = Array.from({ length: 990 }, (_, n) => ({ domain: `d${n}.example.com`, ...at }))
    await control.insert(ssoDomains).values(many.map((row) => ({ ...row, providerId: crowd.id, projectRef: ref })))
    const some = (count: number) => Array.from({ length: count }, (_, n) => `s${n}.example.com`)
    const refused = await owner.put(`${path}/${id}`, { domains: some(11) })
    const message = expect.stringContaining('body.domains: a project can have at most 1000 domains, not 1001')
    expect([refused.status, refused.body.message]).toEqual([400, message])
    expect(await domains()).toContain('kept.example.com')
    expect((await owner.put(`${path}/${id}`, { domains: some(10) })).status).toBe(200)
    expect(await domains()).toHaveLength(1_000)
    expect((await owner.get(path)).body.items.map((item: { domains: unknown[] }) => item.domains.length)).toEqual(
      expect.arrayContaining([990, 10]),
    )
  })
})

extended('providers are read and changed as quickly if another project has 100,000', async () => {
  const crowd = await newProjectRow(organization)
  await control.execute(sql`
    with made as (
      insert into sso_providers (project_ref, entity_id, metadata_xml, created_at, updated_at)
      select ${crowd}, 'e' || n, '<x/>', now(), now() from generate_series(1, 100000) as n returning id)
    insert into sso_domains (provider_id, project_ref, domain, created_at, updated_at)
    select id, ${crowd}, id || '.example.com', now(), now() from made limit 20000`)
  const { path, newProvider } = await newPlace()
  const { id } = await newProvider({ domains: [newDomain()] })
  const startedAt = performance.now()
  const replies = [await owner.get(path), await owner.get(`${path}/${id}`)]
  expect(await owner.put(`${path}/${id}`, { domains: [newDomain()] })).toMatchObject({ status: 200 })
  expect(performance.now() - startedAt).toBeLessThan(2_000)
  for (const { headers } of replies) expect(await queriesOf(headers)).toBeLessThanOrEqual(ROUND_TRIPS)
})

describe('a 404', () => {
  it('says whether SAML is off or the provider is missing', async () => {
    const { ref, path, create, newProvider } = await newPlace()
    const { id } = await newProvider()
    const each = (provider: string) => [
      owner.get(`${path}/${provider}`),
      owner.put(`${path}/${provider}`, { domains: [] }),
      owner.delete(`${path}/${provider}`),
    ]
    for (const reply of await Promise.all(each(NOBODY))) {
      expect(reply).toMatchObject({ status: 404, body: { message: 'SSO Identity Provider not found' } })
    }
    const other = await newPlace()
    for (const reply of await Promise.all([owner.get(`${other.path}/${id}`), owner.delete(`${other.path}/${id}`)])) {
      expect(reply).toMatchObject({ status: 404, body: { message: 'SSO Identity Provider not found' } })
    }
    await setSaml(ref, false)
    for (const reply of await Promise.all([owner.get(path), create()])) {
      const message = 'SAML 2.0 support is not enabled for this project'
      expect(reply).toMatchObject({ status: 404, body: { message } })
    }
    for (const reply of await Promise.all([...each(id), ...each(NOBODY)])) {
      const message = 'Either SAML 2.0 was not enabled for this project, or the provider does not exist'
      expect(reply).toMatchObject({ status: 404, body: { message } })
    }
    await setSaml(ref, true)
    expect(await owner.get(`${path}/${id}`)).toMatchObject({ status: 200 })
    expect((await owner.get(`${path}/x`)).body.message).toContain('path.provider_id: ')
    expect((await owner.delete(`${path}/x`)).body.message).toContain('path.provider_id: ')
  })

  it('is the reply of a fresh project', async () => {
    const ref = await newProjectRow(organization)
    expect(await owner.get(`/v1/projects/${ref}/config/auth/sso/providers`)).toMatchObject({ status: 404 })
  })
})

it('a developer reads providers and changes none', async () => {
  const { path, newProvider } = await newPlace()
  const { id } = await newProvider()
  const developer = await newMember(organization, 'developer')
  expect(await developer.get(`${path}/${id}`)).toMatchObject({ status: 200 })
  expect(await developer.put(`${path}/${id}`, { domains: [] })).toMatchObject({ status: 403 })
  expect(await developer.delete(`${path}/${id}`)).toMatchObject({ status: 403 })
})

describe('metadata by address', () => {
  it('is fetched when the provider is created, and again when the address is set again', async () => {
    const { path, create } = await newPlace()
    const idp = await newIdp()
    const created = await create({ metadata_xml: undefined, metadata_url: idp.url })
    expect(created).toMatchObject({ status: 201 })
    expect(created.body.saml).toMatchObject({
      entity_id: idp.entity,
      metadata_url: idp.url,
      metadata_xml: metadataOf(idp.entity),
    })
    expect(idp.received[0]?.headers).toMatchObject({ accept: expect.stringContaining('samlmetadata+xml') })
    expect(idp.received[0]?.headers.authorization).toBeUndefined()
    const renewed = metadataOf(idp.entity, { attributes: 'ID="renewed"' })
    idp.answer(withStatus(200, { 'content-type': 'text/html' }, renewed))
    const { id } = created.body
    expect((await owner.put(`${path}/${id}`, { metadata_url: idp.url })).body.saml.metadata_xml).toBe(renewed)

    const own = metadataOf(idp.entity)
    const { saml } = (await owner.put(`${path}/${id}`, { metadata_xml: own })).body
    expect(saml).toMatchObject({ metadata_xml: own })
    expect(saml).not.toHaveProperty('metadata_url')
  })

  it("is refused with the server's error, and nothing is stored", async () => {
    const { path, create, newProvider, rows } = await newPlace()
    const idp = await newIdp()
    const { id } = await newProvider()
    const before = await rows()
    const large = 'x'.repeat(1024 * 1024 + 1)
    const answers: [Parameters<typeof idp.answer>[0], string][] = [
      [withStatus(404), 'responded with status 404'],
      [withStatus(500, {}, metadataOf(idp.entity)), 'responded with status 500'],
      [withStatus(200, {}, '<html></html>'), 'must be SAML 2.0 metadata'],
      [
        withStatus(200, {}, '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>'),
        'must not have a document type',
      ],
      [withStatus(200, {}, large), 'responded with more than 1048576 bytes'],
      [
        (_request, response) => void response.writeHead(200).write('<md:Entity'),
        'did not respond completely within 10 s',
      ],
      [() => undefined, 'did not respond completely within 10 s'],
    ]
    for (const [answer, reason] of answers) {
      idp.answer(answer)
      const fields = { metadata_xml: undefined, metadata_url: idp.url }
      for (const reply of await Promise.all([create(fields), owner.put(`${path}/${id}`, fields)])) {
        expect(reply, reason).toMatchObject({ status: 400 })
        expect(reply.body.message).toContain(`body.metadata_url: ${reason}`)
      }
    }
    expect(await rows()).toEqual(before)
  })

  it('is not fetched from a private address, nor while names cannot be resolved', async () => {
    const { path, create, newProvider } = await newPlace()
    const { id } = await newProvider()
    const idp = await newIdp()
    const host = new URL(idp.url).hostname
    const both = () => {
      const fields = { metadata_xml: undefined, metadata_url: idp.url }
      return Promise.all([create(fields), owner.put(`${path}/${id}`, fields)])
    }
    await setName(host, { A: ['93.184.215.14', '10.1.2.3'], ttl: 0 })
    for (const { status, body } of await both()) {
      expect([status, body.message]).toEqual([400, expect.stringContaining('resolves to a reserved address')])
      expect(body.message).not.toContain('10.1.2.3')
    }
    await setName(host, { raw: { status: 502, body: '' } })
    for (const reply of await both()) expect(reply).toMatchObject({ status: 503 })
    expect(idp.received).toEqual([])
    expect(await owner.put(`${path}/${NOBODY}`, { metadata_url: idp.url })).toMatchObject({ status: 404 })
  })
})

describe('clients', () => {
  extended(
    'the CLI runs sso add, list, show, update and remove',
    async () => {
      const { ref } = await newPlace()
      const { home, run, remove } = newCli(owner)
      onTestFinished(remove)
      const sso = (...args: string[]) => run('sso', ...args, '--project-ref', ref, '--yes')
      const [entity, domain, second] = [newEntity(), newDomain(), newDomain()]
      writeFileSync(join(home, 'metadata.xml'), metadataOf(entity))
      writeFileSync(join(home, 'mapping.json'), JSON.stringify(MAPPING))
      const files = [
        '--metadata-file',
        join(home, 'metadata.xml'),
        '--attribute-mapping-file',
        join(home, 'mapping.json'),
      ]
      const added = JSON.parse(await sso('add', '--type', 'saml', ...files, '--domains', domain, '-o', 'json'))
      expect(added).toMatchObject({ saml: { entity_id: entity, attribute_mapping: MAPPING }, domains: [{ domain }] })
      const idp = await newIdp()
      const byUrl = ['--type', 'saml', '--metadata-url', idp.url, '--skip-url-validation', '--domains', second]
      expect(await sso('add', ...byUrl)).toContain(idp.entity)
      const listed = await sso('list')
      for (const text of [added.id, domain, second]) expect(listed).toContain(text)
      expect(await sso('show', added.id)).toContain(entity)
      expect(await sso('show', added.id, '--metadata')).toContain('IDPSSODescriptor')
      const third = newDomain()
      await sso('update', added.id, '--add-domains', third, '--remove-domains', domain)
      const shown = JSON.parse(await sso('show', added.id, '-o', 'json'))
      expect(shown.domains).toMatchObject([{ domain: third }])
      await sso('update', added.id, ...files, '--domains', domain)
      await sso('remove', added.id)
      expect(await sso('list')).not.toContain(added.id)
      await expect(sso('show', added.id)).rejects.toThrow(/could not be found|not found/)
    },
    90_000,
  )

  it('supabase-management-js runs all operations', async () => {
    const { ref } = await newPlace()
    const api = new SupabaseManagementAPI({ accessToken: owner.token ?? '', baseUrl })
    const metadata_xml = metadataOf(newEntity())
    const { data: made } = await api.createASsoProvider(ref, { type: 'saml', metadata_xml, domains: [newDomain()] })
    expect((await api.listAllSsoProvider(ref)).data.items).toMatchObject([{ id: made.id }])
    expect((await api.getASsoProvider(ref, made.id)).data).toEqual(made)
    const { data } = await api.updateASsoProvider(ref, made.id, { attribute_mapping: MAPPING })
    expect(data.saml?.attribute_mapping).toEqual(MAPPING)
    expect((await api.deleteASsoProvider(ref, made.id)).data).toEqual(data)
  })
})
