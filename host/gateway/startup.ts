import type { Duplex } from 'node:stream'
import { type SecureContext, TLSSocket } from 'node:tls'
import { PROGRAM_REQUEST } from '../../src/engine/host/program-request.ts'
import { Fatal, int32, message, PROTOCOL_3, text } from './messages.ts'
import { destroyOnError, readBytes } from './streams.ts'

/** Codes in the place of a protocol version, in the first message of a connection. */
const SSL_REQUEST = 80_877_103
const GSS_REQUEST = 80_877_104
const CANCEL_REQUEST = 80_877_102
/** First byte of a TLS handshake: clients with `sslnegotiation=direct` begin with it. */
const TLS_HANDSHAKE = 0x16
/** The same limit as in Postgres. */
const STARTUP_BYTES_MAX = 10_000
const CANCEL_KEY_BYTES = 8

/** A client's connection; `stream` is the TLS stream once the client has requested TLS. */
export interface ClientConnection {
  stream: Duplex
  isSecure: boolean
}

export type Startup =
  | { cancelKey: Buffer }
  /** Names the project of the program that connects; its startup message follows. */
  | { program: { instance: string; token: string } }
  | {
      parameters: Map<string, string>
      /** Server name of the client's TLS handshake. */
      servername: string | undefined
      /** A NegotiateProtocolVersion message for a client that requested a later protocol than 3.0 or protocol options. */
      negotiation: Buffer | undefined
    }

/** Answers requests for encryption and reads the startup message. Replaces `connection.stream` when TLS begins. */
export async function readStartup(connection: ClientConnection, secureContext: SecureContext): Promise<Startup> {
  let tls: TLSSocket | undefined
  let isDirect = false
  const startTls = () => {
    const raw = connection.stream
    tls = new TLSSocket(raw, { isServer: true, secureContext, ALPNProtocols: ['postgresql'] })
    destroyOnError(tls)
    tls.once('close', () => raw.destroy())
    raw.once('close', () => tls?.destroy())
    Object.assign(connection, { stream: tls, isSecure: true })
  }
  let wasGssRefused = false
  for (;;) {
    const first = await readBytes(connection.stream, 1)
    if (first[0] === TLS_HANDSHAKE && !tls) {
      connection.stream.unshift(first)
      isDirect = true
      startTls()
      continue
    }
    const head = Buffer.concat([first, await readBytes(connection.stream, 7)])
    const length = head.readInt32BE(0)
    const code = head.readInt32BE(4)
    if (isDirect && tls?.alpnProtocol !== 'postgresql') throw new Fatal('08P01', 'direct TLS needs ALPN `postgresql`')
    if (code === SSL_REQUEST && length === 8 && !tls) {
      connection.stream.write('S')
      startTls()
    } else if (code === GSS_REQUEST && length === 8 && !tls && !wasGssRefused) {
      wasGssRefused = true
      connection.stream.write('N')
    } else {
      if (length < 8 || length > STARTUP_BYTES_MAX) throw new Fatal('08P01', 'invalid length of startup packet')
      const body = await readBytes(connection.stream, length - 8)
      return parseStartup(code, body, serverNameOf(tls))
    }
  }
}

/** Node sets `servername` in the handshake; its types lack it. */
const serverNameOf = (tls: (TLSSocket & { servername?: string | false }) | undefined) => tls?.servername || undefined

function parseStartup(code: number, body: Buffer, servername: string | undefined): Startup {
  if (code === CANCEL_REQUEST) {
    if (body.length !== CANCEL_KEY_BYTES) throw new Fatal('08P01', 'invalid length of cancel request')
    return { cancelKey: body }
  }
  if (code === PROGRAM_REQUEST) {
    const [instance = '', token = ''] = body.toString('utf8').split('\0')
    return { program: { instance, token } }
  }
  if (code >> 16 !== 3) {
    throw new Fatal('0A000', `unsupported frontend protocol ${code >>> 16}.${code & 0xffff}: server supports 3.0`)
  }
  const fields = body.toString('utf8').split('\0')
  // The body holds pairs of names and values, then an empty name, whose terminator leaves another empty field.
  if (fields.length % 2 === 1 || fields.at(-1) !== '' || fields.at(-2) !== '') {
    throw new Fatal('08P01', 'invalid startup packet layout: expected terminator as last byte')
  }
  const parameters = new Map<string, string>()
  const unsupported: string[] = []
  for (let n = 0; n < fields.length - 2; n += 2) {
    const [name = '', value = ''] = fields.slice(n, n + 2)
    if (name.startsWith('_pq_.')) unsupported.push(name)
    else if (name === '') throw new Fatal('08P01', 'invalid startup packet layout: empty parameter name')
    else parameters.set(name, value)
  }
  const isTooNew = code !== PROTOCOL_3 || unsupported.length > 0
  const negotiation = isTooNew ? message('v', int32(PROTOCOL_3, unsupported.length), text(...unsupported)) : undefined
  return { parameters, servername, negotiation }
}
