import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { connect, type Socket } from 'node:net'
import { type Duplex, duplexPair } from 'node:stream'
import { Client, type ClientConfig, Pool } from '@neondatabase/serverless'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { WebSocket as WsClient } from 'ws'
import { message, text } from '../../host/gateway/messages.ts'
import { acceptWebSocket } from '../../host/sql/websocket-stream.ts'
import { hostToken, hostTokenQuery } from '../../src/platform/secrets/host-token.ts'
import { startup } from './gateway.ts'
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
    stream.once('data', (first: Buffer) => {
      stream.pause()
      const length = first.readInt32BE(0)
      if (first.length > length) stream.unshift(first.subarray(length))
      route(stream, first.subarray(0, length)).catch(() => stream.destroy())
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
  const query = message('Q', text(`select repeat('x', 1000) from generate_series(1, 100000)`))
  socket.write(Buffer.concat([frame(startup({ user: `postgres.${A}`, database: 'postgres' })), frame(query)]))
  await expect.poll(() => stream?.writableNeedDrain).toBe(true)
  expect(stream?.writableLength).toBeLessThan(1024 * 1024)
  let bytes = 0
  for await (const chunk of socket) {
    bytes += chunk.length
    if (bytes > 100_000_000) break
  }
  expect(bytes).toBeGreaterThan(100_000_000)
})

it('passes on a message while it arrives, and stops reading it while Postgres does not read', async () => {
  const socket = await openWebSocket(hostTokenQuery(KEY, `postgres.${A}`))
  const stream = streams.at(-1)
  const header = Buffer.from([0x82, 0xff, ...Buffer.alloc(8), 0, 0, 0, 0])
  header.writeBigUInt64BE(2n ** 40n, 2)
  const query = message('Q', text('select pg_sleep(600)'))
  socket.write(Buffer.concat([frame(startup({ user: `postgres.${A}`, database: 'postgres' })), header, query]))
  const sleeping = `select 1 from pg_stat_activity where wait_event = 'PgSleep'`
  await expect.poll(() => host.instances.get(A)?.admin.rows(sleeping)).toHaveLength(1)
  socket.write(Buffer.alloc(64 * 1024 * 1024))
  await expect.poll(() => stream?.readableLength).toBeGreaterThanOrEqual(stream?.readableHighWaterMark ?? 0)
  expect(stream?.readableLength).toBeLessThan(1024 * 1024)
  stream?.destroy()
  socket.destroy()
})

it('keeps the bytes of messages in memory, without the frames around them', async () => {
  const [client, socket] = duplexPair()
  const key = { 'sec-websocket-key': Buffer.alloc(16).toString('base64') }
  const headers = { upgrade: 'websocket', 'sec-websocket-version': '13', ...key }
  const stream = acceptWebSocket({ method: 'GET', headers } as IncomingMessage, socket, Buffer.alloc(0))
  const pong = Buffer.from([0x8a, 0xfd, ...Buffer.alloc(4 + 125)])
  client.write(Buffer.concat([frame(Buffer.from('x')), ...Array.from({ length: 400 }, () => pong)]))
  const [bytes] = await once(stream ?? expect.fail(), 'data')
  expect([bytes.toString(), bytes.buffer.byteLength]).toEqual(['x', 1])
  stream?.destroy()
})

it('answers pings and the end of a WebSocket, and closes one that sends invalid frames', async () => {
  const open = async () => {
    const webSocket = new WsClient(`${host.url}/v2?${hostTokenQuery(KEY, `postgres.${A}`)}`)
    webSocket.on('error', () => {})
    await once(webSocket, 'open')
    return webSocket
  }
  const webSocket = await open()
  for (const bytes of [0, 125]) {
    const pong = once(webSocket, 'pong')
    webSocket.ping(Buffer.alloc(bytes, 'x'))
    expect((await pong)[0]).toHaveLength(bytes)
  }
  const answers: Buffer[] = []
  webSocket.on('message', (data: Buffer) => answers.push(data))
  const login = startup({ user: `postgres.${A}`, database: 'postgres' })
  webSocket.send(login)
  await expect.poll(() => Buffer.concat(answers).includes('server_version')).toBe(true)
  for (const length of [100, 1_000, 100_000]) {
    const value = 'xy'.repeat(length)
    const query = message('Q', text(`select '${value}'`))
    // A client may split its message, and send a ping in between.
    webSocket.send(query.subarray(0, 30), { fin: false })
    webSocket.ping()
    webSocket.send(query.subarray(30))
    await expect.poll(() => Buffer.concat(answers).includes(value)).toBe(true)
  }
  const closed = once(webSocket, 'close')
  webSocket.close(1000)
  expect((await closed)[0]).toBe(1000)
  for (const invalid of [
    [0x82, 0],
    [0xc2, 0x80],
    [0x83, 0x80],
    [0x89, 0xfe],
    [0x09, 0x80],
  ]) {
    const socket = await openWebSocket(hostTokenQuery(KEY, `postgres.${A}`))
    const closed = once(socket, 'close')
    socket
      .resume()
      .on('error', () => {})
      .write(Buffer.from(invalid))
    await closed
  }
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
