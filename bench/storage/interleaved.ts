import { spreadOf } from '../webhooks/load.ts'

/** Makes the next job, before the clock starts. A lane runs one job at a time. */
export type NextJob<Lane> = () => Job<Lane> | Promise<Job<Lane>>
type Job<Lane> = (lane: Lane) => Promise<void>

export interface Rates {
  p50Ms: number
  p99Ms: number
  /** Jobs a second in each round. */
  perSecond: number[]
}

interface Plan<Lane> {
  lanes: readonly Lane[]
  rounds: number
  /** Rounds before, which are not counted: code that ran a few hundred times is not compiled for speed yet. */
  warmUps?: number
  jobs: number
}

/** Runs short blocks of all sides in turn, each round in another order. */
export async function measureInterleaved<Lane, Name extends string>(
  { lanes, rounds, warmUps = 1, jobs }: Plan<Lane>,
  sides: Record<Name, NextJob<Lane>>,
): Promise<Record<Name, Rates>> {
  const order = Object.entries<NextJob<Lane>>(sides)
  const blocks = new Map(order.map(([name]) => [name, [] as Block[]]))
  for (let round = 0; round < warmUps + rounds; round++) {
    for (const [name, next] of order) {
      const block = await runBlock(lanes, next, jobs)
      if (round >= warmUps) blocks.get(name)?.push(block)
    }
    order.push(...order.splice(0, 1))
  }
  return Object.fromEntries([...blocks].map(([name, each]) => [name, ratesOf(each)])) as Record<Name, Rates>
}

interface Block {
  latenciesMs: number[]
  perSecond: number
}

/** Time after which a block ends, on slow machines before all of its jobs are done. */
const BLOCK_MS_MAX = 1_500

async function runBlock<Lane>(lanes: readonly Lane[], next: NextJob<Lane>, count: number): Promise<Block> {
  const jobs: Job<Lane>[] = []
  for (let n = 0; n < count; n++) jobs.push(await next())
  const waiting = jobs.values()
  const latenciesMs: number[] = []
  const startedAt = performance.now()
  await Promise.all(
    lanes.map(async (lane) => {
      for (const job of waiting) {
        const sentAt = performance.now()
        if (sentAt - startedAt > BLOCK_MS_MAX) return
        await job(lane)
        latenciesMs.push(performance.now() - sentAt)
      }
    }),
  )
  return { latenciesMs, perSecond: (latenciesMs.length * 1000) / (performance.now() - startedAt) }
}

function ratesOf(blocks: readonly Block[]): Rates {
  const { p50Ms, p99Ms } = spreadOf(blocks.flatMap(({ latenciesMs }) => latenciesMs))
  return { p50Ms, p99Ms, perSecond: blocks.map(({ perSecond }) => perSecond) }
}

export const median = (values: readonly number[]): number => spreadOf(values).p50Ms
