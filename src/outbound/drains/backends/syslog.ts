import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { type Batch, backend, type LogRow, SendFailure, type Way } from '../backend.ts'

/** Of RFC 5424: `[id name="value" …]`, several of them without anything in between. */
const STRUCTURED_DATA = /^(\[[!#-<>-\\^-~]{1,32}( [!#-<>-\\^-~]{1,32}="([^"\\\]]|\\["\\\]])*")*\])+$/

const refused = (why: string) => z.undefined({ error: `cannot be given here: ${why}` }).optional()

const Config = z.strictObject({
  host: z
    .string()
    .max(253)
    .regex(/^[\w.-]+$/, 'must be the name of a host'),
  port: z.int().min(0).max(65_535).meta({ description: '0 for the usual one: 514, or 6514 with TLS' }),
  tls: z.boolean().default(false),
  structured_data: Text.max(2_048).regex(STRUCTURED_DATA, 'must be structured data of RFC 5424').optional(),
  cipher_key: refused('messages are protected by TLS alone'),
  ca_cert: refused('the certificate must be of a public authority'),
  client_cert: refused('a connection shows no certificate'),
  client_key: refused('a connection shows no certificate'),
})
type Config = z.output<typeof Config>

/** RFC 5424 over TCP or TLS, each message behind its length (RFC 6587, RFC 5425). */
export const syslog = backend<typeof Config>({
  config: Config,
  secrets: [],
  target: (config) => ({ field: 'host', host: config.host, port: portOf(config) }),
  send: write,
})

const portOf = ({ port, tls }: Config): number => port || (tls ? 6_514 : 514)

/** How long the end of a receiver that took all is waited for: some keep the connection. */
const END_MS = 2_000

/** Syslog has no answers: what was written and not refused by the end of the connection counts as taken. */
async function write(config: Config, batch: Batch, way: Way): Promise<void> {
  const { host, tls, structured_data } = config
  const socket = way.connect({ hostname: host, port: portOf(config) }, { tls })
  socket.closed.catch(() => {})
  const giveUp = () => void socket.close().catch(() => {})
  way.signal.addEventListener('abort', giveUp, { once: true })
  try {
    await within(way.signal, send(socket, framesOf(batch, structured_data ?? '-')))
  } catch {
    throw way.signal.aborted
      ? new SendFailure('timeout', 'it did not take all in time')
      : new SendFailure('connection_failed', 'the connection failed before all was taken')
  } finally {
    way.signal.removeEventListener('abort', giveUp)
    giveUp()
  }
}

function within<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  const over = new Promise<never>((_, reject) => {
    signal.addEventListener('abort', () => reject(new Error('too late')), { once: true })
  })
  return Promise.race([work, over])
}

async function send(socket: Socket, bytes: Uint8Array): Promise<void> {
  await socket.opened
  const writer = socket.writable.getWriter()
  await writer.write(bytes)
  await writer.close()
  // A receiver that is told the end ends too, after all before it; one that refuses resets.
  let timer: ReturnType<typeof setTimeout> | undefined
  const longEnough = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, END_MS)
  })
  await Promise.race([drained(socket), longEnough]).finally(() => clearTimeout(timer))
}

async function drained({ readable }: Socket): Promise<void> {
  for await (const _ of readable) {
    // What a receiver says is nothing that syslog knows.
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
