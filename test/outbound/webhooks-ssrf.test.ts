import { randomUUID } from 'node:crypto'
import { describe, expect, it, vi } from 'vitest'
import { setName, workerLogs } from '../support/api.ts'
import { newReceiver } from '../support/receiver.ts'
import {
  bringForward,
  deliveriesOf,
  endpointRow,
  fieldsOf,
  insertDelivery,
  KINDS,
  newEndpoint,
  newPlace,
  type Place,
  patchEndpoint,
  postEndpoint,
  rowsOf,
  untilStatuses,
  WAIT,
} from '../support/webhooks.ts'
import type { Zone } from './webhooks/doh.ts'

const URL_FIELD = 'body.data.attributes.url'
/** A failure of the resolver itself, in place of an answer about the name. */
const DOWN: Zone = { raw: { status: 502, body: 'bad gateway' } }
const PUBLIC: Zone = { A: ['93.184.215.14'], AAAA: ['2606:2800:21f:cb07:6820:80da:af6b:8b2c'], ttl: 0 }

/** Makes a host name that no other test resolves. */
async function newHost(zone?: Zone, origin?: string): Promise<string> {
  const host = `${randomUUID()}.receivers.dev`
  if (zone) await setName(host, zone, origin)
  return host
}

/** Expects that neither a new endpoint nor a change may use the url; the endpoint stays unchanged. */
async function expectRefused(place: Place, url: string, known?: string): Promise<string> {
  const id = known ?? (await newEndpoint(place))
  const before = await endpointRow(id)
  const replies = await Promise.all([postEndpoint(place, { url }), patchEndpoint(place, id, { url })])
  for (const reply of replies) {
    expect(reply, url).toMatchObject({ status: 400, body: { error: { code: 'bad_request.validation_failed' } } })
    expect(fieldsOf(reply), url).toEqual([URL_FIELD])
  }
  expect(await endpointRow(id)).toEqual(before)
  return replies[0]?.body.error.description
}

/** Addresses under WEBHOOK_LOOPBACK=on, which allows 127.0.0.1, localhost and [::1] but no address near them. */
const ADDRESSES = `
  0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.2 127.2 127.255.255.255 168.63.129.16 169.254.169.254 172.16.0.1 192.168.1.1
  198.18.0.1 203.0.113.1 224.0.0.1 255.255.255.255 8.8.8.8 0 0x0 2852039166 0xa9fea9fe 0251.0376.0251.0376
  0xA9.0xFE.0xA9.0xFE 169.254.43518 169.16689662 169.254.169.254. １６９.２５４.１６９.２５４ ①⑥⑨.②⑤④.①⑥⑨.②⑤④
  169。254。169。254 %31%36%39.254.169.254 [::] [::2] [::127.0.0.1] [::ffff:127.0.0.1] [::ffff:7f00:1]
  [::ffff:169.254.169.254] [::ffff:0:127.0.0.1] [64:ff9b::127.0.0.1] [64:ff9b:1::7f00:1] [2002:7f00:1::] [2001::7f00:1]
  [fc00::1] [fd00:ec2::254] [fe80::1] [fec0::1] [ff02::1] [2001:db8::1] [2606:2800:21f:cb07:6820:80da:af6b:8b2c]`
  .trim()
  .split(/\s+/)

const NAMES = `
  intranet metadata metadata. metadata.google.internal METADATA.GOOGLE.INTERNAL. instance-data.ec2.internal
  printer.local app.localhost localhost.localhost x.test x.invalid x.onion 1.0.0.127.in-addr.arpa kubernetes.default.svc
  localhost.localdomain`
  .trim()
  .split(/\s+/)

const ODD = [
  'http://user@93.184.215.14/',
  'http://user:password@receivers.dev/',
  'http://receivers.dev:22/',
  'http://receivers.dev:25/',
  'https://receivers.dev:6667/',
  'file:///etc/passwd',
  'gopher://receivers.dev/',
  'ws://receivers.dev/',
  'http:/\\169.254.169.254/',
  'http://169.254.169.254\\@receivers.dev/',
]

describe.each(KINDS)('an endpoint of /v2/%s', (kind) => {
  /** Sends the urls in portions, because a place accepts 120 requests a minute. */
  async function expectAllRefused(urls: readonly string[]) {
    for (let start = 0; start < urls.length; start += 50) {
      const place = await newPlace(kind)
      const id = await newEndpoint(place)
      for (const url of urls.slice(start, start + 50)) await expectRefused(place, url, id)
    }
  }

  it('has no loopback address except an allowed one, however it is spelled', () =>
    expectAllRefused(ADDRESSES.map((host) => `http://${host}/latest/meta-data/`)))

  it('has no name that only an internal network knows', () => expectAllRefused(NAMES.map((host) => `https://${host}/`)))

  it('has no url that others parse differently, and no port of another service', async () => {
    await setName('receivers.dev', PUBLIC)
    await expectAllRefused(ODD)
  })

  it.each(['api.example.com', 'API.Example.COM', 'api.example.com.', 'api.example.com:8443', 'ａpi.example.com'])(
    'is not this installation itself, as %s',
    async (host) => {
      await setName('api.example.com', PUBLIC)
      expect(await expectRefused(await newPlace(kind), `https://${host}/v1/projects`)).toContain('this installation')
    },
  )

  const zones: [string, Zone | undefined, string][] = [
    ['does not exist', undefined, 'does not exist'],
    ['has no address', { A: [] }, 'has no addresses'],
    ['has a private address', { A: ['10.1.2.3'] }, 'reserved address'],
    ['has a private address beside a public one', { A: ['93.184.215.14', '10.1.2.3'] }, 'reserved address'],
    ['has a private v6 address alone', { AAAA: ['fd00::1:2'] }, 'reserved address'],
    [
      'has a private v6 address beside a public v4 one',
      { A: ['93.184.215.14'], AAAA: ['fd00::1:2'] },
      'reserved address',
    ],
    ['has a v4 address inside a v6 one', { AAAA: ['::ffff:10.1.2.3'] }, 'reserved address'],
    ['its own servers do not know', { status: 2 }, 'cannot be resolved'],
    ['its own servers refuse to tell', { status: 5 }, 'cannot be resolved'],
    ['has a loopback address', { A: ['127.0.0.1'], AAAA: ['::1'] }, 'reserved address'],
    ['is an alias of a private address', { CNAME: 'inner.receivers.dev', A: ['10.1.2.3'] }, 'reserved address'],
  ]
  it.each(zones)('has no name that %s', async (_name, zone, problem) => {
    const description = await expectRefused(await newPlace(kind), `https://${await newHost(zone)}/hook`)
    expect(description).toContain(problem)
    expect(description).not.toMatch(/10\.1\.2\.3|fd00|127\.0/)
  })

  const troubles: [string, Zone][] = [
    ['no answer for one of two questions', { A: ['93.184.215.14'], broken: 'AAAA' }],
    ['HTTP status 502', DOWN],
    [
      'something other than a DNS answer',
      { raw: { headers: { 'content-type': 'application/dns-json' }, body: '<html>' } },
    ],
    ['nothing in time', { silent: 'halfway' }],
  ]
  it.each(troubles)('may be tried again when the resolver answers with %s', async (_name, zone) => {
    const place = await newPlace(kind)
    const id = await newEndpoint(place)
    const url = `https://${await newHost(zone)}/hook`
    for (const reply of await Promise.all([postEndpoint(place, { url }), patchEndpoint(place, id, { url })])) {
      expect(reply).toMatchObject({ status: 503, body: { error: { code: 'service_unavailable.name_resolution' } } })
      expect(reply.headers.get('retry-after')).toMatch(/^\d+$/)
      expect(JSON.stringify(reply.body)).not.toContain('WEBHOOK_DNS_URL')
      const [line] = await workerLogs(String(reply.headers.get('x-request-id')))
      expect(line).toContain('WEBHOOK_DNS_URL: ')
    }
    expect(await endpointRow(id)).not.toMatchObject({ url })
  })

  it('has a public name, and other fields may change while its name cannot be resolved', async () => {
    const place = await newPlace(kind)
    const host = await newHost(PUBLIC)
    const id = await newEndpoint(place, { url: `https://${host}/hook` })
    expect(await patchEndpoint(place, id, { url: `http://${host.toUpperCase()}:8080/` })).toMatchObject({ status: 200 })
    await setName(host, DOWN)
    expect(await patchEndpoint(place, id, { description: 'away' })).toMatchObject({ status: 200 })
  })
})

/**
 * Waits until an attempt after the first `succeeded` ones has failed and its retry is planned. Cron runs of other tests may make the
 * retry at any time, and those after it, so the number of attempts is not known.
 */
const untilRetried = (endpointId: string, succeeded = 0) =>
  vi.waitFor(async () => {
    const rows = await rowsOf(endpointId)
    expect(rows.length).toBeGreaterThanOrEqual(succeeded + 2)
    return rows
  }, WAIT)

describe('an attempt', () => {
  const later = () => ({ status: 'pending' as const, attemptedAt: null, nextAt: new Date(Date.now() + 3_600_000) })

  it('connects nowhere if the name now has a private address, and gives that reason without the address', async () => {
    const place = await newPlace('projects')
    const receiver = await newReceiver()
    const host = await newHost(PUBLIC, new URL(receiver.url).origin)
    const id = await newEndpoint(place, { url: `http://${host}/hook` })
    await insertDelivery(place, id, later())
    await bringForward(id)
    await untilStatuses(id, 'success')
    expect(receiver.received).toHaveLength(1)

    await setName(host, { A: ['93.184.215.14', '10.1.2.3'], ttl: 0 })
    await insertDelivery(place, id, later())
    await bringForward(id)
    const [, failed] = await untilRetried(id, 1)
    expect(failed).toMatchObject({ status: 'failure', attempt: 1 })
    expect(receiver.received).toHaveLength(1)
    const { data } = (await deliveriesOf(place, id)).body
    const { attributes } = data.find((delivery: { id: string }) => delivery.id === failed?.id)
    expect(attributes).toMatchObject({ status: 'failure', response_code: 0, error_code: 'destination_refused' })
    expect(attributes.error_message).toContain('reserved address')
    expect(attributes.error_message).not.toContain('10.1.2.3')
  })

  it('fails for a name that no longer exists', async () => {
    const place = await newPlace('projects')
    const host = await newHost(PUBLIC)
    const id = await newEndpoint(place, { url: `http://${host}/hook` })
    await setName(host, { status: 3 })
    await insertDelivery(place, id, later())
    await bringForward(id)
    const [first, second] = await untilRetried(id)
    expect(first).toMatchObject({ status: 'failure', attempt: 1, errorCode: 'name_not_resolved' })
    expect(second).toMatchObject({ attempt: 2 })
  })

  it('is not used up while the resolver is down, and is made when it is back', async () => {
    const place = await newPlace('projects')
    const receiver = await newReceiver()
    const host = await newHost(PUBLIC, new URL(receiver.url).origin)
    const id = await newEndpoint(place, { url: `http://${host}/hook` })
    await setName(host, DOWN)
    const { delivery } = await insertDelivery(place, id, later())
    for (let round = 0; round < 2; round++) {
      await bringForward(id)
      await vi.waitFor(async () => {
        const [row] = await rowsOf(id)
        expect(row).toMatchObject({ id: delivery.id, status: 'pending', attempt: 1, claim: null, attemptedAt: null })
        expect(row?.leaseUntil?.getTime()).toBeGreaterThan(Date.now())
      }, WAIT)
    }
    expect(receiver.received).toEqual([])
    await setName(host, PUBLIC)
    await bringForward(id)
    const rows = await untilStatuses(id, 'success')
    expect(rows).toMatchObject([{ id: delivery.id, attempt: 1 }])
    expect(receiver.received).toHaveLength(1)
  })
})
