import { urlProblem } from '../platform/net/destination.ts'
import { Problem, Unavailable } from './build-problem.ts'
import { LIMITS } from './limits.ts'
import type { Bindings, Settings } from './settings.ts'

export interface Fetched {
  /** After all redirects. */
  url: string
  bytes: Uint8Array<ArrayBuffer>
  contentType: string
}

interface Wanted {
  bytesMax: number
  accept?: string
  /** For the registries alone: they may be anywhere. */
  fromRegistry?: boolean
}

/** What one build fetches: bounded in bytes and time, and from public addresses alone but for the configured registries. */
export function openNetwork({ EGRESS }: Pick<Bindings, 'EGRESS'>, settings: Settings) {
  const registries = [settings.NPM_REGISTRY_URL, settings.JSR_REGISTRY_URL].map((url) => new URL(url).origin)
  const signal = AbortSignal.timeout(LIMITS.seconds * 1_000)
  let fetchedBytes = 0

  const isRegistry = (url: URL, { fromRegistry = false }: Wanted) => fromRegistry && registries.includes(url.origin)

  async function send(url: URL, wanted: Wanted): Promise<Response> {
    const { accept = '*/*' } = wanted
    const init = { headers: { accept, 'user-agent': 'Pilothouse' }, redirect: 'manual', signal } as const
    if (isRegistry(url, wanted)) return fetch(url, init)
    const problem = publicProblem(url, settings)
    if (problem) throw new Problem(`${url} cannot be fetched: it ${problem}`)
    return EGRESS ? EGRESS.fetch(url, init) : fetch(url, init)
  }

  async function answer(url: URL, wanted: Wanted): Promise<Response> {
    try {
      return await send(url, wanted)
    } catch (error) {
      throw error instanceof Problem ? error : failure(url, wanted)
    }
  }

  const failure = (url: URL, wanted: Wanted): Error => {
    if (signal.aborted) return new Problem(`What is imported could not be fetched within ${LIMITS.seconds} s (${url})`)
    return isRegistry(url, wanted)
      ? new Unavailable(`The registry ${url.origin} cannot be reached`)
      : new Problem(`${url} cannot be fetched: no answer from ${url.host}`)
  }

  async function read(url: URL, { body }: Response, wanted: Wanted): Promise<Uint8Array<ArrayBuffer>> {
    const { bytesMax } = wanted
    const chunks: Uint8Array[] = []
    let size = 0
    try {
      for await (const chunk of body ?? []) {
        size += chunk.byteLength
        fetchedBytes += chunk.byteLength
        if (size > bytesMax) throw new Problem(`${url} is larger than ${mebibytes(bytesMax)}`)
        if (fetchedBytes > LIMITS.fetchedBytes) {
          throw new Problem(`What is imported is larger than ${mebibytes(LIMITS.fetchedBytes)} altogether`)
        }
        chunks.push(chunk)
      }
    } catch (error) {
      throw error instanceof Problem ? error : failure(url, wanted)
    }
    return new Uint8Array(await new Blob(chunks).arrayBuffer())
  }

  return {
    /** Undefined where there is nothing. Rejects with Problem or Unavailable. */
    async get(address: string, wanted: Wanted): Promise<Fetched | undefined> {
      let url = new URL(address)
      for (let hop = 0; hop <= LIMITS.redirects; hop += 1) {
        const response = await answer(url, wanted)
        const { status, headers } = response
        if (status === 200) {
          const bytes = await read(url, response, wanted)
          return { url: url.href, bytes, contentType: headers.get('content-type') ?? '' }
        }
        await response.body?.cancel()
        if (status === 404 || status === 410) return undefined
        const location = status >= 300 && status < 400 && headers.get('location')
        if (!location) throw refusal(url, status, wanted)
        url = new URL(location, url)
      }
      throw new Problem(`${address} redirects more than ${LIMITS.redirects} times`)
    },
  }

  function refusal(url: URL, status: number, wanted: Wanted): Error {
    const isTheirs = isRegistry(url, wanted) && (status >= 500 || status === 429)
    return isTheirs
      ? new Unavailable(`The registry ${url.origin} answers ${status}`)
      : new Problem(`${url} cannot be fetched: ${url.host} answers ${status}`)
  }
}
export type Network = ReturnType<typeof openNetwork>

const LOOPBACK_HOSTS = ['localhost', '127.0.0.1', '[::1]']

function publicProblem(url: URL, { IMPORT_LOOPBACK }: Settings): string | undefined {
  if (IMPORT_LOOPBACK !== 'on' && LOOPBACK_HOSTS.includes(url.hostname)) return 'is no public address'
  return urlProblem(url.href, { ownHosts: [], allowLoopback: IMPORT_LOOPBACK === 'on' })
}

const mebibytes = (bytes: number) => `${bytes / 1024 ** 2} MiB`
