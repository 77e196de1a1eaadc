import type { SystemCtx } from '../env.ts'

/** A program that nobody called for so long starts anew with its next call. What it still does then ends. */
const IDLE_MS_MAX = 400_000
const KNOWN_MAX = 20_000

/** Under which name each was last called, and when. */
const usedAt = new Map<string, number>()

export function noteUse(name: string, at: number): void {
  if (usedAt.size >= KNOWN_MAX) usedAt.clear()
  usedAt.set(name, at)
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
  for (const [name, at] of usedAt) {
    if (at > before) continue
    usedAt.delete(name)
    ended += 1
    await end(ctx, name)
  }
  if (ended > 0) log.info('programs_ended', { programs: ended })
}

async function endLeftIsolates(ctx: SystemCtx): Promise<void> {
  const before = Date.now() - LEFT_MS_MAX
  for (const [name, { deploymentId, at }] of left) {
    // The next ones may have been kept while one ended.
    if (at > before || !left.delete(name)) continue
    await end(ctx, name)
    ctx.log.info('worker_instance_ended', { deployment: deploymentId })
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
