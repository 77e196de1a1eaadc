import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { checkDestination } from '../../../src/platform/net/destination.ts'
import { createResolver, type Resolver } from '../../../src/platform/net/dns.ts'
import { type Doh, startDoh, type Zone } from './doh.ts'

const HOST = 'hooks.acme.dev'
const PUBLIC = '93.184.215.14'
const PUBLIC_V6 = '2606:2800:21f:cb07:6820:80da:af6b:8b2c'

const ALIAS_WITHOUT_TTL = JSON.stringify({
  Status: 0,
  Answer: [
    { name: HOST, type: 5, TTL: 0, data: 'edge.acme.net.' },
    { name: 'edge.acme.net', type: 1, TTL: 60, data: PUBLIC },
  ],
})

let doh: Doh
beforeAll(async () => {
  doh = await startDoh()
})
afterAll(() => doh.close())
beforeEach(() => {
  doh.zones.clear()
  doh.queries.length = 0
})

/** Makes a resolver with a clock of its own that tests move. */
function resolverAt(startMs = 0) {
  const clock = { nowMs: startMs }
  return { clock, resolver: createResolver(doh.url, { now: () => clock.nowMs }) }
}

const check = (resolver: Resolver) =>
  checkDestination(`https://${HOST}/hook`, { resolver, ownHosts: [], allowLoopback: false })

async function resolutionOf(zone: Zone, timeoutMs = 60_000) {
  doh.zones.set(HOST, zone)
  return createResolver(doh.url, { timeoutMs }).resolve(HOST)
}

async function checkZone(zone: Zone) {
  doh.zones.set(HOST, zone)
  return check(createResolver(doh.url))
}

describe('a resolver', () => {
  it('returns A and AAAA addresses together, each once', async () => {
    expect(await resolutionOf({ A: [PUBLIC, PUBLIC, '8.8.8.8'], AAAA: [PUBLIC_V6] })).toEqual({
      kind: 'addresses',
      addresses: [PUBLIC, '8.8.8.8', PUBLIC_V6],
    })
    expect(doh.queries.toSorted()).toEqual([`A ${HOST}`, `AAAA ${HOST}`])
  })

  it("keeps the query parameters of the resolver's URL", async () => {
    doh.zones.set(HOST, { A: [PUBLIC] })
    expect(await createResolver(`${doh.url}?token=t`).resolve(HOST)).toMatchObject({ kind: 'addresses' })
  })

  it.each<[string, Zone]>([
    ['a name that does not exist', { status: 3 }],
    ['an alias of a name that does not exist', { CNAME: 'gone.acme.dev', status: 3 }],
  ])('resolves to nothing for %s', async (_, zone) => {
    expect(await resolutionOf(zone)).toEqual({ kind: 'nowhere', reason: 'does not exist' })
  })

  it.each<[string, Zone]>([
    ['a name without addresses', {}],
    ['a name with empty lists of addresses', { A: [], AAAA: [] }],
    ['an alias of a name without addresses', { CNAME: 'empty.acme.dev' }],
  ])('resolves to nothing for %s', async (_, zone) => {
    expect(await resolutionOf(zone)).toEqual({ kind: 'nowhere', reason: 'has no addresses' })
  })

  it.each([
    ['SERVFAIL', 2],
    ['REFUSED', 5],
  ])('resolves to nothing for %s: the fault is with the servers of the name', async (_, status) => {
    const resolution = await resolutionOf({ status, A: [PUBLIC] })
    expect(resolution).toEqual({ kind: 'nowhere', reason: `cannot be resolved (DNS status ${status})` })
  })

  const raw = (body: string, status = 200): Zone => ({ raw: { status, body } })
  const record = (data: unknown) => ({ name: HOST, type: 1, TTL: 60, data })
  it.each<[string, Zone, string]>([
    ['an HTTP error', raw('{"Status":0}', 502), 'HTTP status 502'],
    ['no content', raw('', 204), 'HTTP status 204'],
    ['an empty body', raw(''), 'is invalid'],
    ['an HTML page', raw('<html>'), 'is invalid'],
    ['JSON of the wrong shape', raw('[]'), 'is invalid'],
    ['a status in words', raw('{"Status":"0"}'), 'is invalid'],
    ['null', raw('null'), 'is invalid'],
    ['records of the wrong shape', raw(JSON.stringify({ Status: 0, Answer: [record(1)] })), 'is invalid'],
    ['an invalid address', raw(JSON.stringify({ Status: 0, Answer: [record('10.0.0')] })), 'is invalid'],
  ])('is unavailable for %s', async (_, zone, reason) => {
    expect(await resolutionOf(zone)).toEqual({ kind: 'unavailable', reason: expect.stringContaining(reason) })
  })

  it.each<[string, Zone]>([
    ['an answer cut short', raw(JSON.stringify({ Status: 0, TC: true, Answer: [record(PUBLIC)] }))],
    ['an oversized answer', raw(JSON.stringify({ Status: 0, Answer: Array(2_000).fill(record(PUBLIC)) }))],
  ])('resolves to nothing for %s: the owner of the name decides how many addresses it has', async (_, zone) => {
    expect(await resolutionOf(zone)).toEqual({ kind: 'nowhere', reason: 'has too many addresses' })
  })

  it('does not follow a redirect, even to a resolver that knows the name', async () => {
    const other = await startDoh({ [HOST]: { A: [PUBLIC] } })
    const resolution = await resolutionOf({
      raw: { status: 302, headers: { location: `${other.url}?name=${HOST}&type=A` }, body: '' },
    })
    await other.close()
    expect(resolution).toEqual({ kind: 'unavailable', reason: 'the resolver responded with HTTP status 302' })
    expect(other.queries).toEqual([])
  })

  it.each(['at once', 'halfway'] as const)('is unavailable when the answer stops coming %s', async (silent) => {
    const resolution = await resolutionOf({ A: [PUBLIC], silent }, 100)
    expect(resolution).toEqual({ kind: 'unavailable', reason: 'the resolver did not respond in time' })
  })

  it('is unavailable when nobody listens', async () => {
    const gone = await startDoh()
    await gone.close()
    expect(await createResolver(gone.url).resolve(HOST)).toEqual({
      kind: 'unavailable',
      reason: 'the resolver cannot be reached',
    })
  })

  it.each(['A', 'AAAA'] as const)('is unavailable when only the answer for %s is missing', async (broken) => {
    const resolution = await resolutionOf({ A: [PUBLIC], AAAA: [PUBLIC_V6], broken })
    expect(resolution).toEqual({ kind: 'unavailable', reason: 'the resolver cannot be reached' })
  })
})

describe('the cache of a resolver', () => {
  it.each([
    ['for its TTL', 7, 7_000],
    ['for 30 s when it may be kept for longer', 86_400, 30_000],
  ])('keeps an answer %s', async (_, ttl, keptMs) => {
    const { clock, resolver } = resolverAt()
    doh.zones.set(HOST, { A: [PUBLIC], ttl })
    await resolver.resolve(HOST)
    doh.zones.set(HOST, { A: ['10.0.0.1'], ttl })
    clock.nowMs = keptMs - 1
    expect(await resolver.resolve(HOST)).toEqual({ kind: 'addresses', addresses: [PUBLIC] })
    clock.nowMs = keptMs
    expect(await resolver.resolve(HOST)).toEqual({ kind: 'addresses', addresses: ['10.0.0.1'] })
  })

  it.each<[string, Zone]>([
    ['TTL 0', { A: [PUBLIC], ttl: 0 }],
    ['a name that leads nowhere', { status: 3 }],
    ['SERVFAIL', { status: 2 }],
    ['an alias with TTL 0', { raw: { body: ALIAS_WITHOUT_TTL } }],
  ])('keeps nothing for %s', async (_, zone) => {
    const { resolver } = resolverAt()
    doh.zones.set(HOST, zone)
    await resolver.resolve(HOST)
    doh.zones.set(HOST, { A: ['8.8.8.8'] })
    expect(await resolver.resolve(HOST)).toEqual({ kind: 'addresses', addresses: ['8.8.8.8'] })
  })

  it('keeps a limited number of hosts, the newest', async () => {
    const { resolver } = resolverAt()
    const hosts = Array.from({ length: 1_001 }, (_, index) => `h${index}.acme.dev`)
    for (const host of hosts) doh.zones.set(host, { A: [PUBLIC] })
    for (const host of hosts) await resolver.resolve(host)
    doh.queries.length = 0
    await resolver.resolve('h1000.acme.dev')
    await resolver.resolve('h1.acme.dev')
    expect(doh.queries).toEqual([])
    await resolver.resolve('h0.acme.dev')
    expect(doh.queries).toHaveLength(2)
  })
})

describe('a destination whose name is resolved', () => {
  const refused = { kind: 'refused', reason: 'resolves to a reserved address' }
  it.each<[string, Zone]>([
    ['only a private A', { A: ['10.0.0.1'] }],
    ['only a private AAAA', { AAAA: ['fd00::1'] }],
    ['a public A and a private AAAA', { A: [PUBLIC], AAAA: ['::1'] }],
    ['a private A and a public AAAA', { A: ['169.254.169.254'], AAAA: [PUBLIC_V6] }],
    ['one private address among many public ones', { A: [PUBLIC, '8.8.8.8', '192.168.0.1', '1.1.1.1'] }],
    ['an alias of a private host', { CNAME: 'db.internal', A: ['172.16.0.5'] }],
    ['a mapped loopback address', { AAAA: ['::ffff:127.0.0.1'] }],
  ])('is refused with %s', async (_, zone) => {
    expect(await checkZone(zone)).toEqual(refused)
  })

  it.each<[string, Zone]>([
    ['a public A', { A: [PUBLIC] }],
    ['a public AAAA', { AAAA: [PUBLIC_V6] }],
    ['both', { A: [PUBLIC], AAAA: [PUBLIC_V6] }],
    ['an alias of a public host', { CNAME: 'edge.acme.net', A: [PUBLIC] }],
  ])('is allowed with %s', async (_, zone) => {
    expect(await checkZone(zone)).toEqual({ kind: 'allowed' })
  })

  it('is unresolved if the name resolves to nothing, and unavailable if no resolver answers', async () => {
    expect(await checkZone({ status: 3 })).toEqual({ kind: 'unresolved', reason: 'does not exist' })
    expect(await checkZone({})).toEqual({ kind: 'unresolved', reason: 'has no addresses' })
    expect(await checkZone({ status: 2 })).toMatchObject({ kind: 'unresolved' })
    expect(await checkZone({ raw: { status: 502, body: '' } })).toMatchObject({ kind: 'unavailable' })
  })

  it('is resolved again each time if its TTL is 0', async () => {
    const { resolver } = resolverAt()
    const verdicts = []
    for (const address of [PUBLIC, '127.0.0.1', PUBLIC, '10.0.0.1']) {
      doh.zones.set(HOST, { A: [address], ttl: 0 })
      verdicts.push((await check(resolver)).kind)
    }
    expect(verdicts).toEqual(['allowed', 'refused', 'allowed', 'refused'])
  })

  it('is resolved in lower case, without the trailing dot and in its ASCII form', async () => {
    doh.zones.set('xn--bcher-kva.dev', { A: [PUBLIC] })
    const rules = { resolver: createResolver(doh.url), ownHosts: [], allowLoopback: false }
    expect(await checkDestination('https://BÜCHER.dev./hook', rules)).toEqual({ kind: 'allowed' })
  })

  it('is not resolved if the URL is refused', async () => {
    const rules = { resolver: createResolver(doh.url), ownHosts: ['api.acme.dev'], allowLoopback: true }
    await checkDestination('https://api.acme.dev/', rules)
    await checkDestination('https://10.0.0.1/', rules)
    await checkDestination('http://localhost:9000/', rules)
    expect(doh.queries).toEqual([])
  })
})
