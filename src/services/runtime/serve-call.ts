import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import { describeError } from '../../platform/http/log.ts'
import { findFunction } from '../functions/run-function.ts'
import { allowRequest, isPreflight } from '../gateway/preflight.ts'
import { sandboxResponse } from '../gateway/shared-origin.ts'
import { findWorker } from '../workers/run-worker.ts'
import { admitCall, countCall, rejectCall } from './admit-call.ts'
import { markNotRun } from './processes/not-run-responses.ts'
import type { FindProgram, FoundProgram, ProgramCall, ProgramIds } from './program-call.ts'
import { refuse } from './refusals.ts'
import { logRefusal, refuseUnknownProgram } from './refused-calls.ts'

const FINDERS = { function: findFunction, worker: findWorker } as const satisfies Record<string, FindProgram>

/** Runs the called program in this process. Returns its response, a static asset or a refusal. */
export const serveCall = (call: ProgramCall): Promise<Response> =>
  refuseOnError(call, async (ctxOf) => {
    const program = await findCallable(ctxOf, call)
    if (program instanceof Response) return program
    return (await assetOf(call, program)) ?? admitCall({ ctxOf, call, program })
  })

/** Returns the refusal or the static asset for a call that needs no program; undefined if the program must run. */
export const answerWithoutProgram = (call: ProgramCall): Promise<Response | undefined> =>
  refuseOnError(call, async (ctxOf) => {
    const program = await findCallable(ctxOf, call)
    return program instanceof Response ? program : assetOf(call, program)
  })

/** Returns undefined if the called program does not exist any more. */
export const findProgramIds = async (ctx: SystemCtx, call: ProgramCall): Promise<ProgramIds | undefined> =>
  (await FINDERS[call.address.kind](() => ctx, call))?.ids

async function refuseOnError<T>(
  call: ProgramCall,
  work: (ctxOf: () => SystemCtx) => Promise<T>,
): Promise<T | Response> {
  const { bindings, execution, address } = call
  let ctx: SystemCtx | undefined
  // Most calls need no context, and creating one costs more than the rest of the pipeline.
  const ctxOf = () => {
    ctx ??= createCtx({ bindings, waitUntil: (promise) => execution.waitUntil(promise) })
    return ctx
  }
  try {
    return await work(ctxOf)
  } catch (error) {
    ctxOf().log.error('failed', { code: `${address.kind}_call`, error: describeError(error) })
    return logRefusal(ctxOf(), call, refuse(address.kind, 'SERVICE_UNAVAILABLE'))
  }
}

/** Returns the program if it may be called, or the refusal. */
async function findCallable(ctxOf: () => SystemCtx, call: ProgramCall): Promise<FoundProgram | Response> {
  const { kind } = call.address
  const program = await FINDERS[kind](ctxOf, call)
  if (!program && call.scheduled) return markNotRun(logRefusal(ctxOf(), call, refuse(kind, 'NOT_FOUND')))
  if (!program) return orAllowPreflight(call, await refuseUnknownProgram(ctxOf(), call))
  const problem = await program.findProblem()
  if (!problem) return program
  const refusal = logRefusal(ctxOf(), call, refuse(kind, problem))
  return orAllowPreflight(call, rejectCall({ call, ids: program.ids }, refusal, `refused: ${problem}`))
}

/** Allows the preflight of a refused call: a page can read the refusal only if its preflight was allowed. */
const orAllowPreflight = ({ request }: ProgramCall, refusal: Response): Response =>
  isPreflight(request) ? markNotRun(allowRequest(request)) : refusal

/** Returns the static asset for a call. It counts as a request and has no row in the invocation log. */
async function assetOf(call: ProgramCall, { ids, answerWithoutRun }: FoundProgram): Promise<Response | undefined> {
  const response = await answerWithoutRun?.()
  if (!response) return undefined
  countCall({ call, ids }, Date.now())
  const { isShared, path } = call.address
  return markNotRun(isShared ? sandboxResponse(response, path) : response)
}
