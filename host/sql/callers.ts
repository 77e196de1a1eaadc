import type { IncomingMessage } from 'node:http'
import { isIP } from 'node:net'
import type { Caller } from '../gateway/gateway.ts'
import { isWithin } from '../gateway/networks.ts'

export type CallerOf = (req: IncomingMessage, isTrusted: boolean) => Caller

/**
 * Finds the client of a request. Proxies, which have addresses in the networks `proxies`, append the address of their own client to
 * `X-Forwarded-For`: the client is the last address that is not a proxy's. All addresses before it may be forged.
 */
export function openCallers(proxies: readonly string[]): CallerOf {
  const isProxy = (address: string) => proxies.length > 0 && isWithin(address, proxies)

  return ({ socket, headers }, isTrusted) => {
    const peer = socket.remoteAddress ?? ''
    if (!isProxy(peer))
      return { address: peer, isSecure: 'encrypted' in socket && socket.encrypted === true, isTrusted }
    const client = listOf(headers['x-forwarded-for'])
      .map(withoutPort)
      .findLast((each) => !isProxy(each))
    // A client could send any other text, and would count as a new client for each.
    const address = client !== undefined && isIP(client) !== 0 ? client : peer
    return { address, isSecure: listOf(headers['x-forwarded-proto']).at(-1) === 'https', isTrusted }
  }
}

/** Some proxies add the port: `203.0.113.9:51234`, `[2001:db8::1]:443`. */
const withoutPort = (address: string): string =>
  /^\[(.+)\](?::\d+)?$/.exec(address)?.[1] ?? /^([\d.]+):\d+$/.exec(address)?.[1] ?? address

const listOf = (header: string | string[] | undefined): string[] =>
  String(header ?? '')
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
