import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import { Transform } from 'node:stream'

/** Starts a proxy in front of the bucket; while it is closed, connections are refused. */
export async function startBucketProxy(endpoint: string) {
  const { hostname, port, pathname } = new URL(endpoint)
  const sockets = new Set<Socket>()
  let carried = 0
  let held = { what: '', until: Promise.resolve() }
  let cuts = 0
  const server = createServer((socket) => {
    if (!server.listening) return socket.destroy()
    const onward = connect(Number(port), hostname)
    socket.on('data', (data) => {
      carried += data.length
    })
    for (const end of [socket, onward]) {
      sockets.add(end)
      end.on('error', () => {})
      end.on('close', () => {
        sockets.delete(end)
        socket.destroy()
        onward.destroy()
      })
    }
    const gate = new Transform({
      transform(data: Buffer, _, done) {
        if (data.includes(held.what)) void held.until.then(() => done(null, data))
        else done(null, data)
      },
    })
    const cutting = new Transform({
      transform(data: Buffer, _, done) {
        const headEnd = cuts > 0 ? data.indexOf('\r\n\r\n') : -1
        if (headEnd < 0) return done(null, data)
        cuts -= 1
        socket.write(data.subarray(0, headEnd + 4), () => socket.destroy())
      },
    })
    socket.pipe(gate).pipe(onward).pipe(cutting).pipe(socket)
  })
  const open = async (at = 0) => {
    server.listen(at, '127.0.0.1')
    await once(server, 'listening')
    return (server.address() as AddressInfo).port
  }
  const own = await open()
  return {
    endpoint: `http://127.0.0.1:${own}${pathname}`,
    open: () => open(own),
    /** Returns the number of bytes sent to the bucket. */
    carried: () => carried,
    /** Stops the bytes to the bucket that contain the text, or all, until the returned function is called. */
    hold(what = ''): () => void {
      const { promise: until, resolve } = Promise.withResolvers<void>()
      held = { what, until }
      return resolve
    },
    /** Cuts off this many of the next answers after their heads. */
    cut(count: number): void {
      cuts = count
    },
    async close() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
