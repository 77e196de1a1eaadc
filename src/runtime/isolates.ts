import type { SystemCtx } from '../env.ts'

/** A program that nobody called for so long starts anew with its next call. What it still does then ends. */
const IDLE_MS_MAX = 400_000
const KNOWN_MAX = 20_000

interface Use {
  /** When it was last called, or last answered. */
  at: number
  hasAnswered: boolean
}
/** By name, those in use last. */
const uses = new Map<string, Use>()

export const noteUse = (name: string, at: number): void => note(name, { at, hasAnswered: hasAnswered(name) })
export const noteAnswer = (name: string, at: number): void => note(name, { at, hasAnswered: true })

/** Whether it has started, as far as is known here. */
export const hasAnswered = (name: string): boolean => uses.get(name)?.hasAnswered ?? false

function note(name: string, use: Use): void {
  uses.delete(name)
  const [oldest] = uses.keys()
  if (uses.size >= KNOWN_MAX && oldest !== undefined) uses.delete(oldest)
  uses.set(name, use)
}

/** What one that has answered its last request has for what it still does. */
const LEFT_MS_MAX = 10_000

interface Left {
  deploymentId: string
  at: number
}

/** By their names, those that no request goes to any more. */
const left = new Map<string, Left>()

/** Ends it soon, unless it is kept until then. */
export const leaveIsolate = (name: string, deploymentId: string): unknown =>
  left.set(name, { deploymentId, at: Date.now() })

export const keepIsolate = (name: string): boolean => left.delete(name)

/** The runtime itself keeps every program that ever ran here, and each takes some megabytes. */
export async function endIdleIsolates(ctx: SystemCtx): Promise<void> {
  await endLeftIsolates(ctx)
  const { now, log } = ctx
  const before = now().getTime() - IDLE_MS_MAX
  let ended = 0
  for (const [name, { at }] of uses) {
    if (at > before) continue
    ended += 1
    await end(ctx, name)
    // Unless it is in use again. Before, it would be forgotten if this were broken off.
    if (uses.get(name)?.at === at) uses.delete(name)
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
