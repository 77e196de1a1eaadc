import { forwardCall } from './processes/forward-call.ts'
import type { ProgramCall } from './program-call.ts'
import { serveCall } from './serve-call.ts'

/** Calls a function or a worker, in a process of its project if programs run in processes of their own. */
export const callProgram = (call: ProgramCall): Promise<Response> =>
  call.bindings.PROGRAMS ? forwardCall(call) : serveCall(call)
