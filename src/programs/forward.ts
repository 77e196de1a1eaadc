import { newTimedId } from '../db/id.ts'
import type { Bindings } from '../env.ts'
import { createLogger } from '../http/log.ts'
import type { FunctionAddress } from '../runtime/address.ts'
import { refuse as refuseFunction } from '../runtime/refusals.ts'
import type { WorkerAddress } from '../workers/address.ts'
import { refuse as refuseWorker } from '../workers/refusals.ts'
import { telling, toldWith } from './ask.ts'
import { changeOf } from './changes.ts'
import { holderOf, type Leave, takeLane } from './lane.ts'
import { hasEnded, isAlive, isKnownDown } from './process.ts'
import { type Known, keyOf, NOT_RUN_HEADER, type ProgramName } from './protocol.ts'
import { recordUnserved } from './record.ts'
import { blame, clear, isAlone, isBarred, isSuspectAgain, isWatched, noteCall } from './suspects.ts'

interface Forwarded {
  request: Request
  bindings: Bindings
  execution: ExecutionContext
}
type FunctionCall = Forwarded & { kind: 'function'; address: FunctionAddress }
type WorkerCall = Forwarded & { kind: 'worker'; address: WorkerAddress }
type Called = FunctionCall | WorkerCall
type Call = Called & Required<Pick<Known, 'cause' | 'id'>>

/** One call of a program, in the process that runs them. */
export function forwardCall(called: Called, programs: Fetcher): Promise<Response> | Response {
  const { id = newTimedId(new Date()), cause = { chain: id, hops: 0 } } =
    toldWith(called.request, called.bindings) ?? {}
  const call = { ...called, id, cause }
  const key = keyOf(nameOf(call))
  if (isBarred(key)) return unserved(call, { code: 'WORKER_RESOURCE_LIMIT', at: Date.now(), why: 'barred' })
  // Who is alone waits for what it calls, and that must not wait for it.
  const isLed = holderOf(call.cause.chain) !== undefined
  const answering = isWatched(key) && !isLed ? forwardAlone(call, programs, key) : forward(call, programs, key)
  // Whether its caller still waits or not, it is noted how it ends.
  call.execution.waitUntil(answering)
  return answering
}

const nameOf = ({ kind, address }: Called): ProgramName => ({
  kind,
  ref: address.ref,
  name: 'slug' in address ? address.slug : address.name,
})

async function forward(call: Call, programs: Fetcher, key: string): Promise<Response> {
  if (await isKnownDown(call.bindings)) return refused(call, 'PROGRAMS_ENDED')
  const at = Date.now()
  const end = noteCall(key)
  const alone = isWatched(key) ? holderOf(call.cause.chain) : undefined
  try {
    const { response, ran } = await send(call, programs)
    if (ran && isStream(response)) {
      const { shown, ended } = observed(response)
      call.execution.waitUntil(ended.then(() => end()))
      return shown
    }
    end(ran ? (response.webSocket ? 'socket' : 'answered') : 'not run')
    return response
  } catch (error) {
    end()
    if (await hasEnded(call.bindings, at)) {
      // It may have been this suspect and not the one that called it.
      if (alone !== undefined && alone !== key) blame(key, false)
      return lost(call, { error, code: 'PROGRAMS_ENDED', at })
    }
    return await sendAgain(call, programs, error)
  }
}

/** Nobody is to blame for a connection that was closed as it was used again. Where the program has run for the call, it does not run again. */
async function sendAgain(call: Call, programs: Fetcher, error: unknown): Promise<Response> {
  const isLost = call.request.body !== null
  if (isLost) createLogger('').error('call_not_passed_on', { error: String(error) })
  try {
    const again = isLost ? { ...call, request: withoutBody(call.request) } : call
    return (await send(again, programs, isLost)).response
  } catch {}
  if (!isLost) createLogger('').error('call_not_passed_on', { error: String(error) })
  return refused(call, 'WORKER_ERROR')
}

function withoutBody({ url, method, headers: given }: Request): Request {
  const headers = new Headers(given)
  headers.delete('content-length')
  return new Request(url, { method, headers })
}

/** Any other call of a suspect waits until this one is known to have done no harm. */
async function forwardAlone(call: Call, programs: Fetcher, key: string): Promise<Response> {
  const leave = await takeLane({ program: key, chain: call.cause.chain })
  if (!leave) return refused(call, 'SERVICE_UNAVAILABLE')
  if (isBarred(key) || !isWatched(key) || call.request.signal.aborted) {
    leave()
    if (call.request.signal.aborted) return refused(call, 'SERVICE_UNAVAILABLE')
    return isBarred(key)
      ? unserved(call, { code: 'WORKER_RESOURCE_LIMIT', at: Date.now(), why: 'barred' })
      : forward(call, programs, key)
  }
  const at = Date.now()
  const suspect = { key, at, leave, end: noteCall(key) }
  // Were it to loop, the process would have been ended by then.
  const timer = setTimeout(leave, ALONE_MS_MAX)
  const judging = Promise.withResolvers<void>()
  call.execution.waitUntil(
    judging.promise.finally(() => {
      clearTimeout(timer)
      suspect.end()
      leave()
    }),
  )
  try {
    if (!(await isAlive(call.bindings))) return refused(call, 'PROGRAMS_ENDED')
    const { shown, ended } = observed((await send(call, programs)).response)
    judging.resolve(ended.then(() => judge(call, suspect)))
    return shown
  } catch (error) {
    if (!(await hasEnded(call.bindings, at))) return await sendAgain(call, programs, error)
    const isOut = blame(key, leave() && isAlone(key, at))
    return lost(call, { error, code: isOut ? 'WORKER_RESOURCE_LIMIT' : 'PROGRAMS_ENDED', at })
  } finally {
    judging.resolve()
  }
}

interface Suspect {
  key: string
  /** When it was called. */
  at: number
  leave: Leave
}

/** What it does after its answer counts too. */
async function judge({ bindings }: Call, { key, at, leave }: Suspect): Promise<void> {
  if (isSuspectAgain(key)) await scheduler.wait(LOOKED_AT_MS)
  if (await hasEnded(bindings, at)) blame(key, leave() && isAlone(key, at))
  else clear(key)
}

const ALONE_MS_MAX = 8_000
const LOOKED_AT_MS = 1_000

interface Sent {
  response: Response
  /** Whether a program ran for it. */
  ran: boolean
}

async function send(call: Call, programs: Fetcher, isLost?: boolean): Promise<Sent> {
  const { request, bindings, cause, id } = call
  const program = nameOf(call)
  const at = changeOf(program)
  const told = telling(bindings, { cause, id, isLost, ...(at !== undefined && { changed: { program, at } }) })
  const response = await programs.fetch(request, told)
  if (!response.headers.has(NOT_RUN_HEADER)) return { response, ran: true }
  const shown = new Response(response.body, response)
  shown.headers.delete(NOT_RUN_HEADER)
  return { response: shown, ran: false }
}

type Refusal = 'WORKER_ERROR' | 'WORKER_RESOURCE_LIMIT' | 'PROGRAMS_ENDED' | 'SERVICE_UNAVAILABLE'

interface Unserved {
  code: Refusal
  /** When the call came, in epoch milliseconds. */
  at: number
  why: 'ended' | 'barred'
}

function lost(call: Call, { error, ...how }: Omit<Unserved, 'why'> & { error: unknown }): Response {
  createLogger('').error('programs_unreachable', { error: String(error) })
  return unserved(call, { ...how, why: 'ended' })
}

function unserved(call: Call, { code, at, why }: Unserved): Response {
  const response = refused(call, code)
  const { method } = call.request
  const { path } = call.address
  const { status } = response
  call.execution.waitUntil(recordUnserved(call, { program: nameOf(call), method, path, at, status, why }))
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
  if (response.webSocket || !response.body) return { shown: response, ended: Promise.resolve() }
  const size = response.headers.has('content-encoding') ? null : response.headers.get('content-length')
  const { readable, writable } = size === null ? new IdentityTransformStream() : new FixedLengthStream(Number(size))
  const ended = response.body.pipeTo(writable).catch(() => {})
  return { shown: new Response(readable, response), ended }
}
