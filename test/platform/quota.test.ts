import { expect, it } from 'vitest'
import type { Bindings } from '../../src/platform/bindings.ts'
import { rateLimitCaller, takeQuota } from '../../src/platform/rate-limit/quota.ts'

const DECISION = { allowed: true, limit: 120, remaining: 119, windowMs: 60_000, resetMs: 60_000 }

/** Counters whose first calls fail, as those of Cloudflare do while a deployment resets them. */
function failingFirst(failures: number): Bindings['RATE_LIMITERS'] {
  let calls = 0
  const take = async () => {
    calls += 1
    if (calls <= failures) throw new Error('Durable Object reset because its code was updated.')
    return DECISION
  }
  return { idFromName: (name: string) => name, get: () => ({ take }) } as unknown as Bindings['RATE_LIMITERS']
}

it('asks a counter again that a deployment has reset, once', async () => {
  const quota = { caller: 'user 1', scope: 'none', now: 0 }
  expect(await takeQuota(failingFirst(1), quota, 'standard')).toEqual(DECISION)
  await expect(takeQuota(failingFirst(2), quota, 'standard')).rejects.toThrow('reset')
})

it('has the same quota for an IPv4 client in all spellings, and another one for each client', () => {
  for (const spelling of ['::ffff:203.0.114.7', '::FFFF:cb00:7207', '0:0:0:0:0:ffff:cb00:7207%eth0'])
    expect(rateLimitCaller(undefined, spelling)).toBe(rateLimitCaller(undefined, '203.0.114.7'))
  expect(rateLimitCaller(undefined, '::ffff:203.0.114.8')).not.toBe(rateLimitCaller(undefined, '::ffff:203.0.114.7'))
  expect(rateLimitCaller(undefined, '2001:db8:1:2::3')).toBe(rateLimitCaller(undefined, '2001:db8:1:2:4::'))
})
