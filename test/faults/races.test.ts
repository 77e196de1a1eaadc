import { describe, expect, test } from 'vitest'
import { atPoint } from './plan.ts'
import { createE1, inTurn, noHint, play, playOne, publish, useSimulation } from './play.ts'
import { act, always, answers } from './scripts.ts'
import type { Stage } from './simulate.ts'

useSimulation()

const slow = { kind: 'status', status: 200, afterMs: 5_000 } as const

describe('DELETE while a delivery', () => {
  const remove = (atMs: number) => (stage: Stage) => act(stage, atMs, 'delete', () => stage.users.remove('e1'))

  test('is pending: no POST and no row', async () => {
    const { posts, rows } = await playOne({ ...noHint, meanwhile: remove(2_000) })
    expect({ posts, rows }).toEqual({ posts: 0, rows: [] })
  })

  test('is being claimed: no row, and no error', async () => {
    const plan = atPoint('database: claim', 'delay', { phase: 'after', of: 'sender', times: 1 })
    const { posts, rows, stage } = await playOne({ plan: { ...plan, delayMs: () => 3_000 }, meanwhile: remove(2_000) })
    expect(posts).toBeLessThanOrEqual(1)
    expect(rows).toEqual([])
    expect(stage.installation.logged.webhook_sender_failed).toBeUndefined()
  })

  test('is in flight: that POST is the last one', async () => {
    const { posts, rows, stage } = await playOne({ behave: always(slow), meanwhile: remove(2_000) })
    expect({ posts, rows }).toEqual({ posts: 1, rows: [] })
    expect(stage.installation.logged.webhook_sender_failed).toBeUndefined()
  })

  test('waits for its next attempt: there is none', async () => {
    const { posts, rows } = await playOne({ behave: always(answers(500)), meanwhile: remove(5_000) })
    expect({ posts, rows }).toEqual({ posts: 1, rows: [] })
  })
})

describe('an endpoint is disabled', () => {
  test('while a delivery is pending: skipped, and not revived when it is enabled again', async () => {
    const { posts, rows } = await playOne({
      ...noHint,
      meanwhile: (stage) => {
        act(stage, 2_000, 'disable', () => stage.users.update('e1', { enabled: false }))
        act(stage, 3_000, 'enable', () => stage.users.update('e1', { enabled: true }))
      },
    })
    expect(posts).toBe(0)
    expect(rows).toMatchObject([{ status: 'skipped', errorCode: 'endpoint_disabled' }])
  })

  test('while a delivery is claimed and not yet started: skipped', async () => {
    const plan = atPoint('database: claim', 'kill', { phase: 'after', of: 'sender', times: 1 })
    const { posts, rows } = await playOne({
      plan,
      meanwhile: (stage) => act(stage, 2_000, 'disable', () => stage.users.update('e1', { enabled: false })),
      others: { busyMs: 60_000 },
    })
    expect(posts).toBe(0)
    expect(rows).toMatchObject([{ status: 'skipped' }])
  })

  test('in flight: its failure is not tried again', async () => {
    const failing = { kind: 'status', status: 500, afterMs: 5_000 } as const
    const { posts, rows } = await playOne({
      behave: always(failing),
      meanwhile: (stage) => act(stage, 2_000, 'disable', () => stage.users.update('e1', { enabled: false })),
    })
    expect(posts).toBe(1)
    expect(rows).toMatchObject([
      { attempt: 1, status: 'failure' },
      { attempt: 2, status: 'skipped' },
    ])
  })

  test('before the event: no row', async () => {
    const { posts, rows } = await playOne({
      meanwhile: (stage) => act(stage, 500, 'disable', () => stage.users.update('e1', { enabled: false })),
    })
    expect({ posts, rows }).toEqual({ posts: 0, rows: [] })
  })
})

test('PATCH of URL and secret between attempts: the next one uses them, with the same id and body', async () => {
  const { ledger } = await playOne({
    behave: inTurn(answers(500), answers(200)),
    meanwhile: (stage) => act(stage, 5_000, 'patch', () => stage.users.update('e1', { path: 'new', rotate: true })),
  })
  const [first, second] = ledger
  expect(ledger).toHaveLength(2)
  expect(second).toMatchObject({ messageId: first?.messageId, body: first?.body })
  expect([first?.url, second?.url]).toEqual(['https://e1.receivers.dev/hook', 'https://e1.receivers.dev/new'])
  expect([first?.signedBy, second?.signedBy]).toEqual([[0], [0, 1]])
})

describe('the secret is replaced', () => {
  for (const [hours, signedBy] of [
    ['24', [0, 1]],
    ['0', [1]],
  ] as const) {
    test(`with ${hours} hours of grace: signed by ${signedBy.length} secrets`, async () => {
      const { ledger } = await playOne({
        behave: inTurn(answers(500), answers(500), answers(200)),
        meanwhile: (stage) => act(stage, 5_000, 'rotate', () => stage.users.update('e1', { rotate: true })),
        others: { settings: { WEBHOOK_ROTATION_HOURS: hours } },
      })
      expect(ledger.map((post) => post.signedBy)).toEqual([[0], signedBy, signedBy])
    })
  }

  test('at every moment of a delivery: signed by one that is valid then', async () => {
    for (let atMs = 1_010; atMs < 1_060; atMs += 4) {
      const { posts } = await playOne({
        behave: inTurn(answers(500), answers(200)),
        meanwhile: (stage) => act(stage, atMs, 'rotate', () => stage.users.update('e1', { rotate: true })),
        others: { settings: { WEBHOOK_ROTATION_HOURS: '0' } },
      })
      expect(posts).toBe(2)
    }
  })
})

test('an endpoint is deleted and created again with the same URL: deliveries of the old one never arrive', async () => {
  const ids: (string | undefined)[] = []
  const { posts, rows } = await playOne({
    ...noHint,
    meanwhile: (stage) => {
      act(stage, 2_000, 'replace', async () => {
        ids.push(stage.endpoints.get('e1')?.id)
        await stage.users.remove('e1')
        await createE1(stage, always(answers(200)))
        ids.push(stage.endpoints.get('e1')?.id)
      })
    },
  })
  expect({ posts, rows }).toEqual({ posts: 0, rows: [] })
  expect(ids[0]).not.toBe(ids[1])
})

describe('a manual retry', () => {
  const retryTwice = (atMs: number) => (stage: Stage) => {
    // Later than the first transaction ends: here, one that waits for a lock counts as a failure.
    for (const retryMs of [atMs, atMs + 25]) {
      act(stage, retryMs, 'retry', async () => {
        const text = 'select id, message_id from webhook_deliveries order by id limit 1'
        const [row] = await stage.database.query<{ id: string; message_id: string }>(text)
        if (row) await stage.users.retry('e1', row.id, row.message_id)
      })
    }
  }

  test('while the next attempt is pending, requested twice: that attempt is made now', async () => {
    const { times } = await playOne({ behave: inTurn(answers(500), answers(200)), meanwhile: retryTwice(5_000) })
    expect(times()).toHaveLength(2)
    expect(times()[1]).toBeLessThan(6_000)
  })

  test('of a success, requested twice: one more attempt', async () => {
    const { posts } = await playOne({ meanwhile: retryTwice(5_000) })
    expect(posts).toBe(2)
  })
})

test('the project is removed while its last event is delivered: it still reaches every subscriber', async () => {
  const { ledger } = await play({
    busyMs: 20_000,
    script: (stage) => {
      const { users, tenants, database } = stage
      const [projectRef = ''] = tenants.first.projects
      const behave = inTurn(answers(500), answers(200))
      act(stage, 0, 'create', async () => {
        await users.create({ label: 'e1', tenant: tenants.first, projectRef, types: ['*'], behave })
        await createE1(stage, behave, 'e2')
      })
      act(stage, 1_000, 'publish', async () => {
        await publish(stage, 'removed')
        await database.query('update projects set removed_at = $1 where ref = $2', [
          new Date(stage.world.now()),
          projectRef,
        ])
      })
      act(stage, 15_000, 'restore', async () => {
        await database.query('update projects set removed_at = null')
      })
    },
  })
  expect(ledger.map(({ endpoint }) => endpoint).sort()).toEqual(['e1', 'e1', 'e2', 'e2'])
})
