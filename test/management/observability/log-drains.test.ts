import { randomUUID } from 'node:crypto'
import { eq } from 'drizzle-orm'
import { describe, expect, inject, it } from 'vitest'
import { auditLog, logDrains, organizations } from '../../../src/model/tables/index.ts'
import { openSecrets } from '../../../src/outbound/drains/secrets.ts'
import { control, newMember, newOrganization, setName } from '../../support/api.ts'
import { extended } from '../../support/extended.ts'
import {
  bodyOf,
  type DrainedProject,
  drainRow,
  log,
  newDrain,
  newDrained,
  newWebhookDrain,
  postDrain,
  untilSwept,
  waiting,
} from '../../support/log-drains.ts'
import { newProject, untilGone } from '../../support/projects.ts'
import { newReceiver } from '../../support/receiver.ts'
import { fieldsOf, NOBODY } from '../../support/webhooks.ts'

const PUBLIC = { A: ['93.184.215.14'], ttl: 0 }
const SECRET = 'a-secret-of-somebody'
const KEY_ID = 'AKIAIOSFODNN7EXAMPLE'

/** A config of each backend, and the part that replies show. */
const BACKENDS = {
  webhook: {
    config: { url: 'http://127.0.0.1:9/in', http: 'http1', gzip: true, headers: { authorization: SECRET } },
    shown: { url: 'http://127.0.0.1:9/in', http: 'http1', gzip: true },
  },
  datadog: {
    config: { api_key: SECRET, region: 'US5' },
    shown: { region: 'US5' },
    host: 'http-intake.logs.us5.datadoghq.com',
  },
  loki: {
    config: { url: 'http://127.0.0.1:9/push', username: 'u', password: SECRET, headers: { 'x-key': SECRET } },
    shown: { url: 'http://127.0.0.1:9/push', username: 'u' },
  },
  sentry: { config: { dsn: `http://${SECRET.replaceAll('-', '')}@127.0.0.1:9/1` }, shown: {} },
  axiom: {
    config: { api_token: SECRET, dataset_name: 'd' },
    shown: { domain: 'api.axiom.co', dataset_name: 'd' },
    host: 'api.axiom.co',
  },
  otlp: {
    config: { endpoint: 'http://127.0.0.1:9/v1/logs', headers: { 'x-key': SECRET } },
    shown: { endpoint: 'http://127.0.0.1:9/v1/logs', protocol: 'http/protobuf', gzip: true },
  },
  last9: {
    config: { region: 'US-WEST-1', username: 'u', password: SECRET },
    shown: { region: 'US-WEST-1', username: 'u' },
    host: 'otlp.last9.io',
  },
  s3: {
    config: { s3_bucket: 'logs', storage_region: 'us-east-1', access_key_id: KEY_ID, secret_access_key: SECRET },
    shown: { s3_bucket: 'logs', storage_region: 'us-east-1', batch_timeout: 3000 },
    host: 's3.us-east-1.amazonaws.com',
  },
  syslog: {
    config: { host: 'localhost', port: 6514, tls: true, structured_data: '[a@1 k="v"]' },
    shown: { host: 'localhost', port: 6514, tls: true, structured_data: '[a@1 k="v"]' },
  },
} as const

const put = ({ caller, path }: DrainedProject, id: string, attributes: Record<string, unknown>) =>
  caller.put(`${path}/${id}`, bodyOf(attributes))

describe('POST /v2/projects/{ref}/analytics/log-drains', () => {
  it.each(Object.entries(BACKENDS))(
    'accepts %s, shows the parts that are not secret and seals the rest',
    async (type, given) => {
      const project = await newDrained()
      if ('host' in given) await setName(given.host, PUBLIC)
      const reply = await postDrain(project, type, given.config, { name: 'Mine', description: 'Ours' })
      const expected = {
        ...{ type: 'log_drain', id: expect.any(String) },
        attributes: { name: 'Mine', description: 'Ours', config: given.shown, backend_type: type },
      }
      expect(reply).toMatchObject({ status: 201, body: { data: expected } })
      expect(reply.body.data.attributes.config).toEqual(given.shown)
      const list = await project.caller.get(project.path)
      expect(list.body).toEqual({ data: [reply.body.data] })
      const stored = JSON.stringify(await drainRow(reply.body.data.id))
      const secrets = [SECRET, SECRET.replaceAll('-', ''), KEY_ID]
      for (const secret of secrets) expect(stored + JSON.stringify(list.body)).not.toContain(secret)
    },
  )

  it('omits a missing description, and records the actor', async () => {
    const project = await newDrained()
    const reply = await postDrain(project, 'webhook', BACKENDS.webhook.config)
    expect(reply.body.data.attributes).not.toHaveProperty('description')
    const entries = await control.select().from(auditLog).where(eq(auditLog.projectRef, project.ref))
    expect(entries).toMatchObject([
      { action: 'log_drain.create', detail: { log_drain: reply.body.data.id, backend_type: 'webhook' } },
    ])
  })

  const WEBHOOK = BACKENDS.webhook.config
  const S3 = BACKENDS.s3.config
  const SYSLOG = BACKENDS.syslog.config
  it.each([
    ['webhook', {}, ['url']],
    ['webhook', { ...WEBHOOK, url: 'ftp://a.dev' }, ['url']],
    ['webhook', { ...WEBHOOK, url: 7 }, ['url']],
    ['webhook', { ...WEBHOOK, http: 'http3' }, ['http']],
    ['webhook', { ...WEBHOOK, http: 'http2' }, ['http']],
    ['webhook', { ...WEBHOOK, gzip: 'yes' }, ['gzip']],
    ['webhook', { ...WEBHOOK, headers: { host: 'a' } }, ['headers']],
    ['webhook', { ...WEBHOOK, headers: { 'x-a': 'a\nb' } }, ['headers']],
    ['webhook', { ...WEBHOOK, uri: 'x', region: 'US1' }, ['region', 'uri']],
    ['webhook', { ...WEBHOOK, url: 'http://10.0.0.1/' }, ['url']],
    ['webhook', { ...WEBHOOK, url: 'http://u:p@127.0.0.1/' }, ['url']],
    ['datadog', { region: 'MARS' }, ['api_key', 'region']],
    ['datadog', { api_key: 'a b', region: 'US1' }, ['api_key']],
    ['loki', { url: 'http://127.0.0.1:9', username: 'u' }, ['password']],
    ['loki', { url: 'http://127.0.0.1:9', password: 'p' }, ['username']],
    ['loki', { url: 'http://127.0.0.1:9', username: 'a:b', password: 'p' }, ['username']],
    ['sentry', {}, ['dsn']],
    ['sentry', { dsn: 'https://sentry.io/1' }, ['dsn']],
    ['sentry', { dsn: 'https://key@10.0.0.1/1' }, ['dsn']],
    ['axiom', { domain: 'a/b', api_token: 't', dataset_name: 'a/b' }, ['domain', 'dataset_name']],
    ['axiom', { domain: '10.0.0.1', api_token: 't', dataset_name: 'd' }, ['domain']],
    ['otlp', { endpoint: 'http://127.0.0.1:9', protocol: 'grpc' }, ['protocol']],
    ['otlp', {}, ['endpoint']],
    ['last9', { region: 'EU' }, ['region', 'username', 'password']],
    ['s3', { ...S3, s3_bucket: 'A/b', storage_region: 'x.evil.dev/' }, ['s3_bucket', 'storage_region']],
    ['s3', { ...S3, access_key_id: 'k', secret_access_key: 'a b' }, ['access_key_id', 'secret_access_key']],
    ['s3', { ...S3, batch_timeout: 1 }, ['batch_timeout']],
    ['syslog', {}, ['host', 'port']],
    ['syslog', { ...SYSLOG, port: -1 }, ['port']],
    ['syslog', { ...SYSLOG, port: 65_536 }, ['port']],
    ['syslog', { ...SYSLOG, host: '10.0.0.1' }, ['host']],
    ['syslog', { ...SYSLOG, host: 'a.dev/x' }, ['host']],
    ['syslog', { ...SYSLOG, host: 'u@a.dev' }, ['host']],
    ['syslog', { ...SYSLOG, host: 'mail.receivers.dev', port: 25 }, ['port']],
    ['syslog', { ...SYSLOG, host: '0xa9.0xfe.1' }, ['host']],
    ['syslog', { ...SYSLOG, structured_data: '[broken' }, ['structured_data']],
    ['syslog', { ...SYSLOG, client_cert: 'x', client_key: 'x' }, ['client_cert', 'client_key']],
    ['syslog', { ...SYSLOG, cipher_key: 'x', ca_cert: 'x' }, ['cipher_key', 'ca_cert']],
  ])('refuses an invalid config of %s: %j', async (type, config, fields) => {
    const project = await newDrained()
    const reply = await postDrain(project, type, config)
    expect(reply).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed' } } })
    expect(fieldsOf(reply).sort()).toEqual(fields.map((field) => `body.data.attributes.config.${field}`).sort())
    expect((await project.caller.get(project.path)).body).toEqual({ data: [] })
  })

  it('accepts 0 for the default port of syslog', async () => {
    const host = `${randomUUID()}.receivers.dev`
    await setName(host, PUBLIC)
    const config = { ...SYSLOG, host, port: 0 }
    const reply = await postDrain(await newDrained(), 'syslog', config)
    expect(reply).toMatchObject({ status: 201, body: { data: { attributes: { config } } } })
  })

  it.each(['postgres', 'bigquery', 'clickhouse'])('reports why %s is not available', async (type) => {
    const reply = await postDrain(await newDrained(), type, {})
    expect(reply.status).toBe(400)
    expect(fieldsOf(reply)).toEqual(['body.data.attributes.backend_type'])
    expect(reply.body.error.description).toContain(`${type} is not supported: must be one of webhook`)
  })

  it.each([
    [{ name: ' ' }, 'name'],
    [{ name: 'x'.repeat(257) }, 'name'],
    [{ description: 'x'.repeat(1_025) }, 'description'],
    [{ backend_type: 'kafka' }, 'backend_type'],
    [{ config: [] }, 'config'],
  ])('refuses %j', async (attributes, field) => {
    const reply = await postDrain(await newDrained(), 'webhook', BACKENDS.webhook.config, attributes)
    expect([reply.status, fieldsOf(reply)]).toEqual([400, [`body.data.attributes.${field}`]])
  })

  it('refuses a private address, by name or as it is resolved', async () => {
    const project = await newDrained()
    const host = `${randomUUID()}.receivers.dev`
    const drain = (zone: Parameters<typeof setName>[1]) =>
      setName(host, { ...zone, ttl: 0 }).then(() => postDrain(project, 'webhook', { url: `https://${host}/` }))
    const inside = await drain({ A: ['93.184.215.14', '10.1.2.3'] })
    expect([inside.status, fieldsOf(inside)]).toEqual([400, ['body.data.attributes.config.url']])
    expect((await drain({ status: 3 })).status).toBe(400)
    expect(await drain({ raw: { status: 502, body: '' } })).toMatchObject({
      ...{ status: 503, body: { error: { code: 'service_unavailable.name_resolution' } } },
    })
    expect((await drain({ A: ['93.184.215.14'] })).status).toBe(201)
  })

  it('sends nothing to a host that resolves to a private address later', async () => {
    const receiver = await newReceiver()
    const host = `${randomUUID()}.receivers.dev`
    await setName(host, PUBLIC, new URL(receiver.url).origin)
    const project = await newDrained()
    const id = await newDrain(project, 'webhook', { url: `https://${host}/` })
    await setName(host, { A: ['10.0.0.1'], ttl: 0 })
    await log(project)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    expect(receiver.received).toEqual([])
  })

  it('requires a plan that covers it; existing drains need none', async () => {
    const project = await newDrained()
    const { id: organization } = project.organization
    const plan = (name: 'free' | 'pro') =>
      control.update(organizations).set({ plan: name }).where(eq(organizations.id, organization))
    const id = await newDrain(project, 'webhook', BACKENDS.webhook.config)
    await plan('free')
    expect(await postDrain(project, 'webhook', BACKENDS.webhook.config)).toMatchObject({
      status: 402,
      body: {
        error: {
          code: 'payment_required.log_drains',
          message: 'Payment Required: This feature requires the Pro, Team, or Enterprise organization plan.',
        },
      },
    })
    expect((await put(project, id, { name: 'other', backend_type: 'webhook' })).status).toBe(200)
    expect((await project.caller.delete(`${project.path}/${id}`)).status).toBe(204)
    await plan('pro')
    expect((await postDrain(project, 'webhook', BACKENDS.webhook.config)).status).toBe(201)
  })

  it('accepts at most 20 in a project', async () => {
    const project = await newDrained()
    const made = await Promise.all(
      Array.from({ length: 22 }, () => postDrain(project, 'webhook', BACKENDS.webhook.config)),
    )
    expect(made.filter(({ status }) => status === 201)).toHaveLength(20)
    const refused = made.find(({ status }) => status !== 201)
    expect(refused).toMatchObject({ status: 400, body: { error: { code: 'bad_request.log_drains' } } })
  })

  it('accepts a name once in a project', async () => {
    const project = await newDrained()
    const named = () => postDrain(project, 'webhook', BACKENDS.webhook.config, { name: 'Once' })
    const first = await named()
    expect(await named()).toMatchObject({ status: 409, body: { error: { code: 'conflict.log_drain_name' } } })
    const other = await newDrain(project, 'webhook', BACKENDS.webhook.config)
    const renamed = await put(project, other, { name: 'Once', backend_type: 'webhook' })
    expect(renamed).toMatchObject({ status: 409, body: { error: { code: 'conflict.log_drain_name' } } })
    await project.caller.delete(`${project.path}/${first.body.data.id}`)
    expect((await named()).status).toBe(201)
  })

  it('requires an owner or administrator; other members see drains', async () => {
    const project = await newDrained()
    const developer = await newMember(project.organization, 'developer')
    const reply = await developer.post(
      project.path,
      bodyOf({ name: 'n', backend_type: 'webhook', config: BACKENDS.webhook.config }),
    )
    expect(reply.status).toBe(403)
    expect((await developer.get(project.path)).status).toBe(200)
  })
})

describe('PUT /v2/projects/{ref}/analytics/log-drains/{id}', () => {
  extended('keeps the secrets that a config of the same backend leaves out', async () => {
    const { project, receiver, id } = await newWebhookDrain({ headers: { 'x-key': SECRET } })
    const { url } = receiver
    const reply = await put(project, id, { backend_type: 'webhook', config: { url: `${url}/2` }, description: 'New' })
    expect(reply).toMatchObject({ status: 200, body: { data: { id, attributes: { description: 'New' } } } })
    expect(reply.body.data.attributes.config).toEqual({ url: `${url}/2`, http: 'http1', gzip: false })
    await log(project)
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    expect(receiver.received[0]).toMatchObject({ path: '/hook/2', headers: { 'x-key': SECRET } })
    await put(project, id, { backend_type: 'webhook', config: { url, headers: {} } })
    await log(project)
    await untilSwept(() => expect(receiver.received).toHaveLength(2))
    expect(receiver.received[1]?.headers).not.toHaveProperty('x-key')
  })

  it('sends no stored secret to another host', async () => {
    const { project, id } = await newWebhookDrain({ headers: { 'x-key': SECRET } })
    const { url } = await newReceiver()
    const before = await drainRow(id)
    const refused = await put(project, id, { backend_type: 'webhook', config: { url } })
    expect([refused.status, fieldsOf(refused)]).toEqual([400, ['body.data.attributes.config.headers']])
    expect(await drainRow(id)).toEqual(before)
    expect(await put(project, id, { backend_type: 'webhook', config: { url, headers: {} } })).toMatchObject({
      status: 200,
    })
  })

  it.each(['webhook', 'loki', 'otlp'] as const)('removes the headers of %s by null', async (type) => {
    const project = await newDrained()
    const { config, shown } = BACKENDS[type]
    const id = await newDrain(project, type, config)
    const reply = await put(project, id, { backend_type: type, config: { ...config, headers: null } })
    expect([reply.status, reply.body.data?.attributes.config]).toEqual([200, shown])
    const { sealedSecrets } = await drainRow(id)
    expect(await openSecrets(inject('encryptionKey'), id, sealedSecrets)).toMatchObject({ headers: {} })
  })

  it('keeps the values of a simultaneous change', async () => {
    const project = await newDrained()
    const drain = BACKENDS.webhook.config
    const id = await newDrain(project, 'webhook', drain)
    const secrets = ['one', 'two', 'three'].map((key) => ({ ...drain, headers: { 'x-key': key } }))
    const changes = [...secrets, ...Array(5).fill({ url: drain.url })]
    const replies = await Promise.all(changes.map((config) => put(project, id, { backend_type: 'webhook', config })))
    expect(replies.map(({ status }) => status)).toEqual(Array(8).fill(200))
    const { sealedSecrets } = await drainRow(id)
    const { headers } = await openSecrets(inject('encryptionKey'), id, sealedSecrets)
    expect(['one', 'two', 'three']).toContain((headers as Record<string, string>)['x-key'])
  })

  extended('sends waiting rows to the new address at once', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer((_request, response) => response.writeHead(500).end())
    await log(project)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    const better = await newReceiver()
    await put(project, id, { backend_type: 'otlp', config: { endpoint: better.url } })
    await untilSwept(() => expect(better.received).toHaveLength(1))
    expect(await drainRow(id)).toMatchObject({ backendType: 'otlp', failures: 0 })
  })

  it('requires the config of another backend, with its secrets', async () => {
    const project = await newDrained()
    const id = await newDrain(project, 'webhook', BACKENDS.webhook.config)
    const without = await put(project, id, { backend_type: 'sentry' })
    expect([without.status, fieldsOf(without)]).toEqual([400, ['body.data.attributes.config']])
    const partial = await put(project, id, { backend_type: 'sentry', config: {} })
    expect([partial.status, fieldsOf(partial)]).toEqual([400, ['body.data.attributes.config.dsn']])
    const host = `${randomUUID()}.receivers.dev`
    await setName(host, { raw: { status: 502, body: '' } })
    expect(await put(project, id, { backend_type: 'webhook', config: { url: `https://${host}` } })).toMatchObject({
      ...{ status: 503, body: { error: { code: 'service_unavailable.name_resolution' } } },
    })
    expect(await drainRow(id)).toMatchObject({ backendType: 'webhook', config: BACKENDS.webhook.shown })
  })

  it('refuses an invalid id', async () => {
    const project = await newDrained()
    const attributes = { name: 'n', backend_type: 'webhook' }
    for (const reply of [await put(project, 'none', attributes), await project.caller.delete(`${project.path}/none`)]) {
      expect([reply.status, fieldsOf(reply)]).toEqual([400, ['path.id']])
    }
  })

  it('finds no drain of another project, and no deleted one', async () => {
    const [project, other] = [await newDrained(), await newDrained()]
    const id = await newDrain(other, 'webhook', BACKENDS.webhook.config)
    const attributes = { name: 'n', backend_type: 'webhook' }
    for (const one of [id, NOBODY]) {
      expect(await put(project, one, attributes)).toMatchObject({
        ...{ status: 404, body: { error: { code: 'not_found.log_drain' } } },
      })
      expect((await project.caller.delete(`${project.path}/${one}`)).status).toBe(404)
    }
    await other.caller.delete(`${other.path}/${id}`)
    expect((await put(other, id, attributes)).status).toBe(404)
    expect((await other.caller.delete(`${other.path}/${id}`)).status).toBe(404)
  })
})

describe('DELETE /v2/projects/{ref}/analytics/log-drains/{id}', () => {
  it('deletes it together with its waiting rows', async () => {
    const { project, receiver, id } = await newWebhookDrain()
    receiver.answer((_request, response) => response.writeHead(500).end())
    await log(project, {}, 3)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    const reply = await project.caller.delete(`${project.path}/${id}`)
    expect([reply.status, reply.body]).toEqual([204, ''])
    // Sweeps of other tests may have retried the batch.
    const sent = receiver.received.length
    expect((await project.caller.get(project.path)).body).toEqual({ data: [] })
    await log(project)
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    expect(receiver.received).toHaveLength(sent)
    await control
      .update(logDrains)
      .set({ deletedAt: new Date(Date.now() - 7_200_000) })
      .where(eq(logDrains.id, id))
    await untilSwept(async () => expect(await control.$count(logDrains, eq(logDrains.id, id))).toBe(0))
  })

  it('is deleted with its project', async () => {
    const organization = await newOrganization()
    const ref = await newProject(organization)
    const path = `/v2/projects/${ref}/analytics/log-drains`
    const id = await newDrain({ caller: organization.owner, path }, 'webhook', BACKENDS.webhook.config)
    expect((await organization.owner.delete(`/v1/projects/${ref}`)).status).toBe(200)
    await untilGone(organization.owner, ref)
    expect((await drainRow(id)).deletedAt).not.toBeNull()
  })
})
