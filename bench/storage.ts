import { randomBytes } from 'node:crypto'
import type { Environment } from './environment.ts'
import type { Report } from './report.ts'
import { measureInterleaved, median, type Rates } from './storage/interleaved.ts'
import { type StorageBench, withLanes } from './storage/lanes.ts'
import { BUCKETS } from './storage/project.ts'
import { downloads, listings, lookUps, type Sides, uploads } from './storage/sides.ts'

const CONCURRENCY = 16
const ROUNDS = 9
const KIB = 1024
const MIB = 1024 * KIB
/** Largest number of requests in a block. */
const JOBS = { small: 480, large: 64, list: 320 }

const FLOOR_MIN = 0.8
const ROWS_TIMES_MIN = 2

interface Case {
  name: string
  sides: Sides
  jobs: number
  /**
   * Requests a second of the storage server that people self-host today, with files on a local disk, at this concurrency and on
   * a machine with two processors: the best of three runs.
   */
  selfHosted?: number | undefined
  /** Smallest multiple of `selfHosted` that passes. */
  timesMin?: number
  /** Smallest share of the floor's requests a second that passes. */
  floorMin?: number
}

/** Compares each operation with its floor, the minimal work: the same bytes to or from a bucket, the same SQL to Postgres. */
export async function storage(environment: Environment, report: Report): Promise<void> {
  const memory: string[] = []
  const recordMemory = async (when: string) => {
    memory.push(`${Math.round((await environment.workerRssBytes()) / MIB)} MiB ${when}`)
  }
  await withLanes(environment, CONCURRENCY, async (bench) => {
    await recordMemory('before')
    for (const [group, cases] of Object.entries(GROUPS)) {
      for (const each of await cases(bench)) await compare(bench, each, report)
      await recordMemory(`after ${group}`)
    }
  })
  report.title('memory of workerd')
  report.line(memory.join(', '))
}

const GROUPS: Record<string, (bench: StorageBench) => Case[] | Promise<Case[]>> = {
  'small uploads': (bench) => uploadCases(bench, 'POST 1 KB', KIB),
  'large uploads': (bench) => uploadCases(bench, 'POST 1 MB', MIB),
  'small downloads': (bench) => downloadCases(bench, 'GET 1 KB', KIB),
  'large downloads': (bench) => downloadCases(bench, 'GET 1 MB', MIB),
  'look-ups': lookUpCases,
  lists: (bench) => [
    ...listCases(bench, '10,000', BUCKETS.thousands),
    ...listCases(bench, '1,000,000', BUCKETS.million),
  ],
}

const SELF_HOSTED: Record<string, number> = {
  'POST 1 KB, new key': 382,
  'POST 1 KB, upsert': 344,
  'POST 1 MB, new key': 90,
  'GET 1 KB, authenticated': 545,
  'GET 1 KB, public': 616,
  'GET 1 KB, signed': 721,
  'GET 1 MB, authenticated': 142,
  'GET 1 MB, public': 142,
  'GET 1 MB, signed': 142,
}

const jobsFor = (bytes: number) => (bytes < MIB ? JOBS.small : JOBS.large)

function uploadCases(bench: StorageBench, what: string, bytes: number): Case[] {
  const body = randomBytes(bytes)
  return (['new key', 'upsert'] as const).map((kind) => {
    const name = `${what}, ${kind}`
    return {
      name,
      sides: uploads(bench, kind, body),
      jobs: jobsFor(bytes),
      selfHosted: SELF_HOSTED[name],
      floorMin: FLOOR_MIN,
    }
  })
}

async function downloadCases(bench: StorageBench, what: string, bytes: number): Promise<Case[]> {
  const sidesByKind = await downloads(bench, randomBytes(bytes))
  return Object.entries(sidesByKind).map(([kind, sides]) => {
    const name = `${what}, ${kind}`
    return { name, sides, jobs: jobsFor(bytes), selfHosted: SELF_HOSTED[name], timesMin: 1 }
  })
}

function lookUpCases(bench: StorageBench): Case[] {
  const { info, sign } = lookUps(bench)
  return [
    { name: 'info', sides: info, jobs: JOBS.small, selfHosted: 1395, timesMin: ROWS_TIMES_MIN },
    { name: 'sign one', sides: sign, jobs: JOBS.small, selfHosted: 1866, timesMin: ROWS_TIMES_MIN },
  ]
}

/** The figures of `selfHosted` are for a list of 10,000. */
function listCases(bench: StorageBench, count: string, bucketId: string): Case[] {
  const sides = listings(bench, bucketId)
  const load = { jobs: JOBS.list, timesMin: ROWS_TIMES_MIN }
  return [
    { name: `list 100 of ${count}`, sides: sides.list, selfHosted: 578, ...load },
    { name: `list-v2 100 of ${count}`, sides: sides['list-v2'], selfHosted: 651, ...load },
  ]
}

const NAMES: Record<string, string> = {
  server: 'storage server',
  bare: 'the Worker alone',
  bucketAlone: 'the bucket alone',
}

async function compare({ lanes }: StorageBench, of: Case, report: Report): Promise<void> {
  const { name, sides, jobs, selfHosted, timesMin, floorMin } = of
  const rates = await measureInterleaved({ lanes, rounds: ROUNDS, jobs }, sides)
  report.title(`${name}, concurrency ${lanes.length} (${ROUNDS} × ${jobs} requests each at most, in turns)`)
  for (const [side, { perSecond, p50Ms, p99Ms }] of Object.entries<Rates>(rates)) {
    const [label, rate] = [NAMES[side] ?? side, median(perSecond).toFixed(0)]
    const share = median(rates.server.perSecond.map((each, round) => each / (perSecond[round] ?? Number.NaN)))
    const ratio = side === 'server' ? '' : `  the server reaches ${share.toFixed(2)} of it`
    report.line(`${label.padEnd(18)}${rate.padStart(6)}/s  p50 ${cell(p50Ms)} ms  p99 ${cell(p99Ms)} ms${ratio}`)
    if (side === 'floor' && floorMin) report.atLeast('share of the floor', round(share), floorMin)
  }
  if (selfHosted === undefined) return
  const times = round(median(rates.server.perSecond) / selfHosted)
  const text = `ratio to self-hosted (${selfHosted}/s)`
  if (timesMin) report.atLeast(text, times, timesMin)
  else report.line(`${text}: ${times}`)
}

const cell = (value: number) => value.toFixed(1).padStart(6)
const round = (value: number) => Number(value.toFixed(2))
