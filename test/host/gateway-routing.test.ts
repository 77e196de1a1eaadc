import { once } from 'node:events'
import { type AddressInfo, connect, createServer } from 'node:net'
import { connect as connectTls } from 'node:tls'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { int32, PROTOCOL_3 } from '../../host/gateway/messages.ts'
import { findRoute } from '../../host/gateway/route.ts'
import type { TestGateway } from './gateway.ts'
import { dial, logIn, OTHER, openGateway, query, REF, receive, receiveError, startServer, startup } from './gateway.ts'

let server: Awaited<ReturnType<typeof startServer>>
let gateway: TestGateway
let port: number

beforeAll(async () => {
  server = await startServer()
  gateway = await openGateway(server)
  port = gateway.port
})
afterAll(async () => {
  await gateway?.stop()
  await server?.remove()
})

const WHERE = 'select current_user as role, current_database() as database'
const tls = (servername?: string) => ({ ssl: { rejectUnauthorized: false, servername } })

it('routes by the user, the options and the TLS server name', async () => {
  const here = [{ role: 'postgres', database: 'postgres' }]
  expect(await query({ port }, WHERE)).toEqual(here)
  expect(await query({ port, ...tls() }, WHERE)).toEqual(here)
  expect(await query({ port, user: 'postgres', options: `project=${REF}` }, WHERE)).toEqual(here)
  expect(await query({ port, user: 'postgres', options: `-c reference=${REF}` }, WHERE)).toEqual(here)
  expect(await query({ port, user: 'postgres', ...tls(`db.${REF}.db.test`) }, WHERE)).toEqual(here)
  expect(await query({ port, options: `project=${REF}`, ...tls(`db.${REF}.db.test`) }, WHERE)).toEqual(here)
  for (const servername of ['db.test', 'db.db.test', 'other.db.test'])
    expect(await query({ port, ...tls(servername) }, WHERE), servername).toEqual(here)
})

it('passes on the other options', async () => {
  const options = `-c search_path=a,b project=${REF} -c statement_timeout=4321`
  const [row] = await query(
    { port, options },
    `select current_setting('search_path') s, current_setting('statement_timeout') t`,
  )
  expect(row).toEqual({ s: 'a,b', t: '4321ms' })
})

it('reaches the other databases of the instance', async () => {
  await server.sql('create database second owner postgres')
  expect(await query({ port, database: 'second' }, WHERE)).toMatchObject([{ database: 'second' }])
  await expect(logIn({ port, database: 'third' })).rejects.toMatchObject({ code: '3D000' })
})

it.each(['x\n2026-01-01 00:00:00.000 UTC\t1\t', 'a\u0085b'])('refuses control characters: %j', async (text) => {
  const refusal = { code: '08P01', message: 'user and database must not have control characters' }
  await expect(logIn({ port, database: text })).rejects.toMatchObject(refusal)
  await expect(logIn({ port, user: `${text}.${REF}` })).rejects.toMatchObject(refusal)
})

it.each([
  ['nobody', {}],
  ['postgres.zzzzzzzzzzzzzzzzzzzz', {}],
  ['.abcdefghijklmnopqrst', {}],
  ['postgres', { options: 'project=../../x' }],
])('refuses an unknown tenant: %s', async (user, more) => {
  await expect(logIn({ port, user, ...more })).rejects.toMatchObject({
    severity: 'FATAL',
    code: 'XX000',
    message: 'Tenant or user not found',
  })
})

it('refuses routes that disagree', async () => {
  await expect(logIn({ port, options: `project=${OTHER}` })).rejects.toMatchObject({ code: 'XX000' })
  await expect(logIn({ port, ...tls(`db.${OTHER}.db.test`) })).rejects.toMatchObject({ code: 'XX000' })
})

it('splits users at the last dot, and only before a name', () => {
  const route = (user: string, options = '') =>
    findRoute(new Map(Object.entries({ user, options })), undefined, undefined)
  expect(route(`a.b.${REF}`)).toMatchObject({ role: 'a.b', name: REF, database: 'postgres' })
  expect(route('pilothouse.control')).toMatchObject({ role: 'pilothouse', name: 'control' })
  expect(route('a.b', `-cproject=${REF} --reference=${REF} -c a=1\\ 2`)).toMatchObject({ role: 'a.b', name: REF })
  expect(route('a', `-c a=1\\ 2 project=${REF}`).parameters).toEqual(new Map([['options', '-c a=1\\ 2']]))
})

it('accepts TLS from the first byte only with ALPN', async () => {
  const direct = { ...tls(), sslNegotiation: 'direct' as const }
  expect(await query({ port, ...direct }, WHERE)).toHaveLength(1)
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false })
  await once(socket, 'secureConnect')
  socket.write(startup({ user: `postgres.${REF}` }))
  expect(await receiveError(socket)).toMatchObject({ C: '08P01' })
  socket.destroy()
})

it('refuses GSS encryption and continues', async () => {
  const socket = await dial(port)
  socket.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 48]))
  expect((await once(socket, 'data')).toString()).toBe('N')
  socket.pause()
  socket.write(startup({ user: `postgres.${REF}` }))
  expect(await receive(socket)).toMatchObject({ type: 'R' })
  socket.destroy()
})

it('negotiates newer protocols down', async () => {
  const socket = await dial(port)
  socket.write(startup({ user: `postgres.${REF}`, '_pq_.later': 'x' }, PROTOCOL_3 + 2))
  const { type, body } = await receive(socket)
  expect([type, body.readInt32BE(0), body.readInt32BE(4), body.toString('utf8', 8)]).toEqual([
    'v',
    PROTOCOL_3,
    1,
    '_pq_.later\0',
  ])
  expect(await receive(socket)).toMatchObject({ type: 'R' })
  socket.destroy()
})

it.each([
  ['a length too large', Buffer.from([0, 0, 0x27, 0x11, 0, 3, 0, 0])],
  ['a length too small', Buffer.from([0, 0, 0, 4, 0, 3, 0, 0])],
  ['no terminator', Buffer.concat([Buffer.from([0, 0, 0, 12, 0, 3, 0, 0]), Buffer.from('user')])],
  ['HTTP', Buffer.from('GET / HTTP/1.1\r\nhost: x\r\n\r\n')],
])('refuses %s', async (_, bytes) => {
  const socket = await dial(port)
  socket.write(bytes)
  expect(await receiveError(socket)).toMatchObject({ S: 'FATAL', C: '08P01' })
  socket.destroy()
})

it('ignores unencrypted bytes that were sent along with the request for TLS', async () => {
  const socket = await dial(port)
  const request = Buffer.from([0, 0, 0, 8, 4, 210, 22, 47])
  socket.write(Buffer.concat([request, startup({ user: `postgres.${REF}` })]))
  const answer: Buffer[] = []
  socket.on('data', (chunk) => answer.push(chunk))
  await once(socket, 'close')
  expect(Buffer.concat(answer).toString('latin1')).not.toContain('SCRAM')
})

it('refuses protocol 2', async () => {
  const socket = await dial(port)
  socket.write(startup({ user: 'x' }, 2 << 16))
  expect(await receiveError(socket)).toMatchObject({ C: '0A000' })
  socket.destroy()
})

it('survives clients that disconnect at any byte', async () => {
  const whole = startup({ user: `postgres.${REF}`, database: 'postgres' })
  for (const length of [0, 1, 4, 8, 20, whole.length]) {
    const socket = await dial(port)
    socket.write(whole.subarray(0, length))
    socket.resetAndDestroy()
  }
  const handshake = await dial(port)
  handshake.end(Buffer.from([0x16, 3, 1, 0, 5, 1, 2, 3, 4, 5]))
  await once(handshake.resume(), 'close')
  expect(await query({ port }, WHERE)).toHaveLength(1)
})

it('cancels the statement of the right session', async () => {
  const client = await logIn({ port })
  const { processID, secretKey } = client as unknown as { processID: number; secretKey: number }
  expect((await client.query('select pg_backend_pid() as pid')).rows).toEqual([{ pid: processID }])
  const sleep = client.query('select pg_sleep(600)').catch((error) => error)
  const active = `select from pg_stat_activity where pid = $1 and state = 'active' and wait_event = 'PgSleep'`
  await expect.poll(() => server.sql(active, [processID])).toHaveLength(1)
  const request = (secret: number) => {
    const bytes = Buffer.alloc(16)
    for (const [n, value] of [16, 80_877_102, processID, secret].entries()) bytes.writeInt32BE(value, n * 4)
    return bytes
  }
  const wrong = await dial(port)
  wrong.write(request(secretKey ^ 1))
  await once(wrong.resume(), 'close')
  expect(await server.sql(active, [processID])).toHaveLength(1)
  const right = await dial(port)
  right.write(request(secretKey))
  await once(right.resume(), 'close')
  expect(await sleep).toMatchObject({ code: '57014' })
  await client.end()
})

it('ends a cancellation over TLS with the alert that libpq waits for', async () => {
  const received: Buffer[] = []
  const relay = createServer((client) => {
    const upstream = connect({ port, host: '127.0.0.1' })
    upstream.on('data', (chunk) => received.push(chunk))
    client.pipe(upstream).pipe(client)
  }).listen(0, '127.0.0.1')
  await once(relay, 'listening')
  const to = { port: (relay.address() as AddressInfo).port, host: '127.0.0.1', ALPNProtocols: ['postgresql'] }
  // TLS 1.3 hides the types of records.
  const client = connectTls({ ...to, rejectUnauthorized: false, maxVersion: 'TLSv1.2' })
  client.write(int32(16, 80_877_102, 1, 1))
  await once(client.resume(), 'close')
  relay.close()
  const ALERT = 21
  expect(recordTypes(Buffer.concat(received)).at(-1)).toBe(ALERT)
})

/** The types of the TLS records in `bytes`. */
function recordTypes(bytes: Buffer): number[] {
  const types: number[] = []
  for (let at = 0; at < bytes.length; at += 5 + bytes.readUInt16BE(at + 3)) types.push(bytes.readUInt8(at))
  return types
}

it('passes replication sessions on', async () => {
  const config = { port, replication: 'database' } as Parameters<typeof query>[0]
  expect(await query(config, 'IDENTIFY_SYSTEM')).toMatchObject([{ dbname: 'postgres' }])
})
