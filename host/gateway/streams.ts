import type { Duplex } from 'node:stream'

/** The other side closed the connection: there is nobody left to tell. */
export class ConnectionLost extends Error {
  override name = 'ConnectionLost'
}

const WAKING = ['readable', 'end', 'close'] as const

/** Waits for exactly so many bytes; later ones stay in the stream. */
export async function readBytes(stream: Duplex, length: number): Promise<Buffer> {
  let held = Buffer.alloc(0)
  while (held.length < length) {
    // Takes all that is there: a stream that keeps a part would report itself readable again at once.
    const chunk: Buffer | null = stream.read()
    if (chunk) held = held.length === 0 ? chunk : Buffer.concat([held, chunk])
    else if (stream.readableEnded || stream.destroyed) throw new ConnectionLost()
    else await nextChange(stream)
  }
  if (held.length > length) stream.unshift(held.subarray(length))
  return held.subarray(0, length)
}

function nextChange(stream: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      for (const event of WAKING) stream.off(event, done)
      resolve()
    }
    for (const event of WAKING) stream.on(event, done)
  })
}

/** A reset connection must not end the process. */
export function destroyOnError(stream: Duplex) {
  stream.on('error', () => stream.destroy())
}

const CLOSE_MS_MAX = 10_000

/** Sends what is still to be written, then closes; a peer that does not read is cut off. */
export function closeSoon(stream: Duplex, lastWords?: Buffer) {
  if (stream.destroyed) return
  if (lastWords) stream.end(lastWords)
  else stream.end()
  // Unread input would turn the end into a reset, and the peer would lose the last message.
  stream.resume()
  const timer = setTimeout(() => stream.destroy(), CLOSE_MS_MAX).unref()
  stream.once('close', () => clearTimeout(timer))
}

/** Passes bytes both ways until one side ends; both are closed then. */
export function join(client: Duplex, server: Duplex) {
  client.pipe(server)
  server.pipe(client)
  server.once('close', () => closeSoon(client))
  // Sockets do this by themselves; the streams of WebSockets would stay half open until the server has finished.
  client.once('end', () => closeSoon(client))
  client.once('close', () => {
    server.unpipe(client)
    closeSoon(server)
    // Everything sent has reached the kernel; output that nobody reads must now fail in the server.
    if (server.writableFinished) server.destroy()
    else server.once('finish', () => server.destroy())
  })
}
