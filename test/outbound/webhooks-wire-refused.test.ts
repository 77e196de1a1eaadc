import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { type Machine, newMachine } from '../support/machine.ts'
import { type Customer, newCustomer } from '../support/wire/customer.ts'
import { type Installation, openInstallation } from '../support/wire/installation.ts'
import { startCanary } from '../support/wire/scripted.ts'
import { startDoh } from './webhooks/doh.ts'

describe('without WEBHOOK_LOOPBACK', () => {
  const PUBLIC = '93.184.215.14'
  let canary: Awaited<ReturnType<typeof startCanary>>
  let doh: Awaited<ReturnType<typeof startDoh>>
  let customer: Customer

  let machine: Machine
  let installation: Installation
  beforeAll(async () => {
    canary = await startCanary()
    doh = await startDoh({
      'hooks.dev': { A: [PUBLIC] },
      'private.dev': { A: ['10.0.0.1'] },
      'mixed.dev': { A: [PUBLIC, '127.0.0.1'] },
    })
    machine = await newMachine({ WEBHOOK_LOOPBACK: 'off', WEBHOOK_DNS_URL: doh.url }, inject('begun'))
    await machine.started()
    installation = openInstallation(machine)
    customer = await newCustomer(installation)
  })
  afterAll(async () => {
    await installation?.close()
    await machine.dispose()
    canary.close()
    await doh.close()
  })

  it('accepts no address on this machine or in a private network, by POST or by PATCH', async () => {
    const refused = [
      `http://127.0.0.1:${canary.port}/`,
      `http://127.1:${canary.port}/`,
      `http://2130706433:${canary.port}/`,
      `http://0x7f.0.0.1:${canary.port}/`,
      `http://[::1]:${canary.port}/`,
      `http://[::ffff:127.0.0.1]:${canary.port}/`,
      `http://localhost:${canary.port}/`,
      `http://localhost.:${canary.port}/`,
      `http://hooks.dev@127.0.0.1:${canary.port}/`,
      'http://10.0.0.1/',
      'http://192.168.1.1/',
      'http://169.254.169.254/latest/meta-data/',
      'http://metadata.google.internal/',
      'http://private.dev/',
      'http://mixed.dev/',
      'http://nowhere.dev/',
      machine.credentials().base_url,
    ]
    const id = await customer.subscribe('https://hooks.dev/')
    for (const url of refused) {
      await expect(customer.subscribe(url), url).rejects.toThrow('invalid_destination')
      await expect(customer.change(id, { url }), url).rejects.toThrow('invalid_destination')
    }
    await customer.change(id, { enabled: false })
  })

  it('connects to none of them, even if the row of an endpoint or its DNS record has changed by the time of an attempt', async () => {
    const endpoints: string[] = []
    for (let count = 0; count < 5; count++) endpoints.push(await customer.subscribe('https://hooks.dev/'))
    doh.zones.set('rebinding.dev', { A: [PUBLIC], ttl: 0 })
    endpoints.push(await customer.subscribe(`http://rebinding.dev:${canary.port}/`))
    doh.zones.set('rebinding.dev', { A: ['127.0.0.1'], ttl: 0 })
    const urls = ['127.0.0.1', 'localhost', '2130706433', '[::1]', 'private.dev'].map(
      (host) => `http://${host}:${canary.port}/`,
    )
    for (const [index, url] of urls.entries()) {
      await installation.rows('update webhook_endpoints set url = $1 where id = $2', [url, endpoints[index]])
    }
    await customer.createProject()
    await customer.untilRecorded(...endpoints)
    for (const id of endpoints) {
      const [delivery] = await customer.deliveries(id)
      expect(delivery).toMatchObject({ status: 'failure', response_code: 0, error_code: 'destination_refused' })
      expect(delivery?.error_message).not.toMatch(/127|10\.0|::1/)
    }
    expect(canary.connections()).toBe(0)
  })

  it('does not fetch keys from them either', async () => {
    const ref = await customer.createProject()
    const refused = [
      `http://127.0.0.1:${canary.port}/`,
      `https://127.0.0.1:${canary.port}/`,
      `https://localhost:${canary.port}/`,
      `https://[::1]:${canary.port}/`,
      'https://private.dev/',
      'https://mixed.dev/',
      'https://nowhere.dev/',
      'http://hooks.dev/',
      machine.credentials().base_url,
    ]
    for (const url of refused) {
      for (const field of ['jwks_url', 'oidc_issuer_url']) {
        const path = `/v1/projects/${ref}/config/auth/third-party-auth`
        const { status, body } = await installation.call('POST', path, { [field]: url })
        expect([url, status], JSON.stringify(body)).toEqual([url, 400])
        expect(JSON.stringify(body)).toContain(`body.${field}: `)
      }
    }
    expect(canary.connections()).toBe(0)
  })
})
