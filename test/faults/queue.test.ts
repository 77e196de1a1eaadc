import { expect, test } from 'vitest'
import { atPoint, calm } from './plan.ts'
import { createE1, inTurn, play, playOne, publish, throughQueue, useSimulation } from './play.ts'
import { act, always, answers } from './scripts.ts'
import type { Stage } from './simulate.ts'

useSimulation()

const HOUR_MS = 3_600_000
const ENDPOINTS = 50
const manyEndpoints = (stage: Stage) =>
  act(stage, 0, 'create', async () => {
    for (let i = 1; i <= ENDPOINTS; i++) await createE1(stage, always(answers(200)), `e${i}`)
  })

test('each message arrives 2 to 5 times: one POST for each attempt', async () => {
  const queueFaults = { drop: 0, duplicate: 1, late: 0, untilMs: HOUR_MS }
  const { posts, duplicates, stage } = await playOne({
    events: 20,
    behave: (nth) => answers(nth % 5 === 0 ? 500 : 200),
    others: { ...throughQueue, queueFaults },
  })
  expect(posts).toBeGreaterThan(20)
  expect(duplicates).toBe(0)
  expect(stage.installation.queue.seen.duplicated).toBeGreaterThanOrEqual(20)
})

test('30 % of the messages are dropped: nothing is lost, nothing arrives twice', async () => {
  const queueFaults = { drop: 0.3, duplicate: 0, late: 0, untilMs: HOUR_MS }
  const script = (stage: Stage) => {
    act(stage, 0, 'create', () => createE1(stage, always(answers(200))))
    for (let i = 0; i < 30; i++) act(stage, 1_000 + i * 1_000, 'publish', () => publish(stage, `change${i}`))
  }
  const { posts, lost, duplicates, stage } = await play({ ...throughQueue, queueFaults, script, busyMs: 60_000 })
  expect({ posts, lost, duplicates }).toEqual({ posts: 30, lost: 0, duplicates: 0 })
  expect(stage.installation.queue.seen.dropped).toBeGreaterThan(3)
})

test('messages arrive in any order, up to hours late: attempts increase one by one and none is early', async () => {
  const queueFaults = { drop: 0, duplicate: 0.5, late: 0.8, untilMs: HOUR_MS }
  const plan = { ...calm, latencyMs: (random: { whole(a: number, b: number): number }) => random.whole(0, 3_000) }
  const script = (stage: Stage) => {
    act(stage, 0, 'create', () => createE1(stage, (nth) => answers(nth < 12 ? 500 : 200)))
    for (let i = 0; i < 5; i++) act(stage, 60_000, 'publish', () => publish(stage, `change${i}`))
  }
  const { rows, ledger } = await play({ ...throughQueue, plan, queueFaults, script, busyMs: 100_000 })
  expect(rows.length).toBeGreaterThan(10)
  const attempts = (messageId: string) =>
    rows.filter((row) => row.messageId === messageId).map(({ attempt }) => attempt)
  for (const { messageId } of ledger) {
    const numbers = attempts(messageId)
    expect(numbers).toEqual(numbers.map((_, i) => i + 1))
  }
})

test('the queue is purged while deliveries of many endpoints wait: all are sent within 60 s', async () => {
  const queueFaults = { drop: 1, duplicate: 0, late: 0, untilMs: 15_000 }
  const { ledger, times, lost } = await play({
    ...throughQueue,
    queueFaults,
    busyMs: 20_000,
    script: (stage) => {
      manyEndpoints(stage)
      for (let i = 0; i < 4; i++) act(stage, 10_000, 'publish', () => publish(stage, `change${i}`))
    },
  })
  expect(lost).toBe(0)
  expect(ledger).toHaveLength(4 * ENDPOINTS)
  for (let i = 1; i <= ENDPOINTS; i++) expect(Math.max(...times(`e${i}`))).toBeLessThan(70_000)
})

test('messages fail until they are dead letters: the deliveries are still pending and are made', async () => {
  const downMs = 3_000_000
  const plan = atPoint('wake', 'fail', { phase: 'before', untilMs: downMs })
  const { posts, lost, stage, times } = await playOne({ plan, others: { busyMs: downMs } })
  expect({ posts, lost }).toEqual({ posts: 1, lost: 0 })
  expect(stage.installation.queue.seen.dead).toBeGreaterThan(0)
  expect(times()[0]).toBeGreaterThan(downMs)
})

test('malformed messages are dropped and the others are handled', async () => {
  const malformed = [
    'not json',
    null,
    42,
    {},
    { type: 'unknown' },
    { type: 'webhook' },
    { type: 'webhook', endpointId: 'x' },
  ]
  const { posts, trace } = await playOne({
    events: 10,
    others: throughQueue,
    meanwhile: (stage) =>
      act(stage, 1_025, 'malformed', async () => {
        for (const body of malformed) stage.installation.queue.put(body)
      }),
  })
  expect(posts).toBe(10)
  expect(trace.filter((line) => line.includes('message_dropped'))).toHaveLength(malformed.length)
})

test('half of a batch fails: only that half is redelivered, and nothing is sent twice', async () => {
  const plan = atPoint('wake: by consumer', 'fail', { phase: 'before', times: ENDPOINTS / 2 })
  const { ledger, duplicates, stage } = await play({
    ...throughQueue,
    plan,
    busyMs: 20_000,
    script: (stage) => {
      manyEndpoints(stage)
      act(stage, 10_000, 'publish', () => publish(stage, 'change'))
    },
  })
  expect(ledger).toHaveLength(ENDPOINTS)
  expect(duplicates).toBe(0)
  // Half of them arrive twice, and none a third time except by the sweeper, which found nothing overdue.
  expect(stage.world.points.get('wake: by consumer before')?.seen).toBe(ENDPOINTS * 1.5)
})

test('an attempt that is hours away waits in the database, not in the queue', async () => {
  const behave = inTurn(answers(500, { 'retry-after': '1000000000' }), answers(200))
  const { times, stage } = await playOne({ behave, others: throughQueue })
  const [first = 0, second = 0] = times()
  expect(second - first).toBeGreaterThanOrEqual(20_000)
  expect(stage.installation.queue.seen.sent).toBeLessThanOrEqual(2)
})
