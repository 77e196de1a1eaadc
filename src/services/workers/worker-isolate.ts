import type { SystemCtx } from '../../ctx.ts'
import type { WorkerSpec } from '../../model/tables/index.ts'
import { readText } from '../../platform/http/read-text.ts'
import { INSTALLATION_VARIABLES, projectEnvironment } from '../runtime/environment.ts'
import { loadFailureOf, noteLoadFailure } from '../runtime/isolate-starts.ts'
import type { ProgramBindings } from '../runtime/program-bindings.ts'
import { CHECK, readImage, workerCodeOf } from '../runtime/program-code.ts'
import { workerImageKey } from '../runtime/program-keys.ts'
import type { Plan } from './worker-plan.ts'

const CHECK_TIMEOUT_MS = 20_000
const PROBLEM_BYTES_MAX = 64 * 1024

/** The platform could not load the program, which is not the fault of the program. */
export class LoadError extends Error {
  override name = 'LoadError'
}

/** One isolate of a worker, started when it is first needed. */
export function openInstance(ctx: SystemCtx, name: string, plan: Plan, programBindings: ProgramBindings) {
  let hasCode = false
  const isolate = ctx.bindings.LOADER.get(name, async () => {
    try {
      const code = await codeFor(ctx, plan, programBindings)
      hasCode = true
      return code
    } catch (error) {
      noteLoadFailure(name, error)
      throw error
    }
  })
  const withLoadError = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work
    } catch (error) {
      const cause = loadFailureOf(name)
      throw cause === undefined ? error : new LoadError('the worker could not be loaded', { cause })
    }
  }
  return {
    fetch: (url: string, init: RequestInit<CfProperties>): Promise<Response> =>
      withLoadError(isolate.getEntrypoint().fetch(url, init)),
    /** Starts the isolate. Returns why it cannot answer. */
    async check(): Promise<string | undefined> {
      const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS)
      const checked = isolate.getEntrypoint(CHECK).fetch('http://worker/', { signal })
      const response = await withLoadError(checked).catch((cause) => {
        // A start that hangs is the program's fault only once its code was read.
        throw signal.aborted && !hasCode ? new LoadError('the worker was not read in time', { cause }) : cause
      })
      if (response.status === 204) return undefined
      return (
        (await withLoadError(readText(response, PROBLEM_BYTES_MAX))) ??
        'the start check returned an unexpected response'
      )
    },
  }
}

async function codeFor(ctx: SystemCtx, { ref, image, spec }: Plan, programBindings: ProgramBindings) {
  const [program, variables] = await Promise.all([
    readImage(ctx, workerImageKey(ref, image)),
    variablesFor(ctx, ref, spec.secrets_scope),
  ])
  return workerCodeOf(program, { entrypoint: '', variables, programBindings, isWorker: true })
}

/** Environment variables of a worker with this secrets scope. */
export async function variablesFor(ctx: SystemCtx, ref: string, scope: WorkerSpec['secrets_scope']) {
  const environment = await projectEnvironment(ctx, ref)
  return Object.fromEntries(Object.entries(environment).filter(([name]) => isInScope(scope, name)))
}

const INSTALLATION_VARIABLE_SET: ReadonlySet<string> = new Set(INSTALLATION_VARIABLES)

function isInScope(scope: WorkerSpec['secrets_scope'], name: string): boolean {
  if (scope === undefined || scope === null || scope === 'all') return true
  if (scope === 'none') return false
  if (scope === 'supabase') return INSTALLATION_VARIABLE_SET.has(name)
  return scope.some(({ secret_name }) => secret_name === name)
}
