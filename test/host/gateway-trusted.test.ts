import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest'
import type { GatewayLimits } from '../../host/gateway/gateway.ts'
import { message, text } from '../../host/gateway/messages.ts'
import {
  dial,
  logIn,
  openGateway,
  query,
  REF,
  receiveError,
  receiveUntil,
  startServer,
  startup,
  type TestGateway,
} from './gateway.ts'

let server: Awaited<ReturnType<typeof startServer>>
let gateway: TestGateway
let port: number

async function open(limits: Partial<GatewayLimits> = {}) {
  gateway = await openGateway({ ...server, limits })
  port = await gateway.openPort({ isTrusted: true, isSecure: false, address: '192.0.2.1' })
}

beforeAll(async () => {
  server = await startServer()
})
beforeEach(() => open())
afterEach(() => gateway.stop())
afterAll(() => server?.remove())

it.each(['postgres', 'supabase_admin', 'supabase_storage_admin', 'supabase_read_only_user'])(
  'lets trusted callers log in as %s without a password, whatever the rules say',
  async (role) => {
    await server.get(REF).update({ access: { ssl: true, networks: [] } })
    const user = `${role}.${REF}`
    expect(await query({ port, user, password: undefined }, 'select current_user as role')).toEqual([{ role }])
    await server.get(REF).update({ access: { ssl: false, networks: null } })
    expect(await query({ port, user: `${role}.control` }, 'select current_user as role')).toEqual([{ role }])
  },
)

it('lets a caller with a token connect only to the instance of the token', async () => {
  const own = await gateway.openPort({ isTrusted: true, isSecure: false, address: '192.0.2.1', onlyInstance: REF })
  expect(await query({ port: own, user: `postgres.${REF}` }, 'select 1 as n')).toEqual([{ n: 1 }])
  await expect(logIn({ port: own, user: 'postgres.control' })).rejects.toThrow('Tenant or user not found')
})

it("passes on the server's error about an unknown role", async () => {
  await expect(logIn({ port, user: `unknown.${REF}` })).rejects.toMatchObject({ severity: 'FATAL', code: '28000' })
})

it('applies the options, and shows the error of an invalid one', async () => {
  const options = `-c statement_timeout=4321 -c search_path=a,\\ b`
  const state = `select current_setting('statement_timeout') as timeout, current_setting('search_path') as path`
  expect(await query({ port, options }, state)).toEqual([{ timeout: '4321ms', path: 'a, b' }])
  await expect(logIn({ port, options: '-c statement_timeout=soon' })).rejects.toMatchObject({ code: '22023' })
})

it('serves a client that sends its first query with the startup message', async () => {
  const socket = await dial(port)
  socket.write(Buffer.concat([startup({ user: `postgres.${REF}` }), message('Q', text('select 1'))]))
  const types = (await receiveUntil(socket, 'C')).map(({ type }) => type)
  expect(types[0]).toBe('R')
  expect(types.slice(-5)).toEqual(['K', 'Z', 'T', 'D', 'C'])
  socket.destroy()
})

it('tells a client that the database is unavailable if its server closes the connection during the login', async () => {
  const closing = createServer((socket) => socket.once('data', () => socket.destroy())).listen(0, '127.0.0.1')
  await once(closing, 'listening')
  const instance = { ...server.get(REF), connect: () => dial((closing.address() as AddressInfo).port) }
  const other = await openGateway({ ...server, instances: { find: () => instance, list: () => [instance] } })
  const client = await dial(await other.openPort({ isTrusted: true }))
  client.write(startup({ user: `postgres.${REF}`, database: 'postgres' }))
  expect(await receiveError(client)).toMatchObject({ C: '57P03' })
  await other.stop()
  closing.close()
})
