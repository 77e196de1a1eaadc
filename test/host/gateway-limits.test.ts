import { once } from 'node:events'
import type { Socket } from 'node:net'
import type pg from 'pg'
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest'
import type { GatewayLimits } from '../../host/gateway/gateway.ts'
import { int32 } from '../../host/gateway/messages.ts'
import { isWithin } from '../../host/gateway/networks.ts'
import type { InstanceRecord } from '../../host/instances/types.ts'
import { addressGroup, normalizeAddress } from '../../src/platform/net/ip-addresses.ts'
import {
  dial,
  dialAsProgram,
  logIn,
  OTHER,
  openGateway,
  PASSWORD,
  query,
  REF,
  receive,
  receiveError,
  startServer,
  startup,
  type TestGateway,
} from './gateway.ts'

let server: Awaited<ReturnType<typeof startServer>>
const gateways: TestGateway[] = []
let time = Date.parse('2026-01-01T00:00:00Z')

beforeAll(async () => {
  server = await startServer()
})
afterEach(async () => {
  for (const gateway of gateways.splice(0)) await gateway.stop()
  await server.get(REF).update({ access: { ssl: false, networks: null } })
})
afterAll(() => server?.remove())

async function open(limits: Partial<GatewayLimits> = {}) {
  const gateway = await openGateway({ ...server, limits, now: () => time })
  gateways.push(gateway)
  return gateway
}

const ended = (client: pg.Client) => new Promise((resolve) => client.once('end', () => resolve('ended')))
const refused = { code: '53300' }
const SSL_REQUEST = int32(8, 80_877_103)

/** Sends the startup message. Returns the type of the answer, or the text of an error. */
async function answerTo(socket: Socket, user: string): Promise<string> {
  socket.write(startup({ user, database: 'postgres' }))
  const { type, body } = await receive(socket)
  socket.destroy()
  const fields = body.toString('utf8').split('\0')
  return type === 'E' ? (fields.find((field) => field.startsWith('M'))?.slice(1) ?? '') : type
}

async function cancel(client: pg.Client, port: number) {
  const { processID, secretKey } = client as unknown as Record<'processID' | 'secretKey', number>
  const socket = await dial(port)
  socket.write(int32(16, 80_877_102, processID, secretKey))
  await once(socket.resume(), 'close')
}
const secure = { ssl: { rejectUnauthorized: false } }

it('closes the oldest unauthenticated connection of an address for a later one beyond the limit', async () => {
  const { port } = await open({ unauthenticatedPerAddress: 2 })
  const [oldest, later] = [await dial(port), await dial(port)]
  for (const socket of [oldest, later]) {
    socket.write(SSL_REQUEST)
    await once(socket, 'data')
  }
  const closed = once(oldest.resume(), 'close')
  expect(await query({ port }, 'select 1 as one')).toEqual([{ one: 1 }])
  await closed
  expect(later.closed).toBe(false)
})

it('counts the programs of each project under an address of their own', async () => {
  const { port } = await open({ unauthenticatedPerAddress: 2, failures: 1 })
  const waiting = await Promise.all([dialAsProgram(port, REF), dialAsProgram(port, REF)])
  for (const socket of waiting) {
    socket.write(SSL_REQUEST)
    await once(socket, 'data')
  }
  const refusals = await Promise.all([1, 2, 3].map(() => dialAsProgram(port, REF)))
  for (const excess of refusals) expect(await receiveError(excess)).toMatchObject({ C: '53300' })
  expect(await answerTo(await dialAsProgram(port, OTHER), `postgres.${OTHER}`)).toBe('R')
  expect(await query({ port }, 'select 1 as one')).toEqual([{ one: 1 }])
  for (const socket of waiting) socket.destroy()

  const cancellation = await dialAsProgram(port, OTHER)
  cancellation.write(int32(16, 80_877_102, 1, 2))
  await once(cancellation.resume(), 'close')
  const client = await logIn({ port })
  const running = client.query('select pg_sleep(600)').catch(({ code }) => code)
  const sleeping = `select from pg_stat_activity where wait_event = 'PgSleep'`
  await expect.poll(() => server.sql(sleeping)).toHaveLength(1)
  await cancel(client, port)
  expect(await running).toBe('57014')
  await client.end()
})

it('lets a program reach its project and the replicas alone, with a password, by a token for programs', async () => {
  const gateway = await open()
  const { port } = gateway
  const answer = async (ref: string, user: string, key?: string) => answerTo(await dialAsProgram(port, ref, key), user)
  expect(await answer(REF, `postgres.${REF}`)).toBe('R')
  expect(await answer(REF, `postgres.${OTHER}`)).toBe('Tenant or user not found')
  expect(await answer(REF, `postgres.${REF}`, 'another key')).toBe('invalid or expired token of a program')
  await server.get(OTHER).update({ primary: { name: REF } as InstanceRecord['primary'] })
  expect(await answer(REF, `postgres.${OTHER}`)).toBe('R')
  await server.get(OTHER).update({ primary: undefined })
  // Limits count the programs separately; the rules of the project see the address that they connect from.
  await server.get(REF).update({ access: { ssl: false, networks: ['192.0.2.0/24'] } })
  expect(await answer(REF, `postgres.${REF}`)).toBe('Address not in tenant allow_list: 127.0.0.1')
})

it('limits the unauthenticated connections of all addresses together', async () => {
  const gateway = await open({ unauthenticated: 2 })
  const ports = await Promise.all(['192.0.2.1', '192.0.2.2'].map((address) => gateway.openPort({ address })))
  await Promise.all(ports.map((port) => dial(port)))
  await expect(logIn({ port: gateway.port })).rejects.toMatchObject(refused)
})

it('makes a flood of silent clients exclude only their own address', async () => {
  const gateway = await open({ unauthenticated: 3 })
  const [oldest, ...later] = [await dial(gateway.port), await dial(gateway.port), await dial(gateway.port)]
  const closed = once((oldest ?? expect.fail()).resume(), 'close')
  const other = await gateway.openPort({ address: '192.0.2.1' })
  expect(await query({ port: other }, 'select 1 as one')).toEqual([{ one: 1 }])
  await closed
  expect(later.map(({ closed }) => closed)).toEqual([false, false])
})

it('excludes no address in favour of one whose clients wait for an instance', async () => {
  const gateway = await open({ unauthenticated: 4 })
  await server.sleep()
  let wake = () => {}
  server.holdWake(new Promise<void>((resolve) => (wake = resolve)))
  const caller = { address: '127.0.0.1', isSecure: true, isTrusted: false }
  const waiting = Array.from({ length: 3 }, () => gateway.authenticate(REF, 'postgres', PASSWORD, caller))
  const silent: Socket[] = []
  for (const address of ['192.0.2.1', '192.0.2.1', '192.0.2.2', '192.0.2.2']) {
    silent.push(await dial(await gateway.openPort({ address })))
  }
  const closed = once((silent[0] ?? expect.fail()).resume(), 'close')
  const answer = await answerTo(await dial(await gateway.openPort({ address: '192.0.2.3' })), 'nobody')
  wake()
  await Promise.all(waiting)
  expect(answer).toBe('Tenant or user not found')
  await closed
  expect(silent.map(({ closed }) => closed)).toEqual([true, false, false, false])
})

it('delays the answer to a wrong password, and to a banned address', async () => {
  const gateway = await open({ guessDelayMs: 300, failures: 1 })
  for (const code of ['28P01', '28000']) {
    const startedAt = performance.now()
    await expect(logIn({ port: gateway.port, password: 'wrong' })).rejects.toMatchObject({ code })
    expect(performance.now() - startedAt).toBeGreaterThan(290)
    const caller = { address: '127.0.0.1', isSecure: true, isTrusted: false }
    const startedOverHttpAt = performance.now()
    await expect(gateway.authenticate(REF, 'postgres', 'wrong', caller)).rejects.toMatchObject({ code: '28000' })
    expect(performance.now() - startedOverHttpAt).toBeGreaterThan(290)
  }
})

it('does not count authenticated clients', async () => {
  const { port } = await open({ unauthenticated: 1 })
  const first = await logIn({ port })
  const second = await logIn({ port })
  await Promise.all([first.end(), second.end()])
})

it('disconnects clients that do not authenticate in time, at every step', async () => {
  const { port } = await open({ authenticationMs: 50, unauthenticated: 3 })
  const silent = await dial(port)
  const inTls = await dial(port)
  inTls.write(Buffer.from([0, 0, 0, 8, 4, 210, 22, 47]))
  const inStartup = await dial(port)
  inStartup.write(Buffer.from([0, 0, 0]))
  await Promise.all([silent, inTls, inStartup].map((socket) => once(socket.resume(), 'close')))
})

it('frees the places of clients that failed, with TLS and without', async () => {
  const { port } = await open({ unauthenticatedPerAddress: 1 })
  for (const ssl of [secure.ssl, false, secure.ssl, false]) {
    const fail = () => logIn({ port, ssl, password: 'wrong' }).catch(({ code }) => code)
    await expect.poll(fail).toBe('28P01')
  }
})

it('does not count the start of the server against the client', async () => {
  const { port } = await open({ authenticationMs: 1_500 })
  await server.sleep()
  server.holdWake(new Promise((resolve) => setTimeout(resolve, 2_000)))
  expect(await query({ port }, 'select 1 as one')).toEqual([{ one: 1 }])
})

it('counts clients that wait for an instance only against the limit of that instance', async () => {
  const gateway = await open({ unauthenticated: 3 })
  await server.sleep()
  let wake = () => {}
  server.holdWake(
    new Promise<void>((resolve) => {
      wake = resolve
    }),
  )
  const waiting = Array.from({ length: 4 }, () => logIn({ port: gateway.port }).catch(({ code }) => code))
  expect(await Promise.race(waiting)).toBe('53300')
  await expect(logIn({ port: gateway.port, user: 'nobody' })).rejects.toMatchObject({ code: 'XX000' })
  wake()
  const results = await Promise.all(waiting)
  const clients = results.filter((result) => typeof result === 'object')
  expect(clients).toHaveLength(3)
  await Promise.all(clients.map((client) => client.end()))
})

it('bans an address after failures at one instance, until the ban is lifted or expires', async () => {
  const gateway = await open({ failures: 3 })
  const { port } = gateway
  const elsewhere = await gateway.openPort({ address: '192.0.2.1' })
  const fail = () => expect(logIn({ port, password: 'wrong' })).rejects.toMatchObject({ code: '28P01' })
  await fail()
  await fail()
  // Failures that are too far apart do not count together.
  time += 6 * 60_000
  await fail()
  await fail()
  expect(gateway.bans(REF)).toEqual([])
  await fail()
  const until = new Date(time + 30 * 60_000)
  expect(gateway.bans(REF)).toEqual([{ address: '127.0.0.1', until }])
  await expect(logIn({ port })).rejects.toMatchObject({ code: '28000' })
  await query({ port: elsewhere }, 'select')
  await query({ port, user: `postgres.${OTHER}` }, 'select')
  gateway.unban(REF, ['127.0.0.1'])
  expect(gateway.bans(REF)).toEqual([])
  await query({ port }, 'select')
  for (let n = 0; n < 3; n++) await fail()
  time = until.getTime() + 1
  expect(gateway.bans(REF)).toEqual([])
  await query({ port }, 'select')
})

it('bans an address that leaves logins to a paused instance unfinished', async () => {
  const gateway = await open({ failures: 2 })
  const other = server.get(OTHER)
  const user = `postgres.${OTHER}`
  await other.update({ isPaused: true })
  for (let n = 0; n < 2; n++) expect(await answerTo(await dial(gateway.port), user)).toBe('R')
  await expect.poll(() => gateway.bans(OTHER)).toHaveLength(1)
  await server.sleep()
  await expect(logIn({ port: gateway.port, user })).rejects.toMatchObject({ code: '28000' })
  expect(server.get(REF).state()).not.toBe('running')
  await other.update({ isPaused: false })
})

it('checks networks before the password, and again for open sessions when they change', async () => {
  const gateway = await open()
  const inside = await gateway.openPort({ address: '::ffff:10.1.2.3' })
  const client = await logIn({ port: inside })
  const outsider = await logIn({ port: gateway.port })
  const isEnded = ended(outsider)
  const instance = server.get(REF)
  await instance.update({ access: { ssl: false, networks: ['10.0.0.0/8', '2001:db8::/32'] } })
  gateway.applyAccess(instance)
  expect(await isEnded).toBe('ended')
  expect((await client.query('select 1 as one')).rows).toEqual([{ one: 1 }])
  await client.end()
  await expect(logIn({ port: gateway.port, password: 'wrong' })).rejects.toMatchObject({
    code: '28000',
    message: 'Address not in tenant allow_list: 127.0.0.1',
  })
})

it('enforces TLS, also for open sessions', async () => {
  const gateway = await open()
  const { port } = gateway
  const plain = await logIn({ port })
  const encrypted = await logIn({ port, ...secure })
  const running = plain.query('select pg_sleep(600)').catch(() => 'cut')
  const sleeping = `select from pg_stat_activity where wait_event = 'PgSleep'`
  await expect.poll(() => server.sql(sleeping)).toHaveLength(1)
  const instance = server.get(REF)
  await instance.update({ access: { ssl: true, networks: null } })
  gateway.applyAccess(instance)
  expect(await running).toBe('cut')
  await expect.poll(() => server.sql(sleeping)).toHaveLength(0)
  expect((await encrypted.query('select 1 as one')).rows).toEqual([{ one: 1 }])
  await encrypted.end()
  await expect(logIn({ port })).rejects.toMatchObject({ code: '28000', message: 'SSL connection is required' })
})

it('reserves connections for services', async () => {
  const gateway = await open()
  const { port } = gateway
  const clients = await Promise.all(Array.from({ length: 7 }, () => logIn({ port })))
  await expect(logIn({ port })).rejects.toMatchObject({
    code: '53300',
    message: expect.stringContaining('remaining connection slots are reserved'),
  })
  const trusted = await gateway.openPort({ isTrusted: true })
  for (const role of ['supabase_admin', 'supabase_storage_admin', 'supabase_auth_admin', 'authenticator', 'postgres']) {
    await query({ port: trusted, user: `${role}.${REF}` }, 'select')
  }
  // The gateway has opened one session ahead of the next trusted caller.
  await Promise.all(clients.slice(0, 2).map((client) => client.end()))
  await expect.poll(() => query({ port }, 'select 1 as one').catch(() => 'refused')).toEqual([{ one: 1 }])
  await Promise.all(clients.slice(1).map((client) => client.end()))
})

it('counts and ends the sessions of one instance', async () => {
  const gateway = await open()
  const { port } = gateway
  const [first, second, other] = await Promise.all([
    logIn({ port }),
    logIn({ port, ...secure }),
    logIn({ port, user: `postgres.${OTHER}` }),
  ])
  expect([gateway.sessions(REF), gateway.sessions(OTHER)]).toEqual([2, 1])
  const firstEnded = ended(first)
  gateway.endSessions(REF, ({ isSecure }) => !isSecure)
  expect(await firstEnded).toBe('ended')
  expect(gateway.sessions(REF)).toBe(1)
  const secondEnded = ended(second)
  gateway.endSessions(REF)
  expect(await secondEnded).toBe('ended')
  expect([gateway.sessions(REF), gateway.sessions(OTHER)]).toEqual([0, 1])
  await other.end()
})

it('forgets sessions whose clients reset the connection', async () => {
  const gateway = await open()
  const clients = await Promise.all(Array.from({ length: 5 }, () => logIn({ port: gateway.port })))
  const stream = (client: pg.Client) =>
    (client as unknown as { connection: { stream: { resetAndDestroy(): void } } }).connection.stream
  for (const client of clients) stream(client).resetAndDestroy()
  await expect.poll(() => gateway.sessions(REF)).toBe(0)
  await expect.poll(() => server.uses()).toBe(0)
})

it('reads addresses and networks', () => {
  expect(normalizeAddress('::ffff:10.0.0.1')).toBe('10.0.0.1')
  expect(normalizeAddress('FE80::1%eth0')).toBe('fe80::1')
  expect(addressGroup('2001:db8:1:2:3:4:5:6')).toBe('2001:db8:1:2::/64')
  expect(addressGroup('2001:db8::1')).toBe('2001:db8:0:0::/64')
  expect(addressGroup(addressGroup('::1'))).toBe(addressGroup('::1'))
  for (const [address, network, expected] of [
    ['10.1.2.3', '10.0.0.0/8', true],
    ['11.1.2.3', '10.0.0.0/8', false],
    ['11.1.2.3', '0.0.0.0/0', true],
    ['11.1.2.3', '::/0', false],
    ['2001:db8::1', '::/0', true],
    ['2001:db8::1', '0.0.0.0/0', false],
    ['::ffff:10.1.2.3', '10.1.2.3', true],
    ['10.1.2.3', '::ffff:10.0.0.0/104', true],
    ['2001:db8::1', '2001:db8::/32', true],
    ['10.1.2.3', '10.0.0.0/33', false],
    ['10.1.2.3', 'nonsense', false],
    ['', '0.0.0.0/0', false],
  ] as const) {
    expect([address, network, isWithin(address, [network])]).toEqual([address, network, expected])
  }
})
