import { convertV4MiniflareOptions, Miniflare, type V4MiniflareOptions } from 'miniflare'
import { logLine } from '../src/platform/http/log.ts'
import { spawnedBy, watchMemory } from './child-process.ts'
import { freePort } from './ports.ts'

export interface Supervised extends Program {
  /** Where it listens, each time; any port, where it is left out. */
  port?: number
  /** How long it may take over a request. */
  secondsMax: number
  /** What its process may have in memory over a request. */
  memoryMiB?: number | undefined
}

export interface Program {
  /** A Worker as Miniflare takes it. */
  worker: Record<string, unknown>
  onLine(line: string): void
  /** How long its start may take; longer than on a machine that has much else to do. */
  startSecondsMax?: number
}

export interface Request {
  path: string
  headers: Record<string, string>
  body: Uint8Array<ArrayBuffer>
}

type Outcome =
  | { kind: 'answered'; headers: Headers; body: Uint8Array }
  /** It answered that it failed. */
  | { kind: 'refused'; reason: string }
  /** It did not start, which is not this request's fault. */
  | { kind: 'down' }
  /** It was stopped over this request. */
  | { kind: 'late' }
  /** It ended while it had this request. */
  | { kind: 'ended' }
  /** Who asked was gone before its turn. */
  | { kind: 'left' }
  /** Too many wait already. */
  | { kind: 'busy' }

const WAITING_MAX = 100

/**
 * A Worker in a process of its own, started by `begin` or when it is first asked, and anew when it ended or comes to no end. It is asked
 * one thing at a time, so that it is plain over which of them that happened.
 */
export function supervise(options: Supervised) {
  let running: Promise<Running> | undefined
  let last: Promise<unknown> = Promise.resolve()
  let waiting = 0
  let isStopped = false

  function report(error: unknown): undefined {
    options.onLine(logLine('error', 'process_not_started', { error: String(error) }))
  }

  async function askNow(request: Request, left: AbortSignal): Promise<Outcome> {
    if (left.aborted) return { kind: 'left' }
    if (isStopped) return { kind: 'ended' }
    running ??= run(options, options)
    const asked = running
    const ready = await asked.catch(report)
    if (!ready) {
      running = undefined
      return { kind: 'down' }
    }
    const late = AbortSignal.timeout(options.secondsMax * 1_000)
    const watch = watchMemory(ready.pid, options.memoryMiB)
    try {
      return await send(ready.origin, request, AbortSignal.any([late, watch.tooLarge]))
    } catch {
      running = undefined
      await stop(asked)
      return { kind: late.aborted ? 'late' : 'ended' }
    } finally {
      watch.end()
    }
  }

  return {
    /** Does not wait: the first request finds it ready, or waits for it. */
    begin(): void {
      running = run(options, options)
      running.catch(() => {})
    },
    isBusy: () => waiting >= WAITING_MAX,
    /** `left` aborts when nobody waits for the answer any more. */
    async ask(request: Request, left: AbortSignal): Promise<Outcome> {
      if (waiting >= WAITING_MAX) return { kind: 'busy' }
      waiting += 1
      const outcome = last
        .then(() => askNow(request, left))
        .finally(() => {
          waiting -= 1
        })
      // The next one is asked whatever became of this one.
      last = outcome.catch(() => {})
      return outcome
    },
    async stop(): Promise<void> {
      isStopped = true
      if (running) await stop(running)
    },
  }
}

export interface Running {
  origin: string
  pid: number | undefined
  /** Resolves to the signal that ended it, or null, once all its lines have come. */
  exited: Promise<NodeJS.Signals | null>
  stop(): Promise<void>
}

interface Place {
  /** Any, where it is left out. */
  port?: number
  /** Another entrypoint than the default one. */
  entrypoint?: string
}

/** A Worker in a process of its own, once that is ready. */
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

async function stop(running: Promise<Running>): Promise<void> {
  await running.then(
    (one) => one.stop(),
    () => {},
  )
}

async function send(origin: string, { path, headers, body }: Request, signal: AbortSignal): Promise<Outcome> {
  const response = await fetch(new URL(path, origin), { method: 'POST', headers, body, signal })
  if (!response.ok) return { kind: 'refused', reason: `${response.status} ${await response.text()}` }
  return { kind: 'answered', headers: response.headers, body: await response.bytes() }
}
