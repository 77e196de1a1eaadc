import { createHash, createHmac } from 'node:crypto'
import { gunzipSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { setName, workerLogs } from '../support/api.ts'
import {
  drainRow,
  hurry,
  jsonOf,
  line,
  log,
  newDrain,
  newDrained,
  textOf,
  untilSwept,
  waiting,
} from '../support/log-drains.ts'
import { newReceiver, type Received, withStatus } from '../support/receiver.ts'

const PUBLIC = { A: ['93.184.215.14'], ttl: 0 }

/** Returns what a drain sends to a provider, whose name leads to a server of the test. */
async function sentTo(host: string, backend: string, config: Record<string, unknown>, path = '') {
  const receiver = await newReceiver(withStatus(204))
  await setName(host, PUBLIC, new URL(receiver.url).origin)
  const project = await newDrained()
  const id = await newDrain(project, backend, config)
  const at = new Date(Date.now() - 5_000)
  const [call] = await log(project, { at, status: 404, console: [line('hello', 'warn', at)] })
  await untilSwept(async () => {
    expect(receiver.received.length).toBeGreaterThan(0)
    expect(await waiting(id)).toBe(0)
  })
  const [received] = receiver.received
  if (!received || receiver.received.length > 1) throw new Error('not one request')
  expect(received.path).toContain(path)
  return { received, project, call: call as string, at }
}

describe('datadog', () => {
  it.each([
    ['US1', 'http-intake.logs.datadoghq.com'],
    ['EU', 'http-intake.logs.datadoghq.eu'],
    ['AP1', 'http-intake.logs.ap1.datadoghq.com'],
  ])('receives an array at the intake of %s', async (region, host) => {
    const { received, project } = await sentTo(host, 'datadog', { api_key: 'a'.repeat(32), region })
    expect(received).toMatchObject({
      path: '/api/v2/logs',
      headers: { 'dd-api-key': 'a'.repeat(32), 'content-type': 'application/json', 'content-encoding': 'gzip' },
    })
    expect(jsonOf(received)[2]).toMatchObject({
      ...{ ddsource: 'pilothouse', service: 'function_logs', hostname: project.ref, ddtags: `project:${project.ref}` },
      ...{ status: 'warn', message: 'hello', log_attributes: { level: 'warn' } },
    })
  })
})

describe('loki', () => {
  it('gets a configured Authorization header in place of the user name and password, however it is spelled', async () => {
    const receiver = await newReceiver()
    const project = await newDrained()
    const headers = { Authorization: 'Bearer mine' }
    await newDrain(project, 'loki', { url: receiver.url, username: 'u', password: 'p', headers })
    await log(project)
    await untilSwept(() => expect(receiver.received).toHaveLength(1))
    expect(receiver.received[0]?.headers.authorization).toBe('Bearer mine')
  })

  it('receives a stream for each source, with the time in nanoseconds', async () => {
    const config = {
      url: 'https://loki.receivers.dev/loki/api/v1/push',
      ...{ username: 'u', password: 'p', headers: { 'x-scope-orgid': 't' } },
    }
    const { received, project, at, call } = await sentTo('loki.receivers.dev', 'loki', config, '/loki/api/v1/push')
    const authorization = `Basic ${Buffer.from('u:p').toString('base64')}`
    expect(received.headers).toMatchObject({ authorization, 'x-scope-orgid': 't', 'content-type': 'application/json' })
    const { streams } = jsonOf(received)
    expect(streams.map((one: { stream: unknown }) => one.stream)).toEqual(
      ['edge_logs', 'function_edge_logs', 'function_logs'].map((source) => ({
        ...{ source, service_name: source, project: project.ref },
      })),
    )
    const [[nanos, text, metadata]] = streams[1].values
    expect([nanos, text]).toEqual([`${at.getTime()}000000`, 'GET | 404 | /f'])
    expect(metadata).toMatchObject({ id: call, level: 'warn', response_status_code: '404' })
  })
})

describe('sentry', () => {
  it('receives envelopes of logs', async () => {
    const { received, at, call } = await sentTo('o1.ingest.sentry.io', 'sentry', {
      dsn: 'https://abc123@o1.ingest.sentry.io/4507',
    })
    expect(received.path).toBe('/api/4507/envelope/')
    expect(received.headers['x-sentry-auth']).toContain('sentry_key=abc123')
    const [, header, payload] = textOf(received)
      .trim()
      .split('\n')
      .map((text) => JSON.parse(text))
    expect(header).toEqual({ type: 'log', item_count: 3, content_type: 'application/vnd.sentry.items.log+json' })
    expect(payload.items[2]).toMatchObject({
      ...{ timestamp: at.getTime() / 1000, trace_id: call.replaceAll('-', ''), level: 'warn', body: 'hello' },
      attributes: { source: { value: 'function_logs', type: 'string' } },
    })
  })

  it('receives a batch in one envelope, so that a retry repeats no part of it', async () => {
    const receiver = await newReceiver()
    const { host } = new URL(receiver.url)
    const project = await newDrained()
    const id = await newDrain(project, 'sentry', { dsn: `http://key@${host}/sub/7` })
    await log(project, {}, 120)
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    expect(receiver.received.map(({ path }) => path)).toEqual(['/sub/api/7/envelope/'])
    expect(receiver.received.map((one) => textOf(one).match(/"item_count":(\d+)/)?.[1])).toEqual(['240'])
  })
})

describe('axiom', () => {
  it('receives rows with their time', async () => {
    const { received, project } = await sentTo('api.axiom.co', 'axiom', { api_token: 'xaat-1', dataset_name: 'logs' })
    expect(received.path).toBe('/v1/datasets/logs/ingest')
    expect(received.headers.authorization).toBe('Bearer xaat-1')
    const [row] = jsonOf(received)
    expect(row).toMatchObject({ _time: expect.stringMatching(/Z$/), source: 'edge_logs', project: project.ref })
  })
})

/** Decodes one message of protobuf: the values of each field, as numbers or bytes. */
function fieldsOf(bytes: Buffer): Record<number, (number | bigint | Buffer)[]> {
  const fields: Record<number, (number | bigint | Buffer)[]> = {}
  let at = 0
  const take = (length: number) => {
    at += length
    return bytes.subarray(at - length, at)
  }
  const number = () => {
    let value = 0
    for (let shift = 1; ; shift *= 128) {
      const byte = take(1).readUInt8()
      value += (byte & 127) * shift
      if (byte < 128) return value
    }
  }
  const read = (type: number) => {
    if (type === 0) return number()
    return type === 1 ? take(8).readBigUInt64LE() : take(number())
  }
  while (at < bytes.length) {
    const key = number()
    const field = key >> 3
    fields[field] = [...(fields[field] ?? []), read(key & 7)]
  }
  return fields
}
const inner = (value: unknown) => fieldsOf(value as Buffer)
const attributesOf = (values: unknown[] = []) =>
  Object.fromEntries(values.map((value) => [String(inner(value)[1]), String(inner(inner(value)[2]?.[0])[1])]))

function expectOtlp({ received, call, at }: Awaited<ReturnType<typeof sentTo>>, bytes: Buffer) {
  expect(received.headers['content-type']).toBe('application/x-protobuf')
  const resources = fieldsOf(bytes)[1] ?? []
  expect(resources).toHaveLength(3)
  const resource = inner(resources[1])
  expect(attributesOf(inner(resource[1]?.[0])[1])).toMatchObject({ 'service.name': 'function_edge_logs' })
  const [record] = inner(resource[2]?.[0])[2] ?? []
  const fields = inner(record)
  expect([fields[1], fields[2], String(fields[3])]).toEqual([[BigInt(at.getTime()) * 1_000_000n], [13], 'WARN'])
  expect(String(inner(fields[5]?.[0])[1])).toBe('GET | 404 | /f')
  expect(attributesOf(fields[6])).toMatchObject({ 'log.record.uid': call, 'response.status_code': '404' })
}

describe('otlp', () => {
  const host = 'otlp.receivers.dev'

  it('receives protobuf at the path of the endpoint', async () => {
    const config = { endpoint: `https://${host}:4318/in/logs`, headers: { 'x-key': 'k' }, gzip: false }
    const sent = await sentTo(host, 'otlp', config)
    expect(sent.received).toMatchObject({ path: '/in/logs', headers: { 'x-key': 'k' } })
    expect(sent.received.headers['content-encoding']).toBeUndefined()
    expectOtlp(sent, sent.received.bytes)
  })

  it('receives JSON if that is configured, below a base address', async () => {
    const config = { endpoint: `https://${host}`, protocol: 'http/json' }
    const { received, call, at } = await sentTo(host, 'otlp', config)
    expect(received).toMatchObject({ path: '/v1/logs', headers: { 'content-encoding': 'gzip' } })
    const [, { resource, scopeLogs }] = jsonOf(received).resourceLogs
    expect(resource.attributes).toContainEqual({ key: 'service.name', value: { stringValue: 'function_edge_logs' } })
    expect(scopeLogs[0].logRecords).toEqual([
      expect.objectContaining({
        ...{ timeUnixNano: `${at.getTime()}000000`, severityNumber: 13, severityText: 'WARN' },
        body: { stringValue: 'GET | 404 | /f' },
        attributes: expect.arrayContaining([{ key: 'log.record.uid', value: { stringValue: call } }]),
      }),
    ])
  })
})

describe('last9', () => {
  it('receives OTLP at the address of its region', async () => {
    const config = { region: 'AP-SOUTH-1', username: 'u', password: 'p' }
    const sent = await sentTo('otlp-aps1.last9.io', 'last9', config)
    const authorization = `Basic ${Buffer.from('u:p').toString('base64')}`
    expect(sent.received).toMatchObject({ path: '/v1/logs', headers: { authorization } })
    expectOtlp(sent, gunzipSync(sent.received.bytes))
  })
})

describe('s3', () => {
  const HOST = 's3.eu-west-1.amazonaws.com'
  const config = {
    ...{ s3_bucket: 'my-logs', storage_region: 'eu-west-1' },
    ...{ access_key_id: 'AKIAIOSFODNN7EXAMPLE', secret_access_key: 'wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY' },
  }

  it('receives an object of JSON lines, signed with the key', async () => {
    const { received, project, call } = await sentTo(HOST, 's3', config)
    const day = new Date().toISOString().slice(0, 7)
    expect(received.path).toMatch(new RegExp(`^/my-logs/${project.ref}/${day}-\\d\\d/[0-9a-f-]+\\.json\\.gz\\?`))
    expect(received.headers).toMatchObject({ 'content-encoding': 'gzip' })
    const rows = textOf(received)
      .trim()
      .split('\n')
      .map((text) => JSON.parse(text))
    expect(rows.map(({ source }) => source)).toEqual(['edge_logs', 'function_edge_logs', 'function_logs'])
    expect(rows[1]).toMatchObject({ id: call, project: project.ref })
    expect(received.headers.authorization).toContain(`Signature=${signatureOf(received)}`)
  })

  it('is retried after a refusal, and then gets the next object only after a pause', async () => {
    const receiver = await newReceiver(withStatus(403, {}, '<Error><Code>AccessDenied</Code></Error>'))
    await setName('s3.eu-west-2.amazonaws.com', PUBLIC, new URL(receiver.url).origin)
    const project = await newDrained()
    const id = await newDrain(project, 's3', { ...config, storage_region: 'eu-west-2' })
    await log(project)
    await untilSwept(async () => expect((await drainRow(id)).failures).toBeGreaterThan(0))
    expect(receiver.received).toHaveLength(1)
    const failed = (await workerLogs(id)).filter((text) => text.includes('log_drain_failed'))
    expect(failed.join()).toContain('the bucket answered 403')
    receiver.answer(withStatus(200))
    await hurry(id)
    await untilSwept(async () => expect(await waiting(id)).toBe(0))
    await log(project)
    const { nextAt } = await drainRow(id)
    await untilSwept(() => expect(receiver.received).toHaveLength(3))
    expect(receiver.received[2]?.at).toBeGreaterThanOrEqual(nextAt.getTime())
    expect(nextAt.getTime() - (receiver.received[1]?.at ?? 0)).toBeGreaterThan(2_500)
  })

  /** Computes the signature of AWS Signature Version 4, "Create a signed request". */
  function signatureOf({ path, headers, bytes }: Received): string {
    const hash = (data: string | Buffer) => createHash('sha256').update(data).digest('hex')
    const hmac = (key: string | Buffer, data: string) => createHmac('sha256', key).update(data).digest()
    const [, scope = '', names = ''] =
      /Credential=[^/]+\/([^,]+), SignedHeaders=([^,]+)/.exec(headers.authorization ?? '') ?? []
    const [day = '', region = '', service = '', request = ''] = scope.split('/')
    const [pathname = '', query = ''] = path.split('?')
    const valueIn = (name: string) => (name === 'host' ? HOST : String(headers[name]).trim())
    const canonical = [
      ...['PUT', pathname, query.split('&').sort().join('&')],
      ...names.split(';').map((name) => `${name}:${valueIn(name)}`),
      ...['', names, hash(bytes)],
    ].join('\n')
    const text = ['AWS4-HMAC-SHA256', headers['x-amz-date'], scope, hash(canonical)].join('\n')
    const dated = hmac(`AWS4${config.secret_access_key}`, day)
    const key = [region, service, request].reduce<Buffer>((made, part) => hmac(made, part), dated)
    return hmac(key, text).toString('hex')
  }
})
