import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { type Request, type Supervised, supervise } from './supervised.ts'

type Options = Pick<Supervised, 'worker' | 'onLine'>

/** Both longer than the builder itself bears with what can be interrupted. */
const PROBE_SECONDS = 12
const BUILD_SECONDS = 100

/**
 * The builder in processes of its own. What users send runs in the one that probes for the first time: a loop without an end, or a memory
 * that is never enough, ends that process and nothing else.
 */
export async function startBuilder(options: Options): Promise<{ address: string; stop(): Promise<void> }> {
  const building = supervise({ ...options, secondsMax: BUILD_SECONDS })
  const probing = supervise({ ...options, secondsMax: PROBE_SECONDS })
  building.begin()
  let probes: Promise<unknown> = Promise.resolve()

  async function build(request: Request, isAgain = false): Promise<string> {
    const outcome = await building.ask(request)
    switch (outcome.kind) {
      case 'answered':
        return outcome.text
      case 'refused':
        throw new Error(outcome.reason)
      case 'late':
        return issue(`This cannot be built within ${BUILD_SECONDS} s`)
      case 'ended':
        return isAgain ? JSON.stringify({ unavailable: 'The builder ended twice over this' }) : build(request, true)
    }
  }

  async function probe(request: Request): Promise<string> {
    const outcome = await probing.ask(request)
    switch (outcome.kind) {
      case 'answered':
        return outcome.text
      case 'refused':
        throw new Error(outcome.reason)
      case 'late':
        return issue(`The program did not start within ${PROBE_SECONDS} s: is there a loop without an end?`)
      case 'ended':
        return issue('The program ended the process that started it: does it need too much memory?')
    }
  }

  /** One at a time, so that it is plain which of them did it when the process ends. */
  function probeInTurn(request: Request): Promise<string> {
    const probed = probes.then(() => probe(request))
    probes = probed.catch(() => {})
    return probed
  }

  async function serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const request = await read(incoming)
    const text = await (request.path === '/probe' ? probeInTurn(request) : build(request))
    response.setHeader('content-type', 'application/json').end(text)
  }

  const server = createServer((incoming, response) => {
    serve(incoming, response).catch((error) => {
      options.onLine(JSON.stringify({ level: 'error', event: 'builder_failed', error: String(error) }))
      response.writeHead(500).end()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  return {
    address: `127.0.0.1:${port}`,
    async stop() {
      server.close()
      server.closeAllConnections()
      await Promise.all([building.stop(), probing.stop()])
    },
  }
}

async function read(incoming: IncomingMessage): Promise<Request> {
  const chunks: Uint8Array[] = []
  for await (const chunk of incoming) chunks.push(chunk)
  const type = incoming.headers['content-type']
  return {
    path: incoming.url ?? '/',
    headers: type ? { 'content-type': type } : {},
    body: new Uint8Array(Buffer.concat(chunks)),
  }
}

const issue = (message: string): string => JSON.stringify({ issues: [{ message }] })
