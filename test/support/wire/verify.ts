import { Webhook as StandardWebhook } from 'standardwebhooks'
import { Webhook as SvixWebhook } from 'svix'
import { expect } from 'vitest'
import type { Received } from '../receiver.ts'

/** The option with which the official libraries accept a secret that does not start with `whsec_`. */
export const RAW = { format: 'raw' } as const

/** Verifies a request as a receiver would, with both libraries. */
export function expectSigned({ body, headers }: Received, secret: string, options?: typeof RAW) {
  const sent = headers as Record<string, string>
  expect(new StandardWebhook(secret, options).verify(body, sent)).toEqual(JSON.parse(body))
  // This one returns nothing: it throws if the signature is invalid.
  new SvixWebhook(secret, options).verify(body, sent)
  expect(() => new StandardWebhook('another secret', RAW).verify(body, sent)).toThrow()
  expect(() => new SvixWebhook('another secret', RAW).verify(body, sent)).toThrow()
}
