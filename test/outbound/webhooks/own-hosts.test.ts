import { expect, it } from 'vitest'
import { Config } from '../../../src/config.ts'
import type { SystemCtx } from '../../../src/ctx.ts'
import { checkDestination, urlProblem } from '../../../src/platform/net/destination.ts'
import { destinationRules } from '../../../src/platform/net/egress.ts'
import { SETTINGS } from './outbox.ts'

const OWN = {
  BASE_URL: 'https://api.acme.dev/',
  NEON_PROXY: 'http://proxy.acme.dev:4444',
  ENGINE_NEON_PROXY: 'http://projects.acme.dev:4444',
  HOST_URL: 'http://host.acme.dev:4444',
  S3_ENDPOINT: 'https://files.acme.dev:9000/bucket',
  S3_PUBLIC_ENDPOINT: 'https://downloads.acme.dev',
  WEBHOOK_DNS_URL: 'https://names.acme.dev/dns-query',
}
const rulesWith = (settings: object) =>
  destinationRules({ config: Config.parse({ ...SETTINGS, ...settings }) } as unknown as SystemCtx)

it.each(Object.entries(OWN))('nothing is delivered to the host of %s', async (_name, url) => {
  const rules = rulesWith(OWN)
  const { hostname } = new URL(url)
  for (const destination of [`https://${hostname}/`, `http://${hostname.toUpperCase()}.:8080/hook`]) {
    const reason = 'must not be a host of this installation'
    expect(await checkDestination(destination, rules)).toEqual({ kind: 'refused', reason })
  }
})

it('other hosts of the same domain are allowed, and settings that are absent forbid nothing', () => {
  for (const rules of [rulesWith(OWN), rulesWith({})]) {
    expect(urlProblem('https://hooks.acme.dev/', rules)).toBeUndefined()
  }
})
