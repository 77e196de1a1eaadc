import { urlProblem } from '../platform/net/destination.ts'
import { Problem, Unavailable } from './build-problem.ts'
import { LIMITS } from './limits.ts'
import type { Bindings, Settings } from './settings.ts'

export interface Fetched {
  /** URL after all redirects. */
  url: string
  bytes: Uint8Array<ArrayBuffer>
  contentType: string
}

interface FetchOptions {
  bytesMax: number
  accept?: string
  /** Allows the configured registries, which may have private addresses. */
  fromRegistry?: boolean
}

/** Network of one build: limited in bytes and time, and to public addresses except for the configured registries. */
export function openNetwork({ EGRESS }: Pick<Bindings, 'EGRESS'>, settings: Settings) {
  const registries = [settings.NPM_REGISTRY_URL, settings.JSR_REGISTRY_URL].map((url) => new URL(url).origin)
  const signal = AbortSignal.timeout(LIMITS.seconds * 1_000)
  let fetchedBytes = 0

  const isRegistry = (url: URL, { fromRegistry = false }: FetchOptions) =>
    fromRegistry && registries.includes(url.origin)

  async function send(url: URL, options: FetchOptions): Promise<Response> {
    const { accept = '*/*' } = options
    const init = { headers: { accept, 'user-agent': 'Pilothouse' }, redirect: 'manual', signal } as const
    if (isRegistry(url, options)) return fetch(url, init)
    const problem = addressProblem(url, settings)
    if (problem) throw new Problem(`${url} cannot be fetched: it ${problem}`)
    return EGRESS ? EGRESS.fetch(url, init) : fetch(url, init)
  }

  async function request(url: URL, options: FetchOptions): Promise<Response> {
    try {
      return await send(url, options)
    } catch (error) {
      throw error instanceof Problem ? error : failure(url, options)
    }
  }

  const failure = (url: URL, options: FetchOptions): Error => {
    if (signal.aborted)
      return new Problem(`The imports could not be fetched within ${LIMITS.seconds} s: ${url} was not complete`)
    return isRegistry(url, options)
      ? new Unavailable(`The registry ${url.origin} cannot be reached`)
      : new Problem(`${url} cannot be fetched: no answer from ${url.host}`)
  }

  async function read(url: URL, { body }: Response, options: FetchOptions): Promise<Uint8Array<ArrayBuffer>> {
    const { bytesMax } = options
    const chunks: Uint8Array[] = []
    let size = 0
    try {
      for await (const chunk of body ?? []) {
        size += chunk.byteLength
        fetchedBytes += chunk.byteLength
        if (size > bytesMax) throw new Problem(`${url} is larger than ${mebibytes(bytesMax)}`)
        if (fetchedBytes > LIMITS.fetchedBytes) {
          throw new Problem(`The imports are larger than ${mebibytes(LIMITS.fetchedBytes)} in all`)
        }
        chunks.push(chunk)
      }
    } catch (error) {
      throw error instanceof Problem ? error : failure(url, options)
    }
    return new Uint8Array(await new Blob(chunks).arrayBuffer())
  }

  return {
    /** Returns undefined for a 404 or 410. Rejects with Problem or Unavailable. */
    async get(address: string, options: FetchOptions): Promise<Fetched | undefined> {
      let url = new URL(address)
      for (let hop = 0; hop <= LIMITS.redirects; hop += 1) {
        const response = await request(url, options)
        const { status, headers } = response
        if (status === 200) {
          const bytes = await read(url, response, options)
          return { url: url.href, bytes, contentType: headers.get('content-type') ?? '' }
        }
        await response.body?.cancel()
        if (status === 404 || status === 410) return undefined
        const location = status >= 300 && status < 400 && headers.get('location')
        if (!location) throw statusError(url, status, options)
        const target = URL.parse(location, url.href)
        if (!target) throw new Problem(`${url} cannot be fetched: it redirects to an invalid address`)
        url = target
      }
      throw new Problem(`${address} redirects more than ${LIMITS.redirects} times`)
    },
  }

  function statusError(url: URL, status: number, options: FetchOptions): Error {
    const isRegistryFault = isRegistry(url, options) && (status >= 500 || status === 429)
    return isRegistryFault
      ? new Unavailable(`The registry ${url.origin} answers ${status}`)
      : new Problem(`${url} cannot be fetched: ${url.host} answers ${status}`)
  }
}
export type Network = ReturnType<typeof openNetwork>

const LOOPBACK_HOSTS = ['localhost', '127.0.0.1', '[::1]']

function addressProblem(url: URL, { IMPORT_LOOPBACK }: Settings): string | undefined {
  if (IMPORT_LOOPBACK !== 'on' && LOOPBACK_HOSTS.includes(url.hostname)) return 'must have a public address'
  return urlProblem(url.href, { ownHosts: [], allowLoopback: IMPORT_LOOPBACK === 'on' })
}

const mebibytes = (bytes: number) => `${bytes / 1024 ** 2} MiB`
