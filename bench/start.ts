import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cp, mkdtemp, readFile, rm, symlink } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { ROOT } from '../dev/bundle.ts'
import { freePorts } from '../dev/ports.ts'
import { bearer } from './client.ts'
import { percentile } from './measure.ts'
import { type ProcessMemory, processTreeMemory } from './process-memory.ts'
import type { Report } from './report.ts'

const FIRST_STARTS = 3
const LATER_STARTS = 5
const FIRST_SECONDS_MAX = 8
const LATER_SECONDS_MAX = 3
const MEMORY_MB_MAX = 700

/** Everything in a clone that a start reads, except what npm installs. */
const SOURCES = [
  ...['src', 'dev', 'host', 'docs', 'drizzle'],
  ...['package.json', 'package-lock.json', 'tsconfig.json', 'wrangler.toml'],
]
/** The folder of compiled modules. `npm start` has it below node_modules, which the clone shares. */
const COMPILED = '.compiled'
/** Folders that a start creates in a clone. */
const CREATED = ['.local', 'dist', '.wrangler', COMPILED]
/** The runtimes of the bucket, the API and the programs. */
const RUNTIMES = 3
const SETTLED_MS_MAX = 60_000

/**
 * Measures `npm start` in a new clone and in one that was started before, until the API answers, and then the memory of all its
 * processes.
 */
export async function start(report: Report): Promise<void> {
  report.title(`npm start: ${FIRST_STARTS} first starts of a clone, ${LATER_STARTS} later ones`)
  const clone = await mkdtemp(join(tmpdir(), 'pilothouse-start-'))
  // Ctrl-C reaches the start too: the benchmark ends after it.
  const ignore = () => {}
  process.on('SIGINT', ignore)
  try {
    for (const path of SOURCES) await cp(join(ROOT, path), join(clone, path), { recursive: true })
    await symlink(join(ROOT, 'node_modules'), join(clone, 'node_modules'))
    const ports = await freePorts(4)
    const first: Start[] = []
    for (let n = 0; n < FIRST_STARTS; n++) {
      for (const path of CREATED) await rm(join(clone, path), { recursive: true, force: true })
      first.push(await startIn(clone, ports))
    }
    const later: Start[] = []
    for (let n = 0; n < LATER_STARTS; n++) later.push(await startIn(clone, ports))
    reportStarts(report, 'first start, s', first, FIRST_SECONDS_MAX)
    reportStarts(report, 'later start, s', later, LATER_SECONDS_MAX)
    const { memory = [] } = await startIn(clone, ports, settledMemory)
    const postgres = memory.filter(({ program }) => program === 'postgres')
    const others = memory.filter(({ program }) => program !== 'postgres')
    const reportMemory = (name: string, bytes: number) => report.line(`${name.padEnd(34)}${megabytes(bytes)} MB`)
    for (const { program, pid, bytes } of others) reportMemory(`${program} ${pid}`, bytes)
    reportMemory(`postgres, ${postgres.length} processes`, totalBytes(postgres))
    report.atMost('memory (PSS) in total, MB', megabytes(totalBytes(memory)), MEMORY_MB_MAX)
  } finally {
    process.off('SIGINT', ignore)
    await rm(clone, { recursive: true, force: true })
  }
}

interface Start {
  seconds: number
  /** Times of the steps, as the start prints them; some steps run at the same time. */
  steps: string
  memory?: ProcessMemory[]
}

/** Starts, asks until the first answer, and stops. */
async function startIn(
  clone: string,
  ports: readonly number[],
  measureMemory?: (pid: number) => Promise<ProcessMemory[]>,
): Promise<Start> {
  const [PORT, POSTGRES_PORT, PROXY_PORT, S3_PORT] = ports.map(String)
  const { BASE_URL: _, ...inherited } = process.env
  const own = {
    ...{ PORT, POSTGRES_PORT, PROXY_PORT, S3_PORT, PILOTHOUSE_DATA: join(clone, '.local'), LOG_FORMAT: 'json' },
    NODE_COMPILE_CACHE: join(clone, COMPILED),
  }
  const startedAt = performance.now()
  const child = spawn(process.execPath, ['dev/start.ts'], {
    cwd: clone,
    env: { ...inherited, ...own },
    stdio: ['ignore', 'ignore', 'pipe'],
  })
  const exited = once(child, 'exit')
  try {
    const printed = await untilReady(child)
    const { access_token: token } = JSON.parse(await readFile(join(clone, '.local', 'credentials.json'), 'utf8'))
    const reply = await fetch(`http://127.0.0.1:${PORT}/v1/organizations`, { headers: bearer(token) })
    if (!reply.ok) throw new Error(`the API answers ${reply.status}: ${await reply.text()}`)
    const seconds = (performance.now() - startedAt) / 1000
    const steps = [...printed.matchAll(/^ {2}(\w+) +([\d.]+) s$/gm)].map(([, name, time]) => `${name} ${time}`)
    const memory = measureMemory && child.pid !== undefined ? await measureMemory(child.pid) : undefined
    return { seconds, steps: steps.join(', '), ...(memory && { memory }) }
  } finally {
    child.kill('SIGINT')
    await exited
  }
}

/** Waits until the start is ready, and returns what it has printed. */
async function untilReady({ stderr }: ChildProcess): Promise<string> {
  let printed = ''
  for await (const chunk of stderr?.iterator({ destroyOnReturn: false }) ?? []) {
    printed += chunk
    if (printed.includes('Pilothouse is ready')) {
      stderr?.resume()
      return printed
    }
  }
  throw new Error(`it did not start: ${printed}`)
}

function reportStarts(report: Report, name: string, starts: readonly Start[], bound: number): void {
  for (const { seconds, steps } of starts) report.line(`${name.padEnd(34)}${seconds.toFixed(2)}  (${steps})`)
  const times = starts.map(({ seconds }) => seconds)
  report.atMost(`${name}, median`, Number(percentile(times, 0.5).toFixed(2)), bound)
}

/** Returns the memory once all processes have started and it no longer grows. */
async function settledMemory(pid: number): Promise<ProcessMemory[]> {
  let before = 0
  for (const until = performance.now() + SETTLED_MS_MAX; performance.now() < until; await delay(2_000)) {
    const memory = await processTreeMemory(pid)
    const growth = totalBytes(memory) - before
    before = totalBytes(memory)
    const runtimes = memory.filter(({ program }) => program === 'workerd')
    if (runtimes.length === RUNTIMES && Math.abs(growth) < 0.01 * before) return memory
  }
  throw new Error(`the memory did not settle within ${SETTLED_MS_MAX / 1000} s`)
}

const totalBytes = (memory: readonly ProcessMemory[]): number => memory.reduce((sum, { bytes }) => sum + bytes, 0)
const megabytes = (bytes: number): number => Math.round(bytes / 1_000_000)
