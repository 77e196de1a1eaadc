import type { Behaviour } from './receivers.ts'
import type { Stage } from './simulate.ts'

export const LEAK = 'v1.project.secrets.leaked'
const ORGANIZATION_LEAK = 'v1.organization.secrets.leaked'
export const answers = (status: number, headers?: Record<string, string>): Behaviour => ({
  kind: 'status',
  status,
  ...(headers && { headers }),
})
export const always = (behaviour: Behaviour) => () => behaviour

/** Makes a user's request; whatever happens to it is not an error of the simulation. */
export function act({ world }: Stage, atMs: number, name: string, work: () => Promise<void>): void {
  world.at(world.now() + atMs - world.sinceStart(), name, () => {
    void work().catch((error) => world.note(`   ${name}: ${error}`))
  })
}

/** Plays one of everything that happens to webhooks, small enough to fail at each of its calls in turn. */
export function smallScript(stage: Stage): void {
  const { users, tenants } = stage
  const { first, second } = tenants
  const [projectRef = ''] = first.projects
  const failsOnce = (nth: number) => answers(nth === 0 ? 500 : 200)
  const failsSlowly = (nth: number): Behaviour => ({ kind: 'status', status: nth === 1 ? 500 : 204, afterMs: 3_000 })
  act(stage, 0, 'create', async () => {
    await users.create({ label: 'e1', tenant: first, projectRef, types: ['*'], behave: failsOnce })
    await users.create({ label: 'e2', tenant: first, projectRef: null, types: [LEAK], behave: failsSlowly })
    await users.create({ label: 'e3', tenant: second, projectRef: null, types: ['*'], behave: always(answers(200)) })
    await users.create({ label: 'e4', tenant: first, projectRef, types: ['*'], behave: always(answers(410)) })
  })
  const leak = (change: string, rest = {}) => users.publish({ tenant: first, projectRef, type: LEAK, change, ...rest })
  act(stage, 1_000, 'publish', () => leak('one'))
  act(stage, 1_500, 'rotate', () => users.update('e1', { rotate: true }))
  act(stage, 2_000, 'publish', () => leak('two', { rollBack: true }))
  act(stage, 2_500, 'publish', async () => {
    await leak('three', { idempotencyKey: 'key' }).catch(() => leak('three', { idempotencyKey: 'key' }))
  })
  act(stage, 4_000, 'retry', () => retryRandom(stage, 'e1'))
  act(stage, 5_000, 'disable', () => users.update('e2', { enabled: false }))
  act(stage, 13_000, 'enable', () => users.update('e2', { enabled: true }))
}

const BACKLOG = 24

/** Publishes many events for a receiver that is quick at first, then hangs, then recovers. */
export function backlogScript(stage: Stage): void {
  const { users, tenants } = stage
  const behave = (nth: number): Behaviour => (nth >= 4 && nth < 12 ? { kind: 'hang' } : answers(200))
  const common = { tenant: tenants.first, projectRef: null, types: ['*'] }
  act(stage, 0, 'create', () => users.create({ label: 'e1', ...common, behave }))
  for (let i = 0; i < BACKLOG; i++) act(stage, 1_000, 'publish', () => users.publish(eventOf(stage, i)))
}

const eventOf = ({ tenants }: Stage, i: number) =>
  ({ tenant: tenants.first, projectRef: null, type: ORGANIZATION_LEAK, change: `change${i}` }) as const

/**
 * A receiver that accepts one event and refuses the next one once: only its sender knows of the following attempt.
 */
export function refusalScript(stage: Stage): void {
  const { users, tenants } = stage
  const behave = (nth: number) => answers(nth === 1 ? 500 : 200)
  const common = { tenant: tenants.first, projectRef: null, types: ['*'] }
  act(stage, 0, 'create', () => users.create({ label: 'e1', ...common, behave }))
  for (const [i, atMs] of [1_000, 20_000].entries()) act(stage, atMs, 'publish', () => users.publish(eventOf(stage, i)))
}

/** Publishes many events for a receiver whose every connection fails at once, until it recovers. */
export function outageScript(stage: Stage): void {
  const { users, tenants } = stage
  const behave = (nth: number): Behaviour => (nth < 50 ? { kind: 'reset', taken: true, afterMs: 5 } : answers(200))
  const common = { tenant: tenants.first, projectRef: null, types: ['*'] }
  act(stage, 0, 'create', () => users.create({ label: 'e1', ...common, behave }))
  for (let i = 0; i < 2 * BACKLOG; i++) act(stage, 1_000, 'publish', () => users.publish(eventOf(stage, i)))
}

const CROWD = 12

/** Publishes one event for many endpoints, just after a sweep. */
export function crowdScript(stage: Stage): void {
  const { users, tenants } = stage
  const common = { tenant: tenants.first, projectRef: null, types: ['*'], behave: always(answers(200)) }
  act(stage, 0, 'create', async () => {
    for (let i = 1; i <= CROWD; i++) await users.create({ label: `e${i}`, ...common })
  })
  act(stage, 10_500, 'publish', () => users.publish(eventOf(stage, 0)))
}

/** Publishes one event, just after a sweep. */
export function oneScript(stage: Stage): void {
  const { users, tenants } = stage
  const common = { tenant: tenants.first, projectRef: null, types: ['*'] }
  act(stage, 0, 'create', () => users.create({ label: 'e1', ...common, behave: always(answers(200)) }))
  act(stage, 10_500, 'publish', () => users.publish(eventOf(stage, 0)))
}

/** Does what random users do to random endpoints with random receivers. */
export function randomScript(stage: Stage): void {
  const { random, users, tenants, endpoints } = stage
  const labels = Array.from({ length: random.whole(2, 5) }, (_, i) => `e${i + 1}`)
  for (const label of labels) act(stage, 0, `create ${label}`, () => createRandom(stage, label))
  const burst = random.chance(0.2)
  const count = burst ? random.whole(8, 24) : random.whole(3, 8)
  for (let i = 0; i < count; i++) {
    const atMs = burst ? 2_000 + random.whole(0, 50) : random.whole(500, 40_000)
    const tenant = random.chance(0.85) ? tenants.first : tenants.second
    const projectRef = random.chance(0.8) ? random.pick(tenant.projects) : null
    const type = projectRef && random.chance(0.8) ? LEAK : ORGANIZATION_LEAK
    const publication = { tenant, projectRef, type, change: `change${i}`, rollBack: random.chance(0.15) } as const
    const again = random.chance(0.3) ? { idempotencyKey: `key ${i}` } : undefined
    act(stage, atMs, `publish ${publication.change}`, async () => {
      const first = users.publish({ ...publication, ...again })
      await (again ? first.catch(() => users.publish({ ...publication, ...again })) : first)
    })
  }
  for (let i = random.whole(0, 4); i > 0; i--) {
    const label = random.pick(labels)
    const what = random.pick(['disable', 'enable', 'rotate', 'rotate', 'delete', 'retry', 'retry'])
    act(stage, random.whole(1_000, 70_000), `${what} ${label}`, async () => {
      if (!endpoints.get(label)?.states.length) return
      if (what === 'delete') return users.remove(label)
      if (what === 'rotate') return users.update(label, { rotate: true })
      if (what === 'retry') return retryRandom(stage, label)
      await users.update(label, { enabled: what === 'enable' })
    })
  }
}

async function createRandom({ random, users, tenants }: Stage, label: string): Promise<void> {
  const tenant = random.chance(0.8) ? tenants.first : tenants.second
  const projectRef = random.chance(0.6) ? random.pick(tenant.projects) : null
  const types = random.pick([['*'], ['*'], [LEAK], [LEAK, ORGANIZATION_LEAK], ['v1.project.paused']])
  const usual = random.pick<Behaviour[]>([
    [answers(200)],
    [answers(200), answers(204), answers(500)],
    [answers(200), answers(500), { kind: 'hang' }, { kind: 'stall', status: 200 }],
    [answers(200), answers(429, { 'retry-after': '15' }), answers(301)],
    [answers(200), { kind: 'reset', taken: true, afterMs: 5 }, { kind: 'reset', taken: false, afterMs: 5 }],
    [answers(200), { kind: 'reset', taken: true, afterMs: 3_000 }],
    [{ kind: 'reset', taken: true, afterMs: 5 }],
    [answers(500), answers(503)],
    [answers(200), answers(200), answers(410)],
    [{ kind: 'status', status: 200, afterMs: 4_000 }, { kind: 'hang' }],
  ])
  const behaviours = Array.from({ length: 7 }, () => random.pick(usual))
  const behave = (nth: number) => behaviours[nth % behaviours.length] ?? answers(200)
  await users.create({ label, tenant, projectRef, types, enabled: random.chance(0.9), behave })
}

/** Retries some delivery of the log, of an event that was published since. */
export async function retryRandom(stage: Stage, label: string, since = 0): Promise<void> {
  const { random, users, database, endpoints } = stage
  const rows = await database.query<{ id: string; message_id: string }>(
    `select d.id, d.message_id from webhook_deliveries d join webhook_events v on v.id = d.event_id
     where d.endpoint_id = $1 and v.published_at >= $2 order by d.id desc limit 100`,
    [endpoints.get(label)?.id, new Date(since)],
  )
  const row = rows[random.whole(0, Math.max(0, rows.length - 1))]
  if (row) await users.retry(label, row.id, row.message_id)
}
