type Bytes = readonly number[]
interface Range {
  prefix: Bytes
  bits: number
}

const GLOBAL_V6 = toRange('2000::/3')

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

const RESERVED_V4 = RESERVED_RANGES.v4.map(toRange)
const RESERVED_V6 = RESERVED_RANGES.v6.map(toRange)

/** Whether a v4 or v6 address is a unicast address of the public internet. False for an invalid address. */
export function isPublicAddress(address: string): boolean {
  const bytes = parseAddress(address)
  if (!bytes) return false
  if (bytes.length === 4) return !RESERVED_V4.some((range) => contains(range, bytes))
  return contains(GLOBAL_V6, bytes) && !RESERVED_V6.some((range) => contains(range, bytes))
}

/** Parses a v4 address to 4 bytes or a v6 address to 16. Refuses v4 parts with leading zeros and v6 zones as ambiguous. */
export function parseAddress(text: string): Bytes | undefined {
  return text.includes(':') ? parseV6(text) : parseV4(text)
}

function parseV4(text: string): Bytes | undefined {
  const parts = text.split('.')
  if (parts.length !== 4 || !parts.every((part) => /^(0|[1-9]\d{0,2})$/.test(part))) return undefined
  const bytes = parts.map(Number)
  return bytes.every((byte) => byte <= 255) ? bytes : undefined
}

function parseV6(text: string): Bytes | undefined {
  const [head = '', tail, ...more] = text.split('::')
  if (more.length > 0) return undefined
  if (tail === undefined) {
    const bytes = parseGroups(head, true)
    return bytes?.length === 16 ? bytes : undefined
  }
  const before = parseGroups(head, false)
  const after = parseGroups(tail, true)
  if (!before || !after) return undefined
  const zeros = 16 - before.length - after.length
  return zeros >= 2 ? [...before, ...new Array<number>(zeros).fill(0), ...after] : undefined
}

/** Parses groups of up to four hexadecimal digits. At the end of the address, the last group may be a v4 address. */
function parseGroups(text: string, atEnd: boolean): Bytes | undefined {
  if (text === '') return []
  const groups = text.split(':')
  const bytes: number[] = []
  for (const [index, group] of groups.entries()) {
    const parsed = atEnd && index === groups.length - 1 && group.includes('.') ? parseV4(group) : parseGroup(group)
    if (!parsed) return undefined
    bytes.push(...parsed)
  }
  return bytes
}

function parseGroup(group: string): Bytes | undefined {
  if (!/^[0-9a-f]{1,4}$/i.test(group)) return undefined
  const value = Number.parseInt(group, 16)
  return [value >> 8, value & 0xff]
}

function toRange(text: string): Range {
  const [address = '', bits] = text.split('/')
  const prefix = parseAddress(address)
  if (!prefix) throw new Error(`invalid CIDR range: ${text}`)
  return { prefix, bits: Number(bits) }
}

function contains({ prefix, bits }: Range, address: Bytes): boolean {
  return prefix.every((byte, index) => ((byte ^ (address[index] ?? 0)) & maskAt(index, bits)) === 0)
}

/** Mask of the byte at `index` for a prefix of `bits` bits. */
const maskAt = (index: number, bits: number): number => (0xff00 >> Math.min(8, Math.max(0, bits - index * 8))) & 0xff

/** Normalizes a network in CIDR notation, so that equal networks have equal texts. Bits beyond the prefix are cleared. */
export function networkOf(text: string): string {
  const { prefix, bits } = toRange(text)
  return `${prefix.map((byte, index) => byte & maskAt(index, bits)).join('.')}/${bits}`
}
