import { convertV4MiniflareOptions, Miniflare, type V4MiniflareOptions } from 'miniflare'
import { freePort } from './ports.ts'

export interface Supervised {
  /** A Worker as Miniflare takes it. */
  worker: Record<string, unknown>
  onLine(line: string): void
  /** How long it may take over a request. */
  secondsMax: number
}

export interface Request {
  path: string
  headers: Record<string, string>
  body: Uint8Array<ArrayBuffer>
}

type Outcome =
  | { kind: 'answered'; text: string }
  /** It answered that it failed. */
  | { kind: 'refused'; reason: string }
  /** It was stopped over this request. */
  | { kind: 'late' }
  /** It ended while it had this request. */
  | { kind: 'ended' }

/** A Worker in a process of its own, started by `begin` or when it is first asked, and anew when it ended or does not come to an end. */
export function supervise(options: Supervised) {
  let running: Promise<Running> | undefined

  /** Whoever finds it broken first; the others wait for what comes up in its place. */
  async function replace(broken: Promise<Running>): Promise<void> {
    if (running !== broken) return
    running = undefined
    await stop(broken)
  }

  return {
    /** Does not wait: the first request finds it ready, or waits for it. */
    begin(): void {
      running = run(options)
      running.catch(() => {})
    },
    async ask(request: Request): Promise<Outcome> {
      running ??= run(options)
      const asked = running
      const signal = AbortSignal.timeout(options.secondsMax * 1_000)
      try {
        const { origin } = await asked
        return await send(origin, request, signal)
      } catch {
        await replace(asked)
        return { kind: signal.aborted ? 'late' : 'ended' }
      }
    },
    async stop(): Promise<void> {
      if (running) await stop(running)
    },
  }
}

interface Running {
  origin: string
  stop(): Promise<void>
}

async function run({ worker, onLine }: Supervised): Promise<Running> {
  const port = await freePort(0, 'api')
  const options = {
    host: '127.0.0.1',
    port: 0,
    cf: false,
    logRequests: false,
    handleStructuredLogs: ({ message }: { message: string }) => onLine(message),
    workers: [{ ...worker, unsafeDirectSockets: [{ host: '127.0.0.1', port }] }],
  }
  const miniflare = new Miniflare(convertV4MiniflareOptions(options as unknown as V4MiniflareOptions))
  await miniflare.ready
  return { origin: `http://127.0.0.1:${port}`, stop: () => miniflare.dispose() }
}

async function stop(running: Promise<Running>): Promise<void> {
  await running.then(
    (one) => one.stop(),
    () => {},
  )
}

async function send(origin: string, { path, headers, body }: Request, signal: AbortSignal): Promise<Outcome> {
  const response = await fetch(new URL(path, origin), { method: 'POST', headers, body, signal })
  const text = await response.text()
  return response.ok ? { kind: 'answered', text } : { kind: 'refused', reason: `${response.status} ${text}` }
}
