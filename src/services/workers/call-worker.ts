import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { sandboxResponse } from '../functions/shared-origin.ts'
import { verifyCredential } from '../gateway/credentials.ts'
import { openProject } from '../gateway/open-project.ts'
import { type Answer, admitCall, countCall, rejectCall } from '../runtime/admit-call.ts'
import { signChainToken } from '../runtime/processes/call-chains.ts'
import { markNotRun } from '../runtime/processes/not-run-responses.ts'
import type { CallMetadata, Scheduled } from '../runtime/processes/process-protocol.ts'
import { logRefusal, refuseUnknownProgram } from '../runtime/refused-calls.ts'
import { bodyOf } from '../runtime/request-body.ts'
import { assetResponse } from './assets/serve.ts'
import { DISPATCH_HEADER, type Dispatch, FAILURE_HEADER, type FailureCode } from './instance-protocol.ts'
import { instancesOf } from './instance-stub.ts'
import { type RefusalCode, refuse } from './refusals.ts'
import type { WorkerAddress } from './worker-address.ts'
import { type FoundPlan, findPlan, type Plan } from './worker-plan.ts'

/** Time until the response must begin, or a scheduled handler must end. */
const IDLE_MS_MAX = 150_000
const TIMED_OUT = 'no response began, and no scheduled handler ended, within 150 s'

interface Call extends CallMetadata {
  request: Request
  address: WorkerAddress
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** Calls a worker and returns its response, a static asset or a refusal. */
export const callWorker = (call: Call): Promise<Response> =>
  refuseOnError(call, async (ctx) => {
    const plan = await findCallable(ctx, call)
    if (plan instanceof Response) return plan
    return (await assetOf(ctx, call, plan)) ?? run(call, ctx, plan)
  })

/** Returns the refusal or the static asset for a call that needs no program; undefined if the program must run. */
export const answerWithoutWorker = (call: Call): Promise<Response | undefined> =>
  refuseOnError(call, async (ctx) => {
    const plan = await findCallable(ctx, call)
    return plan instanceof Response ? plan : assetOf(ctx, call, plan)
  })

/** Returns the static asset for a call. It counts as a request and has no row in the invocation log. */
async function assetOf(ctx: SystemCtx, call: Call, plan: Plan): Promise<Response | undefined> {
  const { address, request } = call
  if (!plan.assets || call.scheduled) return undefined
  const assets = { ref: plan.ref, image: plan.image, ...plan.assets }
  // Without the final slash, relative links of a page would point outside of the worker, so redirect.
  const lacksSlash = address.path === address.prefix
  const { method, headers } = request
  const assetRequest = { method: lacksSlash ? 'HEAD' : method, headers, url: address.url }
  const answer = await assetResponse(ctx, assets, assetRequest)
  if (!answer) return undefined
  countCall({ call, program: programOf(plan) }, Date.now())
  const location = `${address.name}/${new URL(address.url).search}`
  const response = lacksSlash && answer.ok ? new Response(null, { status: 307, headers: { location } }) : answer
  return markNotRun(address.isShared ? sandboxResponse(response, address.path) : response)
}

async function refuseOnError<T>(call: Call, work: (ctx: SystemCtx) => Promise<T>): Promise<T | Response> {
  const { bindings, execution } = call
  const ctx = createCtx({ bindings, waitUntil: (promise) => execution.waitUntil(promise) })
  try {
    return await work(ctx)
  } catch (error) {
    ctx.log.error('failed', { code: 'worker_call', error: describeError(error) })
    return logRefusal(ctx, call, refuse('SERVICE_UNAVAILABLE'))
  }
}

/** Returns the plan of the called worker if it may be called, or the refusal. */
async function findCallable(ctx: SystemCtx, call: Call): Promise<Plan | Response> {
  const { ref, name } = call.address
  const found = await findPlan(ctx, ref, name, { isFresh: call.scheduled !== undefined })
  if (call.scheduled && !isDue(call.scheduled, found)) {
    return markNotRun(logRefusal(ctx, call, refuse('NOT_FOUND')))
  }
  if (!found) return refuseUnknownProgram(ctx, call, refuse)
  const { plan, status } = found
  if (call.scheduled) return plan
  const problem = statusProblem(status) ?? (await credentialProblem(ctx, call.request, plan))
  if (!problem) return plan
  return rejectCall({ call, program: programOf(plan) }, logRefusal(ctx, call, refuse(problem)), `refused: ${problem}`)
}

/** A scheduled call is dropped if the worker was replaced or its project paused since the call was due. */
const isDue = ({ deploymentId }: Scheduled, found: FoundPlan | undefined): boolean =>
  found?.plan.deploymentId === deploymentId && found.status === 'ACTIVE_HEALTHY'

const programOf = ({ workerId, deploymentId }: Plan) => ({ kind: 'worker', programId: workerId, deploymentId }) as const

function clientAddressOf(
  { config: { CLIENT_ADDRESS_HEADER: header } }: SystemCtx,
  { request }: Call,
): string | undefined {
  return (header && request.headers.get(header)) || undefined
}

function statusProblem(status: string): RefusalCode | undefined {
  if (status === 'INACTIVE' || status === 'PAUSING') return 'PROJECT_PAUSED'
  if (status === 'GOING_DOWN' || status === 'REMOVED') return 'NOT_FOUND'
  return undefined
}

/** A private worker is for the project's own programs: they have the service_role key. */
async function credentialProblem(ctx: SystemCtx, { headers }: Request, { ref, spec }: Plan) {
  if (spec.exposure === 'public') return undefined
  const token = (headers.get('authorization') ?? headers.get('apikey'))?.replace(/^Bearer\s+/i, '').trim()
  if (!token) return 'UNAUTHORIZED_NO_AUTH_HEADER'
  const project = await openProject(ctx, ref)
  if (!project) return 'NOT_FOUND'
  try {
    const { role } = await verifyCredential(project.trust, token, ctx.now())
    return role === 'service_role' ? undefined : 'FORBIDDEN'
  } catch (error) {
    if (error instanceof InvalidCredential) return 'UNAUTHORIZED_INVALID_JWT'
    throw error
  }
}

function run(call: Call, ctx: SystemCtx, plan: Plan) {
  return admitCall({
    ...{ call, program: programOf(plan) },
    refused: (code) => logRefusal(ctx, call, refuse(code)),
    answer({ id: invocation, cause }) {
      const chainToken = signChainToken({ programId: plan.workerId, secret: ctx.config.ENCRYPTION_KEY }, cause)
      const { scheduled } = call
      return dispatchCall(ctx, call, {
        plan,
        invocation,
        address: clientAddressOf(ctx, call) ?? '',
        chainToken,
        scheduled,
      })
    },
  })
}

/** Conventional log status for a client that closed the connection. */
const CLIENT_CLOSED = 499

async function dispatchCall(ctx: SystemCtx, call: Call, dispatch: Dispatch): Promise<Answer> {
  const object = instancesOf(call.bindings, dispatch.plan.workerId)
  const timeout = new AbortController()
  const timer = setTimeout(() => timeout.abort(), IDLE_MS_MAX)
  try {
    const answer = await object.fetch(requestFor(call, dispatch, timeout.signal))
    const code = answer.headers.get(FAILURE_HEADER) as FailureCode | null
    return code ? { response: refuse(code), problem: (await answer.text()) || undefined } : { response: answer }
  } catch (error) {
    if (timeout.signal.aborted) return { response: refuse('IDLE_TIMEOUT'), problem: TIMED_OUT }
    if (call.request.signal.aborted) {
      return {
        response: new Response(null, { status: CLIENT_CLOSED }),
        problem: 'the caller disconnected before the response',
      }
    }
    ctx.log.error('failed', { code: 'worker_call', error: describeError(error) })
    return { response: refuse('SERVICE_UNAVAILABLE'), problem: 'the worker could not be reached' }
  } finally {
    clearTimeout(timer)
  }
}

/** The worker sees itself at the root of its host; `x-forwarded-prefix` lets it write links to itself. */
function requestFor({ request, address }: Call, dispatch: Dispatch, timeout: AbortSignal): Request {
  const headers = new Headers(request.headers)
  headers.set('x-forwarded-prefix', address.prefix)
  if (dispatch.address !== '') headers.set('x-forwarded-for', dispatch.address)
  headers.set(DISPATCH_HEADER, JSON.stringify(dispatch))
  const signal = AbortSignal.any([request.signal, timeout])
  const { method } = request
  const body = bodyOf(request)
  // The runtime would wait for a body if there were a content-length.
  if (request.body && !body) headers.delete('content-length')
  return new Request(address.url, { method, headers, body, signal, redirect: 'manual' })
}
