import { describe, expect, test } from 'vitest'
import { atPoint } from './plan.ts'
import { UNREACHABLE } from './platform.ts'
import { createE1, play, playOne, publish, useSimulation } from './play.ts'
import { act, always, answers } from './scripts.ts'
import type { Stage } from './simulate.ts'

useSimulation()

const REQUEST = 'request 1 '
const PUBLISHED_MS = 1_000
const AT_ONCE_MS = 200
const GRACE_MS = 5_000
/** The grace period of a sweep and its interval, with the time that a claim and a request take. */
const RESCUED_MS = 16_000
const sentBy = ({ installation }: Stage) => installation.queue.seen.sent
const callsOf = ({ world }: Stage) => world.points.get('wake: by request before')?.seen

function expectRescue(times: number[]): void {
  expect(times).toHaveLength(1)
  expect(times[0]).toBeGreaterThan(PUBLISHED_MS + GRACE_MS)
  expect(times[0]).toBeLessThan(PUBLISHED_MS + RESCUED_MS)
}

describe('the request calls the sender', () => {
  test('and it works: the event arrives at once, without a message', async () => {
    const { times, stage } = await playOne()
    expect(times()).toHaveLength(1)
    expect(times()[0]).toBeLessThan(PUBLISHED_MS + AT_ONCE_MS)
    expect(sentBy(stage)).toBe(0)
  })

  test('and cannot reach it: a message does, at once', async () => {
    const { times, stage } = await playOne({ others: { callFaults: UNREACHABLE } })
    expect(times()).toHaveLength(1)
    expect(times()[0]).toBeLessThan(PUBLISHED_MS + AT_ONCE_MS)
    expect(sentBy(stage)).toBe(1)
  })

  test('and reaches it, but the answer is lost: the message finds nothing to do', async () => {
    const { posts, stage } = await playOne({ others: { callFaults: { ...UNREACHABLE, reached: 1 } } })
    expect(posts).toBe(1)
    expect(sentBy(stage)).toBe(1)
  })

  const HANGING = { ...UNREACHABLE, fail: 0, hang: 1 }

  test('and is never answered, because it did not arrive: the sweeper delivers', async () => {
    const { times, stage } = await playOne({ others: { callFaults: HANGING } })
    expectRescue(times())
    expect(callsOf(stage)).toBe(1)
  })

  test('and is never answered, although it arrived: the event does too, at once', async () => {
    const { times, stage } = await playOne({ others: { callFaults: { ...HANGING, reached: 1 } } })
    expect(times()).toHaveLength(1)
    expect(times()[0]).toBeLessThan(PUBLISHED_MS + AT_ONCE_MS)
    expect(sentBy(stage)).toBe(0)
  })

  test('and dies with its call on the way: the sweeper delivers', async () => {
    const plan = atPoint('wake: by request', 'kill', { phase: 'before', of: REQUEST })
    const { times, stage } = await playOne({ plan })
    expectRescue(times())
    expect(stage.world.injected).toHaveLength(1)
  })

  test('and dies before it learns that the call was done: one POST', async () => {
    const plan = atPoint('wake: by request', 'kill', { phase: 'after', of: REQUEST })
    const { posts } = await playOne({ plan })
    expect(posts).toBe(1)
  })

  for (const phase of ['before', 'after'] as const) {
    test(`which dies ${phase} it has stored its name: the request gets an error, and a message wakes it again`, async () => {
      const plan = atPoint('object: keep', 'kill', { phase, of: 'sender e1', times: 1 })
      const { times, stage } = await playOne({ plan })
      expect(times()).toHaveLength(1)
      expect(times()[0]).toBeLessThan(PUBLISHED_MS + AT_ONCE_MS)
      expect(sentBy(stage)).toBe(1)
    })
  }

  test('and gets a slow answer: nothing arrives twice', async () => {
    const plan = atPoint('wake: by request', 'delay', { phase: 'after', of: REQUEST, times: 1 })
    const { posts } = await playOne({ plan, others: { busyMs: 60_000 } })
    expect(posts).toBe(1)
  })
})

describe('an event for many endpoints', () => {
  const ENDPOINTS = 50
  const CALLED = 8
  const toMany = (plan = {}) =>
    play({
      busyMs: 20_000,
      ...plan,
      script: (stage) => {
        act(stage, 0, 'create', async () => {
          for (let i = 1; i <= ENDPOINTS; i++) await createE1(stage, always(answers(200)), `e${i}`)
        })
        // The publication comes just after a sweep, so that none helps within its grace period.
        act(stage, 10_500, 'publish', () => publish(stage, 'change'))
      },
    })
  const latest = (times: (endpoint: string) => number[]) =>
    Math.max(...Array.from({ length: ENDPOINTS }, (_, i) => times(`e${i + 1}`)[0] ?? Number.POSITIVE_INFINITY))

  test('reaches all at once: by calls to the first few, by messages to the others', async () => {
    const { posts, times, stage } = await toMany()
    expect(posts).toBe(ENDPOINTS)
    expect(latest(times)).toBeLessThan(10_500 + AT_ONCE_MS)
    expect(callsOf(stage)).toBe(CALLED)
    expect(sentBy(stage)).toBe(ENDPOINTS - CALLED)
  })

  test('reaches all at once if some calls fail: these get messages too', async () => {
    const FAILED = 3
    const plan = atPoint('wake: by request', 'fail', { phase: 'before', times: FAILED })
    const { posts, times, stage } = await toMany({ plan })
    expect(posts).toBe(ENDPOINTS)
    expect(latest(times)).toBeLessThan(10_500 + AT_ONCE_MS)
    expect(sentBy(stage)).toBe(ENDPOINTS - CALLED + FAILED)
  })

  test('reaches all if the calls are never answered, and those that get messages at once', async () => {
    const { posts, lost, times } = await toMany({ callFaults: { ...UNREACHABLE, fail: 0, hang: 1 } })
    expect({ posts, lost }).toEqual({ posts: ENDPOINTS, lost: 0 })
    const firsts = Array.from({ length: ENDPOINTS }, (_, i) => times(`e${i + 1}`)[0] ?? Number.POSITIVE_INFINITY)
    const atOnce = firsts.filter((at) => at < 10_500 + AT_ONCE_MS)
    expect(atOnce.length).toBeGreaterThanOrEqual(ENDPOINTS - CALLED)
  })
})
