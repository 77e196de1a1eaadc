import type { SystemCtx } from '../../ctx.ts'
import { setNewest } from '../../platform/bounded-map.ts'

/** A program that nobody called for so long starts anew with its next call. What it still does then ends. */
const IDLE_MS_MAX = 400_000
const KNOWN_MAX = 20_000

interface Use {
  /** When it was last called, or last answered. */
  at: number
  hasAnswered: boolean
  /** Calls that wait for their answer. */
  calls: number
  /** When another isolate of the same function took its place. */
  replacedAt?: number
}
/** By name, those in use last. */
const uses = new Map<string, Use>()

/** By function, the isolate that its last call went to. */
const current = new Map<string, string>()

/** A call of the function goes to the isolate. */
export function noteCall(programId: string, name: string, at: number): void {
  const { hasAnswered = false, calls = 0 } = uses.get(name) ?? {}
  setNewest(uses, name, { at, hasAnswered, calls: calls + 1 }, KNOWN_MAX)
  const last = current.get(programId)
  if (last === name) return
  const replaced = last === undefined ? undefined : uses.get(last)
  if (replaced) replaced.replacedAt = at
  setNewest(current, programId, name, KNOWN_MAX)
}

export function noteAnswer(name: string, at: number): void {
  const use = uses.get(name)
  if (use) Object.assign(use, { at, hasAnswered: true })
}

/** A call waits no longer, whatever became of it. */
export function noteCallEnd(name: string): void {
  const use = uses.get(name)
  if (use) use.calls -= 1
}

/** Whether it has started, as far as is known here. */
export const hasAnswered = (name: string): boolean => uses.get(name)?.hasAnswered ?? false

/** What a replaced isolate has for what it does after its last answer: each change of a secret makes another one. */
const REPLACED_MS_MAX = 60_000

const isOver = ({ at, calls, replacedAt }: Use, now: number): boolean =>
  at <= now - IDLE_MS_MAX ||
  (replacedAt !== undefined && calls <= 0 && Math.max(at, replacedAt) <= now - REPLACED_MS_MAX)

/** What one that has answered its last request has for what it still does. */
const LEFT_MS_MAX = 10_000

interface Left {
  deploymentId: string
  at: number
}

/** By their names, those that no request goes to any more. */
const left = new Map<string, Left>()

/** Ends it soon, unless it is kept until then. */
export const scheduleIsolateEnd = (name: string, deploymentId: string): unknown =>
  left.set(name, { deploymentId, at: Date.now() })

export const cancelIsolateEnd = (name: string): boolean => left.delete(name)

/** The runtime itself keeps every program that ever ran here, and each takes some megabytes. */
export async function endIdleIsolates(ctx: SystemCtx): Promise<void> {
  await endLeftIsolates(ctx)
  const { now, log } = ctx
  const at = now().getTime()
  let ended = 0
  for (const [name, use] of uses) {
    if (!isOver(use, at)) continue
    ended += 1
    await end(ctx, name)
    // Unless it is in use again. Before, it would be forgotten if this were broken off.
    if (uses.get(name) === use && isOver(use, at)) uses.delete(name)
  }
  if (ended > 0) log.info('programs_ended', { programs: ended })
}

async function endLeftIsolates(ctx: SystemCtx): Promise<void> {
  const before = Date.now() - LEFT_MS_MAX
  for (const [name, entry] of Array.from(left)) {
    // The next ones may have been kept while one ended.
    if (entry.at > before || left.get(name) !== entry) continue
    await end(ctx, name)
    if (left.get(name) === entry) left.delete(name)
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

/** In the place of one that the runtime no longer had. */
const endedCode = (): WorkerLoaderWorkerCode => ({
  compatibilityDate: '2026-11-01',
  mainModule: 'end.js',
  modules: {
    'end.js': {
      js: "import { abortIsolate } from 'cloudflare:workers'; export default { fetch: () => abortIsolate('idle') }",
    },
  },
})
