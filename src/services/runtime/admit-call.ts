import { readConfig } from '../../config.ts'
import type { SystemCtx } from '../../ctx.ts'
import { newTimedId } from '../../platform/db/id.ts'
import { countRequest } from '../gateway/request-counts.ts'
import { sandboxResponse } from '../gateway/shared-origin.ts'
import { recordEnd, recordLostResponse, recordStart } from './call-recorder.ts'
import { admitToChain, signChainToken } from './processes/call-chains.ts'
import { claimCallId } from './processes/duplicate-calls.ts'
import { markNotRun } from './processes/not-run-responses.ts'
import { clientAddressOf, type FoundProgram, type ProgramCall, type ProgramIds } from './program-call.ts'
import { type RefusalCode, refuse } from './refusals.ts'
import { claimRefusalRow, logRefusal, refusalText } from './refused-calls.ts'
import { acquirePermit, PROBLEMS } from './waiting-calls.ts'

interface Called {
  call: ProgramCall
  ids: ProgramIds
}

interface Admission {
  ctxOf(): SystemCtx
  call: ProgramCall
  program: FoundProgram
}

/** Runs the program for a call, unless the program has too many waiting calls or the call chain is too long. */
export async function admitCall({ ctxOf, call, program: { ids, run } }: Admission): Promise<Response> {
  const { address, execution, bindings } = call
  const { programId } = ids
  const refused = (code: RefusalCode) => logRefusal(ctxOf(), call, refuse(address.kind, code))
  const startedAt = Date.now()
  const { id = newTimedId(new Date(startedAt)) } = call
  const isDuplicate = call.id !== undefined && !claimCallId(id)
  if (isDuplicate || call.isLost) return answerNotRepeated({ call, ids }, id, refused('WORKER_ERROR'))
  countCall({ call, ids }, startedAt)
  const cause = call.cause ?? { chain: id, hops: 0 }
  const permit = admitToChain(programId, cause) ? acquirePermit(programId, startedAt) : 'LOOP_DETECTED'
  if (typeof permit === 'string') return withLogRow({ call, ids }, refused(permit), PROBLEMS[permit])
  recordStart({ id, ...ids, ...factsOf(call), at: startedAt })
  const chainToken = signChainToken({ programId, secret: readConfig(bindings).ENCRYPTION_KEY }, cause)
  const responding = run({ id, chainToken, address: clientAddressOf(call) })
    .finally(permit.release)
    .then(({ response, problem }) => {
      recordEnd(call, id, { status: response.status, ms: Date.now() - startedAt, problem })
      return response
    })
  // Even if the caller disconnects, the call must end and release its permit.
  execution.waitUntil(responding)
  const response = await responding
  return address.isShared ? sandboxResponse(response, address.path) : response
}

const factsOf = (call: ProgramCall) => ({ projectRef: call.address.ref, ...methodAndPathOf(call) })

/** Method and path of a call in the invocation log. */
export const methodAndPathOf = ({ request, address, scheduled }: ProgramCall) =>
  scheduled ? { method: 'CRON', path: scheduled.cron } : { method: request.method, path: address.servicePath }

const LOST = 'the connection closed before the response could be passed on'

/** Answers a repeated call, whose caller got no response: the program must not run twice for one call. */
function answerNotRepeated({ call, ids }: Called, id: string, response: Response): Response {
  const { status } = response
  recordLostResponse(call, { id, ref: call.address.ref, programId: ids.programId }, { status, problem: LOST })
  return response
}

/** Counts a call in the project's usage. */
export const countCall = ({ call, ids }: Called, at: number): void =>
  countRequest(call, call.address.ref, `${ids.kind}s`, at)

/** Counts and logs a refused call of an existing program. */
export function rejectCall(called: Called, response: Response, reason: string): Response {
  countCall(called, Date.now())
  return withLogRow(called, response, reason)
}

/** Logs a refused call as an invocation, within the limit of rows per minute. */
function withLogRow({ call, ids }: Called, response: Response, reason: string): Response {
  const at = Date.now()
  const skipped = claimRefusalRow(ids.programId, at)
  if (skipped !== undefined) {
    const id = newTimedId(new Date(at))
    recordStart({ id, ...ids, ...factsOf(call), at }, 0)
    recordEnd(call, id, { status: response.status, ms: 0, problem: refusalText(reason, skipped) })
  }
  return markNotRun(response)
}
