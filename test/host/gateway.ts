import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import pg from 'pg'
import { ensureCertificate } from '../../host/gateway/certificate.ts'
import type { Caller, Gateway, GatewayOptions } from '../../host/gateway/gateway.ts'
import { startGateway } from '../../host/gateway/gateway.ts'
import { int32, type Message, readMessage, text } from '../../host/gateway/messages.ts'
import { hostKey } from '../../host/key.ts'
import { programRequest } from '../../src/engine/host/program-request.ts'
import { type OneInstance, startOneInstance } from './one-instance.ts'

export const REF = 'abcdefghijklmnopqrst'
export const OTHER = 'bbbbbbbbbbbbbbbbbbbb'
export const PASSWORD = 'pass wörd/1'
const KEY = 'the key of the host'

const ROLES = `
  alter role postgres password '${PASSWORD}';
  alter role supabase_storage_admin password '${PASSWORD}';
  create role pilothouse login password '${PASSWORD}';
`

/** Starts a server with the roles that tests log in as, and the certificate. */
export async function startServer(): Promise<OneInstance & { tls: GatewayOptions['tls'] }> {
  const server = await startOneInstance([REF, OTHER, 'control'])
  await server.sql(ROLES)
  const tls = await ensureCertificate(`${server.get(REF).paths.folder}/tls`)
  return { ...server, tls }
}

export interface TestGateway extends Gateway {
  /** Opens a port whose connections are passed to `gateway.serve`. */
  openPort(caller: Partial<Caller>): Promise<number>
}

export async function openGateway(options: Omit<GatewayOptions, 'port' | 'key'>): Promise<TestGateway> {
  const limits = { guessDelayMs: 0, ...options.limits }
  const gateway = await startGateway({ port: 0, domain: 'db.test', key: hostKey(KEY), ...options, limits })
  const servers = new Set<ReturnType<typeof createServer>>()
  return {
    ...gateway,
    async openPort(caller) {
      const given = { address: '127.0.0.1', isSecure: true, isTrusted: false, ...caller }
      const server = createServer({ noDelay: true }, (socket) => gateway.serve(socket, given)).listen(0, '127.0.0.1')
      servers.add(server)
      await once(server, 'listening')
      return (server.address() as AddressInfo).port
    },
    async stop() {
      await gateway.stop()
      for (const server of servers) server.close()
    },
  }
}

type Config = pg.ClientConfig & { port: number; sslNegotiation?: 'direct' }

export async function logIn(config: Config): Promise<pg.Client> {
  const defaults = { host: '127.0.0.1', user: `postgres.${REF}`, password: PASSWORD, database: 'postgres' }
  const client = new pg.Client({ ...defaults, ...config })
  client.on('error', () => {})
  await client.connect()
  return client
}

/** Logs in, runs the statement and disconnects. */
export async function query<Row extends object = Record<string, unknown>>(
  config: Config,
  statement: string,
): Promise<Row[]> {
  const client = await logIn(config)
  try {
    return (await client.query(statement)).rows
  } finally {
    await client.end()
  }
}

export async function dial(port: number): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true })
  socket.on('error', () => {})
  await once(socket, 'connect')
  return socket
}

/** Dials and sends first what the connection of a project's program begins with. */
export async function dialAsProgram(port: number, ref: string, key = KEY): Promise<Socket> {
  const socket = await dial(port)
  socket.write(programRequest(key, ref))
  return socket
}

export function startup(parameters: Record<string, string>, version = 196_608): Buffer {
  const body = Buffer.concat([text(...Object.entries(parameters).flat()), Buffer.from([0])])
  return Buffer.concat([int32(body.length + 8, version), body])
}

export const receive = (stream: Duplex): Promise<Message> => readMessage(stream, 10_000_000)

/** Returns the fields of an ErrorResponse by their letters. */
export async function receiveError(stream: Duplex): Promise<Record<string, string>> {
  const { type, body } = await receive(stream)
  if (type !== 'E') throw new Error(`expected an error, got ${type}`)
  const fields = body.toString('utf8').split('\0').filter(Boolean)
  return Object.fromEntries(fields.map((field) => [field[0], field.slice(1)]))
}

export async function receiveUntil(stream: Duplex, type: string): Promise<Message[]> {
  const received: Message[] = []
  do received.push(await receive(stream))
  while (received.at(-1)?.type !== type)
  return received
}
