import { once } from 'node:events'
import { connect } from 'node:net'

export type Request = Buffer

export interface Reply {
  status: number
  /** As far as it was kept; decoded when it is read. */
  readonly body: string
  bodyBytes: number
}

export interface Connection {
  /** One request at a time. */
  send(request: Request): Promise<Reply>
  close(): void
}

type Headers = Record<string, string>

export const get = (path: string, headers: Headers = {}): Request => Buffer.from(head('GET', path, headers))

export function send(method: 'POST' | 'PUT', path: string, body: Buffer, headers: Headers): Request {
  return Buffer.concat([Buffer.from(head(method, path, { ...headers, 'content-length': String(body.length) })), body])
}

function head(method: string, path: string, headers: Headers): string {
  const lines = Object.entries({ host: '127.0.0.1', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

const HEAD_END = Buffer.from('\r\n\r\n')

/** Servers close what was idle for some seconds, perhaps just as a request is on its way. */
const IDLE_MS_MAX = 2_000

/**
 * A keep-alive connection that reads no more of HTTP than we send ourselves: Node's own clients cost several times as
 * much for each request, on the very processors that the server needs.
 */
async function openConnection(port: number): Promise<Connection> {
  let socket = await openSocket(port)
  let usedAt = performance.now()
  return {
    async send(request) {
      if (performance.now() - usedAt > IDLE_MS_MAX) {
        socket.close()
        socket = await openSocket(port)
      }
      const reply = await socket.send(request)
      usedAt = performance.now()
      return reply
    },
    close: () => socket.close(),
  }
}

/** Of a reply; the rest is only counted. */
const KEPT_BYTES_MAX = 256 * 1024
const READ_BYTES = 256 * 1024

async function openSocket(port: number): Promise<Connection> {
  let pending: { resolve(reply: Reply): void; reject(error: Error): void } | undefined
  let kept: Buffer = Buffer.alloc(0)
  let received = 0
  let head: Head | undefined

  const fail = (error: Error) => {
    pending?.reject(error)
    pending = undefined
  }
  const take = (chunk: Buffer) => {
    received += chunk.length
    if (kept.length < KEPT_BYTES_MAX) kept = Buffer.concat([kept, chunk])
    head ??= readHead(kept)
    if (!head || received < head.end + head.bodyBytes) return
    pending?.resolve(replyOf(head, kept))
    kept = Buffer.alloc(0)
    received = 0
    head = undefined
  }
  // Into one buffer, again and again: a new one for each chunk costs more than what is done with it.
  const onread = {
    buffer: Buffer.alloc(READ_BYTES),
    callback(count: number, buffer: Uint8Array) {
      take(Buffer.from(buffer.buffer, buffer.byteOffset, count))
      return true
    },
  }
  const socket = connect({ host: '127.0.0.1', port, noDelay: true, onread })
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the server closed the connection')))
  await once(socket, 'connect')

  return {
    send(request) {
      return new Promise((resolve, reject) => {
        pending = { resolve, reject }
        if (socket.destroyed) fail(new Error('the server closed the connection'))
        else socket.write(request)
      })
    },
    close() {
      pending = undefined
      socket.destroy()
    },
  }
}

interface Head {
  status: number
  /** Where the body begins. */
  end: number
  bodyBytes: number
}

/** Undefined until all of it has arrived. */
function readHead(received: Buffer): Head | undefined {
  const end = received.indexOf(HEAD_END)
  if (end < 0) return undefined
  const head = received.toString('latin1', 0, end)
  const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
  if (length === undefined) throw new Error(`a reply without content-length: ${head}`)
  return { status: Number(head.slice(9, 12)), end: end + HEAD_END.length, bodyBytes: Number(length) }
}

const replyOf = ({ status, end, bodyBytes }: Head, kept: Buffer): Reply => ({
  status,
  bodyBytes,
  get body() {
    return kept.toString('utf8', end)
  },
})

export async function withConnections<T>(port: number, count: number, work: (all: Connection[]) => Promise<T>) {
  const connections = await Promise.all(Array.from({ length: count }, () => openConnection(port)))
  try {
    return await work(connections)
  } finally {
    for (const connection of connections) connection.close()
  }
}
