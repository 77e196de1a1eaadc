import { newTimedId } from '../../../platform/db/id.ts'
import { createLogger } from '../../../platform/http/log.ts'
import { observeEnd } from '../observe-end.ts'
import type { ProgramCall } from '../program-call.ts'
import { type RefusalCode, refuse } from '../refusals.ts'
import { answerWithoutProgram } from '../serve-call.ts'
import { isHeldBack } from './back-off.ts'
import { recordUnansweredCall } from './failed-calls.ts'
import { markNotRun } from './not-run-responses.ts'
import { type CallMetadata, keyOf, NOT_RUN_HEADER, WRONG_PROCESS } from './process-protocol.ts'
import { processFetcher, readCallContext, withCallContext } from './process-requests.ts'
import { acquireProcess, beginCall, findEndReason, knownProcess, type Process } from './process-table.ts'
import { findRecentChange } from './program-changes.ts'

type Call = ProgramCall & Required<Pick<CallMetadata, 'cause' | 'id'>>

/** Forwards a call to the process that runs the program. */
export function forwardCall(called: ProgramCall): Promise<Response> {
  const { id = newTimedId(new Date()), cause = { chain: id, hops: 0 } } =
    readCallContext(called.request, called.bindings) ?? {}
  const call = { ...called, id, cause }
  const responding = isHeldBack(keyOf(call.address)) ? answerHeldBack(call) : forward(call)
  // Even if the caller disconnects, the outcome of the call must be recorded.
  call.execution.waitUntil(responding)
  return responding
}

/** A held-back worker still serves its static assets, which need no program. */
async function answerHeldBack(call: Call): Promise<Response> {
  const answered = call.address.kind === 'worker' ? await answerWithoutProgram(call) : undefined
  return answered ?? refuseAndRecord(call, { code: 'WORKER_RESOURCE_LIMIT', at: Date.now(), why: 'held back' })
}

async function forward(call: Call): Promise<Response> {
  const program = call.address
  // A refusal or a static asset must not start a process.
  const answered = knownProcess(program) ? undefined : await answerWithoutProgram(call)
  if (answered) return answered
  const process = await acquireProcess(call.bindings, program).catch((error) => {
    createLogger(call.id).error('programs_unreachable', { error: String(error) })
    return undefined
  })
  if (!process) return markNotRun(refuseCall(call, 'SERVICE_UNAVAILABLE'))
  const at = Date.now()
  try {
    return await sendCounted(call, process)
  } catch (error) {
    const endReason = await findEndReason(call.bindings, process)
    if (endReason === undefined) return retry(call, process, error)
    if (endReason === 'unused' && error instanceof ProcessReplaced && !call.request.body) return forward(call)
    createLogger(call.id).error('program_call_lost', { process: process.id, ending: endReason, error: String(error) })
    const isAtFault = isHeldBack(keyOf(program))
    return refuseAndRecord(call, { code: isAtFault ? 'WORKER_RESOURCE_LIMIT' : 'PROGRAMS_ENDED', at, why: endReason })
  }
}

/**
 * Retries a call once, because a reused connection may have been closed. The process refuses to run a program twice for one
 * call.
 */
async function retry(call: Call, process: Process, error: unknown): Promise<Response> {
  const isLost = call.request.body !== null
  if (isLost) createLogger(call.id).error('call_not_passed_on', { error: String(error) })
  try {
    const again = isLost ? { ...call, request: withoutBody(call.request) } : call
    return await sendCounted(again, process, isLost)
  } catch {}
  if (!isLost) createLogger(call.id).error('call_not_passed_on', { error: String(error) })
  return refuseCall(call, 'WORKER_ERROR')
}

function withoutBody({ url, method, headers: original }: Request): Request {
  const headers = new Headers(original)
  headers.delete('content-length')
  return new Request(url, { method, headers })
}

/** Another process took the place of the one that the call was for, so the call was not begun. */
class ProcessReplaced extends Error {
  override name = 'ProcessReplaced'
}

/** Sends a call, which counts as running until its response has been sent completely. */
async function sendCounted(call: Call, process: Process, isLost?: boolean): Promise<Response> {
  const end = beginCall(process, keyOf(call.address))
  try {
    const { response, ran } = await send(call, process, isLost)
    if (ran && canObserveEnd(response)) {
      const { copy, ended } = observeEnd(response)
      call.execution.waitUntil(ended.then(() => end()))
      return copy
    }
    end(ran ? (response.webSocket ? 'socket' : 'answered') : 'not run')
    return response
  } catch (error) {
    end()
    throw error
  }
}

interface Sent {
  response: Response
  /** Whether a program ran for the call. */
  ran: boolean
}

async function send(call: Call, process: Process, isLost?: boolean): Promise<Sent> {
  const { request, bindings, cause, id, scheduled, address } = call
  const { kind, ref, name } = address
  const at = findRecentChange(address)
  const changed = at === undefined ? {} : { changed: { program: { kind, ref, name }, at } }
  const context = withCallContext(bindings, { process: process.id, cause, id, isLost, scheduled, ...changed })
  const response = await processFetcher(bindings, process).fetch(request, context)
  if (!response.headers.has(NOT_RUN_HEADER)) return { response, ran: true }
  if (response.status === WRONG_PROCESS) throw new ProcessReplaced()
  const copy = new Response(response.body, response)
  copy.headers.delete(NOT_RUN_HEADER)
  return { response: copy, ran: false }
}

interface UnansweredCall {
  code: RefusalCode
  /** Arrival of the call, in epoch milliseconds. */
  at: number
  why: Parameters<typeof recordUnansweredCall>[1]['why']
}

function refuseAndRecord(call: Call, { code, ...outcome }: UnansweredCall): Response {
  const response = refuseCall(call, code)
  call.execution.waitUntil(recordUnansweredCall(call, { ...outcome, status: response.status }))
  return response
}

function refuseCall({ id, request: { method }, address: { kind, path } }: Call, code: RefusalCode): Response {
  const response = refuse(kind, code)
  createLogger(id).info('request', { method, path, status: response.status, error: code })
  return response
}

/** An encoded answer with a length is passed on as it is: its copy would be decoded and encoded anew. */
const canObserveEnd = ({ webSocket, headers }: Response): boolean =>
  !webSocket && !(headers.has('content-encoding') && headers.has('content-length'))
