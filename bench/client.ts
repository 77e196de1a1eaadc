import { once } from 'node:events'
import { connect } from 'node:net'

export type Request = Buffer

export interface Reply {
  status: number
  /** The kept part of the reply's body, decoded when it is read. */
  readonly body: string
  bodyBytes: number
}

export interface Connection {
  /** Sends a request. Only one may be under way. Of the reply, the first `keptBytesMax` are kept. */
  send(request: Request, keptBytesMax?: number): Promise<Reply>
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

/** A connection that was idle for longer is replaced: servers close it, perhaps just when a request is sent. */
const IDLE_MS_MAX = 2_000

/**
 * Opens a keep-alive connection that understands only as much HTTP as the servers here send: Node's own clients cost several
 * times as much for each request, on the processors that the server needs.
 */
async function openConnection(port: number): Promise<Connection> {
  let socket = await openSocket(port)
  let usedAt = performance.now()
  return {
    async send(request, keptBytesMax) {
      if (performance.now() - usedAt > IDLE_MS_MAX) {
        socket.close()
        socket = await openSocket(port)
      }
      const reply = await socket.send(request, keptBytesMax)
      usedAt = performance.now()
      return reply
    },
    close: () => socket.close(),
  }
}

/** Limit for the kept part of a reply, unless the caller names another one; the rest is only counted. */
const KEPT_BYTES_MAX = 256 * 1024
const READ_BYTES = 256 * 1024

async function openSocket(port: number): Promise<Connection> {
  let pending: { resolve(reply: Reply): void; reject(error: Error): void } | undefined
  let kept: Buffer = Buffer.alloc(0)
  let keptMax = KEPT_BYTES_MAX
  let received = 0
  let head: Head | undefined

  const fail = (error: Error) => {
    pending?.reject(error)
    pending = undefined
  }
  const take = (chunk: Buffer) => {
    received += chunk.length
    if (kept.length < keptMax) kept = Buffer.concat([kept, chunk])
    head ??= readHead(kept)
    if (!head || received < head.end + head.bodyBytes) return
    pending?.resolve(replyOf(head, kept))
    kept = Buffer.alloc(0)
    received = 0
    head = undefined
  }
  // Reads always use the same buffer: a new one for each chunk would cost more than processing it.
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
    send(request, keptBytesMax = KEPT_BYTES_MAX) {
      return new Promise((resolve, reject) => {
        pending = { resolve, reject }
        keptMax = keptBytesMax
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
  /** Position of the body. */
  end: number
  bodyBytes: number
}

/** Parses the head of a reply; undefined until it has arrived completely. */
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
