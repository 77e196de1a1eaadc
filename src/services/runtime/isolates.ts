import type { SystemCtx } from '../../ctx.ts'
import { BoundedMap } from '../../platform/bounded-map.ts'

/** An isolate without calls for this time is ended, with any background work; the next call starts a new one. */
const IDLE_MS_MAX = 400_000
const KNOWN_MAX = 20_000

interface Use {
  /** Time of the last call or response. */
  at: number
  hasAnswered: boolean
  /** Calls waiting for a response. */
  calls: number
  /** Time when another isolate of the same function replaced it. */
  replacedAt?: number
}
/** Isolates by name, least recently called first. */
const uses = new BoundedMap<string, Use>(KNOWN_MAX)

/** Isolate of the last call, by function. */
const current = new BoundedMap<string, string>(KNOWN_MAX)

/** Notes that a call of the function goes to the isolate. */
export function noteCall(programId: string, name: string, at: number): void {
  const { hasAnswered = false, calls = 0 } = uses.get(name) ?? {}
  uses.set(name, { at, hasAnswered, calls: calls + 1 })
  const last = current.get(programId)
  if (last === name) return
  const replaced = last === undefined ? undefined : uses.get(last)
  if (replaced) replaced.replacedAt = at
  current.set(programId, name)
}

export function noteAnswer(name: string, at: number): void {
  const use = uses.get(name)
  if (use) Object.assign(use, { at, hasAnswered: true })
}

/** Notes that a call ended, with or without a response. */
export function noteCallEnd(name: string): void {
  const use = uses.get(name)
  if (use) use.calls -= 1
}

/** Whether the isolate is known to have started. */
export const hasAnswered = (name: string): boolean => uses.get(name)?.hasAnswered ?? false

/**
 * Time for background work of a replaced isolate after its last response. It is short, because each change of a secret
 * replaces isolates.
 */
const REPLACED_MS_MAX = 60_000

const isExpired = ({ at, calls, replacedAt }: Use, now: number): boolean =>
  at <= now - IDLE_MS_MAX ||
  (replacedAt !== undefined && calls <= 0 && Math.max(at, replacedAt) <= now - REPLACED_MS_MAX)

/** Time for background work of a worker instance after its last response. */
const ENDING_MS_MAX = 10_000

interface Ending {
  deploymentId: string
  at: number
}

/** Isolates that get no further requests, by name. */
const ending = new Map<string, Ending>()

/** Ends the isolate after a delay, unless `cancelIsolateEnd` is called before. */
export const scheduleIsolateEnd = (name: string, deploymentId: string): unknown =>
  ending.set(name, { deploymentId, at: Date.now() })

export const cancelIsolateEnd = (name: string): boolean => ending.delete(name)

/** Ends idle isolates to free memory: the runtime never ends one itself, and each takes some megabytes. */
export async function endIdleIsolates(ctx: SystemCtx): Promise<void> {
  await endReleasedIsolates(ctx)
  const { now, log } = ctx
  const at = now().getTime()
  let ended = 0
  for (const [name, use] of uses) {
    if (!isExpired(use, at)) continue
    ended += 1
    await end(ctx, name)
    // Deleted only after the end, so that an interrupted sweep does not lose it, and only if it is not in use again.
    if (uses.get(name) === use && isExpired(use, at)) uses.delete(name)
  }
  if (ended > 0) log.info('programs_ended', { programs: ended })
}

async function endReleasedIsolates(ctx: SystemCtx): Promise<void> {
  const before = Date.now() - ENDING_MS_MAX
  for (const [name, entry] of Array.from(ending)) {
    // While another isolate was ended, this one may have been canceled or rescheduled.
    if (entry.at > before || ending.get(name) !== entry) continue
    await end(ctx, name)
    if (ending.get(name) === entry) ending.delete(name)
    ctx.log.info('worker_instance_ended', { deployment: entry.deploymentId })
  }
}

async function end({ bindings }: SystemCtx, name: string): Promise<void> {
  const init = { cf: { end: true } as unknown as CfProperties }
  await bindings.LOADER.get(name, endedCode)
    .getEntrypoint()
    .fetch('http://program/', init)
    .catch(() => {})
}

/** Code to load if the runtime no longer has the isolate: it ends itself. */
const endedCode = (): WorkerLoaderWorkerCode => ({
  compatibilityDate: '2026-11-01',
  mainModule: 'end.js',
  modules: {
    'end.js': {
      js: "import { abortIsolate } from 'cloudflare:workers'; export default { fetch: () => abortIsolate('idle') }",
    },
  },
})
