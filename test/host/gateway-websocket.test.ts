import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { createWebSocketStream, WebSocket, WebSocketServer } from 'ws'
import { message, text } from '../../host/gateway/messages.ts'
import { openGateway, REF, receiveError, receiveUntil, startServer, startup, type TestGateway } from './gateway.ts'

let server: Awaited<ReturnType<typeof startServer>>
let gateway: TestGateway
let webSockets: WebSocketServer

beforeAll(async () => {
  server = await startServer()
  gateway = await openGateway(server)
  webSockets = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  webSockets.on('connection', (webSocket, { url }) => {
    const caller = { address: '192.0.2.1', isSecure: true, isTrusted: url === '/trusted' }
    gateway.serve(createWebSocketStream(webSocket), caller)
  })
  await once(webSockets, 'listening')
})
afterAll(async () => {
  webSockets?.close()
  await gateway?.stop()
  await server?.remove()
})

async function dial(path: string) {
  const webSocket = new WebSocket(`ws://127.0.0.1:${(webSockets.address() as AddressInfo).port}${path}`)
  const stream = createWebSocketStream(webSocket)
  stream.on('error', () => {})
  await once(webSocket, 'open')
  return { webSocket, stream }
}

const SLEEPING = `select from pg_stat_activity where wait_event = 'PgSleep'`

it('serves WebSockets, and forgets them when they close', async () => {
  for (const isAbrupt of [true, false]) {
    const { webSocket, stream } = await dial('/trusted')
    stream.write(startup({ user: `postgres.${REF}` }))
    await receiveUntil(stream, 'Z')
    stream.write(message('Q', text(`select repeat('x', 5000000)`)))
    const answer = await receiveUntil(stream, 'Z')
    expect(answer.find(({ type }) => type === 'D')?.body.length).toBe(5_000_006)
    stream.write(message('Q', text('select pg_sleep(600)')))
    await expect.poll(() => server.sql(SLEEPING)).toHaveLength(1)
    expect(gateway.sessions(REF)).toBe(1)
    if (isAbrupt) webSocket.terminate()
    else webSocket.close()
    await expect.poll(() => gateway.sessions(REF)).toBe(0)
    await server.sql(`select pg_terminate_backend(pid) from pg_stat_activity where wait_event = 'PgSleep'`)
    await expect.poll(() => server.sql(SLEEPING)).toHaveLength(0)
  }
})

it('reports why a client is refused, and closes the WebSocket', async () => {
  const { webSocket, stream } = await dial('/')
  const closed = once(webSocket, 'close')
  stream.write(startup({ user: 'nobody' }))
  expect(await receiveError(stream)).toMatchObject({ C: 'XX000' })
  stream.resume()
  await closed
})

it('frees the places of clients that leave before they authenticate', async () => {
  for (let n = 0; n < 15; n++) {
    const { webSocket, stream } = await dial('/')
    stream.write(startup({ user: `postgres.${REF}` }))
    expect((await receiveUntil(stream, 'R')).length).toBe(1)
    webSocket.terminate()
    await once(webSocket, 'close')
  }
})
