import { readConfig } from '../../config.ts'
import type { SystemCtx } from '../../ctx.ts'
import type { Bindings } from '../../platform/bindings.ts'
import { addressIn } from '../../platform/rate-limit/quota.ts'
import type { CallMetadata, ProgramName } from './processes/process-protocol.ts'
import type { ProgramAddress } from './program-address.ts'
import type { RefusalCode } from './refusals.ts'

/** Time until the response must begin, or a scheduled handler must end. */
export const IDLE_MS_MAX = 150_000

/** A call of a function or a worker. */
export interface ProgramCall extends CallMetadata {
  request: Request
  address: ProgramAddress
  bindings: Bindings
  execution: Pick<ExecutionContext, 'waitUntil'>
}

/** Ids of a program in the invocation log. */
export interface ProgramIds {
  kind: ProgramName['kind']
  programId: string
  deploymentId: string
}

export interface Invocation {
  /** Id of the call in the invocation log. */
  id: string
  /** Sent by the program with its own calls, see call-chains.ts. */
  chainToken: string
  /** The client's network address; empty if unknown. */
  address: string
}

export interface Answer {
  response: Response
  /** A line for the call's log, which the developer must know and the program could not print. */
  problem?: string | undefined
}

/** A deployed program as one call found it. */
export interface FoundProgram {
  ids: ProgramIds
  /** Returns why the call is refused, or undefined if it is allowed. */
  findProblem(): Promise<RefusalCode | undefined>
  /** Returns a response for which the program need not run, such as a static asset. */
  answerWithoutRun?(): Promise<Response | undefined>
  /** Runs the program for the call. */
  run(invocation: Invocation): Promise<Answer>
}

/** Finds the called program; functions and workers have one finder each. Returns undefined if no program is deployed at the address. */
export type FindProgram = (ctxOf: () => SystemCtx, call: ProgramCall) => Promise<FoundProgram | undefined>

export function clientAddressOf({ request, bindings }: Pick<ProgramCall, 'request' | 'bindings'>): string {
  return addressIn({ config: readConfig(bindings) }, request.headers) ?? ''
}
