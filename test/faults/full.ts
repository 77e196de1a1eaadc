import type { Ground } from './cluster.ts'
import type { Violation } from './oracles/evidence.ts'
import type { Verdict } from './oracles.ts'
import { lasting } from './plan.ts'
import { createRandom } from './random.ts'
import type { Behaviour } from './receivers.ts'
import { act, answers, LEAK, retryRandom } from './scripts.ts'
import { onStage, PUBLIC, type Result, type Simulation, type Stage } from './simulate.ts'

const LABELS = ['e1', 'e2', 'e3']
/** The share of all calls, messages, answers, clocks and requests that fail. */
const SHARE = 0.05

/**
 * The number of events that are published, come to rest, are judged and deleted before the next ones, so that a long
 * run needs no more memory.
 */
const PORTION = 2_500
const PORTION_MS = 250_000
/** The time in which the endpoints are created; nothing fails in the first portion. */
const QUIET_MS = 5_000
/** Ten times the steps of a portion. */
const STEPS_MAX = 1_000 * PORTION

const MISBEHAVIOURS: readonly Behaviour[] = [
  answers(500),
  answers(503, { 'retry-after': '15' }),
  answers(429, { 'retry-after': '3600' }),
  answers(301),
  { kind: 'status', status: 200, afterMs: 4_000 },
  { kind: 'status', status: 500, afterMs: 19_000 },
  { kind: 'hang' },
  { kind: 'stall', status: 200 },
  { kind: 'reset', taken: true, afterMs: 5 },
  { kind: 'reset', taken: false, afterMs: 5 },
  { kind: 'reset', taken: true, afterMs: 3_000 },
]
const GONE = 1 / 5_000

/** Decides by the seed and the number of the request, so that asking twice for one request gives the same behaviour. */
const receiver = (seed: number) => (nth: number) => {
  const random = createRandom(seed * 1_000_003 + nth)
  if (random.chance(GONE)) return answers(410)
  return random.chance(SHARE) ? random.pick(MISBEHAVIOURS) : answers(200)
}

function simulationOf(seed: number): Omit<Simulation, 'script' | 'busyMs'> {
  const random = createRandom(seed * 7919)
  const untilMs = Number.POSITIVE_INFINITY
  return {
    seed,
    plan: lasting(random, { share: SHARE, fromMs: QUIET_MS }),
    queueFaults: { drop: SHARE, duplicate: SHARE, late: SHARE, untilMs },
    callFaults: { fail: SHARE, hang: SHARE, reached: 0.5, fromMs: 0, untilMs },
    skewMs: (of) => (of.chance(SHARE) ? of.whole(-600_000, 600_000) : 0),
    resolve: () => (random.chance(SHARE) ? { kind: 'unavailable', reason: 'the resolver is down' } : PUBLIC),
  }
}

interface Full {
  seed: number
  events: number
  /** Called after each portion with the sum of all portions so far. */
  onPortion(sum: Verdict): void
}

/** The full-size run: from the first event to the last, everything fails now and then. */
export const playFull = ({ database, tenants }: Ground, { seed, events, onPortion }: Full): Promise<Result> =>
  onStage(database, tenants, simulationOf(seed), async (stage, playOut) => {
    const { world, installation, users } = stage
    const judged: Tally = new Map()
    let sum: Verdict | undefined
    act(stage, 0, 'create', async () => {
      for (const label of LABELS) await create(stage, label)
    })
    // Statements are planned for large tables from the first row on.
    await database.query('set enable_seqscan = off')
    await database.query('set plan_cache_mode = force_generic_plan')
    // Publications that were rolled back or died do not count.
    for (let first = 0; (sum?.events ?? 0) < events; first += PORTION) {
      const since = world.now()
      publishAll(stage, first)
      disturb(stage, first)
      sum = plus(await playOut({ since, eventsMax: STEPS_MAX }), sum)
      await countInto(judged, stage, since)
      installation.ledger.length = 0
      users.forget()
      world.forget()
      await database.query('delete from audit_log')
      onPortion(sum)
    }
    if (!sum) throw new Error('no events')
    sum.violations.push(...(await changedSince(stage, judged)))
    return { ...sum, stage }
  })

function plus(verdict: Verdict, sum: Verdict | undefined): Verdict {
  if (!sum) return verdict
  const { violations, ...counts } = verdict
  sum.violations.push(...violations)
  for (const name of Object.keys(counts) as (keyof typeof counts)[]) sum[name] += counts[name]
  return sum
}

/** The number of deliveries of each endpoint in each status. */
type Tally = Map<string, number>

async function countInto(tally: Tally, { database, endpoints }: Stage, since: number): Promise<void> {
  const ids = LABELS.map((label) => endpoints.get(label)?.id)
  const rows = await database.query<{ kind: string; count: number }>(
    `select d.endpoint_id || ' ' || d.status as kind, count(*)::int as count
     from webhook_deliveries d join webhook_events v on v.id = d.event_id
     where d.endpoint_id = any($1) and v.published_at >= $2 group by 1`,
    [ids, new Date(since)],
  )
  for (const { kind, count } of rows) tally.set(kind, (tally.get(kind) ?? 0) + count)
}

/** Returns judged deliveries that have changed since, which must not happen. */
async function changedSince(stage: Stage, judged: Tally): Promise<Violation[]> {
  const left: Tally = new Map()
  await countInto(left, stage, 0)
  const shown = (tally: Tally) => [...tally].sort().join('; ')
  if (shown(left) === shown(judged)) return []
  return [{ oracle: 'O5', text: `${shown(judged)} were judged, and ${shown(left)} exist at the end` }]
}

const create = ({ users, tenants, random }: Stage, label: string) =>
  users.create({
    label,
    tenant: tenants.first,
    projectRef: null,
    types: ['*'],
    behave: receiver(random.whole(0, 1_000_000)),
  })

const GAP_MS_MAX = 250
/**
 * The statements between two updates of the table statistics; the database's own clock would not keep up with the
 * simulated one.
 */
const ANALYZE_EVERY = 500
const CARE_MS = 30_000
const BURST = 25
const BURST_CHANCE = 0.01

/** Publishes one by one, and now and then many at once; each event has a change of its own. */
function publishAll(stage: Stage, first: number): void {
  const { world, random, database } = stage
  const end = first + PORTION
  let next = first
  const analyze = async () => void (await database.query('analyze webhook_deliveries, webhook_events'))
  const step = () => {
    const until = Math.min(end, next + (random.chance(BURST_CHANCE) ? BURST : 1))
    for (; next < until; next++) {
      const change = `change${next}`
      act(stage, world.sinceStart(), 'publish', () => publishOne(stage, change))
      if (next % ANALYZE_EVERY === 0) act(stage, world.sinceStart(), 'analyze', analyze)
    }
    if (next < end) world.at(world.now() + random.whole(0, GAP_MS_MAX), 'publish', step)
  }
  world.at(world.now() + QUIET_MS, 'publish', step)
}

async function publishOne({ random, users, tenants: { first } }: Stage, change: string): Promise<void> {
  const publication = { tenant: first, projectRef: random.pick(first.projects), type: LEAK, change } as const
  if (random.chance(SHARE)) return users.publish({ ...publication, rollBack: true })
  if (random.chance(0.5)) return users.publish(publication)
  const again = { ...publication, idempotencyKey: change }
  await users.publish(again).catch(() => users.publish(again))
}

/** Does what users and operators do while a portion is published. */
function disturb(stage: Stage, first: number): void {
  const { world, random, users, installation, endpoints } = stage
  const since = world.now()
  const begin = world.sinceStart()
  const often = (times: number, name: string, work: () => Promise<void>) => {
    for (let i = 0; i < times; i++) act(stage, begin + random.whole(QUIET_MS, PORTION_MS), name, work)
  }
  const anyone = () => random.pick(LABELS)
  often(1, 'disable', () => users.update(anyone(), { enabled: false }))
  often(1, 'rotate', () => users.update(anyone(), { rotate: true }))
  often(1, 'move', () => users.update(anyone(), { path: `hook${first}` }))
  often(10, 'retry', () => retryRandom(stage, anyone(), since))
  often(5, 'update', async () => installation.killSenders())
  often(2, 'purge', async () => void installation.queue.purge())
  often(5, 'sweep', async () => installation.sweep())
  const visitor = `visitor${first}`
  act(stage, begin + QUIET_MS, 'create', () => create(stage, visitor))
  act(stage, begin + PORTION_MS / 10, 'delete', async () => {
    if (endpoints.get(visitor)?.id) await users.remove(visitor)
  })
  // An operator enables endpoints that a user or an answer disabled.
  for (let at = QUIET_MS; at < PORTION_MS; at += CARE_MS) {
    act(stage, begin + at, 'care', async () => {
      for (const label of LABELS) {
        if (!endpoints.get(label)?.states.at(-1)?.enabled) await users.update(label, { enabled: true })
      }
    })
  }
}
