import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { BUILT_HEADER, KEY_HEADER, ORGANIZATION_HEADER, type Refusal } from '../src/builder/protocol.ts'
import { logLine } from '../src/platform/http/log.ts'
import { isSameSecret } from '../src/platform/secrets/equal.ts'
import { memoryMiBMax } from './child-process.ts'
import { freePort } from './ports.ts'
import { isRelevantLine } from './programs.ts'
import { type Request, type Supervised, supervise } from './supervise.ts'

type Options = Pick<Supervised, 'worker' | 'onLine' | 'memoryMiB'>

/** Time limits, both longer than those of the builder itself, which cannot interrupt everything that it runs. */
const PROBE_SECONDS = 12
const BUILD_SECONDS = 100
/** Memory limit for probes: with a heap of several gigabytes, garbage collection would take all the time. */
const PROBE_MIB_MAX = 1024

const MiB = 1024 ** 2
const BODY_BYTES_MAX = 64 * MiB
/** Limit for all request bodies that wait or are being read. */
const BUFFERED_BYTES_MAX = 512 * MiB

interface PendingRequest {
  request: Request
  /** Aborted when the caller no longer waits for the answer. */
  signal: AbortSignal
}

interface Answer {
  headers?: Headers
  body: string | Uint8Array
}

class TooLarge extends Error {}
class TooMany extends Error {}

interface Builder {
  address: string
  /** The secret that each request must have in KEY_HEADER. */
  key: string
  /** All ports that it listens on. */
  ports: number[]
  stop(): Promise<void>
}

/**
 * Runs the builder in two processes, one that builds and one that probes. Users' code first runs in the probing process, so an
 * endless loop or a lack of memory ends only that.
 */
export async function startBuilder({ worker, onLine, memoryMiB }: Options): Promise<Builder> {
  const key = randomBytes(24).toString('hex')
  const { bindings } = worker as { bindings?: Record<string, unknown> }
  const onRelevantLine = (line: string) => {
    if (isRelevantLine(line)) onLine(line)
  }
  const options = {
    ...{ worker: { ...worker, bindings: { ...bindings, BUILDER_KEY: key } }, memoryMiB },
    onLine: onRelevantLine,
  }
  const ports = [await freePort(0, 'api'), await freePort(0, 'api')] as const
  const building = supervise({ ...options, port: ports[0], secondsMax: BUILD_SECONDS })
  const probeMiB = Math.min(memoryMiB ?? memoryMiBMax(), PROBE_MIB_MAX)
  const probing = supervise({ ...options, port: ports[1], secondsMax: PROBE_SECONDS, memoryMiB: probeMiB })

  /** Sends a request; `onEnd` answers a request during which the process ended. */
  async function forward(
    process: typeof building,
    { request, signal }: PendingRequest,
    { late, onEnd }: { late: string; onEnd(): Promise<Answer> | Answer },
  ): Promise<Answer> {
    const outcome = await process.send(request, signal)
    switch (outcome.kind) {
      case 'answered':
        return outcome
      case 'refused':
        throw new Error(outcome.reason)
      case 'timed-out':
        return issue(late)
      case 'not-started':
        return unavailable('The builder did not start')
      case 'ended':
        return onEnd()
      case 'canceled':
        return unavailable('The caller no longer waits for the answer')
      case 'busy':
        return BUSY
    }
  }

  const build = (pending: PendingRequest): Promise<Answer> => {
    const late = `This cannot be built within ${BUILD_SECONDS} s`
    const again = () =>
      forward(building, pending, { late, onEnd: () => unavailable('The builder ended twice during this build') })
    return forward(building, pending, { late, onEnd: again })
  }

  const probe = (pending: PendingRequest): Promise<Answer> =>
    forward(probing, pending, {
      late: `The program did not start within ${PROBE_SECONDS} s: does it loop without end?`,
      onEnd: () => issue('The program ended the process that started it: does it need too much memory?'),
    })

  const buffered = { bytes: 0 }

  async function serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!isSameSecret(String(incoming.headers[KEY_HEADER] ?? ''), key)) {
      incoming.resume()
      return void response.writeHead(403).end()
    }
    const signal = new AbortController()
    response.once('close', () => signal.abort())
    const isProbe = incoming.url === '/probe'
    let size = 0
    const hold = (bytes: number) => {
      size += bytes
      buffered.bytes += bytes
      if (size > BODY_BYTES_MAX) throw new TooLarge()
      if (buffered.bytes > BUFFERED_BYTES_MAX) throw new TooMany()
    }
    try {
      if ((isProbe ? probing : building).isBusy(originOf(incoming))) throw new TooMany()
      const request = await read(incoming, hold)
      answer(response, await (isProbe ? probe : build)({ request, signal: signal.signal }))
    } catch (error) {
      if (!(error instanceof TooLarge || error instanceof TooMany)) throw error
      // The rest of the body is read and dropped, because the sender reads the answer only after it.
      incoming.resume()
      if (error instanceof TooLarge) response.writeHead(413).end()
      else answer(response, BUSY)
    } finally {
      buffered.bytes -= size
    }
  }

  const server = createServer((incoming, response) => {
    serve(incoming, response).catch((error) => {
      onLine(logLine('error', 'builder_failed', { error: String(error) }))
      response.writeHead(500).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    address: `127.0.0.1:${port}`,
    key,
    ports: [port, ...ports],
    async stop() {
      server.close()
      server.closeAllConnections()
      await Promise.all([building.stop(), probing.stop()])
    },
  }
}

function read(incoming: IncomingMessage, hold: (bytes: number) => void): Promise<Request> {
  const chunks: Uint8Array[] = []
  const { 'content-type': type, [KEY_HEADER]: key } = incoming.headers
  return new Promise((resolve, reject) => {
    incoming.on('data', (chunk: Uint8Array) => {
      try {
        hold(chunk.byteLength)
        chunks.push(chunk)
      } catch (error) {
        incoming.removeAllListeners('data')
        chunks.length = 0
        reject(error)
      }
    })
    incoming.once('error', reject)
    incoming.once('end', () =>
      resolve({
        path: incoming.url ?? '/',
        headers: { [KEY_HEADER]: String(key), ...(type && { 'content-type': type }) },
        body: new Uint8Array(Buffer.concat(chunks)),
        origin: originOf(incoming),
      }),
    )
  })
}

/** The organization that sent a request. Organizations take turns. */
const originOf = ({ headers }: IncomingMessage): string => String(headers[ORGANIZATION_HEADER])

function answer(response: ServerResponse, { headers, body }: Answer): void {
  const built = headers?.get(BUILT_HEADER)
  response.setHeader('content-type', headers?.get('content-type') ?? 'application/json')
  if (built) response.setHeader(BUILT_HEADER, built)
  response.end(body)
}

const refusal = (reason: Refusal): Answer => ({ body: JSON.stringify(reason) })
const issue = (message: string): Answer => refusal({ issues: [{ message }] })
const unavailable = (reason: string): Answer => refusal({ unavailable: reason })
const BUSY = refusal({ unavailable: 'Too many programs are waiting to be built or started', isBusy: true })
