import { newTimedId } from '../../platform/db/id.ts'
import { sandboxResponse } from '../functions/shared-origin.ts'
import { countRequest } from '../gateway/request-counts.ts'
import { begin, breakOff, end } from './call-recorder.ts'
import { admitToChain, type Cause } from './processes/call-chains.ts'
import { claimCallId } from './processes/duplicate-calls.ts'
import type { CallMetadata } from './processes/process-protocol.ts'
import { markNotRun } from './processes/reply-origin.ts'
import { claimLogRow, withUnlistedCount } from './refused-calls.ts'
import { acquirePermit, PROBLEMS } from './waiting-calls.ts'

export interface Answer {
  response: Response
  /** What its developer must know and could not have printed. */
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
    bindings: Parameters<typeof end>[0]['bindings']
    execution: Pick<ExecutionContext, 'waitUntil'>
  }
  program: { kind: 'function' | 'worker'; programId: string; deploymentId: string }
}

interface Admission extends Called {
  refused(code: keyof typeof PROBLEMS | 'WORKER_ERROR'): Response
  answer(invocation: Invocation): Promise<Answer>
}

/** Has a program answer where there is a place for the call and its chain may go on. */
export async function admitCall({ call, program, refused, answer }: Admission): Promise<Response> {
  const { address, execution } = call
  const startedAt = Date.now()
  const { id = newTimedId(new Date(startedAt)) } = call
  const isRepeated = call.id !== undefined && !claimCallId(id)
  if (isRepeated || call.isLost) return unanswered({ call, program }, id, refused('WORKER_ERROR'))
  count({ call, program }, startedAt)
  const cause = call.cause ?? { chain: id, hops: 0 }
  const place = admitToChain(program.programId, cause) ? acquirePermit(program.programId, startedAt) : 'LOOP_DETECTED'
  if (typeof place === 'string') return withRow({ call, program }, refused(place), PROBLEMS[place])
  begin({ id, ...program, ...factsOf(call), at: startedAt })
  const answering = answer({ id, cause })
    .finally(place.leave)
    .then(({ response, problem }) => {
      end(call, id, { status: response.status, ms: Date.now() - startedAt, problem })
      return response
    })
  // Whether its caller still waits or not, it comes to its end and leaves its place.
  execution.waitUntil(answering)
  const response = await answering
  return address.isShared ? sandboxResponse(response, address.path) : response
}

const factsOf = (call: Called['call']) => ({ projectRef: call.address.ref, ...loggedAs(call) })

interface Logged {
  request: Pick<Request, 'method'>
  address: { path: string }
  scheduled?: CallMetadata['scheduled']
}

/** What stands for the method and the path in the log of calls. */
export const loggedAs = ({ request, address, scheduled }: Logged) =>
  scheduled ? { method: 'CRON', path: scheduled.cron } : { method: request.method, path: address.path }

const LOST = 'its connection broke off before its answer could be passed on'

/** It is not run again, though its caller has got no answer. */
function unanswered({ call, program }: Called, id: string, response: Response): Response {
  const { status } = response
  breakOff(call, { id, ref: call.address.ref, programId: program.programId }, { status, problem: LOST })
  return response
}

/** Counts a call of the project's programs. */
export const count = ({ call, program }: Called, at: number): void =>
  countRequest(call, call.address.ref, program.kind === 'function' ? 'functions' : 'workers', at)

/** For a call that the program is not run for, though it is there. */
export function rejectCall(called: Called, response: Response, reason: string): Response {
  count(called, Date.now())
  return withRow(called, response, reason)
}

/** Of so many in a minute each leaves a row. */
function withRow({ call, program }: Called, response: Response, reason: string): Response {
  const row = claimLogRow(program.programId)
  if (row) {
    const at = Date.now()
    const id = newTimedId(new Date(at))
    begin({ id, ...program, ...factsOf(call), at })
    end(call, id, { status: response.status, ms: 0, problem: withUnlistedCount(reason, row) })
  }
  return markNotRun(response)
}
