import { newTimedId } from '../../platform/db/id.ts'
import { sandboxResponse } from '../functions/shared-origin.ts'
import { countRequest } from '../gateway/request-counts.ts'
import { recordEnd, recordLostResponse, recordStart } from './call-recorder.ts'
import { admitToChain, type Cause } from './processes/call-chains.ts'
import { claimCallId } from './processes/duplicate-calls.ts'
import { markNotRun } from './processes/not-run-responses.ts'
import type { CallMetadata } from './processes/process-protocol.ts'
import { claimLogRow, withUnlistedCount } from './refused-calls.ts'
import { acquirePermit, PROBLEMS } from './waiting-calls.ts'

export interface Answer {
  response: Response
  /** Added to the call's log: what the developer must know and the program could not print. */
  problem?: string | undefined
}

export interface Invocation {
  id: string
  cause: Cause
}

interface Called {
  call: CallMetadata & {
    request: Request
    address: { ref: string; path: string; isShared: boolean }
    bindings: Parameters<typeof recordEnd>[0]['bindings']
    execution: Pick<ExecutionContext, 'waitUntil'>
  }
  program: { kind: 'function' | 'worker'; programId: string; deploymentId: string }
}

interface Admission extends Called {
  refused(code: keyof typeof PROBLEMS | 'WORKER_ERROR'): Response
  answer(invocation: Invocation): Promise<Answer>
}

/** Runs the program for a call, unless the program has too many waiting calls or the call chain is too long. */
export async function admitCall({ call, program, refused, answer }: Admission): Promise<Response> {
  const { address, execution } = call
  const startedAt = Date.now()
  const { id = newTimedId(new Date(startedAt)) } = call
  const isDuplicate = call.id !== undefined && !claimCallId(id)
  if (isDuplicate || call.isLost) return answerNotRepeated({ call, program }, id, refused('WORKER_ERROR'))
  countCall({ call, program }, startedAt)
  const cause = call.cause ?? { chain: id, hops: 0 }
  const permit = admitToChain(program.programId, cause) ? acquirePermit(program.programId, startedAt) : 'LOOP_DETECTED'
  if (typeof permit === 'string') return withLogRow({ call, program }, refused(permit), PROBLEMS[permit])
  recordStart({ id, ...program, ...factsOf(call), at: startedAt })
  const responding = answer({ id, cause })
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

const factsOf = (call: Called['call']) => ({ projectRef: call.address.ref, ...loggedAs(call) })

interface Logged {
  request: Pick<Request, 'method'>
  address: { path: string }
  scheduled?: CallMetadata['scheduled']
}

/** Method and path of a call in the invocation log. */
export const loggedAs = ({ request, address, scheduled }: Logged) =>
  scheduled ? { method: 'CRON', path: scheduled.cron } : { method: request.method, path: address.path }

const LOST = 'the connection closed before the response could be passed on'

/** Refuses to run a program twice for one call, although its caller got no response. */
function answerNotRepeated({ call, program }: Called, id: string, response: Response): Response {
  const { status } = response
  recordLostResponse(call, { id, ref: call.address.ref, programId: program.programId }, { status, problem: LOST })
  return response
}

/** Counts a call in the project's usage. */
export const countCall = ({ call, program }: Called, at: number): void =>
  countRequest(call, call.address.ref, program.kind === 'function' ? 'functions' : 'workers', at)

/** Counts and logs a refused call of an existing program. */
export function rejectCall(called: Called, response: Response, reason: string): Response {
  countCall(called, Date.now())
  return withLogRow(called, response, reason)
}

/** Logs a refused call as an invocation, within the limit of rows per minute. */
function withLogRow({ call, program }: Called, response: Response, reason: string): Response {
  const row = claimLogRow(program.programId)
  if (row) {
    const at = Date.now()
    const id = newTimedId(new Date(at))
    recordStart({ id, ...program, ...factsOf(call), at })
    recordEnd(call, id, { status: response.status, ms: 0, problem: withUnlistedCount(reason, row) })
  }
  return markNotRun(response)
}
