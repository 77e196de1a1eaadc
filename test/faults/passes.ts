import type { Database } from './database.ts'
import { atPoint, calm, chaos, type Fault, type Plan, recorded, single, together } from './plan.ts'
import { UNREACHABLE } from './platform.ts'
import { createRandom } from './random.ts'
import type { Report } from './report.ts'
import {
  backlogScript,
  crowdScript,
  oneScript,
  outageScript,
  randomScript,
  refusalScript,
  smallScript,
} from './scripts.ts'
import { PUBLIC, type Simulation, simulate, type Tenants } from './simulate.ts'

const FAULTS_MS = 90_000

/** Makes everything random: users, receivers, queue, clocks and faults. */
export function randomSimulation(seed: number): Simulation {
  const random = createRandom(seed * 7919)
  const queueFaults = {
    drop: random.pick([0, 0, 0.1, 0.3, 1]),
    duplicate: random.pick([0, 0.1, 0.5]),
    late: random.pick([0, 0.05, 0.3]),
    untilMs: FAULTS_MS,
  }
  const callFaults = {
    fail: random.pick([0, 0, 0.1, 0.5, 1]),
    hang: random.pick([0, 0, 0.1, 1]),
    reached: 0.5,
    fromMs: 0,
    untilMs: FAULTS_MS,
  }
  const skewed = random.chance(0.25)
  const resolverFails = random.chance(0.15)
  // A generator of its own, so that each seed gives the same story whether senders wait for each other or not.
  const crowded = createRandom(seed * 104_729).chance(0.25)
  return {
    seed,
    ...(crowded && { admitted: 8 }),
    plan: chaos(random, { untilMs: FAULTS_MS }),
    script: randomScript,
    queueFaults,
    callFaults,
    busyMs: FAULTS_MS,
    skewMs: (of) => (skewed ? of.whole(-600_000, 600_000) : 0),
    resolve: (_host, world) =>
      resolverFails && world.sinceStart() < FAULTS_MS && world.random.chance(0.5)
        ? { kind: 'unavailable', reason: 'the resolver is down' }
        : PUBLIC,
  }
}

/** The first event is announced by calls, the others through the queue. */
export const smallSimulation = (plan: Plan): Simulation => ({
  seed: 1,
  plan,
  script: smallScript,
  callFaults: { ...UNREACHABLE, fromMs: 2_000 },
  busyMs: 20_000,
})

const story = (script: Simulation['script'], plan = calm): Simulation => ({ seed: 1, plan, script, busyMs: 30_000 })

/** Stories that random runs seldom reach. */
export const STORIES = {
  backlog: story(backlogScript),
  refusal: story(refusalScript),
  /** More endpoints than are called directly. */
  crowd: story(crowdScript),
  unreachable: { ...story(oneScript), callFaults: UNREACHABLE },
  outage: story(outageScript),
  /**
   * Both tries of its first claim fail: the sender returns by itself, before the sweeper would find the event
   * overdue.
   */
  rest: story(oneScript, atPoint('database: claim', 'fail', { phase: 'before', times: 2 })),
  /** Only the sweeper learns of the event, and it is killed repeatedly. */
  unheard: story(
    oneScript,
    together(
      ...['wake: by request', 'queue: send'].map((point) => atPoint(point, 'fail', { phase: 'before' })),
      atPoint('database: claim', 'fail', { phase: 'before', untilMs: 300_000 }),
      ...['wake: by sweeper', 'database: backlog'].flatMap((point) =>
        (['before', 'after'] as const).map((phase) => atPoint(point, 'kill', { phase, times: 1 })),
      ),
    ),
  ),
} as const
export type Story = keyof typeof STORIES

const REST_MS_MAX = 8_000

export async function playStory({ database, tenants }: Pick<Run, 'database' | 'tenants'>, name: Story, trace?: Trace) {
  const result = await simulate(database, tenants, { ...STORIES[name], ...(trace && { trace }) })
  const { world, installation } = result.stage
  const waitedMs =
    (installation.ledger[0]?.at ?? Number.POSITIVE_INFINITY) - (world.now() - world.sinceStart()) - 10_500
  if (name === 'rest' && waitedMs > REST_MS_MAX) {
    result.violations.push({ oracle: 'O3', text: `the first attempt came after ${waitedMs} ms` })
  }
  return result
}
type Trace = Simulation['trace']

interface Run {
  database: Database
  tenants: Tenants
  report: Report
}

export async function randomPass({ database, tenants, report }: Run, seeds: Iterable<number>): Promise<void> {
  for (const seed of seeds) {
    if (report.isOver()) return
    report.add(`--seed ${seed}`, await simulate(database, tenants, randomSimulation(seed)))
  }
}

/**
 * Plays the small script with one fault at each place in turn, or at the first `ofEach` places of each point; returns
 * the number of places.
 */
export async function singlePass(
  { database, tenants, report }: Run,
  faults: readonly Fault[],
  { ofEach = Number.POSITIVE_INFINITY } = {},
): Promise<number> {
  const { plan, places } = recorded()
  report.add('--small', await simulate(database, tenants, smallSimulation(plan)))
  for (const name of Object.keys(STORIES) as Story[])
    report.add(`--story ${name}`, await playStory({ database, tenants }, name))
  const chosen = [...places.values()].flatMap((indexes) => indexes.slice(0, ofEach)).sort((a, b) => a - b)
  for (const index of chosen) {
    for (const fault of faults) {
      if (report.isOver()) return chosen.length
      report.add(`--small ${index}:${fault}`, await simulate(database, tenants, smallSimulation(single(index, fault))))
    }
  }
  return chosen.length
}

const PAIRED: readonly Fault[] = ['kill', 'kill', 'fail', 'delay', 'forget', 'stall']

/** Plays the small script with two faults at random places. */
export async function pairPass(
  { database, tenants, report }: Run,
  { places, pairs }: { places: number; pairs: number },
) {
  const random = createRandom(places)
  for (let pair = 0; pair < pairs; pair++) {
    const both = Array.from({ length: 2 }, () => [random.whole(0, places - 1), random.pick(PAIRED)] as const)
    const plan = together(...both.map(([index, fault]) => single(index, fault)))
    const name = `--small ${both.map((each) => each.join(':')).join(',')}`
    report.add(name, await simulate(database, tenants, smallSimulation(plan)))
  }
}
