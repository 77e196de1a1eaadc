import { InstanceUnavailable } from '../host/instances/types.ts'
import { causesOf, errorCode, StartError } from './start-error.ts'

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP']
/** Time after the first signal during which another one counts as the same. */
const REPEAT_MS = 500

interface Running {
  stop(): Promise<void>
}

/** Tracks running parts and stops them in reverse order, even if the end comes while some are still starting. */
export function openLifetime() {
  const running: Running[] = []
  const starting = new Set<Promise<unknown>>()
  let ending: Promise<void> | undefined

  /** Adds a part that is starting; a part that becomes ready during the end is stopped at once. */
  function add<T extends Running>(part: Promise<T>): Promise<T> {
    const added = part.then((ready) => {
      running.push(ready)
      return ready
    })
    starting.add(added)
    added.catch(() => {}).finally(() => starting.delete(added))
    return added
  }

  function end(): Promise<void> {
    ending ??= stopAll()
    return ending
  }

  async function stopAll() {
    await Promise.allSettled(starting)
    for (const part of running.splice(0).reverse()) await part.stop()
  }

  function onSignal(work: (signal: NodeJS.Signals) => void) {
    let firstAt: number | undefined
    const listen = (signal: NodeJS.Signals) => {
      // One Ctrl-C may come twice: from the terminal, and passed on by npm.
      if (firstAt !== undefined && performance.now() - firstAt < REPEAT_MS) return
      firstAt ??= performance.now()
      work(signal)
    }
    for (const signal of SIGNALS) process.on(signal, listen)
    // Miniflare's own listener would end the process at once, before the other parts have stopped.
    process.on('newListener', (event: string, listener: unknown) => {
      if (SIGNALS.includes(event) && listener !== listen)
        queueMicrotask(() => process.off(event, listener as () => void))
    })
  }
  return { add, end, onSignal, isEnding: () => ending !== undefined }
}

/** Describes a failure: one line if the operator can fix it, the stack trace if it is a bug. */
export function describeFailure(error: unknown): string {
  if (error instanceof StartError) return error.message
  for (const cause of causesOf(error)) {
    const line = fileProblem(cause)
    if (line) return line
    if (cause instanceof InstanceUnavailable) return `A database does not start: ${cause.message}.`
  }
  // The parameters of a failed statement are removed, because they may be sealed values.
  const text = error instanceof Error ? (error.stack ?? error.message) : String(error)
  return text.replace(/\nparams: [\s\S]*?(?=\n {4}at |$)/, '')
}

/** Keyed by system error code. */
const FILE_PROBLEMS: Record<string, string> = {
  ENOSPC: 'no space is left on the disk: free some',
  EDQUOT: "this user's share of the disk is used up: free some",
  EROFS: 'its file system is read-only: mount it for writing',
  EACCES: 'this user has no right to it: run this as the user who owns it',
  EPERM: 'this user has no right to it: run this as the user who owns it',
}

function fileProblem(error: Error): string | undefined {
  const code = errorCode(error) ?? ''
  const problem = FILE_PROBLEMS[code]
  const path = 'path' in error && typeof error.path === 'string' ? error.path : undefined
  if (!problem || (path === undefined && !['ENOSPC', 'EDQUOT'].includes(code))) return undefined
  return `${path === undefined ? 'Cannot write' : path}: ${problem}.`
}
