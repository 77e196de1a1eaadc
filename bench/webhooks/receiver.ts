import type { AddressInfo } from 'node:net'
import { createServer, type Socket } from 'node:net'
import type { Arrival, Command, Received } from './ledger.ts'

/**
 * This process receives for all endpoints, each on a path of its own. It understands only as much HTTP as workerd sends: Node's
 * own server costs several times as much for each request, on the processors that the Worker needs.
 */
const HEAD_END = Buffer.from('\r\n\r\n')
const ANSWER = 'HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nok'

const known = new Set<string>()
let arrivals: Arrival[] = []
let duplicates = 0
let answered = 0
let awaited: { count: number; ask: number } | undefined
let hanging = new Set<string>()
const held: Socket[] = []

const server = createServer({ noDelay: true }, (socket) => {
  let received: Buffer = Buffer.alloc(0)
  let at = 0
  socket.on('error', () => socket.destroy())
  socket.on('data', (chunk) => {
    if (received.length === 0) at = Date.now()
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk])
    for (;;) {
      const headEnd = received.indexOf(HEAD_END)
      if (headEnd < 0) return
      const head = received.toString('latin1', 0, headEnd)
      const end = headEnd + HEAD_END.length + Number(/\r\ncontent-length: (\d+)/i.exec(head)?.[1] ?? 0)
      if (received.length < end) return
      received = received.subarray(end)
      take(socket, head, at)
    }
  })
})
server.listen(0, '127.0.0.1', () => reply(0, (server.address() as AddressInfo).port))

function take(socket: Socket, head: string, at: number) {
  const path = head.slice(head.indexOf(' ') + 1, head.indexOf(' HTTP/'))
  const id = /\r\nwebhook-id: (\S+)/i.exec(head)?.[1] ?? ''
  if (known.has(id)) duplicates += 1
  else arrivals.push({ id, path, at })
  known.add(id)
  if (hanging.has(path)) held.push(socket)
  else answer([socket])
}

function answer(sockets: readonly Socket[]) {
  for (const socket of sockets) socket.write(ANSWER)
  answered += sockets.length
  replyIfReached()
}

function replyIfReached() {
  if (!awaited || answered < awaited.count) return
  reply(awaited.ask, null)
  awaited = undefined
}

function reply(ask: number, value: unknown) {
  process.send?.({ ask, value })
}

process.on('message', ({ ask, command }: { ask: number; command: Command }) => {
  if (command.kind === 'expect') {
    awaited = { count: command.count, ask }
    return replyIfReached()
  }
  if (command.kind === 'hang') {
    hanging = new Set(command.paths)
    answer(held.splice(0))
    return reply(ask, null)
  }
  reply(ask, { arrivals, duplicates } satisfies Received)
  arrivals = []
  duplicates = 0
  answered = 0
  awaited = undefined
  known.clear()
})
process.once('disconnect', () => process.exit())
