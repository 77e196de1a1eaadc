import { CHAIN_TOKEN_HEADER } from '../processes/chain-header.ts'
import { withoutEncodingHeaders } from './encoding.ts'
import { currentInvocation } from './invocation.ts'

/** Adds the chain token of the current call to the program's requests, and decodes responses as Deno does. */
export function installFetch(): void {
  const { fetch: plain, Request } = globalThis
  const send: typeof plain = (input, init) => {
    const chainToken = currentInvocation()?.chainToken
    if (!chainToken) return plain(input, init)
    const request = new Request(input, init)
    request.headers.set(CHAIN_TOKEN_HEADER, chainToken)
    return plain(request, init?.encodeResponseBody && { encodeResponseBody: init.encodeResponseBody })
  }
  globalThis.fetch = async function fetch(input, init) {
    const response = await send(input, init)
    const isLeftEncoded = init?.encodeResponseBody === 'manual'
    return isLeftEncoded || currentInvocation()?.isForWorkers ? response : withoutEncodingHeaders(response)
  }
}
