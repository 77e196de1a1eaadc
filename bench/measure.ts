import { type Connection, type Reply, type Request, withConnections } from './client.ts'

/** One side of a comparison: how to make its next request, and which replies are correct. */
export interface Side {
  name: string
  next(): Request
  accepts?: (reply: Reply) => boolean
  /** Port, if it is not that of the plan. */
  port?: number
}

export interface Plan {
  port: number
  concurrency: number
  rounds: number
  requestsPerBlock: number
}

export interface Figures {
  p50Ms: number
  p95Ms: number
  requestsPerSecond: number
  /** Median of each round, which shows how much rounds differ. */
  roundsP50Ms: number[]
}

interface Block {
  latenciesMs: number[]
  elapsedMs: number
}

/**
 * Runs blocks of all sides in turn, each round in another order, so that other load on the machine affects all sides alike. A
 * first round warms up and is not counted.
 */
export async function measure<Name extends string>(
  plan: Plan,
  sides: readonly (Side & { name: Name })[],
): Promise<Record<Name, Figures>> {
  const blocks = new Map<string, Block[]>(sides.map(({ name }) => [name, []]))
  const ports = [...new Set(sides.map(({ port = plan.port }) => port))]
  await withAllConnections(ports, plan.concurrency, async (connections) => {
    for (let round = 0; round <= plan.rounds; round++) {
      for (const side of rotate(sides, round)) {
        const block = await runBlock(connections.get(side.port ?? plan.port) ?? [], side, plan.requestsPerBlock)
        if (round > 0) blocks.get(side.name)?.push(block)
      }
    }
  })
  return Object.fromEntries([...blocks].map(([name, each]) => [name, figures(each)])) as Record<Name, Figures>
}

async function withAllConnections(
  [port, ...others]: readonly number[],
  concurrency: number,
  work: (connections: Map<number, Connection[]>) => Promise<void>,
): Promise<void> {
  if (port === undefined) return work(new Map())
  await withConnections(port, concurrency, (here) =>
    withAllConnections(others, concurrency, (rest) => work(rest.set(port, here))),
  )
}

function rotate<T>(items: readonly T[], by: number): T[] {
  const start = by % items.length
  return [...items.slice(start), ...items.slice(0, start)]
}

async function runBlock(connections: Connection[], side: Side, count: number): Promise<Block> {
  const { name, accepts = ({ status }: Reply) => status === 200 } = side
  // All requests are made before the clock starts.
  const waiting = Array.from({ length: count }, () => side.next()).values()
  const latenciesMs: number[] = []
  const startedAt = performance.now()
  await Promise.all(
    connections.map(async (connection) => {
      for (const request of waiting) {
        const sentAt = performance.now()
        const reply = await connection.send(request)
        latenciesMs.push(performance.now() - sentAt)
        if (!accepts(reply)) throw new Error(`${name} answered ${reply.status}: ${reply.body}`)
      }
    }),
  )
  return { latenciesMs, elapsedMs: performance.now() - startedAt }
}

function figures(blocks: readonly Block[]): Figures {
  const latenciesMs = blocks.flatMap((block) => block.latenciesMs)
  const elapsedMs = blocks.reduce((sum, block) => sum + block.elapsedMs, 0)
  return {
    p50Ms: percentile(latenciesMs, 0.5),
    p95Ms: percentile(latenciesMs, 0.95),
    requestsPerSecond: (latenciesMs.length / elapsedMs) * 1000,
    roundsP50Ms: blocks.map((block) => percentile(block.latenciesMs, 0.5)),
  }
}

/** Figures of single measurements, each of which counts as a round. */
export function figuresOf(latenciesMs: readonly number[]): Figures {
  return figures(latenciesMs.map((ms) => ({ latenciesMs: [ms], elapsedMs: ms })))
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN
}
