import type { Duplex } from 'node:stream'

/** The peer closed the connection, so no answer can be sent. */
export class ConnectionLost extends Error {
  override name = 'ConnectionLost'
}

const STATE_EVENTS = ['readable', 'end', 'close'] as const

/** Waits for `length` bytes and returns them; any bytes after them stay in the stream. */
export async function readBytes(stream: Duplex, length: number): Promise<Buffer> {
  let buffered = Buffer.alloc(0)
  while (buffered.length < length) {
    // Reads everything available: a stream with unread bytes would report itself readable again at once.
    const chunk: Buffer | null = stream.read()
    if (chunk) buffered = buffered.length === 0 ? chunk : Buffer.concat([buffered, chunk])
    else if (stream.readableEnded || stream.destroyed) throw new ConnectionLost()
    else await nextChange(stream)
  }
  if (buffered.length > length) stream.unshift(buffered.subarray(length))
  return buffered.subarray(0, length)
}

function nextChange(stream: Duplex): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      for (const event of STATE_EVENTS) stream.off(event, done)
      resolve()
    }
    for (const event of STATE_EVENTS) stream.on(event, done)
  })
}

/** Handles the `error` event: without a listener, a reset connection would end the process. */
export function destroyOnError(stream: Duplex) {
  stream.on('error', () => stream.destroy())
}

const CLOSE_MS_MAX = 10_000

/** Sends pending output and then closes; destroys the stream if the peer does not read in time. */
export function closeSoon(stream: Duplex, lastMessage?: Buffer) {
  if (stream.destroyed) return
  if (lastMessage) stream.end(lastMessage)
  else stream.end()
  // Closing with unread input sends a reset, and the peer would lose the last message.
  stream.resume()
  const timer = setTimeout(() => stream.destroy(), CLOSE_MS_MAX).unref()
  stream.once('close', () => clearTimeout(timer))
}

/** Passes bytes both ways until one side ends, then closes both. */
export function pipeStreams(client: Duplex, server: Duplex) {
  client.pipe(server)
  server.pipe(client)
  server.once('close', () => closeSoon(client))
  // Sockets close by themselves; streams of WebSockets would stay half open until the server has finished.
  client.once('end', () => closeSoon(client))
  client.once('close', () => {
    server.unpipe(client)
    closeSoon(server)
    // The input has reached the kernel; closing the socket now makes the server fail on output that nobody reads.
    if (server.writableFinished) server.destroy()
    else server.once('finish', () => server.destroy())
  })
}
