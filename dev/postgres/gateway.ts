import { once } from 'node:events'
import { connect, createServer, type Socket } from 'node:net'
import { connect as connectTls, createSecureContext, TLSSocket } from 'node:tls'
import { portError } from '../ports.ts'
import type { Certificate } from './certificate.ts'

export interface GatewayOptions {
  /** Where clients come in; 0 takes any free port. */
  port: number
  /** Postgres itself, on this machine. */
  upstreamPort: number
  /** What Postgres shows too, so that clients that bind their password to it (SCRAM-SHA-256-PLUS) are satisfied. */
  certificate: Certificate
}

/** Codes that stand in place of a protocol version, in the first message of a connection. */
const SSL_REQUEST = 80_877_103
const GSS_REQUEST = 80_877_104
const PROTOCOL_3 = 196_608
/** Where a TLS handshake begins without being asked for (`sslnegotiation=direct`). */
const TLS_HANDSHAKE = 0x16
const FIRST_MESSAGE_MAX = 10_000
const FIRST_MESSAGE_MS_MAX = 30_000

/**
 * Takes connections for Postgres and hands them on as they are, but for one thing: clients that know a project's host, port, user
 * and password alone ask for the database `postgres`, as it is called where each project has a cluster of its own. Here
 * all projects share one, and get to theirs.
 */
export async function startGateway({ port, upstreamPort, certificate }: GatewayOptions) {
  const secureContext = createSecureContext({ key: certificate.key, cert: certificate.certificate })
  const open = new Set<Socket>()
  const server = createServer({ noDelay: true }, (socket) => {
    keepUntilClosed(socket)
    void admit(socket).catch(() => socket.destroy())
  })

  function keepUntilClosed(socket: Socket) {
    open.add(socket)
    socket.on('error', () => socket.destroy())
    socket.on('close', () => open.delete(socket))
  }

  async function admit(socket: Socket): Promise<void> {
    socket.setTimeout(FIRST_MESSAGE_MS_MAX, () => socket.destroy())
    const client = await secured(socket)
    const first = await firstMessage(client)
    const upstream = connect({ port: upstreamPort, host: '127.0.0.1', noDelay: true })
    keepUntilClosed(upstream)
    await once(upstream, 'connect')
    const postgres = client === socket ? upstream : await securedUpstream(upstream)
    socket.setTimeout(0)
    for (const [end, other] of [
      [client, postgres],
      [postgres, client],
    ] as const) {
      end.on('error', () => end.destroy())
      end.on('close', () => other.destroy())
    }
    postgres.write(redirected(first))
    client.pipe(postgres).pipe(client)
  }

  /** The same socket where the client wants none of it. */
  async function secured(socket: Socket): Promise<Socket> {
    for (;;) {
      const code = (await peek(socket, 1))[0] === TLS_HANDSHAKE ? TLS_HANDSHAKE : (await peek(socket, 8)).readInt32BE(4)
      if (code === GSS_REQUEST || code === SSL_REQUEST) socket.read(8)
      if (code === GSS_REQUEST) socket.write('N')
      else if (code === SSL_REQUEST || code === TLS_HANDSHAKE) {
        if (code === SSL_REQUEST) socket.write('S')
        return new TLSSocket(socket, { isServer: true, secureContext, ALPNProtocols: ['postgresql'] })
      } else return socket
    }
  }

  async function securedUpstream(upstream: Socket): Promise<Socket> {
    const request = Buffer.alloc(8)
    request.writeInt32BE(8, 0)
    request.writeInt32BE(SSL_REQUEST, 4)
    upstream.write(request)
    await peek(upstream, 1)
    if (upstream.read(1)?.toString() !== 'S') throw new Error('Postgres takes no TLS')
    const ca = certificate.certificate
    const postgres = connectTls({ socket: upstream, ca, checkServerIdentity: () => undefined })
    await once(postgres, 'secureConnect')
    return postgres
  }

  server.listen(port, '127.0.0.1')
  try {
    await once(server, 'listening')
  } catch (error) {
    throw portError(error, port, 'postgres')
  }
  const address = server.address()
  return {
    port: typeof address === 'object' && address ? address.port : port,
    async stop() {
      const closed = once(server, 'close')
      server.close()
      for (const socket of open) socket.destroy()
      await closed
    },
  }
}

/** Waits for so many bytes, and leaves them where they are. */
async function peek(socket: Socket, length: number): Promise<Buffer> {
  let found = Buffer.alloc(0)
  for (;;) {
    found = Buffer.concat([found, socket.read() ?? Buffer.alloc(0)])
    if (found.length > 0 && found.length >= length) break
    if (socket.readableEnded || socket.destroyed) throw new Error('the other side is gone')
    await Promise.race(['readable', 'end', 'close'].map((event) => once(socket, event)))
  }
  socket.unshift(found)
  return found
}

async function firstMessage(client: Socket): Promise<Buffer> {
  const length = (await peek(client, 4)).readInt32BE(0)
  if (length < 8 || length > FIRST_MESSAGE_MAX) throw new Error('this is no first message of the Postgres protocol')
  await peek(client, length)
  return client.read(length) as Buffer
}

/** The first message, with the project's database in place of `postgres`. */
function redirected(message: Buffer): Buffer {
  if (message.readInt32BE(4) >> 16 !== PROTOCOL_3 >> 16) return message
  const fields = message.subarray(8).toString('utf8').split('\0')
  const valueAt = (name: string) => fields.findIndex((field, n) => n % 2 === 0 && field === name) + 1
  const [, own] = /^(p_[a-z]{20})(_[a-z_]+)?$/.exec(fields[valueAt('user')] ?? '') ?? []
  const place = valueAt('database')
  if (!own || place === 0 || fields[place] !== 'postgres') return message
  const body = Buffer.from(fields.with(place, own).join('\0'))
  const head = Buffer.from(message.subarray(0, 8))
  head.writeInt32BE(8 + body.length, 0)
  return Buffer.concat([head, body])
}
