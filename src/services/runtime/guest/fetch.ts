import { CHAIN_TOKEN_HEADER } from '../processes/chain-header.ts'
import { asUnpacked } from './encoding.ts'
import { current } from './invocation.ts'

/** What a program calls says in which of its own calls it does so. */
export function installFetch(): void {
  const { fetch: plain, Request } = globalThis
  const send: typeof plain = (input, init) => {
    const chainToken = current()?.chainToken
    if (!chainToken) return plain(input, init)
    const request = new Request(input, init)
    request.headers.set(CHAIN_TOKEN_HEADER, chainToken)
    return plain(request, init?.encodeResponseBody && { encodeResponseBody: init.encodeResponseBody })
  }
  globalThis.fetch = async function fetch(input, init) {
    const response = await send(input, init)
    const isLeftPacked = init?.encodeResponseBody === 'manual'
    return isLeftPacked || current()?.isForWorkers ? response : asUnpacked(response)
  }
}
