import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { PostgresAddress } from '../../dev/neon-proxy.ts'

/** Stands before Postgres and can break all of an engine's connections at once, at an exact point of what it sends. */
export async function startRelay(target: PostgresAddress) {
  const sockets = new Set<Socket>()
  let sent = 0
  let bound = Infinity
  const server = createServer((near) => {
    if (sent >= bound) return near.destroy()
    const far = connect(target)
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        near.destroy()
        far.destroy()
      })
    }
    far.pipe(near)
    near.on('data', (chunk) => {
      sent += 1
      if (sent < bound) far.write(chunk)
      // Postgres still gets to read it, as it would of a process that has just died.
      else if (sent === bound) far.end(chunk, () => cut(sockets))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    address: { host: target.host, port: (server.address() as AddressInfo).port },
    /** From here on, so many messages get through, the last of them without an answer. */
    allow(messages: number) {
      sent = 0
      bound = messages
    },
    sent: () => sent,
    stop() {
      cut(sockets)
      server.close()
    },
  }
}

function cut(sockets: ReadonlySet<Socket>): void {
  for (const socket of sockets) socket.destroy()
}
