import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { createWebSocketStream, type WebSocket, WebSocketServer } from 'ws'
import type { Gateway } from '../gateway/gateway.ts'
import { closeSoon, destroyOnError } from '../gateway/streams.ts'
import type { HostKey } from '../key.ts'
import type { CallerOf } from './callers.ts'
import type { SqlLimits } from './limits.ts'

export interface WebSocketsOptions {
  gateway: Pick<Gateway, 'serve'>
  key: HostKey
  callerOf: CallerOf
  limits: SqlLimits
}

/**
 * Passes the Postgres protocol of WebSockets to the gateway, with back-pressure in both directions. The parameter `address` of
 * Neon's drivers is ignored: the gateway reads the startup message and connects to no address.
 */
export function openWebSockets({ gateway, key, callerOf, limits }: WebSocketsOptions) {
  const { webSocketsMax, webSocketMessageBytesMax: maxPayload, webSocketLoginBytesMax } = limits
  const webSockets = new WebSocketServer({ noServer: true, perMessageDeflate: false, maxPayload })
  const untrusted = new Set<WebSocket>()

  function upgrade(req: IncomingMessage, socket: Duplex, head: Buffer) {
    if (!URL.canParse(req.url ?? '', 'http://host')) return refuse(socket, '400 Bad Request')
    const { pathname, searchParams } = new URL(req.url ?? '', 'http://host')
    if (pathname !== '/v1' && pathname !== '/v2') return refuse(socket, '404 Not Found')
    const token = searchParams.get('token')
    const instance = searchParams.get('instance') ?? ''
    const isTrusted = token !== null
    if (isTrusted && !key.acceptsToken(token, 'websocket', instance)) return refuse(socket, '401 Unauthorized')
    if (!isTrusted && untrusted.size >= webSocketsMax) return refuse(socket, '503 Service Unavailable')
    webSockets.handleUpgrade(req, socket, head, (webSocket) => {
      if (!isTrusted) untrusted.add(webSocket.once('close', () => untrusted.delete(webSocket)))
      const stream = createWebSocketStream(webSocket)
      // Ignored: the gateway reacts to the end of the connection, whatever its reason.
      stream.on('error', () => {})
      const allowAnyLength = isTrusted ? undefined : limitBytes(socket, webSocketLoginBytesMax)
      gateway.serve(
        stream,
        { ...callerOf(req, isTrusted), ...(isTrusted && { onlyInstance: instance }) },
        allowAnyLength,
      )
    })
  }

  function close() {
    for (const webSocket of webSockets.clients) webSocket.terminate()
    webSockets.close()
  }
  return { upgrade, close }
}

/** Destroys a socket that sends more than this, until the limit is lifted: a message is kept in memory until it is complete. */
function limitBytes(socket: Duplex, bytesMax: number): () => void {
  let bytes = 0
  const count = (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > bytesMax) socket.destroy()
  }
  socket.on('data', count)
  return () => socket.off('data', count)
}

function refuse(socket: Duplex, status: string) {
  destroyOnError(socket)
  closeSoon(socket, Buffer.from(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`))
}
