import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { type AddressInfo, createServer, type Socket } from 'node:net'
import { type Received, startReceiver } from '../receiver.ts'

/** The behaviour of one path of a receiver; it may write to the bare socket instead of answering. */
export type Script = (exchange: Exchange) => void

interface Exchange {
  request: IncomingMessage
  response: ServerResponse
  socket: Socket
  /** The number of the request to this path, from 1. */
  count: number
}

/** Starts a receiver whose paths each behave as configured, and record their requests. */
export async function startScripted() {
  const scripts = new Map<string, Script>()
  const lastedMs = new Map<string, number>()
  const lastRequests = new WeakMap<Socket, { path: string; at: number }>()
  const receiver = await startReceiver((request, response, { path, at }) => {
    const { socket } = request
    if (!lastRequests.has(socket)) watch(socket)
    lastRequests.set(socket, { path, at })
    const script = scripts.get(path)
    if (!script) return void response.writeHead(404).end()
    script({ request, response, socket, count: receivedAt(path).length })
  })

  function watch(socket: Socket): void {
    // These tests are about broken connections.
    socket.on('error', () => {})
    socket.once('close', () => {
      const last = lastRequests.get(socket)
      if (last) lastedMs.set(last.path, Date.now() - last.at)
    })
  }
  const receivedAt = (path: string): Received[] => receiver.received.filter((one) => one.path === path)
  const origin = new URL(receiver.url).origin

  return {
    origin,
    receivedAt,
    /** Returns the time from its last request to the end of the connection; undefined while that is open. */
    lastedMs: (path: string) => lastedMs.get(path),
    /** Adds a path and returns its address. */
    play(path: string, script: Script): string {
      scripts.set(path, script)
      return origin + path
    },
    close: receiver.close,
  }
}
export type Scripted = Awaited<ReturnType<typeof startScripted>>

/** Listens and handles every connection as configured: by default it only counts. */
export async function startCanary(onConnection: (socket: Socket) => void = (socket) => void socket.end()) {
  let connections = 0
  const server = createServer((socket) => {
    connections += 1
    socket.on('error', () => {})
    onConnection(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    close: () => server.close(),
  }
}
