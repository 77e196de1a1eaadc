import type { SystemCtx } from '../../ctx.ts'
import { createCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { describeError } from '../../platform/http/log.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { sandboxResponse } from '../functions/shared-origin.ts'
import { verifyCredential } from '../gateway/credentials.ts'
import { openProject } from '../gateway/open-project.ts'
import { type Answer, admitCall, count, rejectCall } from '../runtime/admit-call.ts'
import { signChainToken } from '../runtime/processes/call-chains.ts'
import type { CallMetadata, Scheduled } from '../runtime/processes/process-protocol.ts'
import { markNotRun } from '../runtime/processes/reply-origin.ts'
import { logRefusal, refuseUnknownProgram } from '../runtime/refused-calls.ts'
import { bodyOf } from '../runtime/request-body.ts'
import { assetResponse } from './assets/serve.ts'
import { DISPATCH_HEADER, type Dispatch, FAILURE_HEADER, type FailureCode } from './instance-protocol.ts'
import { instancesOf } from './instance-stub.ts'
import { type RefusalCode, refuse } from './refusals.ts'
import type { WorkerAddress } from './worker-address.ts'
import { type FoundPlan, findPlan, type Plan } from './worker-plan.ts'

/** Until an answer begins, or a scheduled handler ends. */
const IDLE_MS_MAX = 150_000
const LATE = 'no answer began, and no scheduled handler ended, within 150 s'

interface Call extends CallMetadata {
  request: Request
  address: WorkerAddress
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** One call of a worker, from whoever sends it. */
export const callWorker = (call: Call): Promise<Response> =>
  guarded(call, async (ctx) => {
    const plan = await admissionOf(ctx, call)
    if (plan instanceof Response) return plan
    return (await assetOf(ctx, call, plan)) ?? run(call, ctx, plan)
  })

/** The answer to a call that the worker is not run for: a refusal, or a static asset. Undefined for any other call. */
export const answerWithoutWorker = (call: Call): Promise<Response | undefined> =>
  guarded(call, async (ctx) => {
    const plan = await admissionOf(ctx, call)
    return plan instanceof Response ? plan : assetOf(ctx, call, plan)
  })

/** Counted as a request, and left out of the log of calls. */
async function assetOf(ctx: SystemCtx, call: Call, plan: Plan): Promise<Response | undefined> {
  const { address, request } = call
  if (!plan.assets || call.scheduled) return undefined
  const assets = { ref: plan.ref, image: plan.image, ...plan.assets }
  // Without its last slash, the relative links of a page would lead out of the worker.
  const isOutside = address.path === address.prefix
  const { method, headers } = request
  const asked = { method: isOutside ? 'HEAD' : method, headers, url: address.url }
  const answered = await assetResponse(ctx, assets, asked)
  if (!answered) return undefined
  count({ call, program: programOf(plan) }, Date.now())
  const location = `${address.name}/${new URL(address.url).search}`
  const response = isOutside && answered.ok ? new Response(null, { status: 307, headers: { location } }) : answered
  return markNotRun(address.isShared ? sandboxResponse(response, address.path) : response)
}

async function guarded<T>(call: Call, work: (ctx: SystemCtx) => Promise<T>): Promise<T | Response> {
  const { bindings, execution } = call
  const ctx = createCtx({ bindings, waitUntil: (promise) => execution.waitUntil(promise) })
  try {
    return await work(ctx)
  } catch (error) {
    ctx.log.error('failed', { code: 'worker_call', error: describeError(error) })
    return logRefusal(ctx, call, refuse('SERVICE_UNAVAILABLE'))
  }
}

/** What the called worker is to run, or the refusal. */
async function admissionOf(ctx: SystemCtx, call: Call): Promise<Plan | Response> {
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

/** It may have been replaced, or its project paused, since its minute came. */
const isDue = ({ deploymentId }: Scheduled, found: FoundPlan | undefined): boolean =>
  found?.plan.deploymentId === deploymentId && found.status === 'ACTIVE_HEALTHY'

const programOf = ({ workerId, deploymentId }: Plan) => ({ kind: 'worker', programId: workerId, deploymentId }) as const

function callerOf({ config: { CLIENT_ADDRESS_HEADER: header } }: SystemCtx, { request }: Call): string | undefined {
  return (header && request.headers.get(header)) || undefined
}

function statusProblem(status: string): RefusalCode | undefined {
  if (status === 'INACTIVE' || status === 'PAUSING') return 'PROJECT_PAUSED'
  if (status === 'GOING_DOWN' || status === 'REMOVED') return 'NOT_FOUND'
  return undefined
}

/** A private worker is for the project's own programs, which hold its service key. */
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
      return answer(ctx, call, { plan, invocation, address: callerOf(ctx, call) ?? '', chainToken, scheduled })
    },
  })
}

/** As servers log it; nobody reads it. */
const LEFT = 499

async function answer(ctx: SystemCtx, call: Call, dispatch: Dispatch): Promise<Answer> {
  const object = instancesOf(call.bindings, dispatch.plan.workerId)
  const late = new AbortController()
  const timer = setTimeout(() => late.abort(), IDLE_MS_MAX)
  try {
    const answered = await object.fetch(requestFor(call, dispatch, late.signal))
    const code = answered.headers.get(FAILURE_HEADER) as FailureCode | null
    return code ? { response: refuse(code), problem: (await answered.text()) || undefined } : { response: answered }
  } catch (error) {
    if (late.signal.aborted) return { response: refuse('IDLE_TIMEOUT'), problem: LATE }
    if (call.request.signal.aborted) {
      return { response: new Response(null, { status: LEFT }), problem: 'its caller left before the answer' }
    }
    ctx.log.error('failed', { code: 'worker_call', error: describeError(error) })
    return { response: refuse('SERVICE_UNAVAILABLE'), problem: 'the worker could not be reached' }
  } finally {
    clearTimeout(timer)
  }
}

/** At the root of its host, as a server of its own would be; who writes links finds the way to it beside. */
function requestFor({ request, address }: Call, dispatch: Dispatch, late: AbortSignal): Request {
  const headers = new Headers(request.headers)
  headers.set('x-forwarded-prefix', address.prefix)
  if (dispatch.address !== '') headers.set('x-forwarded-for', dispatch.address)
  headers.set(DISPATCH_HEADER, JSON.stringify(dispatch))
  const signal = AbortSignal.any([request.signal, late])
  const { method } = request
  const body = bodyOf(request)
  // Else the runtime takes it for one with a body on the way.
  if (request.body && !body) headers.delete('content-length')
  return new Request(address.url, { method, headers, body, signal, redirect: 'manual' })
}
