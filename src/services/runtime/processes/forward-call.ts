import type { Bindings } from '../../../platform/bindings.ts'
import { newTimedId } from '../../../platform/db/id.ts'
import { createLogger } from '../../../platform/http/log.ts'
import type { FunctionAddress } from '../../functions/function-address.ts'
import { refusalOfFunction } from '../../functions/invoke-function.ts'
import { refuse as refuseFunction } from '../../functions/refusals.ts'
import { answerWithoutWorker } from '../../workers/call-worker.ts'
import { refuse as refuseWorker } from '../../workers/refusals.ts'
import type { WorkerAddress } from '../../workers/worker-address.ts'
import { loggedAs } from '../admit-call.ts'
import { isHeldBack } from './back-off.ts'
import { recordUnansweredCall } from './failed-calls.ts'
import { type CallMetadata, keyOf, NOT_RUN_HEADER, type ProgramName, WRONG_PROCESS } from './process-protocol.ts'
import { processFetcher, readCallContext, withCallContext } from './process-requests.ts'
import { acquireProcess, beginCall, findEndReason, knownProcess, type Process } from './process-table.ts'
import { findRecentChange } from './program-changes.ts'

interface Forwarded {
  request: Request
  bindings: Bindings
}
type FunctionCall = Forwarded & { kind: 'function'; address: FunctionAddress; execution: ExecutionContext }
type WorkerCall = Forwarded &
  Pick<CallMetadata, 'scheduled'> & {
    kind: 'worker'
    address: WorkerAddress
    execution: Pick<ExecutionContext, 'waitUntil'>
  }
type Called = FunctionCall | WorkerCall
type Call = Called & Required<Pick<CallMetadata, 'cause' | 'id'>>

/** One call of a program, in the process that runs it. */
export function forwardCall(called: Called): Promise<Response> {
  const { id = newTimedId(new Date()), cause = { chain: id, hops: 0 } } =
    readCallContext(called.request, called.bindings) ?? {}
  const call = { ...called, id, cause }
  const answering = isHeldBack(keyOf(nameOf(call))) ? answerHeldBack(call) : forward(call)
  // Whether its caller still waits or not, it is noted how it ends.
  call.execution.waitUntil(answering)
  return answering
}

const nameOf = ({ kind, address }: Called): ProgramName => ({
  kind,
  ref: address.ref,
  name: 'slug' in address ? address.slug : address.name,
})

/** A worker's static assets need no program. */
async function answerHeldBack(call: Call): Promise<Response> {
  const answered = call.kind === 'worker' ? await answerWithoutWorker(call) : undefined
  return answered ?? unserved(call, { code: 'WORKER_RESOURCE_LIMIT', at: Date.now(), why: 'held back' })
}

async function forward(call: Call): Promise<Response> {
  const program = nameOf(call)
  // A call that no program answers starts no process.
  const answered = knownProcess(program) ? undefined : await answerWithoutProgram(call)
  if (answered) return answered
  const process = await acquireProcess(call.bindings, program).catch((error) => {
    createLogger('').error('programs_unreachable', { error: String(error) })
    return undefined
  })
  if (!process) return refused(call, 'SERVICE_UNAVAILABLE')
  const at = Date.now()
  const end = beginCall(process, keyOf(program))
  try {
    const { response, ran } = await send(call, process)
    if (ran && isStream(response)) {
      const { shown, ended } = observed(response)
      call.execution.waitUntil(ended.then(() => end()))
      return shown
    }
    end(ran ? (response.webSocket ? 'socket' : 'answered') : 'not run')
    return response
  } catch (error) {
    end()
    const ending = await findEndReason(call.bindings, process)
    if (ending === undefined) return sendAgain(call, process, error)
    if (ending === 'unused') return call.request.body ? refused(call, 'SERVICE_UNAVAILABLE') : forward(call)
    createLogger('').error('program_call_lost', { process: process.id, ending, error: String(error) })
    const isAtFault = isHeldBack(keyOf(program))
    return unserved(call, { code: isAtFault ? 'WORKER_RESOURCE_LIMIT' : 'PROGRAMS_ENDED', at, why: ending })
  }
}

const answerWithoutProgram = (call: Call): Promise<Response | undefined> =>
  call.kind === 'function' ? refusalOfFunction(call) : answerWithoutWorker(call)

/** A connection may be closed as it is used again. Where the program has run for the call, it does not run again. */
async function sendAgain(call: Call, process: Process, error: unknown): Promise<Response> {
  const isLost = call.request.body !== null
  if (isLost) createLogger('').error('call_not_passed_on', { error: String(error) })
  try {
    const again = isLost ? { ...call, request: withoutBody(call.request) } : call
    return (await send(again, process, isLost)).response
  } catch {}
  if (!isLost) createLogger('').error('call_not_passed_on', { error: String(error) })
  return refused(call, 'WORKER_ERROR')
}

function withoutBody({ url, method, headers: given }: Request): Request {
  const headers = new Headers(given)
  headers.delete('content-length')
  return new Request(url, { method, headers })
}

interface Sent {
  response: Response
  /** Whether a program ran for it. */
  ran: boolean
}

async function send(call: Call, process: Process, isLost?: boolean): Promise<Sent> {
  const { request, bindings, cause, id } = call
  const program = nameOf(call)
  const at = findRecentChange(program)
  const changed = at === undefined ? {} : { changed: { program, at } }
  const scheduled = call.kind === 'worker' ? call.scheduled : undefined
  const context = withCallContext(bindings, { process: process.id, cause, id, isLost, scheduled, ...changed })
  const response = await processFetcher(bindings, process).fetch(request, context)
  if (!response.headers.has(NOT_RUN_HEADER)) return { response, ran: true }
  if (response.status === WRONG_PROCESS) throw new Error('the process has been replaced')
  const shown = new Response(response.body, response)
  shown.headers.delete(NOT_RUN_HEADER)
  return { response: shown, ran: false }
}

type Refusal = 'WORKER_ERROR' | 'WORKER_RESOURCE_LIMIT' | 'PROGRAMS_ENDED' | 'SERVICE_UNAVAILABLE'

interface Unserved {
  code: Refusal
  /** When the call came, in epoch milliseconds. */
  at: number
  why: Parameters<typeof recordUnansweredCall>[1]['why']
}

function unserved(call: Call, { code, at, why }: Unserved): Response {
  const response = refused(call, code)
  const { status } = response
  call.execution.waitUntil(recordUnansweredCall(call, { program: nameOf(call), ...loggedAs(call), at, status, why }))
  return response
}

function refused({ kind, request, address }: Call, code: Refusal): Response {
  const response = kind === 'function' ? refuseFunction(code) : refuseWorker(code)
  const { method } = request
  createLogger('').info('request', { method, path: address.path, status: response.status, error: code })
  return response
}

const isStream = ({ webSocket, body, headers }: Response): boolean =>
  !webSocket && body !== null && !headers.has('content-length')

function observed(response: Response): { shown: Response; ended: Promise<unknown> } {
  const { readable, writable } = new IdentityTransformStream()
  const ended = response.body?.pipeTo(writable).catch(() => {}) ?? Promise.resolve()
  return { shown: new Response(readable, response), ended }
}
