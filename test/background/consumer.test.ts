import { expect, it, vi } from 'vitest'
import type { Handlers } from '../../src/background/consumer.ts'
import type { Bindings } from '../../src/platform/bindings.ts'
import { MINIMAL_SETTINGS } from '../support/minimal-settings.ts'

const RUNS_MAX = 2

it('handles later messages while all slots for long work are taken', async () => {
  vi.stubGlobal('Cloudflare', { compatibilityFlags: { queue_consumer_no_wait_for_wait_until: true } })
  vi.resetModules()
  const { createConsumer } = await import('../../src/background/consumer.ts')
  const begun: string[] = []
  const ends: (() => void)[] = []
  const long = (id: string) => {
    begun.push(id)
    return new Promise<void>((resolve) => ends.push(resolve))
  }
  const heartbeat = vi.fn(async () => {})
  const consume = createConsumer({
    'project-task': { run: (_, { id }) => long(id), detachedMax: RUNS_MAX },
    heartbeat: { run: heartbeat },
  } as Partial<Handlers> as Handlers)
  const kept: Promise<unknown>[] = []
  const execution = { waitUntil: (work: Promise<unknown>) => kept.push(work) } as unknown as ExecutionContext
  const acknowledged: unknown[] = []
  const send = (...bodies: object[]) => {
    const messages = bodies.map((body) => ({
      body,
      attempts: 1,
      ack: () => acknowledged.push(body),
      retry: expect.fail,
    }))
    const batch = { queue: 'project-tasks', messages } as unknown as MessageBatch
    return consume(batch, MINIMAL_SETTINGS as unknown as Bindings, execution)
  }
  const task = (n: number) => ({ type: 'project-task', id: `00000000-0000-4000-8000-00000000000${n}` })

  await send(task(1), task(2))
  await send(task(3), { type: 'heartbeat', at: 1 })
  expect(heartbeat).toHaveBeenCalledOnce()
  expect(acknowledged).toHaveLength(4)
  // The message of the third task was dropped: the sweeper sends it again, and then a slot is free.
  expect(begun).toHaveLength(RUNS_MAX)
  for (const end of ends) end()
  await Promise.all(kept)
  const third = send(task(3))
  expect(begun).toHaveLength(RUNS_MAX + 1)
  for (const end of ends) end()
  await third
  vi.unstubAllGlobals()
})
