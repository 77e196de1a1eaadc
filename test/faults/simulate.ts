import type { Resolution } from '../../src/platform/net/dns.ts'
import type { Database } from './database.ts'
import { createInstallation, type Installation } from './installation.ts'
import { judge, type Verdict } from './oracles.ts'
import type { Plan } from './plan.ts'
import type { CallFaults, QueueFaults } from './platform.ts'
import { countCrypto } from './quiet.ts'
import { createRandom, type Random } from './random.ts'
import type { KnownEndpoint } from './receivers.ts'
import { leakedSockets, useSimulatedSockets } from './socket.ts'
import { createUsers, type Tenant, type Users } from './users.ts'
import { createWorld, Endless, type World } from './world.ts'

export interface Stage {
  world: World
  installation: Installation
  users: Users
  endpoints: Map<string, KnownEndpoint>
  database: Database
  tenants: Tenants
  random: Random
}

export interface Tenants {
  first: Tenant
  second: Tenant
}

export interface Simulation {
  seed: number
  plan: Plan
  /** Adds users' actions to the stage. */
  script(stage: Stage): void
  queueFaults?: QueueFaults
  callFaults?: CallFaults
  skewMs?: (random: Random) => number
  resolve?: (host: string, world: World) => Resolution
  settings?: Record<string, string>
  admitted?: number
  /** The simulation may come to rest only after this time. */
  busyMs?: number
  trace?: (line: string) => void
}

export interface Result extends Verdict {
  stage: Stage
}

export const PUBLIC: Resolution = { kind: 'addresses', addresses: ['93.184.215.14'] }
const QUICK_MS = 50
const REST_MS_MAX = 4 * 3_600_000
const QUEUE_WORKS: QueueFaults = { drop: 0, duplicate: 0, late: 0, untilMs: 0 }
const CALLS_WORK: CallFaults = { fail: 0, hang: 0, reached: 0, fromMs: 0, untilMs: 0 }

/** Makes two organizations; the first has two projects, the second one. */
export async function createTenants({ client }: Database): Promise<Tenants> {
  const make = async (slug: string, projects: string[]): Promise<Tenant> => {
    const { rows } = await client.query(
      `insert into organizations (slug, name, plan) values ($1, $1, 'enterprise') returning id`,
      [slug],
    )
    const id = rows[0]?.id as string
    for (const ref of projects) {
      await client.query(
        `insert into projects (ref, organization_id, name, region, instance_size, status, sealed_password, sealed_runner_password)
         values ($1, $2, $1, 'us-east-1', 'nano', 'ACTIVE_HEALTHY', '', '')`,
        [ref, id],
      )
    }
    return { organization: { id, slug }, projects }
  }
  return {
    first: await make('first', ['aaaaaaaaaaaaaaaaaaaa', 'bbbbbbbbbbbbbbbbbbbb']),
    second: await make('second', ['cccccccccccccccccccc']),
  }
}

/** Plays one script to its end and judges the result. */
export const simulate = (database: Database, tenants: Tenants, simulation: Simulation): Promise<Result> =>
  onStage(database, tenants, simulation, async (stage, playOut) => {
    simulation.script(stage)
    const { busyMs = 0 } = simulation
    return { ...(await playOut({ busyMs })), stage }
  })

interface Play {
  /** The simulation may come to rest only after this time. */
  busyMs?: number
  /** Judges only what was published since, in real time. */
  since?: number
  eventsMax?: number
}
/** Lets the simulation come to rest and judges the result. */
type PlayOut = (play: Play) => Promise<Verdict>

/** Sets up an installation that nobody uses yet. */
export async function onStage<T>(
  database: Database,
  tenants: Tenants,
  simulation: Omit<Simulation, 'script' | 'busyMs'>,
  work: (stage: Stage, playOut: PlayOut) => Promise<T>,
): Promise<T> {
  const {
    seed,
    plan,
    queueFaults = QUEUE_WORKS,
    callFaults = CALLS_WORK,
    skewMs = () => 0,
    trace = () => {},
  } = simulation
  const random = createRandom(seed)
  const endpoints = new Map<string, KnownEndpoint>()
  let postponed = 0
  const restore = takeOver(createRandom(seed + 1), trace)
  try {
    await database.client.query('delete from webhook_endpoints; delete from webhook_events; delete from audit_log')
    const world = createWorld(random, plan, trace)
    const installation = createInstallation({
      world,
      database,
      endpoints,
      queueFaults,
      callFaults,
      skewMs: () => skewMs(random),
      resolve: (host) => {
        const resolution = simulation.resolve?.(host, world) ?? PUBLIC
        if (resolution.kind === 'unavailable') postponed += 1
        return resolution
      },
      ...(simulation.settings && { settings: simulation.settings }),
      ...(simulation.admitted && { admitted: simulation.admitted }),
    })
    const users = createUsers({ world, database, installation, endpoints })
    const stage = { world, installation, users, endpoints, database, tenants, random }
    installation.start()
    return await work(stage, async ({ busyMs = 0, since = 0, eventsMax }) => {
      await runToRest(stage, busyMs, eventsMax).catch((error) => {
        if (!(error instanceof Endless)) throw error
        world.broken(error.message)
      })
      const verdict = await judge({
        database,
        users,
        endpoints,
        ledger: installation.ledger,
        since: new Date(since),
        calm: world.injected.length === 0,
        quick: world.slowestMs() <= QUICK_MS && postponed === 0,
        announced: callFaults.hang === 0 && queueFaults.drop === 0 && queueFaults.late === 0,
      })
      for (const text of leakedSockets()) world.broken(text)
      const broken = world.seenBroken.map((text) => ({ oracle: 'O10', text }))
      return { ...verdict, violations: [...verdict.violations, ...broken] }
    })
  } finally {
    restore()
  }
}

const PAUSE_MS = 5_000

async function runToRest({ world, database }: Stage, busyMs: number, eventsMax?: number): Promise<void> {
  const begun = world.sinceStart()
  let askedAt = Number.NEGATIVE_INFINITY
  await world.run(async () => {
    const passed = world.sinceStart() - begun
    if (passed < busyMs || passed - askedAt < PAUSE_MS) return false
    askedAt = passed
    if (passed > REST_MS_MAX) return true
    const { rows } = await database.client.query(`select from webhook_deliveries where status = 'pending' limit 1`)
    return rows.length === 0
  }, eventsMax)
}

/**
 * Replaces the globals that the code under test uses for random numbers, name resolution and logs. Returns a function that
 * restores them.
 */
function takeOver(random: Random, trace: (line: string) => void): () => void {
  countCrypto()
  const restoreSockets = useSimulatedSockets()
  const { random: draw } = Math
  const { fetch } = globalThis
  const { log, error } = console
  Math.random = random.next
  globalThis.fetch = async () => Response.json({ Status: 0, Answer: [{ type: 1, TTL: 60, data: '93.184.215.14' }] })
  console.log = (line) => trace(`   ${line}`)
  console.error = (line) => trace(`   ${line}`)
  return () => {
    restoreSockets()
    Math.random = draw
    globalThis.fetch = fetch
    console.log = log
    console.error = error
  }
}
