import { describe, expect, test } from 'vitest'
import { atPoint, calm, together } from './plan.ts'
import { createE1, inTurn, noHint, play, playOne, publish, throughQueue, useSimulation, WAYS } from './play.ts'
import { act, answers } from './scripts.ts'

useSimulation()

const REQUEST = 'request 1 '
const SENDER = 'sender e1'
const GRACE_MS = 5_000
/** The grace period of a sweep and its interval, with the time that a claim and a request take. */
const RESCUED_MS = 16_000

describe('the publisher dies', () => {
  test('before the commit: no event and no delivery', async () => {
    const plan = atPoint('transaction: commit', 'kill', { phase: 'before', of: REQUEST })
    const { events, posts } = await playOne({ plan })
    expect({ events, posts }).toEqual({ events: 0, posts: 0 })
  })

  test.each([
    ['call', 'wake: by request', {}],
    ['message', 'queue: send', throughQueue],
  ])('after the commit, before the %s: the sweeper delivers', async (_, point, others) => {
    const plan = atPoint(point, 'kill', { phase: 'before', of: REQUEST })
    const { times, stage } = await playOne({ plan, others })
    expect(stage.world.injected).toHaveLength(1)
    expect(times()).toHaveLength(1)
    expect(times()[0]).toBeGreaterThan(1_000 + GRACE_MS)
    expect(times()[0]).toBeLessThan(1_000 + RESCUED_MS)
  })

  test('the answer of the commit is lost and the client tries again with the same key: one event', async () => {
    const plan = atPoint('transaction: commit', 'fail', { phase: 'after', of: REQUEST })
    const { events, posts, stage } = await play({
      plan,
      busyMs: 10_000,
      script: (stage) => {
        const again = { idempotencyKey: 'key' }
        act(stage, 0, 'create', () => createE1(stage, () => answers(200)))
        act(stage, 1_000, 'publish', () => publish(stage, 'change', again).catch(() => publish(stage, 'change', again)))
      },
    })
    expect({ events, posts, tries: stage.users.publications.size }).toEqual({ events: 1, posts: 1, tries: 2 })
  })

  test('the queue refuses the message: the request succeeds and the sweeper delivers', async () => {
    const { times, stage } = await playOne(noHint)
    expect(times()[0]).toBeGreaterThan(1_000 + GRACE_MS)
    expect(times()[0]).toBeLessThan(1_000 + RESCUED_MS)
    expect(stage.installation.logged.enqueue_failed).toBe(1)
  })

  test('the queue accepts the message, its answer is lost, and it is sent again: one POST', async () => {
    const plan = atPoint('queue: send', 'fail', { phase: 'after', of: REQUEST })
    const { posts, stage } = await playOne({
      plan,
      others: throughQueue,
      meanwhile: (stage) =>
        act(stage, 1_030, 'send again', async () => {
          const endpointId = stage.endpoints.get('e1')?.id
          for (let i = 0; i < 3; i++) stage.installation.queue.put({ type: 'webhook', endpointId })
        }),
    })
    expect(stage.world.injected).toHaveLength(1)
    expect(posts).toBe(1)
  })
})

describe('a sender dies', () => {
  const RECOVERED_MS = 45_000

  test('after the claim, before the request: one POST, within 45 s', async () => {
    const plan = atPoint('resolve', 'kill', { phase: 'before', of: SENDER, times: 1 })
    const { times, rows } = await playOne({ plan })
    expect(times()).toHaveLength(1)
    expect(times()[0]).toBeLessThan(1_000 + RECOVERED_MS)
    expect(rows).toMatchObject([{ status: 'success', claims: 2 }])
  })

  for (const phase of ['before', 'after'] as const) {
    test(`with the request open, ${phase} the receiver has it: at most two POSTs with the same id`, async () => {
      const plan = atPoint('post', 'kill', { phase, of: SENDER, times: 1 })
      const { ledger, rows } = await playOne({ plan })
      expect(ledger).toHaveLength(phase === 'before' ? 1 : 2)
      expect(new Set(ledger.map(({ messageId }) => messageId)).size).toBe(1)
      expect(rows).toMatchObject([{ status: 'success', attempt: 1 }])
    })
  }

  test('after a 200, before it is recorded: two POSTs with the same id, a success in the end', async () => {
    const plan = atPoint('database: settle', 'kill', { phase: 'before', of: SENDER, times: 1 })
    const { posts, rows } = await playOne({ plan })
    expect(posts).toBe(2)
    expect(rows).toMatchObject([{ status: 'success', attempt: 1 }])
  })

  test('the consumer dies before it acknowledges: the message is redelivered and nothing is sent', async () => {
    const plan = atPoint('queue: acknowledge', 'kill', { phase: 'before', times: 1 })
    const { posts, stage } = await playOne({ plan, others: { ...throughQueue, busyMs: 60_000 } })
    expect(posts).toBe(1)
    expect(stage.world.points.get('wake: by consumer after')?.seen).toBe(2)
  })

  test('after the next attempt was planned, before its alarm is set: the sweeper sends it when it is due', async () => {
    const plan = atPoint('alarm: get', 'kill', { phase: 'before', of: SENDER, times: 1 })
    const { times } = await playOne({ plan, behave: inTurn(answers(500), answers(200)) })
    const [first = 0, second = 0] = times()
    expect(second - first).toBeGreaterThanOrEqual(10_000)
    expect(second - first).toBeLessThan(12_000 + RESCUED_MS)
  })

  test('it stalls for longer than its lease and another takes over: its late result is refused', async () => {
    const plan = together(
      atPoint('post', 'forget', { phase: 'before', of: SENDER, times: 1 }),
      // The fault hits each of its tries to record.
      atPoint('database: settle', 'delay', { phase: 'before', of: SENDER, times: 4 }),
    )
    const stalled = { ...plan, delayMs: () => 45_000 }
    const { posts, rows } = await playOne({
      plan: stalled,
      behave: inTurn(answers(500), answers(200)),
      others: { busyMs: 120_000 },
    })
    expect(posts).toBe(2)
    expect(rows).toMatchObject([{ attempt: 1, status: 'success', responseCode: 200 }])
  })

  test('all senders die every 31 s for an hour: everything arrives', async () => {
    const HOUR_MS = 3_600_000
    const { lost, ledger, deliveries } = await playOne({
      behave: (nth) => (nth % 3 === 0 ? { kind: 'hang' } : answers(200)),
      others: { busyMs: HOUR_MS },
      meanwhile: (stage) => {
        for (let atMs = 60_000; atMs < HOUR_MS; atMs += 180_000)
          act(stage, atMs, 'publish', () => publish(stage, `at ${atMs}`))
        for (let atMs = 31_000; atMs < HOUR_MS; atMs += 31_000)
          act(stage, atMs, 'update', async () => stage.installation.killSenders())
      },
    })
    expect(lost).toBe(0)
    expect(ledger.length).toBeGreaterThanOrEqual(20)
    expect(deliveries).toBeGreaterThanOrEqual(20)
  })
})

test.each(Object.entries(WAYS))(
  'every process dies and the queue forgets its messages, senders are %s: all is delivered after the start',
  async (_, others) => {
    const plan = { ...calm, latencyMs: () => 20 }
    const { lost, posts } = await playOne({
      plan,
      events: 20,
      others,
      meanwhile: (stage) => {
        for (const atMs of [1_100, 1_200, 1_300]) {
          act(stage, atMs, 'restart', async () => {
            stage.installation.killSenders()
            stage.installation.queue.purge()
          })
        }
      },
    })
    expect(lost).toBe(0)
    expect(posts).toBeGreaterThanOrEqual(20)
  },
)

test('an alarm that takes a minute to be set delays no result: nothing arrives twice', async () => {
  const slow = atPoint('alarm: set', 'delay', { phase: 'before', of: SENDER, times: 1 })
  const { posts, rows } = await play({
    plan: { ...slow, delayMs: () => 60_000 },
    busyMs: 120_000,
    script: (stage) => {
      act(stage, 0, 'create', () => createE1(stage, inTurn(answers(500), answers(200))))
      act(stage, 1_000, 'publish', () => publish(stage, 'first'))
      for (const at of [1_200, 45_000, 50_000]) act(stage, at, 'publish', () => publish(stage, `at ${at}`))
    },
  })
  expect(rows.map(({ status }) => status).sort()).toEqual(['failure', ...Array(4).fill('success')])
  expect(posts).toBe(5)
})
