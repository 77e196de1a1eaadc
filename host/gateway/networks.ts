import { BlockList, isIP } from 'node:net'
import { normalizeAddress } from '../../src/platform/net/ip-addresses.ts'

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
