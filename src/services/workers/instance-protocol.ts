import type { Scheduled } from '../runtime/processes/process-protocol.ts'
import type { Plan } from './worker-plan.ts'

/** What the object of a worker's instances is told with each request. */
export interface Dispatch {
  plan: Plan
  /** Of the log. */
  invocation: string
  /** The caller's network address, where it is known. */
  address: string
  /** Which the worker sends with what it calls. */
  chainToken: string
  scheduled?: Scheduled | undefined
}

/** Between the Worker and the object; what callers and programs send under these names goes no further. */
export const DISPATCH_HEADER = 'x-pilothouse-dispatch'
/** Why no instance has answered; the body says more to the developer. */
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
