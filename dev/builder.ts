import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { BUILT_HEADER, KEY_HEADER } from '../src/builder/protocol.ts'
import { logLine } from '../src/platform/http/log.ts'
import { isSameSecret } from '../src/platform/secrets/equal.ts'
import { memoryMiBMax } from './child-process.ts'
import { freePort } from './ports.ts'
import { type Request, type Supervised, supervise } from './supervised.ts'

type Options = Pick<Supervised, 'worker' | 'onLine' | 'memoryMiB'>

/** Both longer than the builder itself bears with what can be interrupted. */
const PROBE_SECONDS = 12
const BUILD_SECONDS = 100
/** A heap of several gigabytes would be collected again and again until the time is over. */
const PROBE_MIB_MAX = 1024

const MiB = 1024 ** 2
const BODY_BYTES_MAX = 64 * MiB
/** Of all that wait, or are being read. */
const HELD_BYTES_MAX = 512 * MiB

interface Question {
  request: Request
  /** Aborted once nobody waits for the answer. */
  left: AbortSignal
}

interface Answer {
  headers?: Headers
  body: string | Uint8Array
}

class TooLarge extends Error {}
class TooMany extends Error {}

interface Builder {
  address: string
  /** What must come with each request, in KEY_HEADER. */
  key: string
  /** All that it listens at. */
  ports: number[]
  stop(): Promise<void>
}

/**
 * The builder in processes of its own. What users send runs in the one that probes for the first time: a loop without an end, or a memory
 * that is never enough, ends that process and nothing else.
 */
export async function startBuilder({ worker, onLine, memoryMiB }: Options): Promise<Builder> {
  const key = randomBytes(24).toString('hex')
  const { bindings } = worker as { bindings?: Record<string, unknown> }
  const options = { worker: { ...worker, bindings: { ...bindings, BUILDER_KEY: key } }, onLine, memoryMiB }
  const ports = [await freePort(0, 'api'), await freePort(0, 'api')] as const
  const building = supervise({ ...options, port: ports[0], secondsMax: BUILD_SECONDS })
  const probeMiB = Math.min(memoryMiB ?? memoryMiBMax(), PROBE_MIB_MAX)
  const probing = supervise({ ...options, port: ports[1], secondsMax: PROBE_SECONDS, memoryMiB: probeMiB })
  building.begin()

  /** `onEnd`: what becomes of a question over which its process ended. */
  async function ask(
    process: typeof building,
    { request, left }: Question,
    { late, onEnd }: { late: string; onEnd(): Promise<Answer> | Answer },
  ): Promise<Answer> {
    const outcome = await process.ask(request, left)
    switch (outcome.kind) {
      case 'answered':
        return outcome
      case 'refused':
        throw new Error(outcome.reason)
      case 'late':
        return issue(late)
      case 'down':
        return unavailable('The builder does not start')
      case 'ended':
        return onEnd()
      case 'left':
        return unavailable('Nobody waits for this any more')
      case 'busy':
        return unavailable(BUSY)
    }
  }

  const build = (question: Question): Promise<Answer> => {
    const late = `This cannot be built within ${BUILD_SECONDS} s`
    const again = () => ask(building, question, { late, onEnd: () => unavailable('The builder ended twice over this') })
    return ask(building, question, { late, onEnd: again })
  }

  const probe = (question: Question): Promise<Answer> =>
    ask(probing, question, {
      late: `The program did not start within ${PROBE_SECONDS} s: is there a loop without an end?`,
      onEnd: () => issue('The program ended the process that started it: does it need too much memory?'),
    })

  const held = { bytes: 0 }

  async function serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    if (!isSameSecret(String(incoming.headers[KEY_HEADER] ?? ''), key)) {
      incoming.resume()
      return void response.writeHead(403).end()
    }
    const left = new AbortController()
    response.once('close', () => left.abort())
    const isProbe = incoming.url === '/probe'
    let size = 0
    const hold = (bytes: number) => {
      size += bytes
      held.bytes += bytes
      if (size > BODY_BYTES_MAX) throw new TooLarge()
      if (held.bytes > HELD_BYTES_MAX) throw new TooMany()
    }
    try {
      if ((isProbe ? probing : building).isBusy()) throw new TooMany()
      const request = await read(incoming, hold)
      answer(response, await (isProbe ? probe : build)({ request, left: left.signal }))
    } catch (error) {
      if (!(error instanceof TooLarge || error instanceof TooMany)) throw error
      // What still comes is taken and dropped: who sends it reads no answer before.
      incoming.resume()
      if (error instanceof TooLarge) response.writeHead(413).end()
      else answer(response, unavailable(BUSY))
    } finally {
      held.bytes -= size
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
      }),
    )
  })
}

const BUSY = 'Too many programs wait to be built or started'

function answer(response: ServerResponse, { headers, body }: Answer): void {
  const built = headers?.get(BUILT_HEADER)
  response.setHeader('content-type', headers?.get('content-type') ?? 'application/json')
  if (built) response.setHeader(BUILT_HEADER, built)
  response.end(body)
}

const issue = (message: string): Answer => ({ body: JSON.stringify({ issues: [{ message }] }) })
const unavailable = (reason: string): Answer => ({ body: JSON.stringify({ unavailable: reason }) })
