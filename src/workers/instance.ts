import type { SystemCtx } from '../env.ts'
import type { Image } from '../runtime/image.ts'
import { loadImage } from './images.ts'
import type { Plan } from './plan.ts'

const CHECK_TIMEOUT_MS = 10_000

/** One isolate of a worker, started when it is first needed. */
export function openInstance(ctx: SystemCtx, name: string, plan: Plan) {
  const worker = ctx.bindings.LOADER.get(name, async () =>
    codeOf(await loadImage(ctx, { ref: plan.ref, sha256: plan.image })),
  )
  return {
    fetch: (request: Request): Promise<Response> => worker.getEntrypoint().fetch(request),
    /** Starts it. Returns why it cannot answer. */
    async check(): Promise<string | undefined> {
      try {
        const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS)
        const response = await worker.getEntrypoint(CHECK).fetch('http://worker/', { signal })
        return response.ok ? undefined : await response.text()
      } catch (error) {
        return `It does not start: ${error instanceof Error ? error.message : String(error)}`
      }
    },
  }
}

const CHECK = 'PilothouseCheck'
const MAIN = 'pilothouse-worker.js'

function codeOf({ main, modules }: Image): WorkerLoaderWorkerCode {
  const source = `import { WorkerEntrypoint } from 'cloudflare:workers'
import program from ${JSON.stringify(`./${main}`)}
export default program
export class ${CHECK} extends WorkerEntrypoint {
  fetch() {
    const answers = typeof program?.fetch === 'function' || typeof program?.prototype?.fetch === 'function'
    return answers ? new Response(null) : new Response('The entrypoint has no default export with a fetch function', { status: 500 })
  }
}`
  return {
    compatibilityDate: '2026-11-01',
    compatibilityFlags: ['nodejs_compat'],
    mainModule: MAIN,
    modules: { [MAIN]: { js: source }, ...(modules as Record<string, WorkerLoaderModule>) },
    env: {},
    globalOutbound: null,
  }
}
