import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { listenOnFreePort } from '../listen.ts'

/** Returns where a host's compute listens, once it is awake; throws Neon's error if it accepts no connections. */
export type Route = (host: string) => Promise<{ port: number; proxy: string }>

/** Starts Neon's proxy: HTTP and WebSockets for every endpoint, distinguished by their hosts. */
export async function startGateway(route: Route): Promise<{ url: string; stop(): Promise<void> }> {
  const server = createServer((req, res) => {
    sql(route, req, res).catch((error) => {
      res.writeHead(400, { 'content-type': 'application/json' })
      res.end(JSON.stringify({ message: error.message, code: null }))
    })
  })
  server.on('upgrade', (req, socket, head) => {
    tunnel(route, req, socket, head).catch((error) => {
      socket.end(`HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nx-reason: ${error.message}\r\n\r\n`)
    })
  })
  const port = await listenOnFreePort(server)
  return {
    url: `http://127.0.0.1:${port}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}

async function sql(route: Route, req: IncomingMessage, res: ServerResponse): Promise<void> {
  const url = new URL(String(req.headers['neon-connection-string']))
  const { port, proxy } = await route(url.hostname)
  Object.assign(url, { hostname: '127.0.0.1', port })
  const headers = { ...req.headers, 'neon-connection-string': url.href }
  await new Promise<void>((resolve, reject) => {
    const onward = request(new URL('/sql', proxy), { method: 'POST', headers }, (answer) => {
      res.writeHead(answer.statusCode ?? 500, answer.headers)
      answer.pipe(res).on('finish', resolve)
    })
    onward.on('error', reject)
    req.pipe(onward)
  })
}

async function tunnel(route: Route, req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
  const address = new URL(req.url ?? '/', 'http://gateway').searchParams.get('address') ?? ''
  const { port, proxy } = await route(address.replace(/:\d+$/, ''))
  const { hostname, port: proxyPort } = new URL(proxy)
  const onward = connect(Number(proxyPort), hostname)
  const headers = Object.entries(req.headers).map(([name, value]) => `${name}: ${value}\r\n`)
  onward.write(`GET /v2?address=127.0.0.1:${port} HTTP/1.1\r\n${headers.join('')}\r\n`)
  onward.write(head)
  for (const [one, other] of [
    [onward, socket],
    [socket, onward],
  ] as const) {
    one.pipe(other)
    one.on('error', () => other.destroy())
    one.on('close', () => other.destroy())
  }
}
