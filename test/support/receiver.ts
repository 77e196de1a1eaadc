import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http'
import { onTestFinished } from 'vitest'
import { listenOnFreePort } from './listen.ts'

export interface Received {
  path: string
  headers: IncomingHttpHeaders
  body: string
  bytes: Buffer
  at: number
}
type Answer = (request: IncomingMessage, response: ServerResponse, received: Received) => void

/** Starts a receiver of webhooks: it keeps the requests and answers as configured. */
export async function startReceiver(answer: Answer = (_request, response) => response.end()) {
  const received: Received[] = []
  let current = answer
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const { url = '', headers } = request
      const bytes = Buffer.concat(chunks)
      const one = { path: url, headers, body: bytes.toString(), bytes, at: Date.now() }
      received.push(one)
      current(request, response, one)
    })
  })
  const port = await listenOnFreePort(server)
  const close = () => {
    server.closeAllConnections()
    server.close()
  }
  return {
    url: `http://127.0.0.1:${port}/hook`,
    received,
    answer: (next: Answer) => {
      current = next
    },
    close,
  }
}

/** Starts a receiver for one test, closed when the test ends. */
export async function newReceiver(answer?: Answer) {
  const receiver = await startReceiver(answer)
  onTestFinished(receiver.close)
  return receiver
}

export const withStatus =
  (status: number, headers: Record<string, string> = {}, body = ''): Answer =>
  (_request, response) =>
    response.writeHead(status, headers).end(body)
