import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { awaitWithin, rejectOnAbort } from '../../../platform/timeout.ts'
import { type Batch, backend, type LogRow, SendFailure, type Transport } from '../backend.ts'

/** Structured data of RFC 5424: one or more `[id name="value" …]` without separators. */
const STRUCTURED_DATA = /^(\[[!#-<>-\\^-~]{1,32}( [!#-<>-\\^-~]{1,32}="([^"\\\]]|\\["\\\]])*")*\])+$/

const unsupported = (reason: string) => z.undefined({ error: `must be absent: ${reason}` }).optional()

const Config = z.strictObject({
  host: z
    .string()
    .max(253)
    .regex(/^[\w.-]+$/, 'must be a host name'),
  port: z.int().min(0).max(65_535).meta({ description: '0 for the default: 514, or 6514 with TLS' }),
  tls: z.boolean().default(false),
  structured_data: Text.max(2_048)
    .regex(STRUCTURED_DATA, 'must be structured data in the format of RFC 5424')
    .optional(),
  cipher_key: unsupported('messages are only encrypted with TLS'),
  ca_cert: unsupported('the certificate must be issued by a public authority'),
  client_cert: unsupported('client certificates are not supported'),
  client_key: unsupported('client certificates are not supported'),
})
type Config = z.output<typeof Config>

/** RFC 5424 over TCP or TLS with octet counting (RFC 6587, RFC 5425). */
export const syslog = backend<typeof Config>({
  config: Config,
  secrets: [],
  target: (config) => ({ field: 'host', host: config.host, port: portOf(config) }),
  send: sendBatch,
})

const portOf = ({ port, tls }: Config): number => port || (tls ? 6_514 : 514)

/** The maximum wait for the receiver to close the connection: some keep it open. */
const END_MS = 2_000

/** Writes a batch. Syslog has no responses, so a batch that is written without a connection error counts as sent. */
async function sendBatch(config: Config, batch: Batch, transport: Transport): Promise<void> {
  const { host, tls, structured_data } = config
  const socket = transport.connect({ hostname: host, port: portOf(config) }, { tls })
  socket.closed.catch(() => {})
  const closeSocket = () => void socket.close().catch(() => {})
  transport.signal.addEventListener('abort', closeSocket, { once: true })
  try {
    await rejectOnAbort(transport.signal, send(socket, framesOf(batch, structured_data ?? '-')), 'too late')
  } catch {
    throw transport.signal.aborted
      ? new SendFailure('timeout', 'the destination did not accept the batch in time')
      : new SendFailure('connection_failed', 'the connection failed before the whole batch was sent')
  } finally {
    transport.signal.removeEventListener('abort', closeSocket)
    closeSocket()
  }
}

async function send(socket: Socket, bytes: Uint8Array): Promise<void> {
  await socket.opened
  const writer = socket.writable.getWriter()
  await writer.write(bytes)
  await writer.close()
  // A receiver closes after it has read everything; one that rejects the data resets the connection.
  await awaitWithin(END_MS, readToEnd(socket))
}

async function readToEnd({ readable }: Socket): Promise<void> {
  for await (const _ of readable) {
    // Syslog defines no responses, so received data is ignored.
  }
}

function framesOf({ projectRef, rows }: Batch, structuredData: string): Uint8Array {
  const messages = rows.map((row) => Buffer.from(messageOf(row, projectRef, structuredData)))
  return Buffer.concat(messages.flatMap((message) => [Buffer.from(`${message.byteLength} `), message]))
}

const USER_LEVEL = 8
const SEVERITIES: Record<string, number> = { ERROR: 3, WARN: 4, INFO: 6, DEBUG: 7 }

const messageOf = (row: LogRow, projectRef: string, structuredData: string): string =>
  `<${USER_LEVEL + (SEVERITIES[row.severity_text] ?? 6)}>1 ${row.timestamp} ${projectRef} ${row.source} - - ${structuredData} ${JSON.stringify(row)}`
