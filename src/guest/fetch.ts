import { MARK_HEADER } from '../programs/mark.ts'
import { current } from './invocation.ts'

/** What a program calls says in which of its own calls it does so. */
export function installFetch(): void {
  const { fetch: plain, Request } = globalThis
  globalThis.fetch = async function fetch(input, init) {
    const mark = current()?.mark
    if (!mark) return plain(input, init)
    const request = new Request(input, init)
    request.headers.set(MARK_HEADER, mark)
    return plain(request)
  }
}
