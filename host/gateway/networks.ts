import { BlockList, isIP } from 'node:net'
import { parseAddress, prefixOf } from '../../src/platform/net/ip-addresses.ts'

const IPV4_MAPPED = /^(?:0*:)*:?ffff:(\d+\.\d+\.\d+\.\d+)$/i

/** Removes the zone, and turns an IPv4-mapped IPv6 address into the IPv4 address. */
export function normalizeAddress(address: string): string {
  const [plain = ''] = address.split('%')
  return IPV4_MAPPED.exec(plain)?.[1] ?? plain.toLowerCase()
}

/** The unit of limits and bans: an IPv4 address, or the /64 network of an IPv6 address, which one holder has as a whole. */
export function addressGroup(address: string): string {
  const plain = normalizeAddress(address.replace(/\/64$/, ''))
  const parsed = parseAddress(plain)
  if (parsed?.bits !== 128) return plain
  const prefix = prefixOf(parsed, 64)
  return `${[48n, 32n, 16n, 0n].map((shift) => ((prefix >> shift) & 0xffffn).toString(16)).join(':')}::/64`
}

const LOOPBACK = ['127.0.0.0/8', '::1/128']

export const isLoopback = (address: string): boolean => isWithin(address, LOOPBACK)

/** Whether one of the CIDR networks contains the address. Malformed networks contain nothing. */
export function isWithin(address: string, networks: readonly string[]): boolean {
  const plain = normalizeAddress(address)
  const family = isIP(plain)
  if (family === 0) return false
  const type = family === 4 ? 'ipv4' : 'ipv6'
  const list = new BlockList()
  for (const network of networks) {
    const [text = '', suffix] = network.split('/')
    const base = normalizeAddress(text)
    // Node compares across families: `::/0` would contain every IPv4 address.
    if (isIP(base) !== family) continue
    const bits = family === 4 ? 32 : 128
    const prefix = suffix === undefined ? bits : Number(suffix) - (isIP(text) === 6 && family === 4 ? 96 : 0)
    if (Number.isInteger(prefix) && prefix >= 0 && prefix <= bits) list.addSubnet(base, prefix, type)
  }
  return list.check(plain, type)
}
