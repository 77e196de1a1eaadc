import type { SystemCtx } from '../../ctx.ts'
import type { WorkerSpec } from '../../model/tables/index.ts'
import { readText } from '../../platform/http/read-text.ts'
import { GIVEN_NAMES, projectEnvironment } from '../runtime/environment.ts'
import { loadFailureOf, noteLoadFailure } from '../runtime/isolate-starts.ts'
import { CHECK, type ProgramBindings, readImage, workerCodeOf } from '../runtime/program-code.ts'
import { workerImageKey } from '../runtime/program-keys.ts'
import type { Plan } from './worker-plan.ts'

const CHECK_TIMEOUT_MS = 20_000
const PROBLEM_BYTES_MAX = 64 * 1024

/** Ours, and not the program's. */
export class LoadFailed extends Error {
  override name = 'LoadFailed'
}

/** One isolate of a worker, started when it is first needed. */
export function openInstance(ctx: SystemCtx, name: string, plan: Plan, programBindings: ProgramBindings) {
  const isolate = ctx.bindings.LOADER.get(name, () =>
    codeFor(ctx, plan, programBindings).catch((error) => {
      noteLoadFailure(name, error)
      throw error
    }),
  )
  const within = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work
    } catch (error) {
      const cause = loadFailureOf(name)
      throw cause === undefined ? error : new LoadFailed('it could not be loaded', { cause })
    }
  }
  return {
    fetch: (url: string, init: RequestInit<CfProperties>): Promise<Response> =>
      within(isolate.getEntrypoint().fetch(url, init)),
    /** Starts it. Returns why it cannot answer. */
    async check(): Promise<string | undefined> {
      const signal = AbortSignal.timeout(CHECK_TIMEOUT_MS)
      const response = await within(isolate.getEntrypoint(CHECK).fetch('http://worker/', { signal }))
      if (response.status === 204) return undefined
      return (await within(readText(response, PROBLEM_BYTES_MAX))) ?? 'it answers with more than what is wrong'
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

/** What a worker of this scope finds in its environment. */
export async function variablesFor(ctx: SystemCtx, ref: string, scope: WorkerSpec['secrets_scope']) {
  const environment = await projectEnvironment(ctx, ref)
  return Object.fromEntries(Object.entries(environment).filter(([name]) => isWithin(scope, name)))
}

const GIVEN: ReadonlySet<string> = new Set(GIVEN_NAMES)

function isWithin(scope: WorkerSpec['secrets_scope'], name: string): boolean {
  if (scope === undefined || scope === null || scope === 'all') return true
  if (scope === 'none') return false
  if (scope === 'supabase') return GIVEN.has(name)
  return scope.some(({ secret_name }) => secret_name === name)
}
