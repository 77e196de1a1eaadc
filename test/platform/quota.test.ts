import { randomUUID } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import type { Bindings } from '../../src/platform/bindings.ts'
import { type Limit, takeQuota } from '../../src/platform/rate-limit/quota.ts'
import type { Decision, Rule } from '../../src/platform/rate-limit/rule.ts'

const DECISION = { allowed: true, limit: 120, remaining: 119, windowMs: 60_000, resetMs: 60_000 }

/** Namespace whose objects all are this counter. */
const limitersOf = (take: (rules: readonly Rule[], now: number) => Promise<Decision>) =>
  ({ idFromName: (name: string) => name, get: () => ({ take }) }) as unknown as Bindings['RATE_LIMITERS']

/** Counters whose first calls fail, as those of Cloudflare do while a deployment resets them. */
function failingFirst(failures: number): Bindings['RATE_LIMITERS'] {
  let calls = 0
  const take = async () => {
    calls += 1
    if (calls <= failures) throw new Error('Durable Object reset because its code was updated.')
    return DECISION
  }
  return limitersOf(take)
}

it('asks a counter again that a deployment has reset, once', async () => {
  const quota = { caller: 'user 1', scope: 'none', now: 0 }
  expect(await takeQuota(failingFirst(1), quota, 'standard')).toEqual(DECISION)
  await expect(takeQuota(failingFirst(2), quota, 'standard')).rejects.toThrow('reset')
})

describe('a used-up quota', () => {
  /** Uses up the quota under this limit at 0. Returns the decision of a later request and whether it asked the counter. */
  async function afterRefusal(limit: Limit, { now, scope = 'none' }: { now: number; scope?: string }) {
    const caller = randomUUID()
    const refusal = { ...DECISION, allowed: false, remaining: 0 }
    await takeQuota(
      limitersOf(async () => refusal),
      { caller, scope: 'none', now: 0 },
      limit,
    )
    let isAsked = false
    const limiters = limitersOf(async () => {
      isAsked = true
      return DECISION
    })
    return { decision: await takeQuota(limiters, { caller, scope, now }, 'standard'), isAsked }
  }

  it('refuses requests until its window ends without asking the counter', async () => {
    const { decision, isAsked } = await afterRefusal('standard', { now: 59_000 })
    expect(decision).toEqual({ ...DECISION, allowed: false, remaining: 0, resetMs: 1_000 })
    expect(isAsked).toBe(false)
  })

  it.each<[string, Limit, { now: number; scope?: string }]>([
    ['after its window', 'standard', { now: 60_000 }],
    ['in another scope', 'standard', { now: 1, scope: 'other' }],
    ['if only the stricter limit of another endpoint was used up', 'logs', { now: 1 }],
  ])('refuses no request %s', async (_, limit, later) => {
    expect(await afterRefusal(limit, later)).toEqual({ decision: DECISION, isAsked: true })
  })
})
