import { once } from 'node:events'
import { connect } from 'node:net'

export type Request = Buffer

export interface Reply {
  status: number
  body: string
}

export interface Connection {
  /** One request at a time. */
  send(request: Request): Promise<Reply>
  close(): void
}

export function get(path: string, headers: Record<string, string> = {}): Request {
  const lines = Object.entries({ host: '127.0.0.1', ...headers }).map(([name, value]) => `${name}: ${value}\r\n`)
  return Buffer.from(`GET ${path} HTTP/1.1\r\n${lines.join('')}\r\n`)
}

export const bearer = (token: string) => ({ authorization: `Bearer ${token}` })

const HEAD_END = Buffer.from('\r\n\r\n')

/**
 * A keep-alive connection that reads no more of HTTP than we send ourselves: Node's own clients cost several times as
 * much for each request, on the very processors that the server needs.
 */
async function openConnection(port: number): Promise<Connection> {
  const socket = connect({ host: '127.0.0.1', port, noDelay: true })
  let pending: { resolve(reply: Reply): void; reject(error: Error): void } | undefined
  let received: Buffer = Buffer.alloc(0)

  const fail = (error: Error) => {
    pending?.reject(error)
    pending = undefined
  }
  socket.on('data', (chunk) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk])
    const reply = readReply(received)
    if (!reply) return
    received = Buffer.alloc(0)
    pending?.resolve(reply)
  })
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the server closed the connection')))
  await once(socket, 'connect')

  return {
    send(request) {
      return new Promise((resolve, reject) => {
        pending = { resolve, reject }
        socket.write(request)
      })
    },
    close() {
      pending = undefined
      socket.destroy()
    },
  }
}

/** Undefined until all of it has arrived. */
function readReply(received: Buffer): Reply | undefined {
  const headEnd = received.indexOf(HEAD_END)
  if (headEnd < 0) return undefined
  const head = received.toString('latin1', 0, headEnd)
  const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1]
  if (length === undefined) throw new Error(`a reply without content-length: ${head}`)
  const bodyStart = headEnd + HEAD_END.length
  if (received.length < bodyStart + Number(length)) return undefined
  return { status: Number(head.slice(9, 12)), body: received.toString('utf8', bodyStart) }
}

export async function withConnections<T>(port: number, count: number, work: (all: Connection[]) => Promise<T>) {
  const connections = await Promise.all(Array.from({ length: count }, () => openConnection(port)))
  try {
    return await work(connections)
  } finally {
    for (const connection of connections) connection.close()
  }
}
