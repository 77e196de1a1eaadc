import type { SystemCtx } from '../../ctx.ts'
import type { ProjectStatus } from '../../model/tables/index.ts'
import { describeError } from '../../platform/http/log.ts'
import { tokenIn } from '../../platform/http/request-token.ts'
import { InvalidCredential } from '../../platform/jwt/credential.ts'
import { verifyCredential } from '../gateway/credentials.ts'
import { openProject } from '../gateway/open-project.ts'
import { isPaused } from '../gateway/paused.ts'
import type { Scheduled } from '../runtime/processes/process-protocol.ts'
import { type Answer, type FindProgram, IDLE_MS_MAX, type ProgramCall } from '../runtime/program-call.ts'
import { type RefusalCode, refuse } from '../runtime/refusals.ts'
import { bodyOf } from '../runtime/request-body.ts'
import { assetResponse } from './assets/serve.ts'
import { DISPATCH_HEADER, type Dispatch, FAILURE_HEADER } from './instance-protocol.ts'
import { instancesOf } from './instance-stub.ts'
import { cronsOf, type FoundPlan, findPlan, type Plan } from './worker-plan.ts'

const TIMED_OUT = 'no response began, and no scheduled handler ended, within 150 s'

/** Returns undefined if the project has no such worker, or if it is not due for a scheduled call. */
export const findWorker: FindProgram = async (ctxOf, call) => {
  const { scheduled } = call
  const found = await findPlan(ctxOf, call.address, { isFresh: scheduled !== undefined })
  if (!found || (scheduled && !isDue(scheduled, found))) return undefined
  const { plan, status } = found
  return {
    ids: { kind: 'worker', programId: plan.workerId, deploymentId: plan.deploymentId },
    findProblem: async () =>
      scheduled ? undefined : (statusProblem(status) ?? credentialProblem(ctxOf, call.request, plan)),
    answerWithoutRun: async () => (scheduled ? undefined : assetOf(ctxOf, call, plan)),
    run: (invocation) => dispatchCall(ctxOf, call, { ...invocation, plan, scheduled }),
  }
}

/**
 * A scheduled call is dropped if its project was paused since the call was due, or if the worker was deleted or lost the expression or
 * its instances. A newer version with the expression is called in place of the one for which the call was due.
 */
const isDue = ({ cron, workerId }: Scheduled, { plan, status }: FoundPlan): boolean =>
  plan.workerId === workerId && cronsOf(plan).includes(cron) && status === 'ACTIVE_HEALTHY'

async function assetOf(ctxOf: () => SystemCtx, { address, request }: ProgramCall, plan: Plan) {
  if (!plan.assets) return undefined
  const assets = { ref: plan.ref, image: plan.image, ...plan.assets }
  // Without the final slash, relative links of a page would point outside of the worker, so redirect.
  const lacksSlash = address.path === address.prefix
  const { method, headers } = request
  const answerTo = (as: string) => assetResponse(ctxOf(), assets, { method: as, headers, url: address.url })
  if (!lacksSlash || !(await answerTo('HEAD'))?.ok) return answerTo(method)
  const location = `${address.name}/${new URL(address.url).search}`
  return new Response(null, { status: 307, headers: { location } })
}

function statusProblem(status: ProjectStatus): RefusalCode | undefined {
  if (isPaused(status)) return 'PROJECT_PAUSED'
  if (status === 'GOING_DOWN' || status === 'REMOVED') return 'NOT_FOUND'
  return undefined
}

/** A private worker is for the project's own programs: they have the service_role key. */
async function credentialProblem(
  ctxOf: () => SystemCtx,
  { headers }: Request,
  { ref, spec }: Plan,
): Promise<RefusalCode | undefined> {
  if (spec.exposure === 'public') return undefined
  const token = tokenIn(headers)
  if (!token) return 'UNAUTHORIZED_NO_AUTH_HEADER'
  const project = await openProject(ctxOf(), ref)
  if (!project) return 'NOT_FOUND'
  try {
    const { role } = await verifyCredential(project.trust, token, ctxOf().now())
    return role === 'service_role' ? undefined : 'FORBIDDEN'
  } catch (error) {
    if (error instanceof InvalidCredential) return 'UNAUTHORIZED_INVALID_JWT'
    throw error
  }
}

/** Conventional log status for a client that closed the connection. */
const CLIENT_CLOSED = 499

async function dispatchCall(ctxOf: () => SystemCtx, call: ProgramCall, dispatch: Dispatch): Promise<Answer> {
  const object = instancesOf(call.bindings, dispatch.plan.workerId)
  const timeout = new AbortController()
  const timer = setTimeout(() => timeout.abort(), IDLE_MS_MAX)
  try {
    const answer = await object.fetch(requestFor(call, dispatch, timeout.signal))
    const code = answer.headers.get(FAILURE_HEADER) as RefusalCode | null
    return code
      ? { response: refuse('worker', code), problem: (await answer.text()) || undefined }
      : { response: answer }
  } catch (error) {
    if (timeout.signal.aborted) return { response: refuse('worker', 'IDLE_TIMEOUT'), problem: TIMED_OUT }
    if (call.request.signal.aborted) {
      return {
        response: new Response(null, { status: CLIENT_CLOSED }),
        problem: 'the caller disconnected before the response',
      }
    }
    ctxOf().log.error('failed', { code: 'worker_call', error: describeError(error) })
    return { response: refuse('worker', 'SERVICE_UNAVAILABLE'), problem: 'the worker could not be reached' }
  } finally {
    clearTimeout(timer)
  }
}

/** The worker sees itself at the root of its host; `x-forwarded-prefix` lets it write links to itself. */
function requestFor({ request, address }: ProgramCall, dispatch: Dispatch, timeout: AbortSignal): Request {
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
