import type { Scheduled } from '../runtime/processes/process-protocol.ts'
import type { Plan } from './worker-plan.ts'

/** Sent to the Durable Object of a worker with each request. */
export interface Dispatch {
  plan: Plan
  /** Id of the call in the invocation log. */
  invocation: string
  /** The client's network address; empty if unknown. */
  address: string
  /** Sent by the worker with its own calls, see call-chains.ts. */
  chainToken: string
  scheduled?: Scheduled | undefined
}

/** Internal to the Worker and the Durable Object; headers of this name from callers and programs are dropped. */
export const DISPATCH_HEADER = 'x-pilothouse-dispatch'
/** The code of the reason why no instance answered; the body has details for the developer. */
export const FAILURE_HEADER = 'x-pilothouse-failure'

export type FailureCode =
  | 'NO_INSTANCE'
  | 'BOOT_ERROR'
  | 'SERVICE_UNAVAILABLE'
  | 'WORKER_RESOURCE_LIMIT'
  | 'WORKER_ERROR'
  | 'IDLE_TIMEOUT'

export const failureResponse = (code: FailureCode, problem = ''): Response =>
  new Response(problem, { status: 500, headers: { [FAILURE_HEADER]: code } })
