import type { IncomingMessage } from 'node:http'
import type { Caller } from '../gateway/gateway.ts'
import { isWithin } from '../gateway/networks.ts'

export type CallerOf = (req: IncomingMessage, isTrusted: boolean) => Caller

/**
 * Finds the client of a request. Requests from the networks `proxies` are those of proxies, which append the address of their own client
 * to `X-Forwarded-For`: the client is the last address that is not a proxy's. All before it may be invented.
 */
export function openCallers(proxies: readonly string[]): CallerOf {
  const isProxy = (address: string) => proxies.length > 0 && isWithin(address, proxies)

  return ({ socket, headers }, isTrusted) => {
    const peer = socket.remoteAddress ?? ''
    if (!isProxy(peer))
      return { address: peer, isSecure: 'encrypted' in socket && socket.encrypted === true, isTrusted }
    const address = listOf(headers['x-forwarded-for']).findLast((each) => !isProxy(each)) ?? peer
    return { address, isSecure: listOf(headers['x-forwarded-proto']).at(-1) === 'https', isTrusted }
  }
}

const listOf = (header: string | string[] | undefined): string[] =>
  String(header ?? '')
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')
