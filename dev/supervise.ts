import type { V4MiniflareOptions } from 'miniflare'
import { logLine } from '../src/platform/http/log.ts'
import { lowerPriority, NICE, spawnedBy, watchMemory } from './child-process.ts'
import { convertV4MiniflareOptions, Miniflare } from './miniflare.ts'
import { freePort } from './ports.ts'

export interface Supervised extends Program {
  /** Port of every process; any free port by default. */
  port?: number
  /** Time limit for a request. */
  secondsMax: number
  /** Memory limit for the process during a request. */
  memoryMiB?: number | undefined
}

export interface Program {
  /** A Worker as Miniflare takes it. */
  worker: Record<string, unknown>
  onLine(line: string): void
  /** Time limit for the start, which allows for a busy machine. */
  startSecondsMax?: number
}

export interface Request {
  path: string
  headers: Record<string, string>
  body: Uint8Array<ArrayBuffer>
  /** Requests of different origins take turns. */
  origin?: string
}

type Outcome =
  | { kind: 'answered'; headers: Headers; body: Uint8Array }
  /** The Worker answered with an error. */
  | { kind: 'refused'; reason: string }
  /** The process did not start, which is not the fault of the request. */
  | { kind: 'not-started' }
  /** The process was stopped because the request took too long. */
  | { kind: 'timed-out' }
  /** The process ended during the request. */
  | { kind: 'ended' }
  /** The caller disconnected before the request could start. */
  | { kind: 'canceled' }
  /** Too many requests are waiting already. */
  | { kind: 'busy' }

/** Limits for waiting requests: of all origins, and of one, which must not fill the places of others. */
const WAITING_MAX = { all: 100, origin: 50 }

/**
 * Runs a Worker in a process of its own. It starts with the first request, and again after it has ended or did not answer in
 * time. It gets one request at a time, so that a failure can be attributed to a request.
 */
export function supervise(options: Supervised) {
  let running: Promise<Running> | undefined
  /** Resolves when the process before has released its port. */
  let released = Promise.resolve()
  /** Starts of the waiting requests by origin, the next origin first. */
  const queues = new Map<string, (() => Promise<void>)[]>()
  let isServing = false
  let waiting = 0
  let isStopped = false

  function report(error: unknown): undefined {
    options.onLine(logLine('error', 'process_not_started', { error: String(error) }))
  }

  function start(): Promise<Running> {
    const starting = released.then(() => run(options, options))
    running = starting
    const watchExit = async ({ pid, exited }: Running) => {
      lowerPriority(pid, NICE.programs)
      await exited
      // Miniflare starts another process in its place, and nothing would watch the memory of that one.
      await drop(starting)
    }
    starting.then(watchExit).catch(() => {})
    return starting
  }

  /** Stops a process, unless that was done before, so that the next request starts one. */
  function drop(process: Promise<Running>): Promise<void> {
    if (running !== process) return released
    running = undefined
    released = process.then((one) => one.stop()).catch(() => {})
    return released
  }

  async function sendNow(request: Request, signal: AbortSignal): Promise<Outcome> {
    if (signal.aborted) return { kind: 'canceled' }
    if (isStopped) return { kind: 'ended' }
    const current = running ?? start()
    const ready = await current.catch(report)
    if (!ready) {
      await drop(current)
      return { kind: 'not-started' }
    }
    const late = AbortSignal.timeout(options.secondsMax * 1_000)
    const watch = watchMemory(ready.pid, options.memoryMiB)
    try {
      return await post(ready.origin, request, AbortSignal.any([late, watch.tooLarge]))
    } catch {
      await drop(current)
      return { kind: late.aborted ? 'timed-out' : 'ended' }
    } finally {
      watch.end()
    }
  }

  async function serveWaiting(): Promise<void> {
    if (isServing) return
    isServing = true
    for (const [origin, queue] of queues) {
      await queue.shift()?.()
      queues.delete(origin)
      // An origin with further requests goes to the end of the queue.
      if (queue.length > 0) queues.set(origin, queue)
    }
    isServing = false
  }

  const isBusy = (origin = ''): boolean =>
    waiting >= WAITING_MAX.all || (queues.get(origin)?.length ?? 0) >= WAITING_MAX.origin

  return {
    isBusy,
    /** Sends a request. `signal` aborts when the caller no longer waits for the answer. */
    async send(request: Request, signal: AbortSignal): Promise<Outcome> {
      const { origin = '' } = request
      if (isBusy(origin)) return { kind: 'busy' }
      waiting += 1
      const { promise, resolve, reject } = Promise.withResolvers<Outcome>()
      const queue = queues.get(origin) ?? []
      queue.push(() => sendNow(request, signal).then(resolve, reject))
      queues.set(origin, queue)
      void serveWaiting()
      return promise.finally(() => {
        waiting -= 1
      })
    },
    async stop(): Promise<void> {
      isStopped = true
      await (running ? drop(running) : released)
    },
  }
}

export interface Running {
  origin: string
  pid: number | undefined
  /** Resolves when the process has ended and all its output has arrived: to the signal that ended it, or null. */
  exited: Promise<NodeJS.Signals | null>
  stop(): Promise<void>
}

interface Place {
  /** Any free port by default. */
  port?: number
  /** The entrypoint to serve, if not the default one. */
  entrypoint?: string
}

/** Starts a Worker in a process of its own; resolves when it is ready. */
export async function run({ worker, onLine, startSecondsMax = 60 }: Program, place: Place = {}): Promise<Running> {
  const { port = await freePort(0, 'api'), entrypoint } = place
  const options = {
    host: '127.0.0.1',
    port: 0,
    cf: false,
    logRequests: false,
    handleStructuredLogs: ({ message }: { message: string }) => onLine(message),
    workers: [{ ...worker, unsafeDirectSockets: [{ host: '127.0.0.1', port, ...(entrypoint && { entrypoint }) }] }],
  }
  const { result: miniflare, children } = await spawnedBy(async () => {
    const starting = new Miniflare(convertV4MiniflareOptions(options as unknown as V4MiniflareOptions))
    try {
      await within(starting.ready, startSecondsMax)
      return starting
    } catch (error) {
      await starting.dispose().catch(() => {})
      throw error
    }
  })
  const child = children.at(-1)
  return {
    origin: `http://127.0.0.1:${port}`,
    pid: child?.pid,
    exited: new Promise((resolve) => child?.once('close', (_, signal) => resolve(signal))),
    stop: () => miniflare.dispose(),
  }
}

async function within(ready: Promise<unknown>, seconds: number): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`it was not ready within ${seconds} s`)), seconds * 1_000)
  })
  await Promise.race([ready, late]).finally(() => clearTimeout(timer))
}

async function post(origin: string, { path, headers, body }: Request, signal: AbortSignal): Promise<Outcome> {
  const response = await fetch(new URL(path, origin), { method: 'POST', headers, body, signal })
  if (!response.ok) return { kind: 'refused', reason: `${response.status} ${await response.text()}` }
  return { kind: 'answered', headers: response.headers, body: await response.bytes() }
}
