import { afterAll, beforeAll, expect, inject } from 'vitest'
import { createDatabase, type Database } from './database.ts'
import { readRows } from './oracles/evidence.ts'
import { atPoint, calm, type Plan } from './plan.ts'
import { UNREACHABLE } from './platform.ts'
import type { Behaviour } from './receivers.ts'
import { act, always, answers, LEAK } from './scripts.ts'
import { createTenants, type Simulation, type Stage, simulate, type Tenants } from './simulate.ts'
import { closeSockets } from './socket.ts'

let database: Database
let tenants: Tenants

/** Makes a control database for a file of tests. */
export function useSimulation(): void {
  beforeAll(async () => {
    database = await createDatabase(inject('adminUrl'))
    tenants = await createTenants(database)
  })
  afterAll(async () => {
    closeSockets()
    await database.drop()
  })
}

/** Plays a script to its end: whatever the test is about, no oracle may be broken. */
export async function play(simulation: Partial<Simulation> & Pick<Simulation, 'script'>) {
  const lines: string[] = []
  const result = await simulate(database, tenants, {
    seed: 1,
    plan: calm,
    trace: (line) => lines.push(line),
    ...simulation,
  })
  expect(result.violations, lines.join('\n')).toEqual([])
  const { ledger } = result.stage.installation
  const startedAt = result.stage.world.now() - result.stage.world.sinceStart()
  /** Returns times in milliseconds since the start of the simulation. */
  const times = (endpoint = 'e1') => ledger.filter((post) => post.endpoint === endpoint).map(({ at }) => at - startedAt)
  return { ...result, ledger, times, rows: await readRows(database), trace: lines }
}

export interface One {
  plan?: Plan
  behave?: (nth: number) => Behaviour
  /** Other events; the event is published a second after the start. */
  meanwhile?: (stage: Stage) => void
  others?: Partial<Simulation>
  /** The number of events at the same time. */
  events?: number
}

export const throughQueue = { callFaults: UNREACHABLE }

/** The two ways in which a sender learns of a new delivery. */
export const WAYS = { 'called directly': {}, 'woken through the queue': throughQueue }

/** Both hints of a new delivery fail: only the sweeper is left. */
export const noHint = {
  plan: atPoint('queue: send', 'fail', { phase: 'before', of: 'request' }),
  others: throughQueue,
}

export const createE1 = ({ users, tenants: { first } }: Stage, behave: (nth: number) => Behaviour, label = 'e1') =>
  users.create({ label, tenant: first, projectRef: null, types: ['*'], behave })

export const publish = ({ users, tenants: { first } }: Stage, change: string, rest = {}) =>
  users.publish({ tenant: first, projectRef: first.projects[0] ?? null, type: LEAK, change, ...rest })

/** Plays one endpoint, `e1`, and one event that reaches it. */
export const playOne = ({ plan, behave = always(answers(200)), meanwhile, others, events = 1 }: One = {}) =>
  play({
    ...(plan && { plan }),
    busyMs: 10_000,
    ...others,
    script: (stage) => {
      act(stage, 0, 'create', () => createE1(stage, behave))
      for (let i = 0; i < events; i++) act(stage, 1_000, 'publish', () => publish(stage, `change${i}`))
      meanwhile?.(stage)
    },
  })

/** Returns the receiver's answers in turn, the last one again and again. */
export const inTurn =
  (...behaviours: Behaviour[]) =>
  (nth: number): Behaviour =>
    behaviours[Math.min(nth, behaviours.length - 1)] ?? answers(200)
