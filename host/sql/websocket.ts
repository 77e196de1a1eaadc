import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Gateway } from '../gateway/gateway.ts'
import { closeSoon, destroyOnError } from '../gateway/streams.ts'
import type { HostKey } from '../key.ts'
import type { CallerOf } from './callers.ts'
import type { SqlLimits } from './limits.ts'
import { acceptWebSocket } from './websocket-stream.ts'

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
export function openWebSockets({ gateway, key, callerOf, limits: { webSocketsMax } }: WebSocketsOptions) {
  const sockets = new Set<Duplex>()
  const untrusted = new Set<Duplex>()

  function upgrade(req: IncomingMessage, socket: Duplex, head: Buffer) {
    sockets.add(socket.once('close', () => sockets.delete(socket)))
    if (!URL.canParse(req.url ?? '', 'http://host')) return refuse(socket, '400 Bad Request')
    const { pathname, searchParams } = new URL(req.url ?? '', 'http://host')
    if (pathname !== '/v1' && pathname !== '/v2') return refuse(socket, '404 Not Found')
    const token = searchParams.get('token')
    const instance = searchParams.get('instance') ?? ''
    const isTrusted = token !== null
    if (isTrusted && !key.acceptsToken(token, 'websocket', instance)) return refuse(socket, '401 Unauthorized')
    if (!isTrusted && untrusted.size >= webSocketsMax) return refuse(socket, '503 Service Unavailable')
    const stream = acceptWebSocket(req, socket, head)
    if (!stream) return refuse(socket, '400 Bad Request')
    if (!isTrusted) untrusted.add(socket.once('close', () => untrusted.delete(socket)))
    gateway.serve(stream, { ...callerOf(req, isTrusted), ...(isTrusted && { onlyInstance: instance }) })
  }

  function close() {
    for (const socket of sockets) socket.destroy()
  }
  return { upgrade, close }
}

function refuse(socket: Duplex, status: string) {
  destroyOnError(socket)
  closeSoon(socket, Buffer.from(`HTTP/1.1 ${status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n`))
}
