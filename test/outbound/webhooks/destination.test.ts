import { BlockList } from 'node:net'
import { describe, expect, it } from 'vitest'
import { checkDestination, type DestinationRules, urlProblem } from '../../../src/platform/net/destination.ts'
import type { Resolution } from '../../../src/platform/net/dns.ts'
import { isPublicAddress } from '../../../src/platform/net/ip-addresses.ts'
import { drawFrom } from '../../faults/random.ts'
import { isExtended } from '../../support/extended.ts'

/** A v6 address whose other groups are all `ffff`. */
const lastOf = (groups: string) => `${groups}${':ffff'.repeat(8 - groups.split(':').length)}`

interface Range {
  range: string
  first: string
  last: string
  /** Public addresses just before and after the range. */
  outside: readonly string[]
}
const range = (range: string, first: string, last: string, ...outside: string[]): Range => ({
  range,
  first,
  last,
  outside,
})

const V4_RANGES = [
  range('0.0.0.0/8', '0.0.0.0', '0.255.255.255', '1.0.0.0'),
  range('10.0.0.0/8', '10.0.0.0', '10.255.255.255', '9.255.255.255', '11.0.0.0'),
  range('100.64.0.0/10', '100.64.0.0', '100.127.255.255', '100.63.255.255', '100.128.0.0'),
  range('127.0.0.0/8', '127.0.0.0', '127.255.255.255', '126.255.255.255', '128.0.0.0'),
  range('168.63.129.16/32', '168.63.129.16', '168.63.129.16', '168.63.129.15', '168.63.129.17'),
  range('169.254.0.0/16', '169.254.0.0', '169.254.255.255', '169.253.255.255', '169.255.0.0'),
  range('172.16.0.0/12', '172.16.0.0', '172.31.255.255', '172.15.255.255', '172.32.0.0'),
  range('192.0.0.0/24', '192.0.0.0', '192.0.0.255', '191.255.255.255', '192.0.1.0'),
  range('192.0.2.0/24', '192.0.2.0', '192.0.2.255', '192.0.1.255', '192.0.3.0'),
  range('192.31.196.0/24', '192.31.196.0', '192.31.196.255', '192.31.195.255', '192.31.197.0'),
  range('192.52.193.0/24', '192.52.193.0', '192.52.193.255', '192.52.192.255', '192.52.194.0'),
  range('192.88.99.0/24', '192.88.99.0', '192.88.99.255', '192.88.98.255', '192.88.100.0'),
  range('192.168.0.0/16', '192.168.0.0', '192.168.255.255', '192.167.255.255', '192.169.0.0'),
  range('192.175.48.0/24', '192.175.48.0', '192.175.48.255', '192.175.47.255', '192.175.49.0'),
  range('198.18.0.0/15', '198.18.0.0', '198.19.255.255', '198.17.255.255', '198.20.0.0'),
  range('198.51.100.0/24', '198.51.100.0', '198.51.100.255', '198.51.99.255', '198.51.101.0'),
  range('203.0.113.0/24', '203.0.113.0', '203.0.113.255', '203.0.112.255', '203.0.114.0'),
  range('224.0.0.0/4', '224.0.0.0', '239.255.255.255', '223.255.255.255'),
  range('240.0.0.0/4', '240.0.0.0', '255.255.255.255'),
]

const V6_RANGES = [
  range('2001::/23', '2001::', lastOf('2001:1ff'), lastOf('2000'), '2001:200::'),
  range('2001:db8::/32', '2001:db8::', lastOf('2001:db8'), lastOf('2001:db7'), '2001:db9::'),
  range('2002::/16', '2002::', lastOf('2002'), lastOf('2001'), '2003::'),
  range('2620:4f:8000::/48', '2620:4f:8000::', lastOf('2620:4f:8000'), lastOf('2620:4f:7fff'), '2620:4f:8001::'),
  range('3fff::/20', '3fff::', lastOf('3fff:fff'), lastOf('3ffe'), '3fff:1000::'),
]

/**
 * Addresses outside 2000::/3, the only public range. Most ranges lie next to others, so they have no public
 * neighbours.
 */
const V6_OUTSIDE = [
  range('before 2000::/3', '::', lastOf('1fff'), '2000::'),
  range('after 2000::/3', '4000::', lastOf('ffff'), lastOf('3fff')),
  range('::1/128', '::1', '::1'),
  range('::/96', '::', '::ffff:ffff'),
  range('::ffff:0:0/96', '::ffff:0:0', '::ffff:ffff:ffff'),
  range('::ffff:0:0:0/96', '::ffff:0:0:0', '::ffff:0:ffff:ffff'),
  range('64:ff9b::/96', '64:ff9b::', '64:ff9b::ffff:ffff'),
  range('64:ff9b:1::/48', '64:ff9b:1::', lastOf('64:ff9b:1')),
  range('100::/64', '100::', '100::ffff:ffff:ffff:ffff'),
  range('5f00::/16', '5f00::', lastOf('5f00')),
  range('fc00::/7', 'fc00::', lastOf('fdff')),
  range('fe80::/10', 'fe80::', lastOf('febf')),
  range('fec0::/10', 'fec0::', lastOf('feff')),
  range('ff00::/8', 'ff00::', lastOf('ffff')),
]

const hex = (value: number, digits = 1) => value.toString(16).padStart(digits, '0')

/** Returns the eight groups of a v6 address in any spelling, as numbers. */
function groupsOf(address: string): number[] {
  const [head = '', tail] = new URL(`http://[${address}]/`).hostname.slice(1, -1).split('::')
  const groups = (text = '') => text.split(':').filter((group) => group !== '')
  const missing = 8 - groups(head).length - groups(tail).length
  return [...groups(head), ...Array(missing).fill('0'), ...groups(tail)].map((group) => Number.parseInt(group, 16))
}

const dotted = (high: number, low: number) => [high >> 8, high & 0xff, low >> 8, low & 0xff].join('.')

/** Returns every kind of spelling of a v6 address, by name. */
function v6Spellings(groups: readonly number[]): [string, string][] {
  const short = groups.map((group) => hex(group)).join(':')
  const compressed = new URL(`http://[${short}]/`).hostname.slice(1, -1)
  return [
    ['compressed', compressed],
    ['in capitals', compressed.toUpperCase()],
    ['without zeros left out', groups.map((group) => hex(group, 4)).join(':')],
    ['with every group', short],
    ['ending in a v4 address', `${short.split(':').slice(0, 6).join(':')}:${dotted(groups[6] ?? 0, groups[7] ?? 0)}`],
  ]
}

/** Returns the forms in which a v6 address carries a v4 one. */
function v6Carriers(v4: string): [string, string][] {
  const [a = 0, b = 0, c = 0, d = 0] = v4.split('.').map(Number)
  const high = hex(a * 256 + b)
  const low = hex(c * 256 + d)
  const inverted = [0xffff ^ (a * 256 + b), 0xffff ^ (c * 256 + d)].map((group) => hex(group)).join(':')
  return [
    ['mapped', `::ffff:${v4}`],
    ['mapped in groups', `0:0:0:0:0:ffff:${high}:${low}`],
    ['compatible', `::${v4}`],
    ['translated (SIIT)', `::ffff:0:${v4}`],
    ['NAT64', `64:ff9b::${v4}`],
    ['NAT64 of a network', `64:ff9b:1::${v4}`],
    ['6to4', `2002:${high}:${low}::1`],
    ['Teredo', `2001:0:4136:e378:8000:63bf:${inverted}`],
  ]
}

/** Returns the ways to write a v4 address in a URL. */
function v4UrlSpellings(v4: string): [string, string][] {
  const bytes = v4.split('.').map(Number)
  const [a = 0, b = 0, c = 0, d = 0] = bytes
  const number = ((a * 256 + b) * 256 + c) * 256 + d
  const digits = (zero: number) => v4.replace(/\d/g, (digit) => String.fromCodePoint(zero + Number(digit)))
  return [
    ['dotted', v4],
    ['with a dot at the end', `${v4}.`],
    ['as a number', String(number)],
    ['as a hexadecimal number', `0x${hex(number)}`],
    ['as an octal number', `0${number.toString(8)}`],
    ['in hexadecimal parts', bytes.map((byte) => `0X${hex(byte)}`).join('.')],
    ['in octal parts', bytes.map((byte) => `0${byte.toString(8).padStart(3, '0')}`).join('.')],
    ['in mixed parts', `0x${hex(a)}.0${b.toString(8)}.${c}.${d}`],
    ['in two parts', `${a}.${(b * 256 + c) * 256 + d}`],
    ['in three parts', `${a}.${b}.${c * 256 + d}`],
    ['in full-width digits', digits(0xff10)],
    ['in mathematical digits', digits(0x1d7ce)],
    ['with ideographic full stops', v4.replaceAll('.', '。')],
    ['percent-encoded', v4.replace(/./g, (char) => `%${hex(char.charCodeAt(0), 2)}`)],
    ['at a port', `${v4}:8080`],
    ['mapped', `[::ffff:${v4}]`],
  ]
}

interface Case {
  name: string
  actual: unknown
  expected: unknown
}
const addressCase = (name: string, address: string, expected: boolean): Case => ({
  name: `${name}: ${JSON.stringify(address)} is ${expected ? 'public' : 'reserved'}`,
  actual: isPublicAddress(address),
  expected,
})

const v6Cases = (name: string, address: string, expected: boolean) =>
  v6Spellings(groupsOf(address)).map(([spelling, text]) => addressCase(`${name} ${spelling}`, text, expected))

const RULES = { ownHosts: ['api.acme.dev', '.projects.acme.dev', 'Fixed.Acme.dev.:8443'], allowLoopback: false }
const urlCase = (name: string, url: string, expected: string | undefined, rules = RULES): Case => ({
  name: `${name}: ${JSON.stringify(url.slice(0, 200))} ${expected ?? 'is allowed'}`,
  actual: urlProblem(url, rules),
  expected,
})

const ADDRESS = 'must name a public domain, not an address'
const NOT_PUBLIC = 'must name a public domain'
const HINT = '; in development WEBHOOK_LOOPBACK=on allows this one'
const refusalOf = (address: string) => (['127.0.0.1', '::1'].includes(address) ? ADDRESS + HINT : ADDRESS)
const INVALID = 'is not a valid URL'
const NO_DOMAIN = 'has an invalid domain'
const OWN = 'must not be a host of this installation'
const PORT = 'uses a port that is not allowed'

const V4_EDGES = [...new Set(V4_RANGES.flatMap(({ first, last }) => [first, last]))]

function addressCases(): Case[] {
  const v6Ranges = [...V6_RANGES, ...V6_OUTSIDE]
  const unparsable = `1.2.3 1.2.3.4.5 256.1.1.1 01.2.3.4 1.2.3.04 +1.2.3.4 1..2.3 0x8.8.8.8 134744072 8.8.8.8. [2600::1] 2600::1%0
    2600:::1 2600::1::2 2600 : ::: :2600::1 2600::1: 2600:0:0:0:0:0:1 2600:0:0:0:0:0:0:0:1 2600:0:0:0::0:0:0:1 2600::12345
    2600::g 2600::8.8.8 2600::8.8.8.8:1 8.8.8.8:: 8.8.8.8::1 2600::256.8.8.8 38.0.38.0:: 38.0.38.0::1 2600:1:2:3:4:5:6:8.8.8.8 localhost`
  return [
    ...V4_RANGES.flatMap(({ range, first, last, outside }) => [
      addressCase(`first of ${range}`, first, false),
      addressCase(`last of ${range}`, last, false),
      ...outside.map((address) => addressCase(`next to ${range}`, address, true)),
    ]),
    ...v6Ranges.flatMap(({ range, first, last, outside }) => [
      ...v6Cases(`first of ${range}`, first, false),
      ...v6Cases(`last of ${range}`, last, false),
      ...outside.flatMap((address) => v6Cases(`next to ${range}`, address, true)),
    ]),
    ...[...V4_EDGES, '8.8.8.8', '1.1.1.1'].flatMap((v4) =>
      v6Carriers(v4).map(([carrier, address]) => addressCase(`${v4} ${carrier}`, address, false)),
    ),
    ...['', ' ', ' 8.8.8.8', '8.8.8.8\n', ...unparsable.split(/\s+/)].map((text) =>
      addressCase('unparsable', text, false),
    ),
  ]
}

function literalCases(): Case[] {
  const v4 = [...V4_EDGES, '127.0.0.1', '169.254.169.254', '8.8.8.8', '93.184.215.14']
  const v6 = [...V6_RANGES, ...V6_OUTSIDE].flatMap(({ first, last }) => [first, last])
  return [
    ...v4.flatMap((address) =>
      v4UrlSpellings(address).map(([name, host]) =>
        urlCase(`${address} ${name}`, `https://${host}/hook`, name === 'mapped' ? ADDRESS : refusalOf(address)),
      ),
    ),
    ...[...new Set([...v6, '::ffff:127.0.0.1', '2606:4700::1111', 'fd00:ec2::254'])].flatMap((address) => [
      urlCase(`v6 ${address}`, `https://[${address}]/hook`, refusalOf(address)),
      urlCase(`v6 ${address} at a port`, `http://[${address.toUpperCase()}]:8080/hook`, refusalOf(address)),
    ]),
    urlCase('circled digits', 'http://①②⑦.0.0.1/', ADDRESS + HINT),
    urlCase('parts left out', 'http://127.1/', ADDRESS + HINT),
    urlCase('hexadecimal and parts left out', 'http://0x7f.1/', ADDRESS + HINT),
    urlCase('a tab inside', 'http://127.0.\t0.1/', ADDRESS + HINT),
    urlCase('a zone', 'http://[fe80::1%25eth0]/', INVALID),
    urlCase('a number too large', 'http://4294967296/', INVALID),
    urlCase('a part too large', 'http://127.0.0.256/', INVALID),
    urlCase('an address and two dots', 'http://127.0.0.1../', NO_DOMAIN),
  ]
}

function nameCases(): Case[] {
  const special = 'localhost local internal home.arpa test invalid example onion alt arpa'.split(' ')
  const label = 'a'.repeat(63)
  const long = `${`${label}.`.repeat(3)}${'b'.repeat(61)}`
  return [
    ...special.flatMap((domain) => [
      urlCase('special', `https://acme.${domain}/`, NOT_PUBLIC),
      urlCase('special below', `https://a.b.ACME.${domain}/`, NOT_PUBLIC),
      urlCase('special with a dot', `https://acme.${domain}./`, NOT_PUBLIC),
      urlCase('only its end', `https://acme${domain}.dev/`, undefined),
      urlCase('only its beginning', `https://${domain}.acme.dev/`, undefined),
    ]),
    ...['metadata', 'com', 'acme.', 'local'].map((host) => urlCase('single label', `http://${host}/`, NOT_PUBLIC)),
    ...['localhost', 'localhost.', 'LOCALHOST', 'ｌocalhost'].map((host) =>
      urlCase('this machine', `http://${host}/`, NOT_PUBLIC + HINT),
    ),
    urlCase('metadata of a cloud', 'http://metadata.google.internal/computeMetadata/v1/', NOT_PUBLIC),
    urlCase('metadata of another cloud', 'http://instance-data.ec2.internal/latest', NOT_PUBLIC),
    ...[
      'a..dev',
      '.acme.dev',
      'acme.dev..',
      "a'b.dev",
      'a!.dev',
      'a*.dev',
      `${label}a.dev`,
      `b${long}`,
      `${long}b`,
    ].map((host) => urlCase('no domain', `https://${host}/`, NO_DOMAIN)),
    ...['api.acme.dev', 'API.acme.DEV', 'api.acme.dev.', 'api.acme.dev:8443', 'a.projects.acme.dev', 'fixed.acme.dev']
      .concat(['a.b.projects.acme.dev', 'a.projects.acme.dev.', 'ａpi.acme.dev', 'api。acme。dev', 'api%2eacme.dev'])
      .map((host) => urlCase('own', `https://${host}/hook`, OWN)),
    ...['x.api.acme.dev', 'acme.dev', 'myapi.acme.dev', 'projects.acme.dev', 'aprojects.acme.dev']
      .concat(['acme.dev.', 'foo_bar.com', 'example.com', 'example。com', 'bücher.de', 'a-.dev', '1.2.3.4.dev', long])
      .map((host) => urlCase('public', `https://${host}/hook`, undefined)),
  ]
}

/** The ports that Node's fetch, like browsers, refuses to connect to. */
const PORTS_REFUSED = `1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 6566 6665 6666 6667 6668 6669 6679 6697 10080`
const PORTS_PRIVILEGED = '0 1 7 22 25 79 81 110 143 442 444 465 587 853 993 1023'
const PORTS_ALLOWED = '80 443 1024 1718 2048 2050 3000 4444 5059 5062 5432 6001 6379 6664 6670 8080 8443 10079 65535'

function formCases(): Case[] {
  const portCases = (name: string, ports: string, expected: string | undefined) =>
    ports
      .split(' ')
      .flatMap((port) => [
        urlCase(name, `http://acme.dev:${port}/`, expected),
        urlCase(name, `https://acme.dev:${port}/`, expected),
      ])
  const lengthOf = (length: number) => 'https://acme.dev/'.padEnd(length, 'x')
  return [
    ...portCases('refused port', PORTS_REFUSED, PORT),
    ...portCases('privileged port', PORTS_PRIVILEGED, PORT),
    ...portCases('allowed port', PORTS_ALLOWED, undefined),
    urlCase('port too large', 'https://acme.dev:65536/', INVALID),
    ...['', 'acme.dev', '/hook', '//acme.dev/', 'https://', 'https:///', 'https://a b.dev/', 'https://a%00.dev/'].map(
      (url) => urlCase('invalid', url, INVALID),
    ),
    ...['ftp://acme.dev/', 'ws://acme.dev/', 'file:///etc/passwd', 'data:,x', 'javascript:1', 'mailto:a@acme.dev'].map(
      (url) => urlCase('scheme', url, 'must use http or https'),
    ),
    ...['u@', 'u:p@', ':p@', 'a@b:80@', '127.0.0.1@', 'acme.dev:80@'].map((credentials) =>
      urlCase('credentials', `https://${credentials}acme.dev/`, 'must not carry credentials'),
    ),
    urlCase('credentials before an address', 'https://acme.dev@127.0.0.1/', 'must not carry credentials'),
    ...['https://@acme.dev/', 'HTTPS://ACME.DEV', 'https:\\\\acme.dev\\a', ' https://acme.dev/ ', 'https:/acme.dev']
      .concat(['http://acme.dev/?a=b#c', 'https://acme.dev/#', 'https://acme.dev/../..//a?u=http://127.0.0.1/'])
      .map((url) => urlCase('form', url, undefined)),
    urlCase('longest', lengthOf(2048), undefined),
    urlCase('too long', lengthOf(2049), 'is longer than 2048 characters'),
  ]
}

function loopbackCases(): Case[] {
  const rules = { ownHosts: ['localhost', '127.0.0.1:8787', 'localhost:8787', '.acme.dev'], allowLoopback: true }
  const loopback = (url: string, expected?: string) => urlCase('loopback allowed', url, expected, rules)
  return [
    ...['127.0.0.1', '127.1', '2130706433', '[::1]', '[0:0:0:0:0:0:0:1]', 'localhost', 'LOCALHOST.'].flatMap((host) => [
      loopback(`http://${host}/`),
      loopback(`https://${host}:1/`),
      loopback(`http://${host}:8787/hook`),
      loopback(`http://${host}:6000/hook`),
      loopback(`http://u:p@${host}/`, 'must not carry credentials'),
      loopback(`ftp://${host}/`, 'must use http or https'),
      urlCase('loopback not allowed', `http://${host}/`, (/^l/i.test(host) ? NOT_PUBLIC : ADDRESS) + HINT),
    ]),
    ...['127.0.0.2', '0.0.0.0', '10.0.0.1', '[::]', '[::ffff:127.0.0.1]', '[::127.0.0.1]', '169.254.169.254'].map(
      (host) => loopback(`http://${host}/`, ADDRESS),
    ),
    loopback('http://a.localhost/', NOT_PUBLIC),
    loopback('http://db.internal/', NOT_PUBLIC),
    loopback('https://api.acme.dev/', OWN),
    loopback('https://acme.dev:22/', PORT),
    loopback('https://acme.dev/'),
  ]
}

const CASES = [...addressCases(), ...literalCases(), ...nameCases(), ...formCases(), ...loopbackCases()]

describe('addresses and URLs', () => {
  it('are checked in at least 1,000 different cases', () => {
    expect(new Set(CASES.map(({ name }) => name)).size).toBeGreaterThanOrEqual(1_000)
  })

  it.each(CASES)('$name', ({ actual, expected }) => {
    expect(actual).toBe(expected)
  })
})

/**
 * Returns the verdict of Node's own lists: one list for each family, since a v4 rule there matches mapped addresses
 * too.
 */
function oracle() {
  const listOf = (family: 'ipv4' | 'ipv6', ranges: readonly string[]) => {
    const list = new BlockList()
    for (const range of ranges) {
      const [address = '', bits] = range.split('/')
      list.addSubnet(address, Number(bits), family)
    }
    return list
  }
  const rangesOf = (ranges: readonly Range[]) => ranges.map(({ range }) => range)
  const reservedV4 = listOf('ipv4', rangesOf(V4_RANGES))
  const reservedV6 = listOf('ipv6', rangesOf(V6_RANGES))
  const globalV6 = listOf('ipv6', ['2000::/3'])
  return {
    v4: (address: string) => !reservedV4.check(address, 'ipv4'),
    v6: (address: string) => globalV6.check(address, 'ipv6') && !reservedV6.check(address, 'ipv6'),
  }
}

/** Returns either anything at all, or an address that shares its beginning with the edge of a range. */
function randomParts(random: (below: number) => number, edges: readonly number[][], partsMax: number) {
  const edge = edges[random(edges.length)] ?? []
  const shared = random(2) === 0 ? 0 : random(edge.length + 1)
  const flipped = random(4) === 0 ? 1 << random(Math.log2(partsMax)) : 0
  return edge.map((part, index) => {
    if (index < shared - 1) return part
    return index === shared - 1 ? part ^ flipped : random(partsMax)
  })
}

describe('random addresses', () => {
  const COUNT = isExtended ? 200_000 : 50_000
  const seed = Number(process.env.SEED ?? Date.now() % 2 ** 31)
  const isPublic = oracle()

  it(`agree with the oracle, v4 (SEED=${seed})`, () => {
    const random = drawFrom(seed)
    const edges = V4_RANGES.flatMap(({ first, last }) => [first, last]).map((text) => text.split('.').map(Number))
    const differences: string[] = []
    let publicCount = 0
    for (let count = 0; count < COUNT; count++) {
      const address = randomParts(random, edges, 256).join('.')
      const expected = isPublic.v4(address)
      if (expected) publicCount++
      if (isPublicAddress(address) !== expected) differences.push(address)
    }
    expect(differences).toEqual([])
    expect(publicCount).toBeGreaterThan(COUNT / 10)
    expect(publicCount).toBeLessThan((COUNT / 10) * 9)
  })

  it(`agree with the oracle, v6 in every spelling (SEED=${seed})`, () => {
    const random = drawFrom(seed)
    const edges = [...V6_RANGES, ...V6_RANGES, ...V6_RANGES, ...V6_OUTSIDE]
      .flatMap(({ first, last }) => [first, last])
      .map(groupsOf)
    const differences: string[] = []
    let publicCount = 0
    for (let count = 0; count < COUNT; count++) {
      const spellings = v6Spellings(randomParts(random, edges, 65_536))
      const address = spellings[random(spellings.length)]?.[1] ?? ''
      const expected = isPublic.v6(address)
      if (expected) publicCount++
      if (isPublicAddress(address) !== expected) differences.push(address)
    }
    expect(differences).toEqual([])
    expect(publicCount).toBeGreaterThan(COUNT / 20)
    expect(publicCount).toBeLessThan((COUNT / 10) * 9)
  })
})

describe('a destination', () => {
  const rules = (resolution: Resolution, allowLoopback = false): DestinationRules => ({
    resolver: { resolve: async () => resolution },
    ownHosts: [],
    allowLoopback,
  })
  const found = (...addresses: string[]): Resolution => ({ kind: 'addresses', addresses })
  const verdict = (resolution: Resolution) => checkDestination('https://hooks.acme.dev/', rules(resolution))

  it.each(V4_EDGES)('with the address %s beside a public one is refused', async (address) => {
    const refused = { kind: 'refused', reason: 'resolves to a reserved address' }
    expect(await verdict(found('8.8.8.8', address))).toEqual(refused)
    expect(await verdict(found(address, '2606:4700::1111'))).toEqual(refused)
  })

  it('is allowed when all its addresses are public', async () => {
    expect(await verdict(found('8.8.8.8', '2606:4700::1111'))).toEqual({ kind: 'allowed' })
  })

  it('may not lead to loopback by a name, not even in development', async () => {
    expect(await checkDestination('https://hooks.acme.dev/', rules(found('127.0.0.1'), true))).toMatchObject({
      kind: 'refused',
    })
    expect(await checkDestination('http://127.0.0.1:9000/', rules(found('10.0.0.1'), true))).toEqual({
      kind: 'allowed',
    })
  })

  it('is refused by its URL before anything is resolved', async () => {
    expect(await checkDestination('https://10.0.0.1/', rules(found('8.8.8.8')))).toEqual({
      kind: 'refused',
      reason: ADDRESS,
    })
  })
})
