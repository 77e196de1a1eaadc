import type { Result } from './simulate.ts'

/** Every call that leaves the code under test; if a seed reaches another one, add it here. */
const POINTS = [
  'transaction: connect',
  'transaction: begin',
  'transaction: statement',
  'transaction: audit',
  'transaction: publish',
  'transaction: commit',
  'wake: by request',
  'wake: by consumer',
  'wake: by sweeper',
  'queue: send',
  'queue: acknowledge',
  'object: keep',
  'database: statement',
  'database: claim',
  'database: settle',
  'database: next due',
  'database: disable',
  'database: overdue',
  'database: backlog',
  'alarm: get',
  'alarm: set',
  'resolve',
  'post',
  'post: body',
]
/** Points after which nothing is left to lose. */
const UNCOUNTED = ['transaction: rollback']

const COUNTED = [
  'events',
  'deliveries',
  'succeeded',
  'posts',
  'duplicates',
  'lost',
  'phantom',
  'wrongEndpoint',
] as const

/** Collects the results of all runs. */
export function createReport({ untilBroken = false } = {}) {
  const points = new Map<string, { seen: number; killed: number; failed: number }>()
  const totals: Record<string, number> = { runs: 0, operations: 0, faults: 0 }
  const violations: { run: string; oracle: string; text: string }[] = []
  const logged: Record<string, number> = {}

  function add(run: string, result: Result): void {
    const { world, installation } = result.stage
    totals.runs = (totals.runs ?? 0) + 1
    totals.operations = (totals.operations ?? 0) + world.counts().operations
    totals.faults = (totals.faults ?? 0) + world.counts().faults
    for (const name of COUNTED) totals[name] = (totals[name] ?? 0) + result[name]
    for (const [name, { seen, killed, failed }] of world.points) {
      const point = points.get(name) ?? { seen: 0, killed: 0, failed: 0 }
      points.set(name, { seen: point.seen + seen, killed: point.killed + killed, failed: point.failed + failed })
    }
    for (const [event, count] of Object.entries(installation.logged)) logged[event] = (logged[event] ?? 0) + count
    for (const { oracle, text } of result.violations) violations.push({ run, oracle, text })
  }

  /** Whether further runs are unnecessary. */
  const isOver = () => untilBroken && violations.length > 0
  const names = () => POINTS.flatMap((point) => [`${point} before`, `${point} after`])
  const unkilled = () => names().filter((name) => !points.get(name)?.killed)
  const unknown = () =>
    [...points.keys()].filter((name) => ![...POINTS, ...UNCOUNTED].some((point) => name.replace(/ \w+$/, '') === point))

  function table(): string {
    const rows = names().map((name) => {
      const { seen = 0, killed = 0, failed = 0 } = points.get(name) ?? {}
      return `  ${name.padEnd(32)}${[seen, killed, failed].map((count) => String(count).padStart(10)).join('')}`
    })
    return [`  ${'point'.padEnd(32)}      seen    killed    failed`, ...rows].join('\n')
  }

  return { add, isOver, totals, violations, logged, unkilled, unknown, table, pointCount: () => names().length }
}
export type Report = ReturnType<typeof createReport>
