import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { request } from 'node:http'
import { text } from 'node:stream/consumers'
import { Client } from '@neondatabase/serverless'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { type Host, startHost } from '../../host/host.ts'
import { callHost, ROWS_OF_TEXT } from './call-host.ts'
import { newHostFolder } from './host-folder.ts'

const KEY = 'k'.repeat(32)
const NAME = 'abcdefghijklmnopqrst'
const PASSWORD = 'secret-of-the-owner'
const CONNECTION = `postgresql://postgres.${NAME}:${PASSWORD}@any.host/postgres`
let folder: string
let host: Host

beforeAll(async () => {
  folder = await newHostFolder()
  host = await startHost({ folder, key: KEY, isDurable: false, proxies: ['127.0.0.0/8'] })
  await host.pool.ensure({ name: NAME, password: PASSWORD })
})
afterAll(async () => {
  await host?.stop()
  await rm(folder, { recursive: true, force: true })
})

function newClient(): Client {
  const client = new Client(CONNECTION)
  client.neonConfig.webSocketConstructor = WebSocket
  client.neonConfig.wsProxy = () => `127.0.0.1:${host.port}/v2`
  client.neonConfig.useSecureWebSocket = false
  client.neonConfig.pipelineTLS = false
  client.neonConfig.pipelineConnect = false
  return client
}

it('takes large messages of a WebSocket after its login', async () => {
  const client = newClient()
  await client.connect()
  const { rows } = await client.query('select length($1) as length', ['x'.repeat(1_000_000)])
  expect(rows).toEqual([{ length: 1_000_000 }])
  await client.end()
})

it('takes the addresses of clients from the headers of a trusted proxy', async () => {
  const { access } = host.pool.require(NAME).record
  const sent = async (headers: Record<string, string>) => {
    const response = await fetch(`${host.url}/sql`, {
      method: 'POST',
      headers: { 'neon-connection-string': CONNECTION, ...ROWS_OF_TEXT, ...headers },
      body: JSON.stringify({ query: 'select 1 as one' }),
    })
    const { code, message } = (await response.json()) as Record<string, string>
    return code === undefined ? 'answered' : [code, message]
  }
  await host.pool.require(NAME).update({ access: { ssl: true, networks: ['192.0.2.0/24', '2001:db8::/32'] } })
  const secure = { 'x-forwarded-proto': 'https' }
  expect(await sent({ ...secure, 'x-forwarded-for': '192.0.2.7' })).toBe('answered')
  expect(await sent({ ...secure, 'x-forwarded-for': '203.0.113.9, 2001:db8::1, 127.0.0.1' })).toBe('answered')
  expect(await sent({ ...secure, 'x-forwarded-for': '192.0.2.7:51234' })).toBe('answered')
  expect(await sent({ ...secure, 'x-forwarded-for': '[2001:db8::7]:443' })).toBe('answered')
  expect(await sent({ ...secure, 'x-forwarded-for': 'unknown' })).toEqual([
    '28000',
    expect.stringContaining('127.0.0.1'),
  ])
  const refused = ['28000', expect.stringContaining('203.0.113.9')]
  expect(await sent({ ...secure, 'x-forwarded-for': '192.0.2.7, 203.0.113.9' })).toEqual(refused)
  expect(await sent(secure)).toEqual(['28000', expect.stringContaining('127.0.0.1')])
  const insecure = ['28000', expect.stringContaining('SSL')]
  expect(await sent({ 'x-forwarded-for': '192.0.2.7' })).toEqual(insecure)
  expect(await sent({ 'x-forwarded-proto': 'https, http', 'x-forwarded-for': '192.0.2.7' })).toEqual(insecure)
  await host.pool.require(NAME).update({ access })
})

it('refuses a request if its client may no longer log in when its body is complete', async () => {
  const body = JSON.stringify({ query: 'select length($1)', params: ['x'.repeat(14_000_000)] })
  const headers = { 'neon-connection-string': CONNECTION, ...ROWS_OF_TEXT, 'content-length': body.length }
  const req = request(`${host.url}/sql`, { method: 'POST', headers })
  const answered = once(req, 'response')
  // The host reads so much only after the login.
  await new Promise((written) => req.write(body.slice(0, -1), written))
  const setSsl = (ssl: boolean) =>
    callHost({ url: host.url, key: KEY }, 'PUT', `/instances/${NAME}/access`, { body: { ssl } })
  expect((await setSsl(true)).ok).toBe(true)
  req.end(body.slice(-1))
  const [res] = await answered
  expect(JSON.parse(await text(res))).toMatchObject({ code: '28000', message: 'SSL connection is required' })
  expect((await setSsl(false)).ok).toBe(true)
})

it('stops while a WebSocket is open', async () => {
  const client = newClient()
  // Stopping ends the connection, which is an error for its client.
  client.on('error', () => {})
  await client.connect()
  await host.stop()
})
