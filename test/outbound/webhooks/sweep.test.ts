import { expect, it } from 'vitest'
import type { SystemCtx } from '../../../src/ctx.ts'
import { wakeOverdue } from '../../../src/outbound/webhooks/sweep.ts'
import { at, config, useOutbox } from './outbox.ts'

const MINUTE_MS = 60_000

const outbox = useOutbox()

it('the sweep wakes all other senders if the queue is full and one sender cannot be reached', async () => {
  const ids: string[] = []
  for (let n = 0; n < 20; n++) ids.push(await outbox.newEndpoint())
  for (const id of ids) await outbox.enqueue(id, { dueMs: -MINUTE_MS })
  const [unreachable, ...others] = ids.sort()
  const woken: string[] = []
  const errors: [string, unknown][] = []
  const wake = async (id: string) => {
    if (id === unreachable) throw new Error('this object is away')
    woken.push(id)
  }
  const ctx = {
    config,
    db: outbox.db,
    databaseNow: at(0),
    bindings: {
      WEBHOOK_DELIVERIES: {
        sendBatch: async () => {
          throw new Error('the queue is away')
        },
      },
      WEBHOOK_SENDERS: { idFromName: (name: string) => name, get: (id: string) => ({ wake: () => wake(id) }) },
    },
    log: { info: () => {}, error: (event: string, fields: unknown) => void errors.push([event, fields]) },
  } as unknown as SystemCtx
  expect(await wakeOverdue(ctx)).toBe(20)
  expect(woken.sort()).toEqual(others)
  expect(errors).toContainEqual([
    'webhook_sender_unreachable',
    { endpoint: unreachable, error: expect.stringContaining('this object is away') },
  ])
})
