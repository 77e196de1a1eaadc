import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { Client, type ClientConfig, Pool } from '@neondatabase/serverless'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { hostToken, hostTokenQuery } from '../../src/platform/secrets/host-token.ts'
import type { TestInstance } from './pooled-instance.ts'
import { KEY, startSqlHost, type TestHost } from './sql-host.ts'

const A = 'aaaaaaaaaaaaaaaaaaaa'
const B = 'bbbbbbbbbbbbbbbbbbbb'
const callers: unknown[] = []
const streams: Duplex[] = []
let host: TestHost

/** Routes trusted callers by their user `<role>.<name>`. */
async function route(stream: Duplex, startup: Buffer) {
  const [, role = '', name = ''] = /user\0(\w+)\.(\w+)\0/.exec(startup.toString('latin1')) ?? []
  const body = startup.toString('latin1', 4).replace(`${role}.${name}`, role)
  const length = Buffer.alloc(4)
  length.writeInt32BE(body.length + 4)
  const server = await (host.instances.get(name) as TestInstance).connect()
  server.write(Buffer.concat([length, Buffer.from(body, 'latin1')]))
  stream.pipe(server).pipe(stream)
  stream.on('close', () => server.destroy())
}

beforeAll(async () => {
  const serve = (stream: Duplex, caller: { isTrusted: boolean }) => {
    callers.push(caller)
    streams.push(stream)
    if (!caller.isTrusted) return
    stream.once('data', (startup) => {
      stream.pause()
      route(stream, startup).catch(() => stream.destroy())
    })
  }
  host = await startSqlHost([A, B], { gateway: { serve }, limits: { webSocketsMax: 2 } })
})
afterAll(() => host.stop())

function configured<Kind extends Client | Pool>(
  Kind: new (config: ClientConfig) => Kind,
  { user = `postgres.${A}`, path = '/v2' } = {},
): Kind {
  const client = new Kind({ connectionString: `postgresql://${user}:x@any.host/postgres` })
  const config = 'neonConfig' in client ? client.neonConfig : undefined
  if (config) {
    config.wsProxy = () => `${new URL(host.url).host}${path}?${hostTokenQuery(KEY, user)}`
    config.useSecureWebSocket = false
    config.pipelineTLS = false
    config.pipelineConnect = false
  }
  return client
}

it('carries a session of the driver, also with more data than fits at once', async () => {
  for (const path of ['/v1', '/v2']) {
    const client = configured(Client, { path })
    await client.connect()
    const text = 'é"'.repeat(1_000_000)
    const { rows } = await client.query('select $1::text as text, current_user as role', [text])
    expect(rows).toEqual([{ text, role: 'postgres' }])
    await client.query('begin')
    await client.query('create table half_done (n int)')
    await client.end()
    expect(await host.instances.get(A)?.admin.rows(`select 1 from pg_class where relname = 'half_done'`)).toEqual([])
  }
  expect(callers.at(-1)).toEqual({ address: '127.0.0.1', isSecure: false, isTrusted: true, onlyInstance: A })
})

it('connects each session to the instance that it names', async () => {
  const users = [A, B, A, B].map((name) => `postgres.${name}`)
  await host.instances.get(B)?.admin.rows('create database only_in_b')
  const clients = users.map((user) => configured(Client, { user }))
  await Promise.all(clients.map((client) => client.connect()))
  const replies = await Promise.all(
    clients.map((client) => client.query(`select count(*)::int as n from pg_database where datname = 'only_in_b'`)),
  )
  expect(replies.map(({ rows }) => rows[0].n)).toEqual([0, 1, 0, 1])
  await Promise.all(clients.map((client) => client.end()))
})

it('carries the sessions of a pool', async () => {
  const pool = new Pool({ connectionString: `postgresql://postgres.${A}:x@any.host/postgres`, max: 3 })
  pool.Client = class extends Client {
    constructor(config: ClientConfig) {
      super(config)
      this.neonConfig.wsProxy = () => `${new URL(host.url).host}/v2?${hostTokenQuery(KEY, `postgres.${A}`)}`
      this.neonConfig.useSecureWebSocket = false
      this.neonConfig.pipelineTLS = false
      this.neonConfig.pipelineConnect = false
    }
  } as never
  const replies = await Promise.all(Array.from({ length: 9 }, (_, i) => pool.query('select $1::int as n', [i])))
  expect(replies.map(({ rows }) => rows[0].n)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8])
  await pool.end()
})

it('stops reading from Postgres while the client does not read', async () => {
  const socket = await openWebSocket(hostTokenQuery(KEY, `postgres.${A}`))
  const stream = streams.at(-1)
  const startup = Buffer.from(`\0\x03\0\0user\0postgres.${A}\0database\0postgres\0\0`, 'latin1')
  const length = Buffer.alloc(4)
  length.writeInt32BE(startup.length + 4)
  const text = Buffer.from(`select repeat('x', 1000) from generate_series(1, 100000)\0`)
  const query = Buffer.alloc(5)
  query.write('Q')
  query.writeInt32BE(text.length + 4, 1)
  socket.write(Buffer.concat([frame(Buffer.concat([length, startup])), frame(Buffer.concat([query, text]))]))
  await expect.poll(() => stream?.writableNeedDrain).toBe(true)
  expect(stream?.writableLength).toBeLessThan(1024 * 1024)
  let bytes = 0
  for await (const chunk of socket) {
    bytes += chunk.length
    if (bytes > 100_000_000) break
  }
  expect(bytes).toBeGreaterThan(100_000_000)
})

/** Opens a WebSocket up to the handshake, and reads nothing more. */
async function openWebSocket(query: string, status = '101 Switching Protocols'): Promise<Socket> {
  const { port } = new URL(host.url)
  const socket = connect(Number(port), '127.0.0.1')
  const headers = ['host: x', 'upgrade: websocket', 'connection: upgrade', 'sec-websocket-version: 13']
  const key = `sec-websocket-key: ${Buffer.alloc(16).toString('base64')}`
  socket.write(`GET /v2?${query} HTTP/1.1\r\n${[...headers, key].join('\r\n')}\r\n\r\n`)
  const [head] = await once(socket, 'data')
  expect(head.toString()).toContain(status)
  socket.pause()
  return socket
}

/** Returns a client's binary message, under a mask of zeros. */
function frame(payload: Buffer): Buffer {
  return Buffer.concat([Buffer.from([0x82, 0x80 + payload.length, 0, 0, 0, 0]), payload])
}

it('closes the connection of a client that it has refused, also if more of it arrives', async () => {
  const socket = await openWebSocket('token=wrong', '401 Unauthorized')
  socket.end('x')
  await expect.poll(() => host.connections()).toBe(0)
})

it('refuses wrong and expired tokens, the key itself, other paths, and untrusted clients beyond the limit', async () => {
  const statusOf = async (path: string) => {
    const webSocket = new WebSocket(host.url.replace('http', 'ws') + path)
    return new Promise((resolve) => {
      webSocket.addEventListener('open', () => resolve(webSocket))
      webSocket.addEventListener('error', () => resolve('refused'))
    })
  }
  const token = hostTokenQuery(KEY, `postgres.${A}`)
  const refused = [
    hostTokenQuery('another key', `postgres.${A}`),
    hostTokenQuery(KEY, `postgres.${A}`, Date.now() - 301_000),
    token.replace(A, B),
    token.replace(/=(\d)/, '=9$1'),
    token.slice(token.indexOf('&')),
    'token=',
    `instance=${A}&token=${hostToken(KEY, { purpose: 'program', instance: A })}`,
    `token=${KEY}&instance=${A}`,
  ]
  for (const query of refused) expect(await statusOf(`/v2?${query}`)).toBe('refused')
  expect(await statusOf('/v3')).toBe('refused')
  const before = callers.length
  const open = [await statusOf('/v2'), await statusOf('/v2?address=other.host:1')]
  expect(callers.slice(before)).toEqual(open.map(() => ({ address: '127.0.0.1', isSecure: false, isTrusted: false })))
  expect(await statusOf('/v2')).toBe('refused')
  const client = configured(Client)
  await client.connect()
  await client.end()
  const [first] = open as WebSocket[]
  first?.close()
  await expect.poll(() => statusOf('/v2')).toBeInstanceOf(WebSocket)
})
