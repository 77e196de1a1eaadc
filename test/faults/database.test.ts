import { expect, test } from 'vitest'
import { atPoint, calm, type Plan } from './plan.ts'
import { inTurn, noHint, playOne, useSimulation } from './play.ts'
import { createRandom } from './random.ts'
import { act, answers } from './scripts.ts'

useSimulation()

test('the database is unreachable for 10 minutes in the middle of the results: no busy loop, no attempt lost', async () => {
  const [fromMs, untilMs] = [1_045, 601_045]
  const plan = atPoint('database', 'fail', { phase: 'before', fromMs, untilMs })
  const { ledger, lost, rows, stage } = await playOne({ plan, events: 4, others: { busyMs: untilMs } })
  expect(lost).toBe(0)
  expect(ledger.length).toBeLessThanOrEqual(8)
  expect(rows.every(({ attempt, status }) => attempt === 1 && status === 'success')).toBe(true)
  const asked = stage.world.injected.filter(({ instance }) => instance.startsWith('sender')).length
  expect(asked).toBeGreaterThan(0)
  // Two statements for each wake, by its alarm after a pause that grows to a minute.
  expect(asked).toBeLessThan(80)
})

test('one statement in five fails, as with deadlocks: nothing is lost', async () => {
  const random = createRandom(23)
  const plan: Plan = {
    ...calm,
    fault: ({ point, at }) => (at < 60_000 && point.startsWith('database') && random.chance(0.2) ? 'fail' : undefined),
  }
  const { lost, stage } = await playOne({
    plan,
    events: 20,
    behave: inTurn(answers(500), answers(500), answers(200)),
    others: { busyMs: 60_000 },
  })
  expect(lost).toBe(0)
  expect(stage.world.injected.length).toBeGreaterThan(5)
})

test('sweepers and cron overlap: each delivery is made once', async () => {
  const { posts, duplicates } = await playOne({
    ...noHint,
    events: 10,
    meanwhile: (stage) => {
      for (const atMs of [7_000, 7_000, 7_001, 7_003, 7_010]) {
        act(stage, atMs, 'sweep', async () => stage.installation.sweep())
      }
    },
  })
  expect({ posts, duplicates }).toEqual({ posts: 10, duplicates: 0 })
})

test('clocks are ten minutes off and jump back: leases and timestamps follow the clock of the database', async () => {
  for (const skewMs of [-600_000, 600_000]) {
    const { ledger, duplicates, lost, times } = await playOne({
      events: 6,
      behave: (nth) => answers(nth < 6 ? 500 : 200),
      others: { skewMs: () => skewMs },
      meanwhile: (stage) =>
        act(stage, 5_000, 'jump', async () => {
          for (const object of stage.endpoints.values())
            stage.installation.objectOf(object.id).current().instance.skewMs -= 600_000
        }),
    })
    expect({ duplicates, lost }).toEqual({ duplicates: 0, lost: 0 })
    for (const { at, timestampSeconds } of ledger) expect(Math.abs(timestampSeconds * 1000 - at)).toBeLessThan(300_000)
    // The alarm followed the clock that jumped; the sweeper did not wait for it.
    expect(Math.max(...times())).toBeLessThan(40_000)
  }
})
