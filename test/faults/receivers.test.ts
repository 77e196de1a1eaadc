import { describe, expect, test } from 'vitest'
import { createE1, inTurn, play, playOne, publish, useSimulation } from './play.ts'
import type { Behaviour } from './receivers.ts'
import { act, always, answers } from './scripts.ts'

useSimulation()

const gaps = (times: number[]) => times.slice(1).map((time, i) => time - (times[i] ?? 0))
/** A claim, the check of the name and the POST take a few simulated milliseconds. */
const PACE_MS = 200

describe('the schedule', () => {
  const delays = [10_000, 30_000, 90_000, 270_000]

  test('500 four times, then 200: a success at the fifth attempt', async () => {
    const fails = answers(500)
    const { rows, times } = await playOne({ behave: inTurn(fails, fails, fails, fails, answers(200)) })
    expect(rows.map(({ status }) => status)).toEqual(['failure', 'failure', 'failure', 'failure', 'success'])
    for (const [i, gap] of gaps(times()).entries()) {
      expect(gap).toBeGreaterThanOrEqual(delays[i] ?? 0)
      expect(gap).toBeLessThan((delays[i] ?? 0) * 1.2 + PACE_MS)
    }
  })

  test('500 five times: a failure, and no sixth attempt', async () => {
    const { rows } = await playOne({ behave: always(answers(500)) })
    expect(rows.map(({ status }) => status)).toEqual(Array(5).fill('failure'))
  })
})

test('never an answer, or never the end of one: a timeout after 20 s', async () => {
  for (const silent of [{ kind: 'hang' }, { kind: 'stall', status: 200 }] as const) {
    const { rows, times } = await playOne({ behave: inTurn(silent, answers(200)) })
    expect(rows).toMatchObject([{ status: 'failure', errorCode: 'timeout' }, { status: 'success' }])
    expect(gaps(times())[0]).toBeGreaterThanOrEqual(30_000)
  }
})

test('a retry is on time while another attempt hangs, also behind an earlier one', async () => {
  const { ledger, rows } = await play({
    busyMs: 60_000,
    script: (stage) => {
      const fails = answers(500)
      const behave = inTurn(fails, fails, { kind: 'hang' }, answers(200))
      act(stage, 0, 'create', () => createE1(stage, behave))
      act(stage, 1_000, 'publish', () => publish(stage, 'first'))
      act(stage, 4_000, 'publish', () => publish(stage, 'second'))
      act(stage, 8_000, 'publish', () => publish(stage, 'third'))
    },
  })
  expect(rows.filter(({ attempt }) => attempt === 2)).toHaveLength(3)
  for (const label of ['first', 'second']) {
    const [gap] = gaps(ledger.filter((post) => post.label.startsWith(`${label}~`)).map(({ at }) => at))
    expect(gap).toBeGreaterThanOrEqual(10_000)
    expect(gap).toBeLessThan(12_000 + PACE_MS)
  }
})

test('a connection that fails at once is tried again at once, one that fails later is a failed attempt', async () => {
  const atOnce = await playOne({ behave: inTurn({ kind: 'reset', taken: true, afterMs: 5 }, answers(200)) })
  expect(atOnce.rows).toMatchObject([{ status: 'success', attempt: 1 }])
  expect(gaps(atOnce.times())[0]).toBeLessThan(1_000)
  const later = await playOne({ behave: inTurn({ kind: 'reset', taken: true, afterMs: 3_000 }, answers(200)) })
  expect(later.rows).toMatchObject([{ status: 'failure', errorCode: 'connection_failed' }, { status: 'success' }])
})

describe('Retry-After', () => {
  const published = Date.UTC(2026, 0, 1, 0, 0, 1)
  const table: [header: string, leastMs: number, mostMs: number][] = [
    ['0', 10_000, 12_000],
    ['5', 10_000, 12_000],
    ['15', 15_000, 15_000],
    ['3600', 20_000, 20_000],
    ['1000000000', 20_000, 20_000],
    [new Date(published - 60_000).toUTCString(), 10_000, 12_000],
    [new Date(published + 16_000).toUTCString(), 14_000, 16_000],
    ['soon', 10_000, 12_000],
    ['-1', 10_000, 12_000],
  ]
  test.each(table)('%s: the next attempt comes after %i to %i ms', async (header, leastMs, mostMs) => {
    for (const status of [429, 503]) {
      const { times } = await playOne({ behave: inTurn(answers(status, { 'retry-after': header }), answers(200)) })
      expect(gaps(times())[0]).toBeGreaterThanOrEqual(leastMs)
      expect(gaps(times())[0]).toBeLessThan(mostMs + PACE_MS)
    }
  })
})

test('410 ends the deliveries and disables the endpoint', async () => {
  const { posts, rows, stage } = await playOne({
    behave: always(answers(410)),
    meanwhile: (stage) => act(stage, 5_000, 'publish', () => publish(stage, 'later')),
  })
  expect(posts).toBe(1)
  expect(rows).toMatchObject([{ status: 'failure', responseCode: 410 }])
  expect(stage.endpoints.get('e1')?.states.at(-1)?.enabled).toBe(false)
})

describe('only the status decides', () => {
  test.each([200, 201, 204, 299])('%i is a success', async (status) => {
    const { rows } = await playOne({ behave: always(answers(status)) })
    expect(rows).toMatchObject([{ status: 'success', responseCode: status }])
  })
  test.each([101, 199, 300, 301, 304, 307, 400, 404, 500, 599, 600, 999])('%i is a failure', async (status) => {
    const { rows } = await playOne({ behave: inTurn(answers(status), answers(200)) })
    expect(rows).toMatchObject([{ status: 'failure', responseCode: status }, { status: 'success' }])
  })
})

/** Returns the highest number of simultaneously open requests, if each stays open for this time. */
function openMost(times: number[], openMs: number): number {
  return Math.max(...times.map((time) => times.filter((other) => other <= time && other > time - openMs).length))
}

describe('fairness', () => {
  const HANG_MS = 20_000
  /** The neighbours recover after this time, so that the simulation ends. */
  const NEIGHBOUR_MS = 300_000
  const lateness = async (neighbour: Behaviour) => {
    const { times, posts } = await play({
      busyMs: 60_000,
      script: (stage) => {
        const neighbourNow = () => (stage.world.sinceStart() < NEIGHBOUR_MS ? neighbour : answers(200))
        // One after another: at the same time, all but one would be refused, because they wait for the same lock.
        act(stage, 0, 'create', async () => {
          for (let i = 1; i <= 10; i++) await createE1(stage, i % 2 ? always(answers(200)) : neighbourNow, `e${i}`)
        })
        for (let i = 0; i < 30; i++) act(stage, 1_000 + i * 500, 'publish', () => publish(stage, `change${i}`))
      },
    })
    const late = [1, 3, 5, 7, 9].flatMap((i) => times(`e${i}`).map((time, nth) => time - 1_000 - nth * 500))
    expect(late).toHaveLength(5 * 30)
    const neighbours = [2, 4, 6, 8, 10].map((i) => times(`e${i}`).filter((time) => time < NEIGHBOUR_MS))
    return { worst: Math.max(...late), posts, neighbours }
  }

  test('half of the endpoints hang: the others are not delayed, and nobody has more than 4 requests open', async () => {
    const quiet = await lateness(answers(200))
    const noisy = await lateness({ kind: 'hang' })
    expect(noisy.worst).toBeLessThanOrEqual(quiet.worst * 1.1)
    for (const times of noisy.neighbours) expect(openMost(times, HANG_MS)).toBe(4)
  })

  test('a backlog is sent with 4 requests at a time, and first attempts before retries', async () => {
    const openMs = 300
    const { times, ledger, rows } = await playOne({
      events: 60,
      behave: (nth) => ({ kind: 'status', status: nth < 20 ? 500 : 200, afterMs: openMs }),
    })
    expect(openMost(times(), openMs)).toBe(4)
    const attemptOf = new Map(rows.map(({ id, attempt }) => [id, attempt]))
    const attempts = ledger.map(({ deliveryId }) => attemptOf.get(deliveryId))
    expect(attempts.slice(0, 60)).toEqual(Array(60).fill(1))
    expect(attempts.slice(60)).toEqual(Array(20).fill(2))
  })

  test('the circuit breaker spares a dead receiver: one probe in 30 s, and no attempt is used up meanwhile', async () => {
    const deadMs = 400_000
    let now = () => 0
    const { rows, times, lost } = await playOne({
      events: 40,
      behave: () => (now() < deadMs ? { kind: 'reset', taken: true, afterMs: 2_000 } : answers(200)),
      meanwhile: ({ world }) => {
        now = world.sinceStart
      },
    })
    const firsts = times().filter((time) => time < 20_000).length
    const probes = times().filter((time) => time >= 20_000 && time < deadMs).length
    expect(lost).toBe(0)
    expect(firsts).toBeLessThanOrEqual(16)
    expect(probes).toBeLessThanOrEqual(deadMs / 30_000)
    const untouched = rows.filter(({ attempt, status }) => attempt === 1 && status === 'success')
    expect(untouched.length).toBeGreaterThanOrEqual(40 - firsts - probes)
  })

  test('the resolver is down for a minute: the attempt does not count', async () => {
    const downMs = 60_000
    const { rows, times } = await playOne({
      others: {
        busyMs: downMs,
        resolve: (_host, world) =>
          world.sinceStart() < downMs
            ? { kind: 'unavailable', reason: 'down' }
            : { kind: 'addresses', addresses: ['93.184.215.14'] },
      },
    })
    expect(rows).toMatchObject([{ attempt: 1, status: 'success' }])
    expect(rows).toHaveLength(1)
    expect(times()[0]).toBeLessThan(downMs + 30_000)
  })

  test('a name that does not exist is a failed attempt, and so is one of a private address, without a request', async () => {
    for (const resolution of [
      { kind: 'nowhere', reason: 'does not exist' },
      { kind: 'addresses', addresses: ['10.0.0.1'] },
    ] as const) {
      const { rows, posts } = await playOne({ others: { resolve: () => resolution } })
      expect(posts).toBe(0)
      expect(rows.map(({ status }) => status)).toEqual(Array(5).fill('failure'))
    }
  })
})
