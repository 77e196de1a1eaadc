import type { Scheduled } from '../runtime/processes/process-protocol.ts'
import type { Invocation } from '../runtime/program-call.ts'
import type { RefusalCode } from '../runtime/refusals.ts'
import type { Plan } from './worker-plan.ts'

/** Sent to the Durable Object of a worker with each request. */
export interface Dispatch extends Invocation {
  plan: Plan
  scheduled?: Scheduled | undefined
}

/** Internal to the Worker and the Durable Object; headers of this name from callers and programs are dropped. */
export const DISPATCH_HEADER = 'x-pilothouse-dispatch'
/** The code of the reason why no instance answered; the body has details for the developer. */
export const FAILURE_HEADER = 'x-pilothouse-failure'

export const failureResponse = (code: RefusalCode, problem = ''): Response =>
  new Response(problem, { status: 500, headers: { [FAILURE_HEADER]: code } })
