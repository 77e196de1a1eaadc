import type { IncomingMessage } from 'node:http'
import { connect, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { WebSocket, WebSocketServer } from 'ws'
import { isSameAddress, type PostgresAddress } from '../neon-proxy.ts'

export interface TunnelsOptions {
  webSockets: WebSocketServer
  postgres: PostgresAddress
  tunnelsMax: number
  connectTimeoutMs: number
}

/** Bytes waiting for a slow reader before we stop reading from Postgres. */
const WAITING_BYTES_MAX = 1024 * 1024

/** Carries the Postgres protocol between WebSockets and Postgres; what one side cannot take, the other stops sending. */
export function openTunnels({ webSockets, postgres, tunnelsMax, connectTimeoutMs }: TunnelsOptions) {
  function upgrade(req: IncomingMessage, socket: Duplex, head: Buffer) {
    const url = new URL(req.url ?? '/', 'http://proxy')
    if (url.pathname !== '/v1' && url.pathname !== '/v2') return refuse(socket, '404 Not Found')
    if (!isAllowed(url.searchParams.get('address'), postgres)) return refuse(socket, '403 Forbidden')
    if (webSockets.clients.size >= tunnelsMax) return refuse(socket, '503 Service Unavailable')
    webSockets.handleUpgrade(req, socket, head, (webSocket) => {
      join(webSocket, connect({ ...postgres, noDelay: true }), connectTimeoutMs)
    })
  }

  function close() {
    for (const webSocket of webSockets.clients) webSocket.terminate()
    webSockets.close()
  }
  return { upgrade, close }
}

function isAllowed(address: string | null, postgres: PostgresAddress): boolean {
  if (address === null) return true
  const colon = address.lastIndexOf(':')
  return colon > 0 && isSameAddress(postgres, address.slice(0, colon), Number(address.slice(colon + 1)))
}

function refuse(socket: Duplex, status: string) {
  socket.on('error', () => socket.destroy())
  socket.end(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`)
}

function join(webSocket: WebSocket, postgres: Socket, connectTimeoutMs: number) {
  postgres.on('timeout', () => postgres.destroy())
  postgres.setTimeout(connectTimeoutMs)
  postgres.once('connect', () => postgres.setTimeout(0))

  webSocket.on('message', (data: Buffer) => {
    if (!postgres.write(data)) webSocket.pause()
  })
  postgres.on('drain', () => webSocket.resume())

  postgres.on('data', (data) => {
    webSocket.send(data, () => {
      if (postgres.isPaused() && webSocket.bufferedAmount < WAITING_BYTES_MAX / 2) postgres.resume()
    })
    if (webSocket.bufferedAmount > WAITING_BYTES_MAX) postgres.pause()
  })

  // Whatever was sent before the end still arrives; then both sides are gone.
  webSocket.on('close', () => {
    postgres.setTimeout(connectTimeoutMs)
    postgres.destroySoon()
  })
  webSocket.on('error', () => postgres.destroy())
  postgres.on('close', () => {
    webSocket.resume()
    webSocket.close()
  })
  postgres.on('error', () => postgres.destroy())
}
