import { isIP } from 'node:net'

interface Address {
  bits: 32 | 128
  value: bigint
}
interface Range extends Address {
  prefixLength: number
}

/** Reserved ranges, which must not be reached. v6 lists only ranges inside 2000::/3: all addresses outside it are reserved too. */
export const RESERVED_RANGES = {
  v4: [
    '0.0.0.0/8',
    '10.0.0.0/8',
    '100.64.0.0/10',
    '127.0.0.0/8',
    // A public address, but inside Azure it is the host of the virtual machine.
    '168.63.129.16/32',
    '169.254.0.0/16',
    '172.16.0.0/12',
    '192.0.0.0/24',
    '192.0.2.0/24',
    '192.31.196.0/24',
    '192.52.193.0/24',
    '192.88.99.0/24',
    '192.168.0.0/16',
    '192.175.48.0/24',
    '198.18.0.0/15',
    '198.51.100.0/24',
    '203.0.113.0/24',
    '224.0.0.0/4',
    '240.0.0.0/4',
  ],
  v6: ['2001::/23', '2001:db8::/32', '2002::/16', '2620:4f:8000::/48', '3fff::/20'],
}

const GLOBAL_V6 = toRange('2000::/3')
const RESERVED_V4 = RESERVED_RANGES.v4.map(toRange)
const RESERVED_V6 = RESERVED_RANGES.v6.map(toRange)

/** Whether a v4 or v6 address is a unicast address of the public internet. False for an invalid address. */
export function isPublicAddress(text: string): boolean {
  const address = parseAddress(text)
  if (!address) return false
  if (address.bits === 32) return !RESERVED_V4.some((range) => contains(range, address))
  return contains(GLOBAL_V6, address) && !RESERVED_V6.some((range) => contains(range, address))
}

/** Parses a v4 or v6 address. Refuses v4 parts with leading zeros and v6 zones as ambiguous. */
export function parseAddress(text: string): Address | undefined {
  const family = isIP(text)
  if (family === 0 || text.includes('%')) return undefined
  if (family === 4) return { bits: 32, value: joinDigits(text.split('.').map(Number), 8) }
  // A URL has the address in the shortest spelling, without v4 parts.
  const [before = [], after = []] = new URL(`http://[${text}]`).hostname
    .slice(1, -1)
    .split('::')
    .map((half) => half.split(':').flatMap((group) => (group === '' ? [] : Number.parseInt(group, 16))))
  const zeros = new Array<number>(8 - before.length - after.length).fill(0)
  return { bits: 128, value: joinDigits([...before, ...zeros, ...after], 16) }
}

/** Removes the zone, and turns an IPv4-mapped IPv6 address (`::ffff:203.0.113.7`, `::ffff:cb00:7107`) into the IPv4 address. */
export function normalizeAddress(address: string): string {
  const [plain = ''] = address.split('%')
  const { bits, value } = parseAddress(plain) ?? { bits: 32, value: 0n }
  const isMapped = bits === 128 && value >> 32n === 0xffffn
  return isMapped ? [24n, 16n, 8n, 0n].map((shift) => (value >> shift) & 0xffn).join('.') : plain.toLowerCase()
}

/** The unit of limits and bans: an IPv4 address, or the /64 network of an IPv6 address, which one holder has as a whole. */
export function addressGroup(address: string): string {
  const plain = normalizeAddress(address.replace(/\/64$/, ''))
  const parsed = parseAddress(plain)
  if (parsed?.bits !== 128) return plain
  const prefix = prefixOf(parsed, 64)
  return `${[48n, 32n, 16n, 0n].map((shift) => ((prefix >> shift) & 0xffffn).toString(16)).join(':')}::/64`
}

function joinDigits(digits: readonly number[], bitsEach: number): bigint {
  return digits.reduce((value, digit) => (value << BigInt(bitsEach)) | BigInt(digit), 0n)
}

function toRange(text: string): Range {
  const [address = '', prefixLength] = text.split('/')
  const parsed = parseAddress(address)
  if (!parsed) throw new Error(`invalid CIDR range: ${text}`)
  return { ...parsed, prefixLength: Number(prefixLength) }
}

const contains = ({ prefixLength, ...range }: Range, address: Address): boolean =>
  prefixOf(range, prefixLength) === prefixOf(address, prefixLength)

/** The first bits of an address. */
const prefixOf = ({ bits, value }: Address, length: number): bigint => value >> BigInt(bits - length)

/** Returns a key of a network in CIDR notation: equal networks have equal keys, whatever their spelling and the bits beyond the prefix. */
export function networkKey(text: string): string {
  const { prefixLength, ...range } = toRange(text)
  return `${range.bits} ${prefixOf(range, prefixLength)}/${prefixLength}`
}
