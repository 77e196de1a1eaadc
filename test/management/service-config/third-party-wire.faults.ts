import { randomUUID } from 'node:crypto'
import { afterAll, beforeAll, expect, inject, it } from 'vitest'
import { newForeignKey } from '../../support/issuer.ts'
import { type Machine, newMachine } from '../../support/machine.ts'
import {
  answer,
  brotliBomb,
  drip,
  endless,
  gzipBomb,
  headersOnly,
  reset,
  resetMidBody,
  silence,
} from '../../support/wire/answers.ts'
import { newCustomer } from '../../support/wire/customer.ts'
import { type Installation, openInstallation } from '../../support/wire/installation.ts'
import { type Script, type Scripted, startCanary, startScripted } from '../../support/wire/scripted.ts'

const TIMEOUT_SECONDS = 2

/** The production Worker: the harness of the other tests follows redirects itself. */
let machine: Machine
let installation: Installation
let receiver: Scripted
let canary: Awaited<ReturnType<typeof startCanary>>
let path: string
beforeAll(async () => {
  machine = await newMachine(
    { WEBHOOK_LOOPBACK: 'on', WEBHOOK_TIMEOUT_SECONDS: String(TIMEOUT_SECONDS) },
    inject('begun'),
  )
  receiver = await startScripted()
  canary = await startCanary()
  await machine.started()
  installation = openInstallation(machine)
  const ref = await (await newCustomer(installation)).createProject()
  path = `/v1/projects/${ref}/config/auth/third-party-auth`
})
afterAll(async () => {
  await installation?.close()
  receiver.close()
  canary.close()
  await machine.dispose()
})

const integrate = (script: Script) =>
  installation.call('POST', path, { jwks_url: receiver.play(`/${randomUUID()}`, script) })

const LATE = `did not respond completely within ${TIMEOUT_SECONDS} s`
const LARGE = 'responded with more than 65536 bytes'

it.each<[string, () => Script, string]>([
  ...[301, 302, 303, 307, 308].map((status): [string, () => Script, string] => [
    `redirects with ${status}`,
    () => answer(status, { location: `http://127.0.0.1:${canary.port}/` }),
    `responded with status ${status}; redirects are not followed`,
  ]),
  ['breaks the connection', () => reset, 'cannot be reached'],
  ['breaks it in the middle of the body', () => resetMidBody, 'cannot be reached'],
  ['is silent', () => silence, LATE],
  ['sends no body', () => headersOnly, LATE],
  ['sends a byte now and then', () => drip(500), LATE],
  ['does not end', () => endless('content-type: application/json').script, LARGE],
  ['sends a gzip bomb', gzipBomb, LARGE],
  ['sends a brotli bomb', brotliBomb, LARGE],
])('a server that %s yields no keys', async (_name, scriptOf, reason) => {
  const message = `The request is not valid: body.jwks_url: ${reason}`
  expect(await integrate(scriptOf())).toEqual({ status: 400, body: { message } })
  expect(canary.connections()).toBe(0)
})

it('a server that answers completely yields keys', async () => {
  const { jwk } = await newForeignKey()
  const script = answer(200, {}, JSON.stringify({ keys: [jwk] }))
  expect(await integrate(script)).toMatchObject({ status: 201, body: { resolved_jwks: { keys: [jwk] } } })
})
