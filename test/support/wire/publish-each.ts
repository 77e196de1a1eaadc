import { randomUUID } from 'node:crypto'
import { expect } from 'vitest'
import type { Received } from '../receiver.ts'
import { type Customer, type Delivery, newCustomer } from './customer.ts'
import type { Installation } from './installation.ts'
import type { Script, Scripted } from './scripted.ts'

export interface Outcome {
  id: string
  path: string
  /** Oldest first: the first attempt and, after a failure, the next one as it is planned. */
  log: Delivery[]
}

interface Stage {
  installation: Installation
  receiver: Scripted
  customer?: Customer | undefined
}

/** Publishes one real event, and makes an endpoint for each script. */
export async function publishToEach<Name extends string>(stage: Stage, scripts: Record<Name, Script>) {
  const { installation, receiver, customer = await newCustomer(installation) } = stage
  const outcomes: [string, Outcome][] = []
  for (const [name, script] of Object.entries<Script>(scripts)) {
    const path = `/${randomUUID()}`
    const id = await customer.subscribe(receiver.play(path, script))
    outcomes.push([name, { id, path, log: [] }])
  }
  await customer.createProject()
  await customer.untilRecorded(...outcomes.map(([, { id }]) => id))
  for (const [, one] of outcomes) one.log = await customer.deliveries(one.id)
  return Object.fromEntries(outcomes) as Record<Name, Outcome>
}

export const outcomeOf = ({ log: [first] }: Outcome) => [first?.status, first?.response_code, first?.error_code]
export const idsOf = (received: Received[]) => received.map(({ headers }) => headers['webhook-id'])

/** Returns the time from a failed attempt to the one that is planned after it. */
export function plannedMs([failed, planned]: Delivery[]): number {
  expect([failed?.status, planned?.status]).toEqual(['failure', 'pending'])
  return Date.parse(planned?.attempt_timestamp ?? '') - Date.parse(failed?.attempt_timestamp ?? '')
}

export function expectWithin(valueMs: number, [least, most]: readonly [number, number], what = '') {
  expect(valueMs, what).toBeGreaterThanOrEqual(least)
  expect(valueMs, what).toBeLessThanOrEqual(most)
}
