import { createServer, type Server } from 'node:net'
import { createServer as createTlsServer } from 'node:tls'
import { eq } from 'drizzle-orm'
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest'
import { invocations, logDrains } from '../../src/model/tables/index.ts'
import type { Caller } from '../support/api.ts'
import { extended, isExtended } from '../support/extended.ts'
import { listenOnFreePort } from '../support/listen.ts'
import { bodyOf, line } from '../support/log-drains.ts'
import { WAIT } from '../support/machine.ts'
import { serveLikeStart } from '../support/serve.ts'
import { type Installation, startInstallation } from '../support/storage-installation.ts'
import { NOBODY } from '../support/webhooks.ts'
import { SELF_SIGNED } from '../support/wire/self-signed.ts'

/**
 * An installation with the egress and the clock of `npm start`: the Worker of the other tests cannot open
 * connections.
 */
let installation: Installation
let owner: Caller
let ref: string
let path: string

beforeAll(async () => {
  installation = await startInstallation({
    serve: ({ vars, secrets }, folder) =>
      serveLikeStart({ vars: { ...vars, WEBHOOK_LOOPBACK: 'on', WEBHOOK_TIMEOUT_SECONDS: '3' }, secrets }, folder),
  })
  const organization = await installation.newOrganization()
  owner = organization.owner
  ref = (await installation.newStorage(organization)).ref
  path = `/v2/projects/${ref}/analytics/log-drains`
})
afterAll(() => installation.stop())

function listen(server: Server): Promise<number> {
  onTestFinished(() => void server.close())
  return listenOnFreePort(server)
}

/** Starts a syslog server that ends when its client does, or keeps the connection. */
async function newSyslog({ keeps = false } = {}) {
  const chunks: Buffer[] = []
  const server = createServer({ allowHalfOpen: keeps }, (socket) => {
    socket.on('data', (chunk) => chunks.push(chunk))
    socket.on('error', () => {})
  })
  return { port: await listen(server), messages: () => messagesIn(Buffer.concat(chunks)) }
}

/** Splits the bytes into messages, each of which follows its length. */
function messagesIn(bytes: Buffer): string[] {
  const messages: string[] = []
  for (let at = 0; at < bytes.length; ) {
    const blank = bytes.indexOf(' ', at)
    const end = blank + 1 + Number(bytes.subarray(at, blank))
    messages.push(bytes.subarray(blank + 1, end).toString())
    at = end
  }
  return messages
}

async function newDrain(config: Record<string, unknown>): Promise<string> {
  const attributes = { name: crypto.randomUUID(), backend_type: 'syslog', config: { host: '127.0.0.1', ...config } }
  const reply = await owner.post(path, bodyOf(attributes))
  expect(reply).toMatchObject({ status: 201 })
  const { id } = reply.body.data
  onTestFinished(async () => void (await owner.delete(`${path}/${id}`)))
  return id
}

const log = () =>
  installation.control.insert(invocations).values({
    ...{ projectRef: ref, kind: 'function', programId: NOBODY, deploymentId: NOBODY, method: 'GET', path: '/ö' },
    ...{ status: 200, ms: 1, console: [line('gräßlich', 'error')], at: new Date() },
  })

const untilFailing = (id: string) =>
  vi.waitFor(async () => {
    const [row] = await installation.control.select().from(logDrains).where(eq(logDrains.id, id))
    expect(row?.failures).toBeGreaterThan(0)
  }, WAIT)

describe('a syslog server', () => {
  it.each(isExtended ? [false, true] : [true])(
    'receives a message for each row, each with its length (keeps its connection: %s)',
    async (keeps) => {
      const { port, messages } = await newSyslog({ keeps })
      const id = await newDrain({ port, structured_data: '[app@32473 env="x \\"y\\""]' })
      await log()
      // The messages of the project's database and storage are left out.
      const ofCall = () => messages().filter((message) => /ö|gräßlich/.test(message))
      await vi.waitFor(() => expect(ofCall()).toHaveLength(3), WAIT)
      const [first, , last] = ofCall()
      const header = /^<(\d+)>1 (\S+Z) (\w+) (\w+) - - (\[.*?\]) (\{.*\})$/
      const [, priority, timestamp, hostname, name, data, text] = header.exec(last ?? '') ?? []
      expect([priority, hostname, name, data]).toEqual(['11', ref, 'function_logs', '[app@32473 env="x \\"y\\""]'])
      expect(Date.parse(timestamp ?? '')).toBeGreaterThan(0)
      expect(JSON.parse(text ?? '')).toMatchObject({ event_message: 'gräßlich', source: 'function_logs' })
      expect(first).toMatch(/^<14>1 .* edge_logs /)
      await vi.waitFor(async () => {
        const [row] = await installation.control.select().from(logDrains).where(eq(logDrains.id, id))
        expect([row?.failures, row?.leaseUntil]).toEqual([0, null])
      }, WAIT)
    },
  )

  extended('counts as failing if it is unreachable', async () => {
    const server = createServer()
    const port = await listen(server)
    server.close()
    const id = await newDrain({ port })
    await log()
    await untilFailing(id)
  })

  extended('over TLS receives nothing if its certificate is not trusted', async () => {
    const received: Buffer[] = []
    const server = createTlsServer(SELF_SIGNED, (socket) => socket.on('data', (chunk) => received.push(chunk)))
    server.on('tlsClientError', () => {})
    const id = await newDrain({ port: await listen(server), tls: true })
    await log()
    await untilFailing(id)
    expect(received).toEqual([])
  })
})
