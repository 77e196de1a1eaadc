import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, open, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { type ControlDb, openControlDatabase } from '../dev/seed.ts'
import { StartError } from '../dev/start-error.ts'
import type { Ready } from './server.ts'

export interface Environment extends Omit<Ready, 'controlUrl'> {
  control: ControlDb
  /** Resident memory of the process that runs the Worker. */
  workerRssBytes(): Promise<number>
  /** Resident memory of every process by its role; those that run and build programs are added up. */
  processRssBytes(): Promise<Record<string, number>>
  /** Matching log lines of the Worker, when there are at least `count`. */
  logLines(count: number, matches: (line: LogLine) => boolean): Promise<LogLine[]>
}

export interface LogLine {
  event?: string
  route?: string
  path?: string
  queries?: number
}

const SERVER = new URL('server.ts', import.meta.url)

/**
 * Starts what `npm start` runs in a separate process, with free ports and a new data folder. So the database host and the
 * Worker's log do not share the event loop of the load. The log goes to a file.
 */
export async function withEnvironment<T>(work: (environment: Environment) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'pilothouse-bench-'))
  const logFile = join(folder, 'worker.log')
  const log = await open(logFile, 'a')
  const server = fork(SERVER, [join(folder, 'data')], { stdio: ['ignore', log.fd, log.fd, 'ipc'] })
  const exited = once(server, 'exit')
  const stop = () => {
    if (server.connected) server.disconnect()
  }
  // Ctrl-C ends the server, and with it the benchmark, which then cleans up.
  let interrupted = false
  const interrupt = () => {
    interrupted = true
    stop()
  }
  process.on('SIGINT', interrupt)
  try {
    const [ready] = (await Promise.race([once(server, 'message'), exited])) as [Ready | number | null]
    if (ready === null || typeof ready === 'number')
      throw new Error(`the server did not start: ${await readFile(logFile, 'utf8')}`)
    const { db: control, close } = openControlDatabase(ready.controlUrl)
    try {
      const logLines: Environment['logLines'] = (count, matches) => waitForLines(logFile, count, matches)
      const ended = exited.then(() => Promise.reject(new Error('the server ended before the benchmark did')))
      return await Promise.race([
        work({
          ...ready,
          control,
          workerRssBytes: () => readWorkerRss(server.pid),
          processRssBytes: () => readProcessRss(server.pid, ready),
          logLines,
        }),
        ended,
      ])
    } finally {
      await close()
    }
  } catch (error) {
    throw interrupted ? new StartError('Stopped.') : error
  } finally {
    stop()
    await exited
    process.off('SIGINT', interrupt)
    await log.close()
    await rm(folder, { recursive: true, force: true })
  }
}

/** Memory of the largest workerd: the bucket and programs run on smaller ones. */
async function readWorkerRss(serverPid: number | undefined): Promise<number> {
  const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'ppid=,rss=,comm='])
  const kibibytes = stdout.split('\n').flatMap((line) => {
    const [ppid, rss, comm = ''] = line.trim().split(/\s+/)
    return Number(ppid) === serverPid && comm.endsWith('workerd') ? [Number(rss)] : []
  })
  return Math.max(...kibibytes) * 1024
}

async function readProcessRss(serverPid: number | undefined, { pids }: Ready): Promise<Record<string, number>> {
  const { stdout } = await promisify(execFile)('ps', ['-A', '-o', 'pid=,ppid=,rss=,comm='])
  const rows = stdout.split('\n').map((line) => line.trim().split(/\s+/))
  const nameOf = ([pid, ppid, , command]: string[]): string | undefined => {
    if (Number(pid) === serverPid) return 'node'
    if (Number(ppid) !== serverPid || !command?.endsWith('workerd')) return undefined
    if (Number(pid) === pids.api) return 'api'
    return Number(pid) === pids.bucket ? 'bucket' : 'programs'
  }
  const bytes: Record<string, number> = {}
  for (const row of rows) {
    const name = nameOf(row)
    if (name) bytes[name] = (bytes[name] ?? 0) + Number(row[2]) * 1024
  }
  return bytes
}

const LOG_WAIT_MS_MAX = 10_000

/** Waits for the lines, because the Worker logs after it has replied. */
async function waitForLines(file: string, count: number, matches: (line: LogLine) => boolean): Promise<LogLine[]> {
  const until = performance.now() + LOG_WAIT_MS_MAX
  for (;;) {
    const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line.startsWith('{'))
    const found = lines.slice(0, -1).map(parse).filter(matches)
    if (found.length >= count) return found
    if (performance.now() > until) throw new Error(`the log has ${found.length} lines of ${count} requests`)
    await delay(50)
  }
}

function parse(line: string): LogLine {
  try {
    return JSON.parse(line)
  } catch {
    return {}
  }
}
