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

/** The runtime itself keeps every program that ever ran here, and each takes some megabytes. */
export async function endIdleIsolates({ bindings, now, log }: SystemCtx): Promise<void> {
  const before = now().getTime() - IDLE_MS_MAX
  let ended = 0
  for (const [name, at] of usedAt) {
    if (at > before) continue
    usedAt.delete(name)
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
