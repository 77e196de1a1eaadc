import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { guardChildren } from '../../dev/guard-children.ts'
import { type Ground, withCluster } from './cluster.ts'
import { crossing } from './crossing.ts'
import { playFull } from './full.ts'
import type { Verdict } from './oracles.ts'
import {
  pairPass,
  playStory,
  randomPass,
  randomSimulation,
  STORIES,
  type Story,
  singlePass,
  smallSimulation,
} from './passes.ts'
import { type Fault, single, together } from './plan.ts'
import { createReport, type Report } from './report.ts'
import { simulate } from './simulate.ts'
import { stress } from './stress.ts'

const HELP = `node test/faults/run.ts            everything: one fault at each place, pairs of faults, random seeds, the full-size run
  --seeds N --from S    number of random seeds (default 2000), and the first of them (default 1)
  --minutes M           runs random seeds for this time, instead of a number of them
  --random              runs only random seeds
  --brief               runs only kills and stalls at each place, and random seeds
  --until-broken        stops at the first broken oracle
  --stress              runs only the stress: real connections in parallel, in real time
  --seed S              replays one random seed and prints every step
  --full                runs only the full-size run, each seed in a separate process; with --seed S only that seed, in this process
  --full-seeds N        number of full-size seeds, from 1 (default 1); each takes one core for about half an hour
  --events N            number of events of a full-size seed (default 100,000)
  --small [I:FAULT,…]   replays the small script with faults (kill, fail, delay, forget, stall) at these places
  --story NAME          replays one story: ${Object.keys(STORIES).join(', ')}`

const PAIRS = 500
/** A larger heap saves a fifth of the time, which would be spent on garbage collection. */
const ROOMY = '--max-semi-space-size=64'
const SINGLE_FAULTS: Fault[] = ['kill', 'fail', 'delay', 'forget', 'stall']

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    seeds: { type: 'string', default: '2000' },
    from: { type: 'string', default: '1' },
    minutes: { type: 'string' },
    seed: { type: 'string' },
    small: { type: 'boolean' },
    story: { type: 'string' },
    random: { type: 'boolean' },
    full: { type: 'boolean' },
    'full-seeds': { type: 'string', default: '1' },
    events: { type: 'string', default: '100000' },
    brief: { type: 'boolean' },
    'until-broken': { type: 'boolean', default: false },
    stress: { type: 'boolean' },
    help: { type: 'boolean' },
  },
})

/** Whether to replay a single run instead of the whole proof. */
const isReplay = () => !values.full && Boolean(values.seed || values.small || values.story)

function* seeds(): Iterable<number> {
  const until = values.minutes ? performance.now() + Number(values.minutes) * 60_000 : undefined
  const from = Number(values.from)
  for (let seed = from; until === undefined ? seed < from + Number(values.seeds) : performance.now() < until; seed++)
    yield seed
}

async function replay({ database, tenants }: Ground, report: Report): Promise<void> {
  const places = (positionals[0] ?? '').split(',').filter(Boolean)
  const plans = places.map((place) => single(Number(place.split(':')[0]), place.split(':')[1] as Fault))
  const small = smallSimulation(together(...plans))
  const simulation = values.seed ? randomSimulation(Number(values.seed)) : small
  const print = console.log
  const trace = (line: string) => print(line)
  if (values.story) return report.add('', await playStory({ database, tenants }, values.story as Story, trace))
  report.add('', await simulate(database, tenants, { ...simulation, trace }))
}

async function full(ground: Ground, report: Report): Promise<void> {
  const print = console.log
  const startedAt = performance.now()
  const seed = Number(values.seed)
  let printed = 0
  const onPortion = ({ events, posts, lost, violations }: Verdict) => {
    for (const { oracle, text } of violations.slice(printed)) print(`${oracle} broken: ${text}`)
    printed = violations.length
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(0)
    const memoryMb = (process.memoryUsage().rss / 2 ** 20).toFixed(0)
    const broken = violations.length
    print(`full size, seed ${seed}: ${JSON.stringify({ events, posts, lost, broken, seconds, memoryMb })}`)
  }
  report.add(`--full --seed ${seed}`, await playFull(ground, { seed, events: Number(values.events), onPortion }))
}

/**
 * Keeps a process and its Postgres on one core: they wait for each other all the time, and across cores each wait
 * takes longer.
 */
function onCore(core: number): string[] {
  const list = ['--cpu-list', String(core)]
  return spawnSync('taskset', [...list, 'true']).status === 0 ? ['taskset', ...list] : []
}

/** Runs a process for each seed. */
async function allFull(report: Report): Promise<void> {
  guardChildren()
  const waiting = Array.from({ length: Number(values['full-seeds']) }, (_, i) => String(i + 1))
  const work = async (_: unknown, core: number) => {
    const [program = process.execPath, ...settings] = [...onCore(core), process.execPath]
    for (let seed = waiting.shift(); seed; seed = waiting.shift()) {
      const args = ['--full', '--seed', seed, '--events', values.events]
      const command = [...settings, ROOMY, fileURLToPath(import.meta.url), ...args]
      const child = spawn(program, command, { stdio: 'inherit' })
      const [code] = await once(child, 'close')
      if (code === 0) continue
      report.violations.push({ run: args.join(' '), oracle: 'full size', text: `seed ${seed}, as printed above` })
    }
  }
  await Promise.all(Array.from({ length: availableParallelism() }, work))
}

async function everything(ground: Ground, report: Report): Promise<void> {
  const run = { ...ground, report }
  if (!values.random && !values.brief) await stressed(ground, report)
  if (values.stress) return
  if (!values.random) {
    const places = await singlePass(run, values.brief ? ['kill', 'stall'] : SINGLE_FAULTS)
    console.log(`one fault at each of ${places} places: ${report.totals.runs} runs`)
    if (!values.brief) await pairPass(run, { places, pairs: PAIRS })
  }
  await randomPass(run, seeds())
  if (!values.random && !values.brief) await allFull(report)
}

async function stressed({ database, tenants }: Ground, report: Report): Promise<void> {
  const crossed = await crossing(database, tenants)
  const { posts, violations } = await stress(database, tenants)
  console.log(`real connections in parallel: ${posts} requests`)
  for (const violation of [...crossed, ...violations]) report.violations.push({ run: '--stress', ...violation })
}

function print(report: Report, seconds: number): void {
  const { runs = 0, ...totals } = report.totals
  const rate = (runs / seconds).toFixed(1)
  console.log(`${runs} runs in ${seconds.toFixed(0)} s (${rate}/s), seeds from ${values.from}`)
  for (const [name, total] of Object.entries(totals)) console.log(`  ${name.padEnd(16)}${String(total).padStart(10)}`)
  console.log(report.table())
  for (const { run, oracle, text } of report.violations.slice(0, 20)) {
    console.log(`${oracle} broken: ${text}\n  replay: node test/faults/run.ts ${run}`)
  }
  if (report.violations.length > 20) console.log(`… and ${report.violations.length - 20} more`)
}

/** Whether the proof holds: no oracle is broken, every point is known, and an instance was killed at each. */
function holds(report: Report): boolean {
  const unkilled = values.random || values.brief || values.stress || values.full || isReplay() ? [] : report.unkilled()
  if (unkilled.length > 0) console.log(`no instance was killed at: ${unkilled.join(', ')}`)
  if (report.unknown().length > 0) console.log(`not in the list of points: ${report.unknown().join(', ')}`)
  return report.violations.length === 0 && unkilled.length === 0 && report.unknown().length === 0
}

if (values.help) console.log(HELP)
else {
  const report = createReport({ untilBroken: values['until-broken'] })
  const startedAt = performance.now()
  if (values.full && !values.seed) await allFull(report)
  else await withCluster((ground) => (values.full ? full : isReplay() ? replay : everything)(ground, report))
  print(report, (performance.now() - startedAt) / 1000)
  // Timers of the code under test may be left from killed instances.
  process.exit(holds(report) ? 0 : 1)
}
