import { execFileSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest'
import { DeliveryReply } from '../../src/management/observability/webhooks/schema.ts'
import { webhookAssociatedData } from '../../src/model/secrets/associated-data.ts'
import { seal } from '../../src/platform/secrets/seal.ts'
import { type Machine, newMachine } from '../support/machine.ts'
import type { Received } from '../support/receiver.ts'
import {
  answer,
  bareStatus,
  brotliBomb,
  bytes,
  delayed,
  drip,
  endless,
  gzipBomb,
  headersOnly,
  reset,
  resetMidBody,
  silence,
  withHead,
} from '../support/wire/answers.ts'
import { type Customer, newCustomer, SECRET } from '../support/wire/customer.ts'
import { type Installation, openInstallation, until } from '../support/wire/installation.ts'
import { expectWithin, idsOf, type Outcome, outcomeOf, plannedMs, publishToEach } from '../support/wire/publish-each.ts'
import { type Script, type Scripted, startCanary, startScripted } from '../support/wire/scripted.ts'
import { SELF_SIGNED } from '../support/wire/self-signed.ts'
import { expectSigned, RAW } from '../support/wire/verify.ts'

const TIMEOUT_MS = 2000
/** Tolerance for measured times on a machine with two busy cores. */
const SLACK_MS = 1500

let machine: Machine
let installation: Installation
let receiver: Scripted
let processId = 0
beforeAll(async () => {
  machine = await newMachine(
    { WEBHOOK_LOOPBACK: 'on', WEBHOOK_TIMEOUT_SECONDS: String(TIMEOUT_MS / 1000) },
    inject('begun'),
  )
  receiver = await startScripted()
  processId = (await machine.started()).child.pid ?? 0
  installation = openInstallation(machine)
})
afterAll(async () => {
  await installation?.close()
  receiver.close()
  await machine.dispose()
})

const publishTo = <Name extends string>(scripts: Record<Name, Script>, customer?: Customer) =>
  publishToEach({ installation, receiver, customer }, scripts)
const requestsOf = ({ path }: Outcome) => receiver.receivedAt(path)

describe('the schedule', () => {
  it('makes five attempts with the same id and bytes, each planned as late as promised', async () => {
    const customer = await newCustomer(installation)
    const down = answer(500)
    const { recovers, stays } = await publishTo(
      { recovers: (exchange) => (exchange.count < 5 ? down : answer(200))(exchange), stays: down },
      customer,
    )
    for (const delayMs of [10_000, 30_000, 90_000, 270_000]) {
      for (const { id } of [recovers, stays]) {
        const last = (await customer.deliveries(id)).slice(-2)
        expectWithin(plannedMs(last), [delayMs, 1.2 * delayMs + SLACK_MS])
        // The planned time is moved; the retry then only wakes the sender.
        await installation.rows('update webhook_deliveries set next_at = now() where id = $1', [last[1]?.id])
        await customer.retry(last[0]?.id ?? '')
      }
      await customer.untilRecorded(recovers.id, stays.id)
    }
    for (const [outcomes, last] of [
      [recovers, 'success'],
      [stays, 'failure'],
    ] as const) {
      const log = await customer.deliveries(outcomes.id)
      expect(log.map(({ status }) => status)).toEqual([...Array(4).fill('failure'), last])
      const received = requestsOf(outcomes)
      expect(received).toHaveLength(5)
      expect(new Set(idsOf(received))).toEqual(new Set(log.map(({ event_id }) => event_id)))
      expect(new Set(received.map(({ body }) => body)).size).toBe(1)
    }
  })

  it('respects Retry-After up to twice its own delay', async () => {
    const OWN = [10_000, 12_000] as const
    const MOST = [20_000, 20_000] as const
    const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toUTCString()
    const table = [
      ['0', OWN],
      ['5', OWN],
      ['15', [15_000, 15_000]],
      ['3600', MOST],
      ['1000000000', MOST],
      [inSeconds(-60), OWN],
      [inSeconds(19), [13_000, 19_000]],
      [inSeconds(86_400), MOST],
      ['soon', OWN],
      ['-30', OWN],
    ] as const
    const outcomes = await publishTo(
      Object.fromEntries(
        table.map(([value], index) => [index, answer(index % 2 ? 503 : 429, { 'retry-after': value })]),
      ),
    )
    for (const [index, [value, [least, most]]] of table.entries()) {
      const { log = [] } = outcomes[index] ?? {}
      expectWithin(plannedMs(log), [least, most + SLACK_MS], value)
    }
  })

  it('ends with 410: the endpoint is disabled, and PATCH brings it back', async () => {
    const customer = await newCustomer(installation)
    const { gone } = await publishTo(
      { gone: ({ response, count }) => response.writeHead([500, 410][count - 1] ?? 200).end() },
      customer,
    )
    expect(gone.log.map(({ status }) => status)).toEqual(['failure', 'pending'])
    await customer.sendTest(gone.id)
    await customer.untilRecorded(gone.id)
    expect(await customer.enabled(gone.id)).toBe(false)
    await expect(customer.sendTest(gone.id)).rejects.toThrow('disabled')
    const log = async () =>
      (await customer.deliveries(gone.id)).map((row) => [row.status, row.response_code, row.error_code])
    const before = [
      ['failure', 500, 'bad_status'],
      ['skipped', 0, 'endpoint_disabled'],
      ['failure', 410, 'bad_status'],
    ]
    expect(await log()).toEqual(before)
    await customer.change(gone.id, { enabled: true })
    await customer.sendTest(gone.id)
    await customer.untilRecorded(gone.id)
    expect(await log()).toEqual([...before, ['success', 200, null]])
    expect(requestsOf(gone)).toHaveLength(3)
  })

  it('continues after a 410 from a URL that the endpoint no longer has', async () => {
    const customer = await newCustomer(installation)
    const held: ServerResponse[] = []
    const path = `/${randomUUID()}`
    const id = await customer.subscribe(receiver.play('/before', ({ response }) => void held.push(response)))
    await customer.createProject()
    const response = await until('the attempt is made', 5000, () => held[0])
    await customer.change(id, { url: receiver.play(path, answer(200)) })
    response.writeHead(410).end()
    await customer.untilRecorded(id)
    expect(await customer.enabled(id)).toBe(true)
    const [gone, planned] = await customer.deliveries(id)
    expect([gone, planned]).toMatchObject([{ status: 'failure', response_code: 410 }, { status: 'pending' }])
    await customer.retry(planned?.id ?? '')
    await customer.untilRecorded(id)
    expect(idsOf(receiver.receivedAt(path))).toEqual([gone?.event_id])
  })
})

describe('an answer', () => {
  it('is a success only with 2xx', async () => {
    const good = [200, 201, 202, 204, 205, 299]
    const bad = [101, 300, 304, 305, 400, 401, 404, 408, 429, 499, 500, 503, 599, 600, 999]
    const without = [99, 100, 102, 103]
    const outcomes = await publishTo(
      Object.fromEntries([...good, ...bad, ...without].map((status) => [status, bareStatus(status)])),
    )
    for (const status of good) expect(outcomeOf(outcomes[status] as Outcome)).toEqual(['success', status, null])
    for (const status of bad) expect(outcomeOf(outcomes[status] as Outcome)).toEqual(['failure', status, 'bad_status'])
    // An interim status without a final answer is not recorded.
    for (const status of without)
      expect(outcomeOf(outcomes[status] as Outcome), `${status}`).toEqual(['failure', 0, 'connection_failed'])
  })

  it('is never followed to another address', async () => {
    const canary = await startCanary()
    onTestFinished(() => void canary.close())
    const targets = [`http://127.0.0.1:${canary.port}/`, `http://localhost:${canary.port}/`, '/hop']
    const cases = [301, 302, 303, 307, 308].flatMap((status) => targets.map((location) => ({ status, location })))
    const outcomes = await publishTo(
      Object.fromEntries(cases.map(({ status, location }, index) => [index, answer(status, { location })])),
    )
    for (const [index, { status, location }] of cases.entries()) {
      const one = outcomes[index] as Outcome
      expect(outcomeOf(one)).toEqual(['failure', status, 'bad_status'])
      expect(one.log[0]?.response_headers).toMatchObject({ location })
      expect(requestsOf(one)).toHaveLength(1)
    }
    expect(canary.connections()).toBe(0)
    expect(receiver.receivedAt('/hop')).toHaveLength(0)
  })

  it('must be complete in time, whichever part of it is late', async () => {
    const outcomes = await publishTo({
      never: silence,
      headers: headersOnly,
      byteASecond: drip(1000),
      late: delayed(TIMEOUT_MS + 500, answer(200)),
      inTime: delayed(TIMEOUT_MS - 500, answer(200)),
    })
    expect(outcomeOf(outcomes.never)).toEqual(['failure', 0, 'timeout'])
    const nothing = { response_headers: {}, response_body: null, error_message: expect.any(String) }
    expect(outcomes.never.log[0]).toMatchObject(nothing)
    expect(outcomeOf(outcomes.headers)).toEqual(['failure', 200, 'timeout'])
    expect(outcomeOf(outcomes.byteASecond)).toEqual(['failure', 200, 'timeout'])
    expect(outcomes.byteASecond.log[0]?.response_body).toMatch(/^x{1,3}$/)
    expect(outcomeOf(outcomes.late)).toEqual(['failure', 0, 'timeout'])
    expect(outcomeOf(outcomes.inTime)).toEqual(['success', 200, null])
    for (const { log, path } of [outcomes.never, outcomes.headers, outcomes.byteASecond, outcomes.late]) {
      expectWithin(plannedMs(log), [TIMEOUT_MS + 10_000, TIMEOUT_MS + 12_000 + SLACK_MS])
      const lastedMs = await until('its connection is given up', SLACK_MS, () => receiver.lastedMs(path))
      expectWithin(lastedMs, [TIMEOUT_MS - 250, TIMEOUT_MS + SLACK_MS])
    }
  })

  it('is kept up to 64 KiB, in constant memory, however large it is or becomes', async () => {
    const streams = {
      endless: endless('content-type: text/plain'),
      oneGigabyte: endless(`content-length: ${2 ** 30}`),
      chunked: endless('transfer-encoding: chunked', Buffer.from(`10000\r\n${'x'.repeat(0x10000)}\r\n`)),
    }
    const customer = await newCustomer(installation)
    const outcomes = await publishTo(
      {
        endless: streams.endless.script,
        oneGigabyte: streams.oneGigabyte.script,
        chunked: streams.chunked.script,
        gzip: gzipBomb(),
        brotli: brotliBomb(),
      },
      customer,
    )
    const residentBefore = residentMiB()
    for (let round = 0; round < 2; round++) {
      for (const { id } of Object.values(outcomes)) await customer.sendTest(id)
      await customer.untilRecorded(...Object.values(outcomes).map(({ id }) => id))
    }
    expect(residentMiB() - residentBefore).toBeLessThan(64)
    for (const { id } of Object.values(outcomes)) {
      const log = await customer.deliveries(id)
      expect(log.map(({ status }) => status)).toEqual(['success', 'success', 'success'])
      for (const listed of log) {
        expect(listed.response_body).toBe('x'.repeat(4096))
        const { body } = await installation.call('GET', `${customer.hooks}/deliveries/${listed.id}`)
        expect(DeliveryReply.parse(body).data.attributes.response_body).toBe('x'.repeat(65_536))
      }
    }
    for (const { written } of Object.values(streams)) expect(written() / 2 ** 20).toBeLessThan(3 * 32)
  })

  it('is recorded unchanged, except where Postgres or a limit does not allow that', async () => {
    const outcomes = await publishTo({
      empty: withHead(''),
      text: withHead('', 'thanks'),
      object: withHead('', '{"a":"b"}'),
      nested: withHead('', '{"a":{"b":1}}'),
      array: withHead('', '[1,2]'),
      number: withHead('', '7'),
      nothing: withHead('', 'null'),
      controls: withHead('', 'a\0\x01\x08b\t\r\n\x0b\x0c\x0e\x1b[0mc\x1f'),
      notUtf8: withHead('', Buffer.from([0x61, 0xff, 0xfe, 0x62])),
      long: withHead(`x-long: ${'y'.repeat(200 * 1024)}\r\n`),
      many: withHead(Array.from({ length: 5000 }, (_, index) => `x-${index}: 1\r\n`).join('')),
      cookies: withHead('set-cookie: a=1\r\nset-cookie: b=2\r\n'),
    })
    const bodies = Object.entries(outcomes).map(([name, { log }]) => [name, log[0]?.status, log[0]?.response_body])
    expect(bodies).toEqual([
      ['empty', 'success', null],
      ['text', 'success', 'thanks'],
      ['object', 'success', { a: 'b' }],
      ['nested', 'success', '{"a":{"b":1}}'],
      ['array', 'success', '[1,2]'],
      ['number', 'success', '7'],
      ['nothing', 'success', 'null'],
      ['controls', 'success', 'ab\t\r\n[0mc'],
      ['notUtf8', 'success', 'a\ufffd\ufffdb'],
      ['long', 'success', null],
      ['many', 'success', null],
      ['cookies', 'success', null],
    ])
    const headersOf = ({ log }: Outcome) => log[0]?.response_headers ?? {}
    expect(headersOf(outcomes.long)['x-long']).toBe('y'.repeat(4096))
    expect(Object.keys(headersOf(outcomes.many))).toHaveLength(100)
    expect(headersOf(outcomes.cookies)['set-cookie']).toBe('a=1, b=2')
  })
})

describe('a failed connection', () => {
  it('is made once more at once if no answer had started, and then planned again', async () => {
    const resetAtOnce = await startCanary((socket) => void socket.resetAndDestroy())
    onTestFinished(() => void resetAtOnce.close())
    const customer = await newCustomer(installation)
    const atOnce = await customer.subscribe(`http://127.0.0.1:${resetAtOnce.port}/`)
    const outcomes = await publishTo(
      {
        afterRequest: reset,
        noHttp: bytes('SSH-2.0-OpenSSH_9.6\r\n'),
        nulInHeader: withHead('x-a: b\0c\r\n'),
        midBody: resetMidBody,
        tooShort: bytes('HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nshort'),
        badChunks: bytes('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZZ\r\nwhat\r\n'),
        badGzip: withHead('content-encoding: gzip\r\n', 'not compressed'),
      },
      customer,
    )
    await customer.untilRecorded(atOnce)
    expect(resetAtOnce.connections()).toBe(2)
    const log = await customer.deliveries(atOnce)
    expect(log[0]).toMatchObject({ status: 'failure', response_code: 0, error_code: 'connection_failed' })
    expectWithin(plannedMs(log), [10_000, 12_000 + SLACK_MS])

    for (const one of [outcomes.afterRequest, outcomes.noHttp, outcomes.nulInHeader]) {
      expect(outcomeOf(one)).toEqual(['failure', 0, 'connection_failed'])
      const received = requestsOf(one)
      expect(received).toHaveLength(2)
      expect(idsOf(received)).toEqual([one.log[0]?.event_id, one.log[0]?.event_id])
      expectWithin((received[1]?.at ?? 0) - (received[0]?.at ?? 0), [0, 1000])
    }
    for (const [one, body] of [
      [outcomes.midBody, 'the beginning'],
      [outcomes.tooShort, 'short'],
      [outcomes.badChunks, null],
      [outcomes.badGzip, null],
    ] as const) {
      expect(outcomeOf(one)).toEqual(['failure', 200, 'connection_failed'])
      expect(one.log[0]?.response_body).toBe(body)
      expect(requestsOf(one)).toHaveLength(1)
    }
    for (const { log } of Object.values(outcomes)) expectWithin(plannedMs(log), [10_000, 12_000 + SLACK_MS])
  })

  it('costs no attempt if the receiver had closed a kept connection', async () => {
    // This receiver is used by no other test, so that there is one connection to keep.
    const keeper = await startScripted()
    onTestFinished(keeper.close)
    const customer = await newCustomer(installation)
    const ports: (number | undefined)[] = []
    const url = keeper.play('/kept', ({ socket, response, count }) => {
      ports.push(socket.remotePort)
      count === 2 ? socket.destroy() : response.end()
    })
    const endpoint = await customer.subscribe(url)
    const ids: string[] = []
    for (let count = 0; count < 2; count++) {
      ids.push(await customer.sendTest(endpoint))
      await customer.untilRecorded(endpoint)
    }
    expect(ports[1], 'the second request came over the first connection').toBe(ports[0])
    expect(ports[2]).not.toBe(ports[0])
    expect(idsOf(keeper.receivedAt('/kept'))).toEqual([ids[0], ids[1], ids[1]])
    expect((await customer.deliveries(endpoint)).map(({ status }) => status)).toEqual(['success', 'success'])
  })

  it('is a failure if nobody listens, or if the certificate is not trusted', async () => {
    const secure = createServer(SELF_SIGNED, (_request, response) => response.end()).listen(0, '127.0.0.1')
    let requests = 0
    secure.on('request', () => requests++)
    await once(secure, 'listening')
    onTestFinished(() => void secure.close())
    const nobody = await startCanary()
    nobody.close()

    const customer = await newCustomer(installation)
    const { port } = secure.address() as AddressInfo
    const endpoints = [
      await customer.subscribe(`https://localhost:${port}/`),
      await customer.subscribe(`https://127.0.0.1:${port}/`),
      await customer.subscribe(`http://127.0.0.1:${nobody.port}/`),
    ]
    await customer.createProject()
    await customer.untilRecorded(...endpoints)
    for (const id of endpoints) {
      expect((await customer.deliveries(id)).map((row) => [row.status, row.response_code, row.error_code])).toEqual([
        ['failure', 0, 'connection_failed'],
        ['pending', 0, null],
      ])
    }
    expect(requests).toBe(0)
  })
})

describe('a request', () => {
  it('has our headers, the custom ones and a signature that the official libraries accept', async () => {
    const customer = await newCustomer(installation)
    const custom_headers = { Authorization: 'Bearer of the receiver', Cookie: 'a=1', 'X-Team': 'blue\tgreen' }
    const secrets = [
      [SECRET, undefined],
      [`whsec_${Buffer.from('sixteen bytes...').toString('base64')}`, undefined],
      ['12345678', RAW],
      ['a secret with blanks and / + =', RAW],
      ['x'.repeat(64), RAW],
    ] as const
    const endpoints = []
    for (const [signing_secret] of secrets) {
      const path = `/${randomUUID()}`
      const id = await customer.subscribe(receiver.play(path, answer(200)), { signing_secret, custom_headers })
      endpoints.push({ id, path })
    }
    const ref = await customer.createProject()
    await customer.untilRecorded(...endpoints.map(({ id }) => id))
    for (const [index, { id, path }] of endpoints.entries()) {
      const [delivery] = await customer.deliveries(id)
      const [received] = receiver.receivedAt(path) as [Received]
      const [secret, options] = secrets[index] ?? ['']
      expectSigned(received, secret, options)
      expect(received.headers).toMatchObject({
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(received.body)),
        'user-agent': 'Pilothouse-Webhooks/1.0',
        'webhook-id': delivery?.event_id,
        'webhook-timestamp': String(Math.floor(Date.parse(delivery?.attempt_timestamp ?? '') / 1000)),
        authorization: 'Bearer of the receiver',
        cookie: 'a=1',
        'x-team': 'blue\tgreen',
      })
      expect(JSON.parse(received.body)).toEqual({
        id: delivery?.event_id,
        type: 'v1.project.created',
        timestamp: delivery?.event.timestamp,
        payload: {
          organization_slug: customer.slug,
          project_ref: ref,
          source: null,
          actor: { user_id: expect.any(String) },
        },
      })
    }
    expect(new Set(endpoints.flatMap(({ path }) => idsOf(receiver.receivedAt(path)))).size).toBe(endpoints.length)
  })

  it('accepts any answer type, or the one that the endpoint configures', async () => {
    const customer = await newCustomer(installation)
    const path = `/${randomUUID()}`
    const id = await customer.subscribe(receiver.play(path, answer(200)))
    for (const custom_headers of [null, { Accept: 'application/problem+json' }]) {
      await customer.change(id, { custom_headers })
      await customer.sendTest(id)
      await customer.untilRecorded(id)
    }
    const accepted = receiver.receivedAt(path).map(({ headers }) => headers.accept)
    expect(accepted).toEqual(['*/*', 'application/problem+json'])
  })

  it('has our headers even if stored headers have the same names', async () => {
    const customer = await newCustomer(installation)
    const path = `/${randomUUID()}`
    const id = await customer.subscribe(receiver.play(path, answer(200)))
    for (const name of ['Webhook-Signature', 'content-type', 'USER-AGENT', 'Host']) {
      await expect(customer.change(id, { custom_headers: { [name]: 'x' } })).rejects.toThrow('reserved')
    }
    const stored = {
      'Webhook-Id': 'x',
      'webhook-timestamp': '0',
      'Webhook-Signature': 'v1,x',
      'Content-Type': 'text/plain',
    }
    const sealed = await seal(installation.encryptionKey, JSON.stringify(stored), webhookAssociatedData(id, 'headers'))
    await installation.rows('update webhook_endpoints set sealed_headers = $1 where id = $2', [sealed, id])
    await customer.sendTest(id)
    await customer.untilRecorded(id)
    const [received] = receiver.receivedAt(path) as [Received]
    expectSigned(received, SECRET)
    expect(received.headers['content-type']).toBe('application/json')
  })

  it('is signed with the new secret and for a time with the old ones, at the new address', async () => {
    const customer = await newCustomer(installation)
    const { moved } = await publishTo({ moved: answer(500) }, customer)
    const [failed] = moved.log
    const path = `/${randomUUID()}`
    await customer.change(moved.id, { signing_secret: 'the second secret', url: receiver.play(path, answer(500)) })
    await customer.retry(failed?.id ?? '')
    await customer.untilRecorded(moved.id)
    await customer.change(moved.id, { signing_secret: 'the third secret', url: receiver.play(path, answer(200)) })
    await customer.retry((await customer.deliveries(moved.id))[1]?.id ?? '')
    await customer.untilRecorded(moved.id)

    const [first] = requestsOf(moved) as [Received]
    const [second, third] = receiver.receivedAt(path) as [Received, Received]
    expectSigned(first, SECRET)
    for (const received of [second, third]) {
      expectSigned(received, SECRET)
      expectSigned(received, 'the second secret', RAW)
      expect(received.body).toBe(first.body)
      expect(received.headers['webhook-id']).toBe(first.headers['webhook-id'])
    }
    expectSigned(third, 'the third secret', RAW)
    const signatures = [first, second, third].map(({ headers }) => String(headers['webhook-signature']).split(' '))
    expect(signatures.map(({ length }) => length)).toEqual([1, 2, 3])
    expect((await customer.deliveries(moved.id)).map(({ status }) => status)).toEqual(['failure', 'failure', 'success'])
  })
})

/** Returns the resident memory of the runtimes that `npm start` runs. */
function residentMiB(): number {
  const lines = execFileSync('ps', ['-A', '-o', 'ppid=,rss=,comm=']).toString().trim().split('\n')
  const processes = lines.map((line) => line.trim().split(/\s+/))
  const ours = processes.filter(([parent, , name]) => Number(parent) === processId && name?.includes('workerd'))
  return ours.reduce((sum, [, kibibytes]) => sum + Number(kibibytes) / 1024, 0)
}
