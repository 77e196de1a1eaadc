import { createServer } from 'node:http'
import { convertV4MiniflareOptions, Miniflare } from 'miniflare'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { webhookEgress } from '../../dev/egress.ts'
import { isPublicAddress } from '../../src/platform/net/ip-addresses.ts'
import { listenOnFreePort } from '../support/listen.ts'
import { WAIT } from '../support/machine.ts'

describe('the egress of webhooks', () => {
  const LOOPBACK = ['127.0.0.1', '127.1', 'localhost']
  const ELSEWHERE = `
    0.0.0.0 10.0.0.1 100.64.0.1 127.0.0.2 168.63.129.16 169.254.169.254 172.16.0.1 192.0.0.8 192.0.2.1 192.31.196.1
    192.52.193.1 192.88.99.1 192.168.0.1 192.175.48.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1 240.0.0.1
    255.255.255.255 [::] [::2] [::127.0.0.1] [::ffff:10.0.0.1] [::ffff:0:127.0.0.1] [64:ff9b::7f00:1] [64:ff9b:1::1]
    [100::1] [2001::1] [2001:db8::1] [2002:7f00:1::] [2620:4f:8000::1] [3fff::1] [4000::1] [5f00::1] [8000::1]
    [fc00::1] [fe80::1] [fec0::1] [ff02::1]`
    .trim()
    .split(/\s+/)
  const probe = `export default { async fetch(request, env) {
    const { searchParams } = new URL(request.url)
    return env[searchParams.get('by')].fetch(searchParams.get('to')).catch((error) => new Response(error.message, { status: 502 }))
  } }`
  const receiver = createServer((_request, response) => response.end('received'))
  let miniflare: Miniflare
  let origin = ''
  let port = 0
  const log: string[] = []

  beforeAll(async () => {
    port = await listenOnFreePort(receiver)
    miniflare = new Miniflare({
      ...convertV4MiniflareOptions({
        host: '127.0.0.1',
        cf: false,
        handleStructuredLogs: ({ message }) => log.push(message),
        workers: [
          {
            name: 'probe',
            compatibilityDate: '2026-11-01',
            modules: [{ type: 'ESModule', path: 'index.js', contents: probe }],
            serviceBindings: {
              CLOSED: webhookEgress({ loopback: false }),
              LOOPBACK: webhookEgress({ loopback: true }),
            },
          },
        ],
      }),
    })
    origin = (await miniflare.ready).origin
  })
  afterAll(async () => {
    await miniflare.dispose()
    receiver.close()
  })

  async function send(by: 'CLOSED' | 'LOOPBACK', host: string) {
    const reply = await fetch(`${origin}/?${new URLSearchParams({ by, to: `http://${host}:${port}/` })}`)
    return reply.text()
  }

  async function expectRefused(by: 'CLOSED' | 'LOOPBACK', host: string) {
    log.length = 0
    expect(await send(by, host), host).toContain('internal error')
    // Only the log distinguishes a refusal from a failed connection.
    await vi.waitFor(() => expect(log.join(' ')).toMatch(/connecting to \S+ is not allowed/), WAIT)
  }

  it('reaches this machine under its loopback names if that is allowed', async () => {
    for (const host of LOOPBACK) {
      await expectRefused('CLOSED', host)
      expect(await send('LOOPBACK', host)).toBe('received')
    }
    await expectRefused('CLOSED', '[::1]')
  })

  it('refuses an address that is not public before it connects', async () => {
    for (const host of ELSEWHERE) {
      expect(isPublicAddress(host.replace(/[[\]]/g, '')), host).toBe(false)
      await expectRefused('CLOSED', host)
      await expectRefused('LOOPBACK', host)
    }
  })
})
