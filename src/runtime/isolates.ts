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

/** The runtime itself keeps every program that ever ran here, and each takes some megabytes. */
export async function endIdleIsolates({ bindings, now, log }: SystemCtx): Promise<void> {
  const before = now().getTime() - IDLE_MS_MAX
  let ended = 0
  for (const [name, { at }] of uses) {
    if (at > before) continue
    uses.delete(name)
    ended += 1
    const init = { cf: { end: true } as unknown as CfProperties }
    await bindings.LOADER.get(name, endedCode)
      .getEntrypoint()
      .fetch('http://program/', init)
      .catch(() => {})
  }
  if (ended > 0) log.info('programs_ended', { programs: ended })
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
